from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.lookahead import BranchTrie, LookaheadDrafter, pieces_between
from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.kernels import tries
from recap.core.tree import TokenTree
from tests.baselines.drive import VOCABULARY, check_lossless, check_replay
from tests.reference.lookahead import ReferenceTrie

PROMPT = [1, 10, 11, 12, 13, 10, 11, 14, 15]
IMAGE, STOP = 9, 8
NOTHING = np.empty(0, np.int32)


def ids(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, np.int32)


def begin(drafter: LookaheadDrafter, prompt: list[int]) -> None:
    drafter.begin_request(
        RequestContext(ids(prompt), frozenset({IMAGE}), stop_ids=frozenset({STOP}))
    )


def commit(drafter: LookaheadDrafter, history: list[int], tokens: list[int]) -> None:
    tree = TokenTree.root_only(history[-1])
    rows = Predictions(ids([0]), np.empty((1, 0), np.int32), np.empty((1, 0), np.float32))
    drafter.observe(VerifiedStep(tree, rows, ids(history), NOTHING, ids(tokens)))


def drafted(tree: TokenTree) -> tuple[list[int], list[int]]:
    return tree.tokens.tolist(), tree.parents.tolist()


@pytest.fixture
def prompted() -> LookaheadDrafter:
    drafter = LookaheadDrafter(vocab_size=100)
    begin(drafter, PROMPT)
    return drafter


def test_l1_the_sub_trie_in_preorder(prompted: LookaheadDrafter) -> None:
    tree = prompted.propose(ids([10, 11]))
    assert tree.tokens.tolist() == [11, 12, 13, 10, 11, 14, 15, 14, 15]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 3, 4, 5, 0, 7]
    assert tree.depths.tolist() == [0, 1, 2, 3, 4, 5, 6, 1, 2]


def test_l2_an_unknown_last_token_drafts_nothing(prompted: LookaheadDrafter) -> None:
    assert prompted.propose(ids([15, 99])).tokens.tolist() == [99]


def test_l3_a_shorter_suffix(prompted: LookaheadDrafter) -> None:
    tree = prompted.propose(ids([9, 10]))
    assert tree.tokens.tolist() == [10, 11, 12, 13, 10, 11, 14, 15, 14, 15]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 3, 4, 5, 6, 1, 8]


def test_l4_the_prompt_dominates_then_output_counts() -> None:
    trie = BranchTrie()
    for branch in ([5, 6, 7, 8], [5, 6, 7, 9], [5, 6, 7, 9], [5, 6, 7, 9]):
        trie.insert(ids(branch), 13, tries.OUTPUT)
    trie.insert(ids([5, 6, 7, 30]), 13, tries.PROMPT)
    assert trie.query([6, 7]).tokens.tolist() == [7, 30, 9, 8]
    assert trie.query([6, 7], decoding_length=3, min_output=1).tokens.tolist() == [7, 30, 9]


def test_l5_tokens_wait_for_their_followers() -> None:
    drafter = LookaheadDrafter(vocab_size=100, branch_length=2)
    begin(drafter, [1, 2])

    def behind(token: int) -> tuple[list[int], list[int]]:
        return drafted(drafter.propose(ids([99, token])))

    commit(drafter, [1, 2, 21], [22, 23])
    assert behind(21) == ([21], [-1])
    commit(drafter, [1, 2, 21, 22, 23], [24])
    full = drafter._trie.query([21], branch_length=9)
    assert full.tokens.tolist() == [21, 22, 23, 24]
    assert behind(22) == ([22], [-1])
    commit(drafter, [1, 2, 21, 22, 23, 24], [25, 26])
    assert drafter._trie.query([22], branch_length=9).tokens.tolist() == [22, 23, 24, 25]
    assert drafter._trie.query([23], branch_length=9).tokens.tolist() == [23, 24, 25, 26]
    assert behind(24) == ([24], [-1])
    begin(drafter, [1, 2])
    assert behind(24) == ([24, 25, 26], [-1, 0, 1])
    assert behind(25) == ([25, 26], [-1, 0])


def test_l6_the_tree_is_verified_as_a_tree(prompted: LookaheadDrafter) -> None:
    tree = prompted.propose(ids([10, 11]))
    choices = np.zeros(len(tree), np.int32)
    choices[[0, 7, 8]] = 14, 15, 77
    node = longest_accepted(tree, choices)
    assert tree.path(node).tolist() == [0, 7, 8]
    assert [*tree.tokens[tree.path(node)[1:]].tolist(), int(choices[node])] == [14, 15, 77]


def test_l7_a_crowded_sub_trie() -> None:
    drafter = LookaheadDrafter(vocab_size=1000)
    branches = [[7, *range(100 + 12 * i, 112 + 12 * i)] for i in range(10)]
    begin(drafter, [1, *[t for branch in branches for t in [*branch, IMAGE]]])
    assert drafter.propose(ids([99, 7])).num_candidates == 63
    assert drafter._trie.query([99, 7], min_output=0).num_candidates == 0  # as the paper's row


BRANCHES = st.lists(
    st.tuples(st.lists(st.integers(0, 4), max_size=25), st.booleans(), st.booleans()),
    max_size=12,
)


@settings(max_examples=150)
@given(BRANCHES, st.booleans(), st.integers(2, 12), st.integers(1, 6), st.integers(0, 4))
def test_equals_nested_dicts(
    operations: list[tuple[list[int], bool, bool]],
    keep: bool,
    decoding_length: int,
    branch_length: int,
    min_output: int,
) -> None:
    """Insertions of both kinds, request ends with a squeeze, and every query of one or two
    tokens.
    """
    trie, reference = BranchTrie(capacity=16), ReferenceTrie()
    for sequence, is_prompt, ends in operations:
        kind = tries.PROMPT if is_prompt else tries.OUTPUT
        trie.insert(ids(sequence), branch_length + 1, kind)
        reference.insert(sequence, branch_length + 1, is_prompt)
        if ends:
            trie.forget_prompt(keep)
            reference.forget_prompt(keep)
            if trie.num_updated() >= 3:
                trie.squeeze(20, 8)
            if len(reference.updated) >= 3:
                reference.squeeze(20, 8)
        assert trie.num_updated() == len(reference.updated)
        for query in ([0], [1], [0, 1], [2, 2], [4, 3]):
            sizes = (decoding_length, branch_length, min_output)
            assert drafted(trie.query(query, *sizes)) == reference.query(query, *sizes)


def test_dead_prompt_nodes_go_with_their_request(prompted: LookaheadDrafter) -> None:
    begin(prompted, [1, 2])
    assert prompted.propose(ids([10, 11])).num_candidates == 0
    assert prompted._trie.arrays.nodes[0, 2] == -1
    kept = LookaheadDrafter(vocab_size=100, keep_prompt_nodes=True)
    begin(kept, PROMPT)
    begin(kept, [1, 2])
    assert kept.propose(ids([10, 11])).num_candidates == 8  # the last token's sub-trie, count zero


def test_a_confirmed_prompt_branch_stays() -> None:
    drafter = LookaheadDrafter(vocab_size=100)
    begin(drafter, [1, 4, 5, 6])
    commit(drafter, [1, 4, 5, 6, 4], [5])
    begin(drafter, [1])
    assert drafter.propose(ids([1, 4])).tokens.tolist() == [4, 5]


def test_neither_stop_ids_nor_images_are_drafted() -> None:
    drafter = LookaheadDrafter(vocab_size=100)
    prompt = [1, 2, 3, STOP, 2, 4, IMAGE, IMAGE, 2, 5, 0, 6]
    begin(drafter, prompt)
    assert drafter.propose(ids([50, 2])).tokens.tolist() == [2, 3, 4, 5, 0, 6]
    assert drafter.propose(ids([50, 0])).tokens.tolist() == [0, 6]  # id 0 is a token
    commit(drafter, [*prompt, 30], [31, IMAGE, 32, 33, STOP])
    begin(drafter, [1])
    assert drafter.propose(ids([50, 30])).tokens.tolist() == [30, 31]
    assert drafter.propose(ids([50, 32])).tokens.tolist() == [32, 33]
    assert drafter.propose(ids([50, 33])).tokens.tolist() == [33]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 9), min_size=1, max_size=30),
            st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9), max_size=5),
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_a_loaded_stream_goes_on_as_if_never_saved(
    requests: list[tuple[list[int], list[list[int]]]], keep: bool
) -> None:
    options = {"branch_length": 3, "squeeze_after": 4, "keep_prompt_nodes": keep}
    options |= {"max_nodes": 30, "max_output_nodes": 6}
    drafter = LookaheadDrafter(vocab_size=10, **options)
    for prompt, pieces in requests:
        begin(drafter, prompt)
        history = [*prompt, 7]
        for piece in pieces:
            commit(drafter, history, piece)
            history += piece
            loaded = LookaheadDrafter(vocab_size=10, **options)
            loaded.load_stream_state(drafter.stream_state())
            for token in range(10):
                query = ids([history[-1], token])
                assert drafted(loaded.propose(query)) == drafted(drafter.propose(query))


def test_a_run_of_placeholders_is_cut_once() -> None:
    tokens = ids([1, *[IMAGE] * 2900, 2])
    assert [p.tolist() for p in pieces_between(tokens, frozenset({IMAGE}))] == [[1], [2]]


def test_refuses_lengths_below_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LookaheadDrafter(vocab_size=10, branch_length=0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"branch_length": 3, "squeeze_after": 2, "max_output_nodes": 10},
        {"keep_prompt_nodes": True},
    ],
)
def test_keeps_the_contract_of_a_drafter(options: dict[str, Any]) -> None:
    def make() -> LookaheadDrafter:
        return LookaheadDrafter(vocab_size=VOCABULARY, **options)

    assert check_lossless(make) > 300
    check_replay(make)
