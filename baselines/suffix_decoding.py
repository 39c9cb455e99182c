"""SuffixDecoding: draft what most often followed the current suffix, here and in earlier outputs.

Oliaro et al., "SuffixDecoding" (NeurIPS 2025); implementation snowflakedb/ArcticInference, also
vLLM's suffix proposer. Two path-compressed suffix trees with counts: a local one over prompt and
output of the request, a global one over the outputs of all requests. For each suffix of the text
that a tree holds, a draft of at most ``factor * match + offset`` tokens is grown behind it, and the
draft with the highest sum of estimated probabilities is proposed; the longer match wins a tie, the
local tree wins over the global one. A probability is a product of count ratios, in which the
current, unfinished occurrence counts.

Parameters: ``mode="tree"`` with depth 64, factor 4 and offset 0 are the paper's;
``mode="path", depth=24, factor=1`` is vLLM's. Both use ``min_prob=0.1``.
State: the global tree persists over the stream, oldest request out first beyond ``max_requests``;
the local tree belongs to one request. Rows per step: at most ``max_tokens`` + 1 = 64.

Differences from the official code:
- Image placeholders are not stored: a sequence ends before and a new one begins behind each, so
  none is drafted and none is part of a match.
- Equally frequent continuations are ordered by token id, where the official order is that of a hash
  map or of arrival; equal probabilities by age of the parent. Probabilities are float64, not
  float32, and a shorter match must beat a longer one by 1e-6.
- The text of an evicted request is kept (4 bytes per token), its counts are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from baselines.lookahead import pieces_between
from recap.core.interfaces import Needs
from recap.core.kernels import tries
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep

NO_TOKENS = np.empty(0, np.int32)
# Queued continuations per drafted token: exact for min_prob above 1 / BREADTH.
BREADTH = 64


class CountedSuffixTree:
    """The occurrence counts of all substrings of up to ``depth`` tokens of its sequences.

    Appending costs at most ``depth`` operations a token, and two nodes of memory.

    >>> tree = CountedSuffixTree(depth=8)
    >>> tree.append(np.array([1, 2, 3, 1, 2], np.int32))
    >>> tree.num_nodes() <= 2 * 5 + 1
    True
    """

    def __init__(self, depth: int, capacity: int = 4096) -> None:
        self._header = np.zeros(4, np.int64)
        self._nodes = np.zeros((2 * capacity + 2, 8), np.int32)
        self._slots = np.zeros(8 * capacity, np.int32)
        self._text = np.zeros(capacity, np.int32)
        self._active = np.zeros(depth, np.int32)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        tries.reset_trie(self._header, self._nodes, self._slots)

    @property
    def arrays(self) -> tries.SuffixTree:
        """What the kernels work on."""
        return tries.SuffixTree(self._header, self._nodes, self._slots, self._text, self._active)

    @property
    def text(self) -> IntArray:
        """int32[t]: everything appended so far, evicted sequences included."""
        return self._text[: self._header[tries.NUM_TOKENS]]

    def num_nodes(self) -> int:
        """Nodes in use at most so far, the root included."""
        return int(self._header[tries.NUM_NODES])

    def append(self, tokens: IntArray) -> None:
        """Continue the current sequence with ``tokens`` int32[c]."""
        self._reserve(len(self.text) + len(tokens))
        tries.append_tokens(self.arrays, tokens)

    def end_sequence(self) -> None:
        """What is appended from here on does not continue what came before."""
        self._header[tries.NUM_ACTIVE] = 0

    def remove(self, start: int, stop: int) -> None:
        """Take the ended sequence text[start:stop] out of the counts."""
        tries.remove_sequence(self.arrays, start, stop)

    def _reserve(self, num_tokens: int) -> None:
        capacity = len(self._text)
        if num_tokens <= capacity:
            return
        while capacity < num_tokens:
            capacity *= 2
        self._text = _grown(self._text, capacity)
        self._nodes = _grown(self._nodes, 2 * capacity + 2)
        self._slots = np.zeros(8 * capacity, np.int32)
        tries.reindex(self._header, self._nodes, self._slots)


def _grown(array: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    larger = np.zeros((length, *array.shape[1:]), np.int32)
    larger[: len(array)] = array
    return larger


class SuffixDecodingDrafter:
    """Implements `recap.core.interfaces.Drafter`.

    mode:         "tree" or "path".
    depth:        longest substring counted, match and draft together.
    max_tokens:   drafted tokens per step at most.
    factor:       drafted tokens per matched token.
    offset:       added to it.
    min_prob:     least estimated probability of a drafted token, in (0, 1].
    max_requests: finished and current requests the global tree holds; 0 switches it off.

    Raises ValueError for a parameter outside these bounds.
    """

    needs = Needs()

    def __init__(
        self,
        vocab_size: int,
        mode: Literal["tree", "path"] = "tree",
        depth: int = 64,
        max_tokens: int = 63,
        factor: float = 4.0,
        offset: float = 0.0,
        min_prob: float = 0.1,
        max_requests: int = 10_000,
    ) -> None:
        if mode not in ("tree", "path"):
            raise ValueError(f"mode is 'tree' or 'path', got {mode!r}")
        if depth < 2 or max_tokens < 1 or max_requests < 0 or not 0.0 < min_prob <= 1.0:
            raise ValueError(
                "expected depth >= 2, max_tokens >= 1, max_requests >= 0 and 0 < min_prob <= 1, "
                f"got depth={depth}, max_tokens={max_tokens}, max_requests={max_requests}, "
                f"min_prob={min_prob}"
            )
        self.vocab_size = vocab_size
        self.depth = depth
        self.max_requests = max_requests
        breadth = 1 if mode == "path" else BREADTH
        self._rule = (max_tokens, float(factor), float(offset), float(min_prob), breadth)
        self._local = CountedSuffixTree(depth)
        self._global = CountedSuffixTree(depth)
        self._work = _speculation_room(depth, max_tokens)
        self._blocked: frozenset[int] = frozenset()
        self._spans: list[list[tuple[int, int]]] = []  # per request, its pieces of the global text
        self._is_open = False  # whether the next output token continues the last piece
        self._num_read = 0
        self._prompt_length = 0

    def reset_stream(self) -> None:
        """Forget everything, the global tree included."""
        self._global.reset()
        self._spans = []
        self._forget_request(frozenset())

    def begin_request(self, ctx: RequestContext) -> None:
        """Start a local tree with the prompt, and make room for one more output in the global
        one.
        """
        self._forget_request(ctx.blocked_ids)
        if self.max_requests:
            self._spans.append([])
            while len(self._spans) > self.max_requests:
                for start, stop in self._spans.pop(0):
                    self._global.remove(start, stop)
        self._prompt_length = len(ctx.prompt_ids)
        self._read(ctx.prompt_ids)

    def _forget_request(self, blocked_ids: frozenset[int]) -> None:
        self._blocked = blocked_ids
        self._local.reset()
        self._cut()
        self._num_read = 0
        self._prompt_length = 0

    def propose(self, history: IntArray) -> TokenTree:
        """The best draft of the local or the global tree behind ``history`` int32[h]."""
        self._read(history)
        context = self._pieces(history[-self.depth :])[-1] if self.max_requests else NO_TOKENS
        limit = min(len(history), self.depth) - 1
        size = tries.speculate(
            self._local.arrays, self._global.arrays, context, limit, self._rule, self._work
        )
        tokens, parents, depths = (np.empty(size + 1, np.int32) for _ in range(3))
        tokens[0], parents[0], depths[0] = history[-1], -1, 0
        tokens[1:] = self._work.best.tokens[:size]
        parents[1:] = self._work.best.parents[:size] + 1
        depths[1:] = self._work.best.depths[:size]
        return TokenTree(tokens, parents, depths)

    def observe(self, step: VerifiedStep) -> None:
        """Append the committed tokens to both trees."""
        self._read(step.history)
        self._append(step.committed, output=True)

    def _read(self, text: IntArray) -> None:
        """Append what of ``text`` (prompt and output) has not been read yet."""
        start = self._num_read
        if len(text) == start:
            return
        if start < self._prompt_length:
            self._append(text[start : self._prompt_length], output=False)
        self._append(text[max(start, self._prompt_length) :], output=True)

    def _append(self, tokens: IntArray, output: bool) -> None:
        self._num_read += len(tokens)
        for number, piece in enumerate(self._pieces(tokens)):
            if number:
                self._cut()
            self._local.append(piece)
            if output and self.max_requests and len(piece):
                stop = len(self._global.text) + len(piece)
                self._global.append(piece)
                spans = self._spans[-1]
                start = spans.pop()[0] if self._is_open else stop - len(piece)
                spans.append((start, stop))
                self._is_open = True

    def _cut(self) -> None:
        self._local.end_sequence()
        self._global.end_sequence()
        self._is_open = False

    def _pieces(self, tokens: IntArray) -> list[IntArray]:
        return pieces_between(np.asarray(tokens, np.int32), self._blocked)

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """The outputs that the global tree holds, as a log: their pieces, one after the other."""
        pieces = [(a, b, i) for i, spans in enumerate(self._spans) for a, b in spans]
        text = self._global.text
        return {
            "tokens": np.concatenate([NO_TOKENS, *(text[a:b] for a, b, _ in pieces)]),
            "piece_lengths": np.array([b - a for a, b, _ in pieces], np.int32),
            "piece_requests": np.array([i for _, _, i in pieces], np.int32),
            "num_requests": np.array([len(self._spans)], np.int32),
        }

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Build the global tree anew from the log; its counts do not depend on the order."""
        self.reset_stream()
        self._spans = [[] for _ in range(int(state["num_requests"][0]))]
        start = 0
        for length, request in zip(state["piece_lengths"], state["piece_requests"], strict=True):
            stop = start + int(length)
            self._global.end_sequence()
            self._global.append(np.asarray(state["tokens"][start:stop], np.int32))
            self._spans[int(request)].append((start, stop))
            start = stop


def _speculation_room(depth: int, max_tokens: int) -> tries.Speculation:
    def draft() -> tries.Draft:
        return tries.Draft(*(np.zeros(max_tokens, np.int32) for _ in range(3)))

    room = (max_tokens + 1) * BREADTH
    heap = tries.Heap(
        np.zeros(room),
        np.zeros(room, np.int64),
        np.zeros((room, 3), np.int32),
        np.zeros(room, np.int32),
    )
    matches = np.zeros((depth, 2), np.int32)
    return tries.Speculation(matches, draft(), draft(), np.zeros(1), heap)
