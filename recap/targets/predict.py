"""From logits to `Predictions` on the host: the greedy choice and the top-k rows.

The greedy choice is one function in every arm: the argmax of the logits in float32, lowest id on
ties. It is kept apart from the top-k, whose order on ties torch leaves open and which is put in
order here: equal logits, lower id first. Everything a step needs comes back in one device-to-host
copy.

Shapes: r rows, V vocabulary, k kept predictions.
"""

from __future__ import annotations

import numpy as np
import torch

from recap.core.interfaces import Predictions


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """int64[r] from logits [r, V]: argmax in float32, lowest id on ties."""
    # torch documents argmax as the first of equal maxima, on CPU and CUDA alike.
    return logits.float().argmax(dim=-1)


def predictions(logits: torch.Tensor, topk: int) -> Predictions:
    """The rows of ``logits`` [r, V] on the host, with ``topk`` kept predictions each (none for 0).

    Raises ValueError when ``topk`` exceeds the vocabulary.
    """
    choice = greedy(logits)
    if topk == 0:
        return without_topk(choice.cpu().numpy().astype(np.int32))
    if topk > logits.shape[-1]:
        raise ValueError(f"topk is {topk}, the model's vocabulary has {logits.shape[-1]} tokens")
    values, ids = torch.topk(logits.float(), topk, dim=-1, sorted=False)
    # The float32 bits travel as int32, so that one copy carries all three.
    parts = (choice.int()[:, None], ids.int(), values.contiguous().view(torch.int32))
    packed = torch.cat(parts, dim=1).cpu().numpy()
    kept = np.ascontiguousarray(packed[:, 1 + topk :]).view(np.float32)
    return _ordered(packed[:, 0].copy(), packed[:, 1 : 1 + topk], kept)


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
