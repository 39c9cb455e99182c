"""From logits to `Predictions` on the host: the greedy choice and the top-k rows.

The greedy choice is one function in every arm: the argmax of the logits in float32, lowest id on
ties. It is kept apart from the top-k, whose order on ties torch leaves open and which is put in
order here: equal logits, lower id first. Everything a step needs comes back in one device-to-host
copy.

Shapes: r rows, V vocabulary, k kept predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from recap.core.interfaces import Predictions


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """int64[r] from logits [r, V]: argmax in float32, lowest id on ties."""
    # torch documents argmax as the first of equal maxima, on CPU and CUDA alike.
    return logits.float().argmax(dim=-1)


def predictions(logits: torch.Tensor, topk: int, mass: bool = False) -> Predictions:
    """The rows of ``logits`` [r, V] on the host, with ``topk`` kept predictions each (none for 0),
    and with their ``mass`` where it is asked for.

    Raises ValueError when ``topk`` exceeds the vocabulary.
    """
    choice = greedy(logits)
    if topk == 0:
        return without_topk(choice.cpu().numpy().astype(np.int32))
    if topk > logits.shape[-1]:
        raise ValueError(f"topk is {topk}, the model's vocabulary has {logits.shape[-1]} tokens")
    values, ids = torch.topk(logits.float(), topk, dim=-1, sorted=False)
    # The float32 bits travel as int32, so that one copy carries everything.
    parts = [choice.int()[:, None], ids.int(), values.contiguous().view(torch.int32)]
    if mass:
        share = (values.logsumexp(dim=-1) - logits.float().logsumexp(dim=-1)).exp()
        parts.append(share[:, None].view(torch.int32))
    packed = torch.cat(parts, dim=1).cpu().numpy()
    floats = np.ascontiguousarray(packed[:, 1 + topk :]).view(np.float32)
    found = _ordered(packed[:, 0].copy(), packed[:, 1 : 1 + topk], floats[:, :topk])
    return replace(found, topk_mass=floats[:, topk].copy()) if mass else found


def joined(parts: Sequence[Predictions]) -> Predictions:
    """Rows of several predictions, at least one, behind one another."""
    masses = [part.topk_mass for part in parts if part.topk_mass is not None]
    return Predictions(
        np.concatenate([part.next_token for part in parts]),
        np.concatenate([part.topk_ids for part in parts]),
        np.concatenate([part.topk_probs for part in parts]),
        np.concatenate(masses) if masses else None,
    )


def without_topk(next_token: np.ndarray) -> Predictions:
    """Predictions that hold the greedy choices int32[r] only."""
    rows = len(next_token)
    return Predictions(next_token, np.empty((rows, 0), np.int32), np.empty((rows, 0), np.float32))


def _ordered(next_token: np.ndarray, ids: np.ndarray, logits: np.ndarray) -> Predictions:
    """Sort kept ids and logits [r, k] by (-logit, id); softmax over each row (Equation 2)."""
    order = np.lexsort((ids, -logits), axis=-1)
    ids = np.take_along_axis(ids, order, axis=-1)
    logits = np.take_along_axis(logits, order, axis=-1)
    weights = np.exp(logits - logits[:, :1])
    return Predictions(next_token, ids, weights / weights.sum(axis=-1, keepdims=True))
