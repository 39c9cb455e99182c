"""Kernels on token trees (see `recap.core.tree` and `recap.core.accept`).

n nodes; ``tokens``, ``parents`` and ``depths`` are int32[n].
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def is_tree(tokens, parents, depths):
    """Whether three int32[n] arrays describe a tree in topological order (see `TokenTree`)."""
    n = len(tokens)
    if n == 0 or len(parents) != n or len(depths) != n or parents[0] != -1 or depths[0] != 0:
        return False
    for i in range(1, n):
        parent = parents[i]
        if parent < 0 or parent >= i or depths[i] != depths[parent] + 1:
            return False
    return True


@njit(cache=True)
def ancestor_mask(parents):
    """bool[n, n] from parents int32[n]: a node's row is its parent's row plus itself."""
    n = len(parents)
    mask = np.zeros((n, n), dtype=np.bool_)
    mask[0, 0] = True
    for i in range(1, n):
        parent = parents[i]
        for j in range(parent + 1):
            mask[i, j] = mask[parent, j]
        mask[i, i] = True
    return mask


@njit(cache=True)
def path_to(parents, depths, node):
    """int32[depth + 1]: node indices from the root to ``node``."""
    path = np.empty(depths[node] + 1, dtype=np.int32)
    for i in range(len(path) - 1, -1, -1):
        path[i] = node
        node = parents[node]
    return path


@njit(cache=True)
def longest_accepted(tokens, parents, depths, next_token):
    """Deepest node on a correct path, lowest index on ties (see `recap.core.accept`)."""
    n = len(tokens)
    correct = np.zeros(n, dtype=np.bool_)
    correct[0] = True
    best = 0
    for i in range(1, n):
        parent = parents[i]
        if correct[parent] and tokens[i] == next_token[parent]:
            correct[i] = True
            if depths[i] > depths[best]:
                best = i
    return best
