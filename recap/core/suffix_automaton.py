"""An online suffix automaton: where did the end of the text occur before, and what followed it?

Serves RECAP's suffix insertion (paper, section 3.5) and SAM Decoding. It reads a token in amortised
constant time, and keeps for every substring class its first and its latest end, so a lookup is a
read. Knows nothing about trees, models or tokenizers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recap.core import kernels

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    IntArray = NDArray[np.int32]

NO_SEPARATORS = np.empty(0, np.int32)


class Match(NamedTuple):
    """The longest suffix of the text that also ends earlier.

    length:    its tokens; 0 where no suffix recurs.
    first_end: the position (from 0) of its last token at its first occurrence, -1 without a match.
    last_end:  the same at its latest occurrence before the end of the text.
    """

    length: int
    first_end: int
    last_end: int


class SuffixAutomaton:
    """The text read so far, and the longest suffix of it that has occurred before.

    ``separators`` are tokens that no match may contain: the automaton restarts behind each of them,
    so that a run of thousands of image placeholders costs next to nothing.

    >>> automaton = SuffixAutomaton()
    >>> automaton.extend([5, 6, 7, 1, 2, 5, 6, 8, 1, 2, 5, 6])
    >>> automaton.match()
    Match(length=4, first_end=6, last_end=6)
    >>> automaton.continuation(automaton.match().last_end, 3).tolist()
    [8, 1, 2]
    """

    def __init__(self, capacity: int = 1024) -> None:
        """Make room for ``capacity`` tokens; it grows as needed and keeps its size over resets."""
        self._separators = NO_SEPARATORS
        self._length = 0
        self._header = np.zeros(7, np.int64)
        self._allocate(capacity)
        self.reset()

    def _allocate(self, capacity: int) -> None:
        # At most 2 states and 3 edges per token; slots at most three quarters full.
        self._capacity = capacity
        self._states = np.empty((2 * capacity + 2, 5), np.int32)
        self._edges = np.empty((3 * capacity + 3, 4), np.int32)
        self._slots = np.zeros(1 << (4 * capacity).bit_length(), np.int32)
        self._text = np.empty(capacity, np.int32)
        self._order = np.empty(len(self._states) + capacity + 2, np.int32)

    def reset(self, separators: Iterable[int] = ()) -> None:
        """Forget the text."""
        self._separators = np.array(sorted(separators), np.int32)
        self._length = 0
        kernels.reset_automaton(self._header, self._states, self._slots)

    def extend(self, tokens: ArrayLike) -> None:
        """Append int[m] ``tokens`` to the text."""
        added = np.asarray(tokens, np.int32)
        start = self._length
        self._length += len(added)
        if self._length > self._capacity:
            self._grow(2 * self._length)
        self._text[start : self._length] = added
        kernels.extend_automaton(
            self._header,
            self._states,
            self._edges,
            self._slots,
            self._text,
            self._order,
            self._length,
            self._separators,
        )

    def _grow(self, capacity: int) -> None:
        states, edges, text = self._states, self._edges, self._text
        self._allocate(capacity)
        self._states[: len(states)] = states
        self._edges[: len(edges)] = edges
        self._text[: len(text)] = text
        kernels.rehash_edges(self._header, self._edges, self._slots)

    def __len__(self) -> int:
        return self._length

    def match(self) -> Match:
        """The longest suffix that also ends earlier."""
        return Match(*self._header[4:7].tolist())

    def match_with(self, token: int) -> tuple[int, int]:
        """Length and first end of the longest suffix of the text and ``token`` that the text
        contains as it is; (0, -1) where ``token`` is new. The text stays as it is.
        """
        length, first_end = kernels.match_with(
            self._header, self._states, self._edges, self._slots, token
        )
        return int(length), int(first_end)

    def match_followed_by(self, count: int) -> tuple[int, int]:
        """Length and first end of the longest suffix that also ends earlier, with at least
        ``count`` tokens between its first end and the newest token.

        Where no suffix has that many, the first end of the shortest one, the newest token alone;
        (0, -1) where that is new.
        """
        length, first_end = kernels.match_followed_by(self._header, self._states, count)
        return int(length), int(first_end)

    def continuation(self, end: int, limit: int) -> IntArray:
        """int32[<= limit], a copy: the text behind position ``end``, up to the end of the text."""
        return self._text[end + 1 : min(end + 1 + limit, self._length)].copy()

    def suffix_path(self, limit: int) -> IntArray:
        """int32[<= limit]: the path RECAP inserts, see the kernel of this name."""
        path = np.empty(limit, np.int32)
        return path[: kernels.suffix_path(self._header, self._text, self._separators, path)]

    def num_bytes(self) -> int:
        """Bytes held."""
        arrays = (self._header, self._states, self._edges, self._slots, self._text, self._order)
        return sum(array.nbytes for array in arrays)
