from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.tree_recycling import TreeRecyclingDrafter
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from tests.baselines import drive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.core.tree import TokenTree

IMAGE = 9
NO_TOKENS = np.empty(0, np.int32)

Edges = tuple[tuple[int, int], ...]


def make(vocab_size: int = drive.VOCABULARY) -> TreeRecyclingDrafter:
    return TreeRecyclingDrafter(vocab_size=vocab_size)


def predictions(rows: Sequence[Sequence[int]]) -> Predictions:
    ids = np.array(rows, np.int32).reshape(-1, 4)
    probs = np.full(ids.shape, 1 / ids.shape[1], np.float32)
    return Predictions(ids[:, 0].copy(), ids, probs)


def begin(drafter: TreeRecyclingDrafter, rows: dict[int, list[int]], blocked: int = IMAGE) -> None:
    """A prompt with one row per token."""
    tokens = np.array(list(rows), np.int32)
    drafter.begin_request(
        RequestContext(tokens, frozenset({blocked}), predictions(list(rows.values())), tokens)
    )


def paths(tree: TokenTree) -> list[list[int]]:
    """The tokens from the root to every node, in packed order."""
    return [tree.tokens[tree.path(node)].tolist() for node in range(len(tree))]


def expected_paths(rows: dict[int, list[int]], root: int, blocked: int) -> list[list[int]]:
    """Written from the description, depth-first: width 2, depth 4."""
    found: list[list[int]] = []

    def visit(path: list[int]) -> None:
        found.append(path)
        if len(path) == 5:
            return
        children = rows.get(path[-1], [])[:2]
        edges = list(itertools.pairwise(path))
        for rank, token in enumerate(children):
            fresh = token not in children[:rank] and (path[-1], token) not in edges
            if fresh and token != blocked:
                visit([*path, token])

    visit([root])
    return found


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.integers(0, 8), st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1
    ),
    st.integers(0, 8),
)
def test_equals_the_description(rows: dict[int, list[int]], root: int) -> None:
    drafter = make()
    begin(drafter, rows)
    tree = drafter.propose(np.array([1, root], np.int32))
    assert paths(tree) == expected_paths(rows, root, IMAGE)


def test_a_full_tree_has_30_candidates() -> None:
    drafter = make(vocab_size=100)
    begin(drafter, {n: [2 * n + 1, 2 * n + 2, 98, 99] for n in range(31)}, blocked=97)
    tree = drafter.propose(np.array([0], np.int32))
    assert np.bincount(tree.depths).tolist() == [1, 2, 4, 8, 16]
    assert drafter.needs.topk == 4
    assert drafter.needs.prompt_rows


def test_what_is_dropped_is_not_replaced() -> None:
    drafter = make()
    begin(drafter, {1: [IMAGE, 2, 3, 4], 2: [1, 5, 6, 7], 5: [8, 8, 3, 4]})
    tree = drafter.propose(np.array([1], np.int32))
    # 1 -> image is blocked; 1 -> 2 is on the path already below 2 -> 1; 8 comes once; 8 has no row.
    assert paths(tree) == [[1], [1, 2], [1, 2, 1], [1, 2, 5], [1, 2, 5, 8]]


def test_every_node_writes_and_the_first_of_a_step_wins() -> None:
    drafter = make()
    begin(drafter, {1: [2, 3, 4, 5], 2: [1, 4, 5, 6]})
    history = np.array([1], np.int32)
    tree = drafter.propose(history)
    assert tree.tokens.tolist() == [1, 2, 1, 3, 4, 3]
    rows = [[6, 7, 0, 0], [8, 0, 0, 0], [0, 0, 0, 0], [8, 0, 0, 0], [5, 5, 5, 5], [4, 4, 4, 4]]
    drafter.observe(VerifiedStep(tree, predictions(rows), history, NO_TOKENS, NO_TOKENS))
    assert paths(drafter.propose(history))[1] == [1, 6]  # the root's row, not node 2's
    assert paths(drafter.propose(np.array([3], np.int32)))[:2] == [[3], [3, 8]]  # node 3's


def test_without_rows_nothing_is_drafted() -> None:
    drafter = make()
    drafter.begin_request(RequestContext(NO_TOKENS, frozenset(), predictions([]), NO_TOKENS))
    assert len(drafter.propose(np.array([9], np.int32))) == 1


def test_a_request_forgets_the_last_one() -> None:
    drafter = make()
    begin(drafter, {1: [2, 3, 4, 5]})
    begin(drafter, {2: [2, 3, 4, 5]})
    assert len(drafter.propose(np.array([1], np.int32))) == 1
    assert drafter.stream_state() == {}


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="width must be a whole number at least 1, got 0"):
        TreeRecyclingDrafter(vocab_size=10, width=0)


def test_contract() -> None:
    assert drive.check_lossless(make) > 0
    drive.check_replay(make)
    drive.check_request_local(make)
