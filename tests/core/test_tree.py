from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.core.tree import TokenTree


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 40, alphabet: int = 3) -> TokenTree:
    """Random trees; siblings often hold equal tokens."""
    size = draw(st.integers(1, max_nodes))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, size)]
    depths = [0] * size
    for i in range(1, size):
        depths[i] = depths[parents[i]] + 1
    tokens = draw(st.lists(st.integers(0, alphabet - 1), min_size=size, max_size=size))
    return TokenTree(tokens, parents, depths)


def ancestors(tree: TokenTree, node: int) -> list[int]:
    """From the root to ``node``."""
    parent = int(tree.parents[node])
    return [node] if parent < 0 else [*ancestors(tree, parent), node]


@given(trees())
def test_mask_and_paths_follow_the_parents(tree: TokenTree) -> None:
    mask = tree.ancestor_mask()
    assert mask.shape == (len(tree), len(tree))
    assert mask.dtype == np.bool_
    for node in range(len(tree)):
        path = tree.path(node)
        assert path.dtype == np.int32
        assert path.tolist() == ancestors(tree, node)
        assert np.flatnonzero(mask[node]).tolist() == ancestors(tree, node)
        assert len(path) == tree.depths[node] + 1


def test_makers() -> None:
    root = TokenTree.root_only(7)
    assert (root.tokens.tolist(), root.parents.tolist(), root.depths.tolist()) == ([7], [-1], [0])
    assert root.num_candidates == 0
    chain = TokenTree.chain(5, [6, 7])
    assert chain.tokens.tolist() == [5, 6, 7]
    assert chain.parents.tolist() == [-1, 0, 1]
    assert chain.depths.tolist() == [0, 1, 2]
    assert len(TokenTree.chain(5, [])) == 1


@pytest.mark.parametrize(
    ("tokens", "parents", "depths"),
    [
        ([], [], []),
        ([1], [0], [0]),
        ([1], [-1], [1]),
        ([1, 2], [-1, 1], [0, 1]),
        ([1, 2], [-1, -1], [0, 0]),
        ([1, 2], [-1, 0], [0, 2]),
        ([1, 2], [-1], [0]),
        ([1, 2, 3], [-1, 2, 0], [0, 2, 1]),
    ],
)
def test_what_is_no_tree_is_refused(
    tokens: list[int], parents: list[int], depths: list[int]
) -> None:
    with pytest.raises(ValueError, match="not a token tree"):
        TokenTree(tokens, parents, depths)


def test_arrays_are_frozen_but_the_callers_are_not() -> None:
    tokens = np.array([1, 2], np.int32)
    tree = TokenTree(tokens, [-1, 0], [0, 1])
    with pytest.raises(ValueError, match="read-only"):
        tree.tokens[0] = 3
    tokens[0] = 3  # the caller's own array stays writable


def test_a_path_to_nowhere_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        TokenTree.root_only(1).path(1)
    with pytest.raises(IndexError):
        TokenTree.root_only(1).path(-1)
