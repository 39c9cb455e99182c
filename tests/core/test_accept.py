from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.core.accept import longest_accepted
from recap.core.tree import TokenTree
from tests.core.test_tree import trees


def brute_force(tree: TokenTree, choices: list[int]) -> int:
    """The deepest node all of whose path agrees; of equally deep ones the first."""
    best = 0
    for node in range(len(tree)):
        path = tree.path(node).tolist()
        agrees = all(tree.tokens[child] == choices[parent] for parent, child in pairwise(path))
        if agrees and tree.depths[node] > tree.depths[best]:
            best = node
    return best


@given(trees(), st.data())
def test_equals_brute_force(tree: TokenTree, data: st.DataObject) -> None:
    choices = data.draw(st.lists(st.integers(0, 2), min_size=len(tree), max_size=len(tree)))
    assert longest_accepted(tree, choices) == brute_force(tree, choices)


def test_equal_siblings_are_all_followed() -> None:
    #       0
    #      / \
    #     1   1      the second of two equal siblings has the longer path
    #          \
    #           2
    tree = TokenTree([0, 1, 1, 2], [-1, 0, 0, 2], [0, 1, 1, 2])
    assert longest_accepted(tree, [1, 9, 2, 9]) == 3
    assert longest_accepted(tree, [1, 9, 9, 9]) == 1
    assert longest_accepted(tree, [9, 9, 9, 9]) == 0


def test_one_choice_per_node() -> None:
    with pytest.raises(ValueError, match="has 1 nodes"):
        longest_accepted(TokenTree.root_only(1), [1, 2])
