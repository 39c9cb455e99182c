"""Greedy acceptance on a token tree (paper, Equation 1 and section 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from recap.core import kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from recap.core.tree import TokenTree


def longest_accepted(tree: TokenTree, next_token: ArrayLike) -> int:
    """The deepest node whose whole path equals the target's own choices.

    next_token: int[n], the target's greedy choice after every node. A node is correct when its
    parent is correct and its token is what the target chose after its parent; the root is always
    correct. Of equally deep correct nodes the one with the lowest index is returned. All nodes are
    looked at, since siblings may hold equal tokens and a walk into the first matching child could
    miss the longer path.

    Raises ValueError when ``next_token`` does not have one entry per node.

    >>> from recap.core.tree import TokenTree
    >>> longest_accepted(TokenTree.chain(5, [6, 7, 8]), [6, 7, 1, 2])
    2
    """
    choices = np.ascontiguousarray(next_token, dtype=np.int32)
    if choices.shape != tree.tokens.shape:
        raise ValueError(f"next_token has shape {choices.shape}, the tree has {len(tree)} nodes")
    return int(kernels.longest_accepted(tree.tokens, tree.parents, tree.depths, choices))
