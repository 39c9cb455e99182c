"""The memory of target predictions under one-, two- and three-token keys (paper, section 3.3).

``U`` lives as long as the stream, ``C`` and ``G`` as long as a request: a lexical key cannot name
the picture, but the picture is fixed within a request. Bounded: one row per vocabulary entry, and
per request at most two rows per verified node. Knows nothing about fusion, trees' scores or models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recap.core import kernels

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, Predictions
    from recap.core.tree import TokenTree

FIRST_SLOTS = 4096  # of the context table, which doubles when half full; must be a power of two
MISSING = -1  # a context token in front of the history's beginning


class PredictionMemory:
    """Rows keyed by the last one (``U``), two (``C``) and three (``G``) tokens.

    vocab_size: tokens and predicted ids are below it; at most 2,097,152, so that three ids fit a
    64-bit key.
    top_k:      longest row.
    orders:     1 = U, 2 = U and C, 3 = all.

    Raises ValueError for a vocabulary that is too large.
    """

    def __init__(self, vocab_size: int, top_k: int, orders: int = 3) -> None:
        if not 1 <= vocab_size <= kernels.MAX_VOCAB:
            raise ValueError(
                f"vocab_size is {vocab_size}; it must be from 1 to {kernels.MAX_VOCAB:,}, because "
                "three token ids are packed into one 64-bit key."
            )
        self.vocab_size = vocab_size
        self.top_k = top_k
        self.orders = orders
        # Left unwritten: no row means anything until ``present`` says so.
        self._unigrams = _empty_rows(vocab_size, top_k)
        self._present = np.zeros(vocab_size, np.uint8)
        self._contexts = _empty_rows(FIRST_SLOTS // 2, top_k)
        self._table = kernels.Table(np.zeros((FIRST_SLOTS, 2), np.int64), np.array([1, 0]))
        self._bundle()

    def _bundle(self) -> None:
        self.arrays = kernels.Memory(self._unigrams, self._present, self._contexts, self._table)

    def reset_stream(self) -> None:
        """Forget everything."""
        self._present[:] = 0
        self.begin_request()

    def begin_request(self) -> None:
        """Forget ``C`` and ``G``: a new generation makes all their slots free."""
        self._table.state[0] += 1
        self._table.state[1] = 0

    def seed(self, tokens: IntArray, predictions: Predictions, blocked: IntArray) -> None:
        """Write one ``U`` row per prompt token, int32[m]; a token's first row wins.

        Tokens among int32[b] ``blocked`` get none.
        """
        tokens = np.ascontiguousarray(tokens, np.int32)
        ids, probs = self._checked(tokens, predictions)
        self._refuse(kernels.seed(self.arrays, tokens, ids, probs, blocked))

    def refresh(
        self, tree: TokenTree, earlier: int, previous: int, predictions: Predictions
    ) -> None:
        """Write the rows of all nodes under their path contexts (section 3.3 and Appendix A).

        ``earlier`` and ``previous`` are the two tokens in front of the root, `MISSING` where there
        are none. Within the step the first occurrence of a key wins, separately per map; older rows
        are replaced.
        """
        ids, probs = self._checked(tree.tokens, predictions)
        if self.orders > 1:
            self._reserve((self.orders - 1) * len(tree))
        fault = kernels.refresh(
            self.arrays, tree.tokens, tree.parents, earlier, previous, ids, probs, self.orders
        )
        self._refuse(fault)

    def _checked(self, tokens: IntArray, predictions: Predictions) -> tuple[IntArray, Any]:
        """The ids int32[n, k] and probs float32[n, k] of a row per token, or ValueError."""
        ids = np.ascontiguousarray(predictions.topk_ids, np.int32)
        probs = np.ascontiguousarray(predictions.topk_probs, np.float32)
        if ids.shape != probs.shape or ids.ndim != 2 or len(ids) != len(tokens):
            raise ValueError(
                f"expected one row for each of {len(tokens)} tokens, got topk_ids of shape "
                f"{ids.shape} and topk_probs of shape {probs.shape}"
            )
        if not 1 <= ids.shape[1] <= self.top_k:
            raise ValueError(
                f"rows hold {ids.shape[1]} predictions, expected 1 to top_k={self.top_k}: the "
                "engine must be asked for Needs.topk predictions"
            )
        return ids, probs

    def _refuse(self, fault: int) -> None:
        if fault != kernels.OK:
            what = "a tree or prompt token" if fault == kernels.BAD_TOKEN else "a predicted id"
            raise ValueError(f"{what} is outside the vocabulary of {self.vocab_size} tokens")

    def _reserve(self, rows: int) -> None:
        """Make room for so many more context rows: the table doubles when half full."""
        num_slots = len(self._table.slots)
        needed = 2 * (int(self._table.state[1]) + rows)
        if needed <= num_slots:
            return
        while num_slots < needed:
            num_slots *= 2
        slots = np.zeros((num_slots, 2), np.int64)
        kernels.rehash_rows(self._table, slots)
        contexts = _empty_rows(num_slots // 2, self.top_k)
        held = self.num_context_rows
        for new, old in zip(contexts, self._contexts, strict=True):
            new[:held] = old[:held]
        self._contexts = contexts
        self._table = kernels.Table(slots, self._table.state)
        self._bundle()

    def lookup(self, *context: int) -> tuple[IntArray, NDArray[np.float32]] | None:
        """The row under one, two or three tokens, oldest first: ids and probs, or None."""
        if len(context) == 1:
            row = context[0] if self._present[context[0]] else -1
            rows = self._unigrams
        else:
            key = kernels.pair_key(*context) if len(context) == 2 else kernels.triple_key(*context)
            row = int(kernels.find_row(self._table, key))
            rows = self._contexts
        if row < 0:
            return None
        kept = rows.ids[row] >= 0
        return rows.ids[row][kept], rows.probs[row][kept]

    @property
    def num_unigram_rows(self) -> int:
        """Rows in ``U``."""
        return int(np.count_nonzero(self._present))

    @property
    def num_context_rows(self) -> int:
        """Rows in ``C`` and ``G`` together."""
        return int(self._table.state[1])

    def unigram_bytes(self) -> int:
        """Bytes set aside for ``U``, whatever it holds."""
        return sum(array.nbytes for array in self._unigrams) + self._present.nbytes

    def context_bytes(self) -> int:
        """Bytes set aside for ``C`` and ``G``."""
        return sum(array.nbytes for array in self._contexts) + self._table.slots.nbytes

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """The rows of ``U``: tokens int32[m], ids int32[m, top_k], probs float32[m, top_k]."""
        tokens = np.flatnonzero(self._present).astype(np.int32)
        return {
            "tokens": tokens,
            "ids": self._unigrams.ids[tokens],
            "probs": self._unigrams.probs[tokens],
        }

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold exactly what `stream_state` returned.

        Raises ValueError when the arrays do not fit this vocabulary and row length.
        """
        tokens, ids, probs = (np.asarray(state[name]) for name in ("tokens", "ids", "probs"))
        shape = (len(tokens), self.top_k)
        if ids.shape != shape or probs.shape != shape:
            raise ValueError(f"saved rows have shapes {ids.shape} and {probs.shape}, not {shape}")
        if len(tokens) and not (
            0 <= tokens.min() <= tokens.max() < self.vocab_size and ids.max() < self.vocab_size
        ):
            raise ValueError(f"saved rows name tokens outside the vocabulary of {self.vocab_size}")
        self.reset_stream()
        self._unigrams.ids[tokens] = ids
        self._unigrams.probs[tokens] = probs
        for token in tokens.tolist():
            self._unigrams.confidence[token] = kernels.row_confidence(self._unigrams.probs[token])
        self._present[tokens] = 1


def _empty_rows(count: int, top_k: int) -> kernels.Rows:
    return kernels.Rows(
        np.empty((count, top_k), np.int32),
        np.empty((count, top_k), np.float32),
        np.empty(count, np.float64),
    )
