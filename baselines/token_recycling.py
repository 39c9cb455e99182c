"""Token Recycling: a static tree, filled from each token's latest top-8 predictions.

Source: Luo et al., Turning Trash into Treasure (ACL 2025), github.com/Luowaterbi/TokenRecycling.

Draft: always the same tree of 80 candidates, up to 6 deep ("2.2.2"), filled layer by layer: a node
of rank r below a token takes entry r of the token's row in a matrix [vocab, 8]. The matrix starts
with zeros, so a token without a row drafts id 0 eight times, whose own row is then read in turn. No
filter of any kind: duplicates, images and cycles are drafted as they come.

Update: every verified node writes its top 8 to its token's row, accepted or not.

State: the matrix, over the whole stream. Packed rows: 81 in every step. ``max_candidates`` keeps
the first ones of the tree only, for comparisons at a lower budget.

Where the official code leaves things open, or differs:
- Rows of one step for the same token: the official assignment on a GPU leaves open which one stays.
  ``duplicates="first"`` (the paper's shared update: the root and shallow nodes, whose contexts are
  the likeliest, win) or "last" (the official code on a CPU).
- The official code keeps the last prompt token out of prefill, so that its first tree already
  yields the first output token. Here prefill yields it, as in the RECAP paper and for every method.
- It skips the update of the step that ends a generation; here every step is observed.
- Prefill predictions are discarded, as in the official code; ``seed_prompt`` writes them instead.
- It overshoots the token limit and keeps tokens behind a stop id; the shared loop cuts both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from recap.core.interfaces import Needs
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep

WIDTH = 8
DUPLICATES = ("first", "last")

# The candidates as paths of ranks from the root, level by level: 8 + 21 + 25 + 15 + 8 + 3.
PATHS = """
0 1 2 3 4 5 6 7
00 01 02 03 04 05 06 07 10 11 12 13 20 21 22 30 31 40 50 60 70
000 001 002 003 004 005 006 007 010 011 012 020 021 030 040 050 060 070 100 101 110 200 300 400 500
0000 0001 0002 0003 0004 0010 0011 0020 0030 0040 0100 0200 1000 2000 3000
00000 00001 00002 00010 00020 00100 01000 10000
000000 000001 000100
"""


class Template(NamedTuple):
    """A static tree of n nodes, the root included.

    parents, depths: int32[n], see `TokenTree`.
    layers:          per level, the slice of its nodes, and for each of them intp arrays of the
                     parent and of the rank within the parent's row.
    """

    parents: IntArray
    depths: IntArray
    layers: tuple[tuple[slice, NDArray[np.intp], NDArray[np.intp]], ...]


def template_of(paths: str) -> Template:
    """The tree of rank paths that are listed level by level, every path behind its prefix."""
    names = ["", *paths.split()]
    place = {name: node for node, name in enumerate(names)}
    parents = np.array([-1] + [place[name[:-1]] for name in names[1:]], np.int32)
    depths = np.array([len(name) for name in names], np.int32)
    ranks = np.array([0] + [int(name[-1]) for name in names[1:]], np.intp)
    layers = []
    for depth in range(1, int(depths[-1]) + 1):
        nodes = np.flatnonzero(depths == depth)
        layer = slice(int(nodes[0]), int(nodes[-1]) + 1)
        layers.append((layer, parents[layer].astype(np.intp), ranks[layer]))
    return Template(parents, depths, tuple(layers))


TEMPLATE = template_of(PATHS)
NUM_CANDIDATES = len(TEMPLATE.parents) - 1


class TokenRecyclingDrafter:
    """A static tree over a matrix of latest predictions. Implements
    `recap.core.interfaces.Drafter`.

    vocab_size:     number of token ids; the matrix takes 32 bytes for each.
    duplicates:     "first" or "last": which node's row stays where a step holds a token twice.
    seed_prompt:    write the prompt's predictions, too, one row per distinct prompt token.
    max_candidates: how many of the tree's, level by level; 1 to 80.

    Raises ValueError for an unknown name or another number.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        duplicates: str = "first",
        seed_prompt: bool = False,
        max_candidates: int = NUM_CANDIDATES,
    ) -> None:
        if not isinstance(max_candidates, int) or not 1 <= max_candidates <= NUM_CANDIDATES:
            raise ValueError(
                f"max_candidates must be a whole number from 1 to {NUM_CANDIDATES}, got "
                f"{max_candidates!r}"
            )
        if duplicates not in DUPLICATES:
            raise ValueError(
                f"duplicates is {duplicates!r}, which is not one of {', '.join(DUPLICATES)}."
            )
        self.needs = Needs(topk=WIDTH, prompt_rows=seed_prompt)
        self.vocab_size = vocab_size
        self.duplicates = duplicates
        self._matrix = np.zeros((vocab_size, WIDTH), np.int32)
        self._template = template_of(" ".join(PATHS.split()[:max_candidates]))
        self._tokens = np.zeros(max_candidates + 1, np.intp)

    def reset_stream(self) -> None:
        """Zero the matrix."""
        self._matrix[:] = 0

    def begin_request(self, ctx: RequestContext) -> None:
        """Write the prompt's rows, where they were asked for."""
        if ctx.prompt_rows is not None and ctx.prompt_row_tokens is not None:
            self._write(ctx.prompt_row_tokens, ctx.prompt_rows.topk_ids)

    def propose(self, history: IntArray) -> TokenTree:
        """The template below the newest token of ``history`` int32[h], filled level by level."""
        template, tokens = self._template, self._tokens
        tokens[0] = history[-1]
        for layer, parents, ranks in template.layers:
            tokens[layer] = self._matrix[tokens[parents], ranks]
        return TokenTree(tokens.astype(np.int32), template.parents, template.depths)

    def observe(self, step: VerifiedStep) -> None:
        """Write the row of every verified node."""
        self._write(step.tree.tokens, step.predictions.topk_ids)

    def _write(self, tokens: IntArray, rows: IntArray) -> None:
        """Write int32[n, k] ``rows`` under int32[n] ``tokens``, k <= `WIDTH`.

        Written in one assignment, whose order is open where a token occurs twice: so once only.
        """
        if self.duplicates == "last":
            tokens, rows = tokens[::-1], rows[::-1]
        distinct, nodes = np.unique(tokens, return_index=True)  # first occurrences
        self._matrix[distinct, : rows.shape[1]] = rows[nodes]

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """The rows that are not zero: tokens int32[m], rows int32[m, 8]."""
        tokens = np.flatnonzero(self._matrix.any(axis=1)).astype(np.int32)
        return {"tokens": tokens, "rows": self._matrix[tokens]}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Hold exactly what `stream_state` returned.

        Raises ValueError when the arrays do not fit this vocabulary.
        """
        tokens, rows = np.asarray(state["tokens"]), np.asarray(state["rows"])
        if rows.shape != (len(tokens), WIDTH):
            raise ValueError(f"saved rows have shape {rows.shape}, not {(len(tokens), WIDTH)}")
        ids = np.concatenate((tokens, rows.ravel()))
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(
                f"saved rows name tokens outside the vocabulary of {self.vocab_size} tokens"
            )
        self.reset_stream()
        self._matrix[tokens] = rows
