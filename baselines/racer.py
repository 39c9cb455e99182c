"""RACER: branches retrieved by an n-gram automaton, filled up with a tree of recent predictions.

"RACER: Retrieval-Augmented Contextual Rapid Speculative Decoding" (ACL 2026, arXiv 2604.14885);
implementation hkr04/RACER. Two memories of the stream:

    automaton   an Aho-Corasick trie of all 10-grams of prompts and outputs with their counts, of at
                most 10,000 nodes, the least recently used leaf reused. A cursor follows the text.
    matrix      for every token the target's newest Top-8 behind it, as in Token Recycling.

A draft is the 64 most frequent descendants of all states of depth 2 or more that the root reaches
from the cursor and its failure links; what is left of 64 rows is a breadth-first tree of matrix
rows behind the root, wider for likelier tokens. Both are merged.

Parameters: the official ones, see `RacerDrafter`.
State: automaton and matrix persist over the stream; the official evaluation hands one automaton to
all questions. The cursor starts at the root in every request. Rows per step: at most ``rows`` = 64.

Kept from the official code: failure links are computed once per prompt; a node made later, or
matched as a border, points to the root until then. The matrix begins as zeros, which draft token 0.
Of several writes of one row in a step the last one stays.

Differences from the official code:
- After an insertion the whole path is made recent, leaf first, so that the least recent node is
  always a leaf; the official code asserts that and, with assertions off, cuts a branch at its base.
  A link or cursor whose node has been reused leads to the root, not to the new owner.
- A root that no state leads to moves the cursor to the root; officially it stays where it was.
- Equal frequencies: shallower, then older first; officially partly a matter of addresses.
- Of a prompt token that occurs more than once the first occurrence's predictions are stored, not
  the last one's; image placeholders have none.
- No n-gram spans an image placeholder, and none is drafted.

Two things differ between the official commits; the defaults follow the later ones, which draft
better. A child's share of its row: ``breadths="paper"`` is the paper's Equation 3 (the root's first
child keeps the root's whole breadth, shares halve from depth 1 on), ``"released"`` the earlier code
that the worked examples were run with. And what retrieved and predicted branches have in common:
with ``refill`` it spends no row and a repeated candidate is skipped, so that the draft has its 64
rows wherever there is something to add; without, these rows stay empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from recap.core.interfaces import Needs
from recap.core.kernels import tries
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, Predictions, RequestContext, VerifiedStep

NO_TOKENS = np.empty(0, np.int32)
# A border must match at least this many tokens, the root included.
MIN_DEPTH = 2


class NgramAutomaton:
    """A bounded trie of n-grams with failure links, and a cursor that follows a text.

    size:      tokens of an n-gram.
    max_nodes: rows, the root included; at least ``size`` + 2.
    """

    def __init__(self, size: int, max_nodes: int) -> None:
        if size < 2 or max_nodes < size + 2:
            raise ValueError(
                f"an n-gram has at least 2 tokens and max_nodes is at least n + 2, got n={size}, "
                f"max_nodes={max_nodes}"
            )
        self.size = size
        num_slots = 2
        while num_slots < 2 * max_nodes:
            num_slots *= 2
        self.arrays = tries.Automaton(
            np.zeros(6, np.int64),
            np.zeros((max_nodes, 12), np.int32),
            np.zeros(num_slots, np.int32),
        )
        room = 2 * max_nodes
        self._heap = tries.Heap(
            np.zeros(room),
            np.zeros(room, np.int64),
            np.zeros((room, 3), np.int32),
            np.zeros(room, np.int32),
        )
        self._queue = np.zeros(max_nodes, np.int32)
        self._borders = np.zeros(size, np.int32)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        tries.reset_automaton_trie(self.arrays)

    def insert(self, text: IntArray, blocked: IntArray = NO_TOKENS) -> None:
        """Count every n-gram of ``text`` int32[t] without a token of ``blocked``."""
        tries.insert_ngrams(self.arrays, text, self.size, blocked)

    def link_failures(self) -> None:
        """Compute the failure links of all nodes."""
        tries.link_failures(self.arrays, self._queue)

    def rewind(self) -> None:
        """Put the cursor back on the root."""
        tries.set_cursor(self.arrays, 0)

    def retrieve(self, root: int, limit: int, draft: tries.Draft) -> tuple[int, int]:
        """Draft behind ``root``: (nodes written, nodes counted against ``limit``)."""
        _, number = tries.find_borders(self.arrays, root, MIN_DEPTH, self._borders)
        if not number:
            return 0, 0
        size, taken = tries.retrieve(self.arrays, self._borders, number, limit, self._heap, draft)
        return int(size), int(taken)

    def enter(self, root: int) -> None:
        """Move the cursor over a root that was drafted behind; its borders become recent."""
        tries.enter_token(self.arrays, root, MIN_DEPTH, self._borders)

    def follow(self, tokens: IntArray) -> None:
        """Move the cursor over accepted ``tokens`` int32[a]."""
        tries.follow_tokens(self.arrays, tokens)

    def load(self, header: NDArray[np.int64], nodes: NDArray[np.int32]) -> None:
        """Restore ``arrays.header`` and the used rows of ``arrays.nodes``."""
        self.reset()
        self.arrays.header[:] = header
        self.arrays.nodes[: len(nodes)] = nodes
        tries.reindex(*self.arrays)


class RacerDrafter:
    """Implements `recap.core.interfaces.Drafter`.

    ngram:     tokens of an n-gram, at least 2.
    max_nodes: of the automaton, the root included.
    breadth:   predictions kept per token.
    rows:      of the draft at most, the root included.
    breadths:  "released" or "paper", see above.
    refill:    let merged rows be replaced, see above.

    Raises ValueError for a parameter outside these bounds.
    """

    def __init__(
        self,
        vocab_size: int,
        ngram: int = 10,
        max_nodes: int = 10_000,
        breadth: int = 8,
        rows: int = 64,
        breadths: Literal["released", "paper"] = "paper",
        refill: bool = True,
    ) -> None:
        if breadths not in ("released", "paper"):
            raise ValueError(f"breadths is 'released' or 'paper', got {breadths!r}")
        if breadth < 1 or rows < 1:
            raise ValueError(f"breadth and rows must be at least 1, got {breadth} and {rows}")
        self.needs = Needs(topk=breadth, prompt_rows=True)
        self.vocab_size = vocab_size
        self.rows = rows
        self._halve_first = breadths == "released"
        self._refill = refill
        self._automaton = NgramAutomaton(ngram, max_nodes)
        self._matrix = np.zeros((vocab_size, min(breadth, vocab_size)), np.int32)
        self._draft = tries.Draft(*(np.zeros(2 * rows, np.int32) for _ in range(3)))
        self._queue = np.zeros((2 * rows + 2, 4), np.int32)
        self._blocked = NO_TOKENS

    def reset_stream(self) -> None:
        """Forget everything: automaton, matrix and request."""
        self._automaton.reset()
        self._matrix[:] = 0
        self._blocked = NO_TOKENS

    def begin_request(self, ctx: RequestContext) -> None:
        """Store the prompt's predictions and n-grams, link failures, rewind the cursor."""
        self._blocked = np.array(sorted(ctx.blocked_ids), np.int32)
        if ctx.prompt_rows is not None and ctx.prompt_row_tokens is not None:
            self._store(ctx.prompt_row_tokens, ctx.prompt_rows)
        self._automaton.insert(np.asarray(ctx.prompt_ids, np.int32), self._blocked)
        self._automaton.link_failures()
        self._automaton.rewind()

    def _store(self, tokens: IntArray, rows: Predictions) -> None:
        known = tokens < self.vocab_size
        width = self._matrix.shape[1]
        self._matrix[tokens[known]] = rows.topk_ids[known, :width]  # the last write stays

    def propose(self, history: IntArray) -> TokenTree:
        """Retrieved branches and the tree of predictions behind the last of ``history``
        int32[h].
        """
        root = int(history[-1])
        size, taken = self._automaton.retrieve(root, self.rows, self._draft)
        spent = size if self._refill else taken
        if root < self.vocab_size:
            size = tries.add_logits_tree(
                self._matrix,
                root,
                self.rows - 1,
                spent,
                self._halve_first,
                self._refill,
                self._blocked,
                self._queue,
                self._draft,
                size,
            )
        arrays = [np.empty(size + 1, np.int32) for _ in range(3)]
        for array, first, rest in zip(arrays, (root, -1, 0), self._draft, strict=True):
            array[0] = first
            array[1:] = rest[:size]
        arrays[1][1:] += 1
        return TokenTree(*arrays)

    def observe(self, step: VerifiedStep) -> None:
        """Write all rows, count the n-grams that the accepted tokens end, move the cursor."""
        tree = step.tree
        accepted = tree.tokens[step.accepted]
        self._store(tree.tokens, step.predictions)
        self._automaton.enter(int(tree.tokens[0]))
        text = np.concatenate([step.history[-self._automaton.size :], accepted])
        self._automaton.insert(text.astype(np.int32), self._blocked)
        if len(accepted):
            self._automaton.follow(accepted)

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """The automaton's rows in use, and the matrix rows that are not zero."""
        header, nodes, _ = self._automaton.arrays
        written = np.flatnonzero(self._matrix.any(axis=1)).astype(np.int32)
        return {
            "header": header.copy(),
            "nodes": nodes[: header[tries.NUM_NODES]].copy(),
            "row_tokens": written,
            "rows": self._matrix[written],
        }

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `stream_state` returned."""
        self.reset_stream()
        self._automaton.load(state["header"], state["nodes"])
        self._matrix[state["row_tokens"]] = state["rows"]
