"""Lookahead Decoding: Jacobi iteration in a window of the packed input, n-grams from its diagonals.

Fu et al., "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding" (ICML 2024);
implementation hao-ai-lab/LookaheadDecoding. Every pass carries a window of guesses for the future
in N - 1 rows, one column per position: row r, column c was predicted after row r - 1, column c in
the pass before. A column, closed by its newest prediction, is an n-gram; a pool keeps the most
recent G of them per first token, and those that begin with the root are verified beside the window.

The window is part of the tree. Column 0 of the block the rows hang on is the root, column c token
c - 1 of row 0; row 0 is a chain under the root, row 1 hangs on the block column by column, every
further row on the row before. The ancestor mask of this tree is the official mask, and depth is the
official position. Guesses are chains under the root.

Parameters: N = 5, W = 7, G = 7 as in the repository's README and in Spec-Bench.
State: window and pool belong to one request. Rows per step: at most (N - 1) * (W + G) = 56; fewer
while the window fills.

Kept from the official code: the window moves by one position per pass, however many tokens are
committed; n-grams come from the window only, not from the prompt.

Differences from the official code:
- Row 0 begins with evenly spaced prompt tokens instead of random ones; image placeholders and stop
  ids are left out. A predicted placeholder in the window is replaced by such a token.
- The official prefill carries row 0 and fills row 1. Here prefill is shared by all methods, so the
  window is full after N - 2 passes of decoding, one pass later.
- A match that runs through window nodes counts, since the shared acceptance looks at every node.
- A guess that is right to its end yields all of its N - 1 tokens. The official comparison stops one
  token short of that; ``off_by_one=true`` drops the last token of every guess, which has the same
  effect on what can be committed, and verifies one row less per guess.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recap.core.interfaces import Needs
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep


class NgramPool:
    """Per first token the ``size`` most recently seen continuations, oldest first.

    >>> pool = NgramPool(size=2)
    >>> for ngram in ((1, 2), (3, 4), (1, 2), (5, 6)):
    ...     pool.add(9, ngram)
    >>> pool.get(9)
    [(1, 2), (5, 6)]
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._ngrams: dict[int, dict[tuple[int, ...], None]] = {}

    def add(self, first: int, rest: tuple[int, ...]) -> None:
        """Make (first, *rest) the newest of its first token; the oldest goes where there is no
        room.
        """
        known = self._ngrams.setdefault(first, {})
        known.pop(rest, None)
        if len(known) == self.size:
            del known[next(iter(known))]
        known[rest] = None

    def get(self, first: int) -> list[tuple[int, ...]]:
        """The continuations of ``first``, oldest first."""
        return list(self._ngrams.get(first, ()))


class Window:
    """The rows of guesses, ``rows[0]`` the farthest behind in iterations.

    In a full window row 0 has ``width`` - 1 tokens and each of the other ``levels`` - 1 rows
    ``width``. It begins with row 0 alone, which has a token more for every row to come.
    """

    def __init__(self, first_row: list[int], levels: int) -> None:
        self.rows = [list(first_row)]
        self.levels = levels

    @property
    def is_full(self) -> bool:
        """Whether every column makes an n-gram with its next prediction."""
        return len(self.rows) == self.levels

    def nodes(self) -> tuple[list[int], list[int]]:
        """(tokens, parents) of the window as tree nodes from 1 on; node 0 is the root."""
        tokens, parents = list(self.rows[0]), list(range(len(self.rows[0])))
        above = list(range(len(self.rows[0]) + 1))  # the block: the root and row 0
        for row in self.rows[1:]:
            parents += above[: len(row)]
            above = list(range(len(tokens) + 1, len(tokens) + 1 + len(row)))
            tokens += row
        return tokens, parents

    def ngrams(self, root: int, newest: Sequence[int]) -> list[tuple[int, ...]]:
        """A full window's n-grams: a block token, its column in the rows, and its prediction."""
        return list(zip([root, *self.rows[0]], *self.rows[1:], newest, strict=True))

    def advance(self, newest: Sequence[int]) -> None:
        """Move on by one position, with the predictions after every token of the last row."""
        if self.is_full:
            self.rows = [self.rows[1][1:], *self.rows[2:], list(newest)]
            return
        # The first prediction belongs to the root's new place, except after row 0, which lies one
        # position behind the root.
        row = list(newest) if len(self.rows) == 1 else list(newest)[1:]
        self.rows = [*(old[1:] for old in self.rows), row]


class LookaheadJacobiDrafter:
    """Implements `recap.core.interfaces.Drafter`.

    ngram:      N, tokens of an n-gram, its first one included; at least 3.
    window:     W, columns of the window; at least 2.
    guesses:    G, n-grams kept per first token, and verified per pass at most.
    off_by_one: drop the last token of every guess.

    Raises ValueError for a parameter below its bound.
    """

    needs = Needs()

    def __init__(
        self,
        vocab_size: int,
        ngram: int = 5,
        window: int = 7,
        guesses: int = 7,
        off_by_one: bool = False,
    ) -> None:
        if ngram < 3 or window < 2 or guesses < 1:
            raise ValueError(
                "expected ngram >= 3, window >= 2 and guesses >= 1, got "
                f"ngram={ngram}, window={window}, guesses={guesses}"
            )
        self.vocab_size = vocab_size
        self.ngram = ngram
        self.window = window
        self.guesses = guesses
        self.off_by_one = off_by_one
        self._forget_request(np.zeros(1, np.int32), frozenset(), frozenset())

    def reset_stream(self) -> None:
        """Forget the current request; nothing else persists."""
        self._forget_request(np.zeros(1, np.int32), frozenset(), frozenset())

    def begin_request(self, ctx: RequestContext) -> None:
        """Empty the pool and begin a window with tokens of the prompt."""
        self._forget_request(ctx.prompt_ids, ctx.blocked_ids, ctx.stop_ids)

    def _forget_request(
        self, prompt: IntArray, blocked: frozenset[int], stop_ids: frozenset[int]
    ) -> None:
        self._blocked = blocked
        width = self.window + self.ngram - 3
        self._fillers = _evenly_spaced(prompt, blocked, stop_ids, width, self.vocab_size)
        self._pool = NgramPool(self.guesses)
        self._window = Window(self._fillers, self.ngram - 1)

    def propose(self, history: IntArray) -> TokenTree:
        """The window behind the root of ``history`` int32[h], and the n-grams that begin with
        it.
        """
        root = int(history[-1])
        tokens, parents = self._window.nodes()
        length = self.ngram - 2 if self.off_by_one else self.ngram - 1
        for guess in self._pool.get(root):
            start = len(tokens) + 1
            tokens += guess[:length]
            parents += [0, *range(start, start + length - 1)]
        return _tree(root, tokens, parents)

    def observe(self, step: VerifiedStep) -> None:
        """Collect the n-grams of a full window; move the window on with its predictions."""
        if len(step.tree) == 1:  # one token was left: the window was not part of the pass
            return
        stop = 1 + sum(len(row) for row in self._window.rows)
        start = stop - len(self._window.rows[-1])
        newest = step.predictions.next_token[start:stop].tolist()
        if self._blocked:
            newest = [
                self._fillers[column % len(self._fillers)] if token in self._blocked else token
                for column, token in enumerate(newest)
            ]
        if self._window.is_full:
            for first, *rest in self._window.ngrams(int(step.tree.tokens[0]), newest):
                self._pool.add(first, tuple(rest))
        self._window.advance(newest)

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """Nothing persists."""
        return {}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to restore."""


def _tree(root: int, tokens: list[int], parents: list[int]) -> TokenTree:
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return TokenTree(
        np.array([root, *tokens], np.int32),
        np.array([-1, *parents], np.int32),
        np.array(depths, np.int32),
    )


def _evenly_spaced(
    prompt: IntArray,
    blocked: frozenset[int],
    stop_ids: frozenset[int],
    number: int,
    vocab_size: int,
) -> list[int]:
    """``number`` prompt tokens at even distances, image placeholders and stop ids left out.

    A prompt without any other token yields the lowest id that is neither.
    """
    left_out = blocked | stop_ids
    usable = prompt[~np.isin(prompt, list(left_out))] if left_out else prompt
    if not len(usable):
        lowest = next((t for t in range(vocab_size) if t not in left_out), 0)
        usable = np.array([lowest], np.int32)
    places: list[int] = usable[np.arange(number) * len(usable) // number].tolist()
    return places
