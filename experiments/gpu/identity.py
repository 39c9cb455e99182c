"""Token identity: every method against AR on the shipped models, in float32 on the device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.gpu.generations import first_difference
from experiments.gpu.methods import METHODS, make_drafter
from recap.core.decode import decode
from recap.core.interfaces import Limits
from recap.targets.load import load

if TYPE_CHECKING:
    from experiments.gpu.device import Device, Results
    from experiments.gpu.sizes import Sizes
    from recap.core.interfaces import Drafter
    from recap.targets.hf import HFTarget
    from recap.targets.request import Request

CHECKPOINTS = Path(__file__).resolve().parents[1] / "tiny" / "checkpoints"

# The shipped models, with the picture sizes of conf/model.
TINY: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny_qwen25vl": ("qwen25vl", {"min_pixels": 112 * 112, "max_pixels": 1280 * 28 * 28}),
    "tiny_llava": ("llava", {}),
}
QUESTIONS = (
    "Describe the picture in detail.",
    "Which colour is the tallest bar? Explain how you can tell.",
    "List all bars from left to right, with their colours and heights.",
)
COLOURS = ((220, 30, 30), (20, 160, 60), (40, 70, 230), (245, 205, 30))


def identity(name: str, device: Device, sizes: Sizes) -> Results:
    """Every method against AR on one shipped model: must give the same tokens."""
    family, pixels = TINY[name]
    folder = str(CHECKPOINTS / name)
    target = load(family, path=folder, dtype="float32", device=str(device.place), **pixels).target
    requests = [_question(target, number) for number in range(sizes.pictures)]
    expected: list[list[int]] = []
    methods = {}
    for method in METHODS:
        drafter = make_drafter(method, target.vocab_size)
        outputs, accepted = _answers(target, drafter, requests, sizes.tokens)
        expected = expected or outputs  # AR comes first
        differences = [first_difference(*pair) for pair in zip(expected, outputs, strict=True)]
        methods[method] = {
            "equal": differences.count(None),
            "of": len(requests),
            "first_differences": [index for index in differences if index is not None],
            "accepted_per_step": round(accepted, 3),
        }
    return {"tokens": [len(output) for output in expected], "methods": methods}


def _question(target: HFTarget, number: int) -> Request:
    from PIL import Image  # comes with transformers' image processors

    bars = np.full((112, 112, 3), 255, np.uint8)
    for place, colour in enumerate(COLOURS):
        height = 16 * (1 + (place * (number + 2) + number) % 6)
        bars[108 - height : 108, place * 28 + 4 : place * 28 + 24] = colour
    content = [{"type": "image"}, {"type": "text", "text": QUESTIONS[number % len(QUESTIONS)]}]
    return target.encode([{"role": "user", "content": content}], [Image.fromarray(bars)])


def _answers(
    target: HFTarget, drafter: Drafter, requests: list[Request], tokens: int
) -> tuple[list[list[int]], float]:
    """Output tokens per request, and the mean number of accepted candidates per step."""
    outputs, accepted = [], []
    for request in requests:
        session = target.open(request, drafter.needs, tokens)
        session.stop_ids = frozenset()  # every output has its full length
        generation = decode(session, drafter, Limits(tokens))
        session.close()
        outputs.append(generation.output_ids)
        accepted += generation.num_accepted
    return outputs, sum(accepted) / max(1, len(accepted))
