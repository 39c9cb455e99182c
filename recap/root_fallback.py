"""What to draft from when the root has no row under any key (paper, Appendix H and Table 12).

A request-local FIFO holds the latest verified rows that are still in memory. "recency" drafts the
root's children from the newest of them. "semantic" takes the three whose hidden states are most
similar to the state that predicted the root, and fuses them like any other rows, most similar
first. Descendants of the root retrieve lexically as ever. Off by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from recap import fusion
from recap.best_first import prefix_of
from recap.config import MAX_SOURCES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recap.core import kernels
    from recap.core.interfaces import VerifiedStep

CAPACITY = 2048

Key = tuple[int, ...]


class RootFallbackRule(Protocol):
    """A source of rows for a root without any."""

    def begin_request(self) -> None:
        """Forget the previous request."""

    def observe(self, step: VerifiedStep) -> None:
        """Index the rows of a verified step."""

    def fill(self, work: kernels.Fusion) -> int:
        """Write up to three rows into ``work``, best first; their number."""


class _RowIndex:
    """The latest `CAPACITY` rows that memory still holds, oldest first.

    A row outlives its overwritten short keys under its longest one, and is gone when that one is
    written again: a step that meets the same three tokens meets their last two and last one, too.
    So the longest key is its name.
    """

    def __init__(self, orders: int) -> None:
        self._orders = orders
        self._places: dict[Key, int] = {}  # in the order of writing

    def clear(self) -> None:
        self._places.clear()

    def __len__(self) -> int:
        return len(self._places)

    def newest(self) -> int | None:
        return next(reversed(self._places.values()), None)

    def places(self) -> NDArray[np.int64]:
        """int64[m], oldest first."""
        return np.fromiter(self._places.values(), np.int64, len(self._places))

    def claim(self, step: VerifiedStep) -> list[tuple[int, int]]:
        """A place for each node whose row was written, in packed order: (node, place)."""
        claimed = []
        written: set[Key] = set()
        for node, key in enumerate(_longest_keys(step, self._orders)):
            if key not in written:
                written.add(key)
                claimed.append((node, self._claim(key)))
        return claimed

    def _claim(self, key: Key) -> int:
        place = self._places.pop(key, None)
        if place is None:
            place = len(self._places)
            if place == CAPACITY:
                place = self._places.pop(next(iter(self._places)))
        self._places[key] = place
        return place


def _longest_keys(step: VerifiedStep, orders: int) -> list[Key]:
    """Per node, the last ``orders`` tokens up to it, fewer where the text begins."""
    keys: list[Key] = []
    for token, parent in zip(step.tree.tokens.tolist(), step.tree.parents.tolist(), strict=True):
        before = (
            keys[parent] if parent >= 0 else tuple(t for t in prefix_of(step.history)[:2] if t >= 0)
        )
        keys.append((*before, token)[-max(orders, 1) :])
    return keys


class RecencyFallback:
    """The newest row."""

    def __init__(self, orders: int, top_k: int) -> None:
        self._index = _RowIndex(orders)
        self._ids = np.empty((CAPACITY, top_k), np.int32)
        self._probs = np.empty((CAPACITY, top_k), np.float32)

    def begin_request(self) -> None:
        """Forget the previous request."""
        self._index.clear()

    def observe(self, step: VerifiedStep) -> None:
        """Index the rows of a verified step."""
        self._store(step)

    def _store(self, step: VerifiedStep) -> tuple[list[int], list[int]]:
        nodes, places = map(list, zip(*self._index.claim(step), strict=True))
        length = step.predictions.topk_ids.shape[1]
        self._ids[places] = -1
        self._ids[places, :length] = step.predictions.topk_ids[nodes]
        self._probs[places, :length] = step.predictions.topk_probs[nodes]
        return nodes, places

    def fill(self, work: kernels.Fusion) -> int:
        """Write the newest row into ``work``; 1, or 0 where nothing has been verified yet."""
        place = self._index.newest()
        if place is None:
            return 0
        self._place(work, 0, place)
        return 1

    def _place(self, work: kernels.Fusion, index: int, place: int) -> None:
        kept = self._ids[place] >= 0
        fusion.place_row(work, index, self._ids[place][kept], self._probs[place][kept])


class SemanticFallback(RecencyFallback):
    """The three rows whose hidden states are most similar to the one that predicted the root."""

    def __init__(self, orders: int, top_k: int) -> None:
        super().__init__(orders, top_k)
        self._states: NDArray[np.float32] | None = None  # float32[CAPACITY, d], unit length
        self._query: NDArray[np.float32] | None = None  # float32[d]

    def begin_request(self) -> None:
        """Forget the previous request."""
        super().begin_request()
        self._query = None

    def observe(self, step: VerifiedStep) -> None:
        """Index the step's rows by hidden state; keep the state that predicted the next root."""
        if step.hidden_states is None:
            raise ValueError("the semantic root fallback needs VerifiedStep.hidden_states")
        nodes, places = self._store(step)
        states = np.asarray(step.hidden_states, np.float32)
        lengths = np.linalg.norm(states, axis=1, keepdims=True)
        states = states / np.maximum(lengths, np.finfo(np.float32).tiny)
        if self._states is None or self._states.shape[1] != states.shape[1]:
            self._states = np.empty((CAPACITY, states.shape[1]), np.float32)
        self._states[places] = states[nodes]
        self._query = states[int(step.accepted[-1]) if len(step.accepted) else 0]

    def fill(self, work: kernels.Fusion) -> int:
        """Write the most similar rows into ``work``, the newer first on ties; their number."""
        if self._query is None or self._states is None:
            return 0
        places = self._index.places()[::-1]
        similarity = self._states[places] @ self._query
        best = places[np.argsort(-similarity, kind="stable")[:MAX_SOURCES]]
        for index, place in enumerate(best.tolist()):
            self._place(work, index, place)
        return len(best)


def make_root_fallback(name: str | None, orders: int, top_k: int) -> RootFallbackRule | None:
    """The rule of this name, or None."""
    if name is None:
        return None
    return {"recency": RecencyFallback, "semantic": SemanticFallback}[name](orders, top_k)
