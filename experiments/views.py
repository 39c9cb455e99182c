"""The same text under another picture: what the target would have said.

A *view* of an encoded request differs from it in the pixels only; ids, positions and grids are the
request's own. The target reads prompt and output in one forward per view (teacher forcing), outside
everything that is timed. Only the last hidden states are kept whole: logits of all positions at
once would be [p, 152,064].

Shapes: p prompt tokens, n output tokens, d hidden width, r chosen positions, q tokens asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from experiments.prompts import turn_messages
from experiments.units import UnreadableImage
from recap.core.interfaces import Predictions
from recap.targets.hf import HEAD_CHUNK
from recap.targets.predict import greedy, joined, predictions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from experiments.benches import BenchInput
    from experiments.plan import BenchSettings
    from recap.core.interfaces import IntArray
    from recap.targets.hf import HFTarget
    from recap.targets.request import Request

PIXELS = "pixel_values"


def mean_view(request: Request) -> Request:
    """The request with all processed pixels at zero, where normalisation puts the mean colour."""
    pixels = request.inputs[PIXELS]
    return replace(request, inputs={**request.inputs, PIXELS: torch.zeros_like(pixels)})


def wrong_view(
    target: HFTarget, bench: BenchSettings, item: BenchInput, donor: BenchInput, request: Request
) -> Request:
    """The first turn's ``request`` of ``item`` with the donor's picture in the size of its own.

    Resized (bicubic) before the processor sees it, so that grid and token ids are the same. Raises
    UnreadableImage for a broken picture.
    """
    try:
        size = item.open_image().size
        picture = donor.open_image().resize(size, Image.Resampling.BICUBIC)
    except Exception as error:  # Pillow's decoders raise many kinds for a broken file
        raise UnreadableImage(f"unreadable image: {type(error).__name__}: {error}") from error
    view = target.encode(turn_messages(bench.system, item.turns, []), [picture])
    assert np.array_equal(view.prompt_ids, request.prompt_ids)
    assert view.inputs.keys() == request.inputs.keys()
    assert view.inputs[PIXELS].shape == request.inputs[PIXELS].shape
    for name in view.inputs.keys() - {PIXELS}:
        assert torch.equal(view.inputs[name], request.inputs[name]), name
    return view


@torch.inference_mode()
def read_along(target: HFTarget, request: Request, output_ids: Sequence[int]) -> torch.Tensor:
    """Last hidden states [p + n - 1, d] along the prompt and all output tokens but the last.

    The state at place p + i is the one from which output token i + 1 is predicted.

    Raises ValueError for an output that names an image placeholder: the model would look for its
    pixels.
    """
    if target.blocked_ids.intersection(output_ids):
        raise ValueError("the output names an image placeholder and cannot be read as a prompt")
    inputs = _continued(target, request, output_ids[:-1])
    on_device = {
        name: tensor.to(target.device, target.dtype if tensor.is_floating_point() else None)
        for name, tensor in inputs.items()
    }
    hidden: torch.Tensor = target.model.base_model(**on_device, use_cache=False).last_hidden_state
    return hidden[0]


def _continued(target: HFTarget, request: Request, more: Sequence[int]) -> dict[str, torch.Tensor]:
    """The request's inputs with further tokens; only Qwen's carry positions of their own."""
    inputs = dict(request.inputs)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([list(more)]).long()], dim=1)
    if "position_ids" in inputs:
        start = len(request.prompt_ids) + request.position_offset
        positions = target.family.packed_positions(torch.arange(start, start + len(more)))
        inputs["position_ids"] = torch.cat([inputs["position_ids"], positions], dim=-1)
    return inputs


@torch.inference_mode()
def log_probs(
    target: HFTarget, hidden: torch.Tensor, places: NDArray[np.int64], tokens: NDArray[np.int64]
) -> tuple[IntArray, NDArray[np.float64]]:
    """What the target says after the ``places`` int64[r]: greedy choices int32[r], and the log
    probabilities float64[r, q] of ``tokens`` int64[r, q] over the whole vocabulary.
    """
    device = hidden.device
    choices, found = [], []
    chosen = hidden.index_select(0, torch.from_numpy(places).to(device))
    asked = torch.from_numpy(tokens).to(device)
    for rows, ids in zip(_chunks(chosen), _chunks(asked), strict=True):
        logits = target.model.lm_head(rows)
        choices.append(greedy(logits).int().cpu().numpy())
        scores = torch.log_softmax(logits.float(), dim=-1).gather(1, ids)
        found.append(scores.double().cpu().numpy())
    return np.concatenate(choices), np.concatenate(found)


@torch.inference_mode()
def prediction_rows(
    target: HFTarget, hidden: torch.Tensor, places: NDArray[np.int64], topk: int
) -> Predictions:
    """The ``topk`` best predictions after the ``places`` int64[r], as the engine gives them."""
    chosen = hidden.index_select(0, torch.from_numpy(places).to(hidden.device))
    return joined([predictions(target.model.lm_head(rows), topk) for rows in _chunks(chosen)])


def _chunks(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.split(rows, HEAD_CHUNK)


def log_mass(log_probabilities: NDArray[np.float64]) -> float:
    """The log of a set of tokens' total probability.

    >>> round(float(np.exp(log_mass(np.log([0.25, 0.5])))), 6)
    0.75
    """
    return float(np.logaddexp.reduce(log_probabilities))
