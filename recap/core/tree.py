"""The token tree: what every drafter proposes and every target verifies.

A draft is a flat, frozen tree whose node 0 is the root, the newest committed token (the one token
of the history whose key and value are not cached yet). A sequence is the tree in which every node
has one child; plain autoregressive decoding is the tree that holds the root alone. One type serves
them all, so there is one verification, one acceptance rule and one loop.

Knows nothing about models, tokenizers or how a draft was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recap.core import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    BoolArray = NDArray[np.bool_]
    IntArray = NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True, init=False)
class TokenTree:
    """A frozen tree of n >= 1 tokens in topological order.

    tokens:  int32[n], token ids; ``tokens[0]`` is the root.
    parents: int32[n], ``parents[0] == -1`` and ``0 <= parents[i] < i`` for every other node.
    depths:  int32[n], ``depths[0] == 0`` and ``depths[i] == depths[parents[i]] + 1``.

    Siblings may hold equal tokens (a static tree filled from an empty matrix has them). The arrays
    are read-only; what else a caller needs (mask, path, positions) is derived from them.

    Raises ValueError when the arrays do not describe such a tree.
    """

    tokens: IntArray
    parents: IntArray
    depths: IntArray

    def __init__(self, tokens: ArrayLike, parents: ArrayLike, depths: ArrayLike) -> None:
        object.__setattr__(self, "tokens", _frozen_int32(tokens))
        object.__setattr__(self, "parents", _frozen_int32(parents))
        object.__setattr__(self, "depths", _frozen_int32(depths))
        if not kernels.is_tree(self.tokens, self.parents, self.depths):
            raise ValueError(
                "not a token tree: expected equally long 1-D arrays of n >= 1 nodes with "
                "parents[0] == -1, 0 <= parents[i] < i, depths[i] == depths[parents[i]] + 1; got "
                f"parents={self.parents.tolist()}, depths={self.depths.tolist()}"
            )

    @classmethod
    def root_only(cls, token: int) -> TokenTree:
        """The tree of plain autoregressive decoding: the root and no candidate."""
        return cls(np.array([token], np.int32), np.array([-1], np.int32), np.array([0], np.int32))

    @classmethod
    def chain(cls, token: int, draft: ArrayLike) -> TokenTree:
        """A root followed by one linear draft.

        >>> TokenTree.chain(5, [6, 7]).parents.tolist()
        [-1, 0, 1]
        """
        tokens = np.concatenate(([token], np.asarray(draft, np.int32).ravel())).astype(np.int32)
        nodes = np.arange(len(tokens), dtype=np.int32)
        return cls(tokens, nodes - 1, nodes)

    @property
    def num_candidates(self) -> int:
        """Nodes besides the root."""
        return len(self.tokens) - 1

    def __len__(self) -> int:
        return len(self.tokens)

    def ancestor_mask(self) -> BoolArray:
        """bool[n, n]: entry (i, j) is true where node j is node i or one of its ancestors."""
        return kernels.ancestor_mask(self.parents)

    def path(self, node: int) -> IntArray:
        """int32[depth + 1]: the node indices from the root to ``node``, both included.

        >>> TokenTree([9, 1, 2, 3], [-1, 0, 0, 2], [0, 1, 1, 2]).path(3).tolist()
        [0, 2, 3]
        """
        if not 0 <= node < len(self):
            raise IndexError(f"node {node} is not in a tree of {len(self)} nodes")
        return kernels.path_to(self.parents, self.depths, node)


def _frozen_int32(values: ArrayLike) -> IntArray:
    # A view, so that freezing it does not freeze the caller's own array.
    array = np.ascontiguousarray(values, dtype=np.int32).view()
    array.flags.writeable = False
    return array
