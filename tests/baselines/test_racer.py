from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.racer import NgramAutomaton, RacerDrafter
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from tests.baselines.drive import VOCABULARY, check_lossless, check_replay
from tests.reference.racer import ReferenceAutomaton, add_logits_tree

IMAGE = 9


def ids(tokens: Any) -> np.ndarray:
    return np.array(tokens, np.int32)


def rows_of(tokens: list[int], modulus: int, width: int = 8) -> Predictions:
    """The worked examples' target: the rank-r successor of t is (7t + 3 + 5r) mod modulus."""
    table = ids([[(7 * t + 3 + 5 * r) % modulus for r in range(width)] for t in tokens])
    return Predictions(table[:, 0].copy(), table, np.full(table.shape, 1 / width, np.float32))


def begin(drafter: RacerDrafter, prompt: list[int], blocked: tuple[int, ...] = ()) -> None:
    drafter.begin_request(RequestContext(ids(prompt), frozenset(blocked)))


def paths(tree: TokenTree) -> list[tuple[int, ...]]:
    """Every node as its path of tokens, the root left out."""
    found: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens[1:].tolist(), tree.parents[1:].tolist(), strict=True):
        found.append((*found[parent], token))
    assert len(set(found)) == len(found)
    return found[1:]


def children(tree: TokenTree, path: tuple[int, ...] = ()) -> list[int]:
    return [p[-1] for p in paths(tree) if p[:-1] == path]


def predicting(breadths: Literal["released", "paper"], rows: int, width: int = 8) -> RacerDrafter:
    drafter = RacerDrafter(97, rows=rows, breadth=width, breadths=breadths)
    drafter.begin_request(
        RequestContext(ids([]), frozenset(), rows_of(list(range(97)), 97, width), ids(range(97)))
    )
    return drafter


def test_worked_example_of_the_logits_tree() -> None:
    tree = predicting("released", 16).propose(ids([1]))
    assert children(tree) == [10, 15, 20, 25, 30, 35, 40, 45]
    assert children(tree, (10,)) == [73, 78, 83, 88]
    assert children(tree, (15,)) == [11, 16]
    assert children(tree, (20,)) == [46]
    assert len(tree) == 16


def test_paper_figure_9() -> None:
    """Token t's successors are 4t + 1 .. 4t + 4; 21 rows."""
    drafter = RacerDrafter(vocab_size=1024, breadth=4, rows=21, breadths="paper")
    table = ids([[4 * t + j for j in range(1, 5)] for t in range(1024)])
    rows = Predictions(table[:, 0].copy(), table, np.full(table.shape, 0.25, np.float32))
    drafter.begin_request(RequestContext(ids([]), frozenset(), rows, ids(range(1024))))
    tree = drafter.propose(ids([0]))
    found = set(paths(tree))
    leaves = {p for p in found if not any(q[:-1] == p for q in found)}
    assert leaves == {
        (4, 17), (1, 5, 21), (1, 5, 22), (1, 6, 25), (1, 7, 29), (1, 8, 33), (2, 9, 37),
        (2, 10, 41), (3, 13, 53),
    }  # fmt: skip
    assert len(tree) == 21


def test_worked_example_of_retrieval() -> None:
    drafter = RacerDrafter(vocab_size=100, ngram=4, rows=64)
    text = [1, 2, 3, 4, 5, 1, 2, 3, 6, 7]
    begin(drafter, text)
    automaton, draft = drafter._automaton, drafter._draft
    assert automaton.retrieve(2, 64, draft) == (0, 0)
    automaton.enter(2)
    size, taken = automaton.retrieve(3, 64, draft)
    assert (size, taken) == (4, 5)
    found: dict[int, tuple[int, ...]] = {-1: ()}
    for node in range(size):
        found[node] = (*found[int(draft.parents[node])], int(draft.tokens[node]))
    assert set(found.values()) == {(), (4,), (4, 5), (6,), (6, 7)}


def test_retrieved_branches_come_first_and_rows_never_exceed_64() -> None:
    drafter = predicting("released", 64)
    begin(drafter, [1, 2, 3, *range(20, 27), 1, 2, 3, *range(30, 37), 90])
    drafter._automaton.enter(2)
    tree = drafter.propose(ids([1, 2, 3]))
    assert len(tree) <= 64
    assert {(20, *range(21, 27)), (30, *range(31, 37))} <= set(paths(tree))
    assert children(tree)[2:] == [24, 29, 34, 39, 44, 49, 54, 59]


TEXT = st.lists(st.integers(0, 4), max_size=25)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), TEXT),
        st.tuples(st.just("link"), st.just([])),
        st.tuples(st.just("enter"), st.lists(st.integers(0, 5), min_size=1, max_size=3)),
        st.tuples(st.just("follow"), st.lists(st.integers(0, 5), min_size=1, max_size=5)),
    ),
    max_size=25,
)


@settings(max_examples=300)
@given(OPERATIONS, st.integers(2, 5), st.integers(0, 40), st.integers(1, 20))
def test_the_automaton_equals_one_of_objects(
    operations: list[tuple[str, list[int]]], size: int, spare: int, limit: int
) -> None:
    """Insertions, evictions, links, and every way to move the cursor."""
    automaton = NgramAutomaton(size, size + 2 + spare)
    reference = ReferenceAutomaton(size, size + 2 + spare)
    room = RacerDrafter(vocab_size=6)._draft
    for name, tokens in operations:
        if name == "insert":
            automaton.insert(ids(tokens), ids([3]))
            reference.insert(tokens, {3})
        elif name == "link":
            automaton.link_failures()
            reference.link_failures()
        elif name == "enter":
            for token in tokens:
                automaton.enter(token)
                reference.enter(token)
        else:
            automaton.follow(ids(tokens))
            reference.follow(tokens)
        for root in range(6):
            expected, expected_taken = reference.retrieve(root, limit)
            drafted, taken = automaton.retrieve(root, limit, room)
            tokens_of, parents_of = room.tokens[:drafted], room.parents[:drafted]
            found: list[tuple[int, ...]] = []
            for token, parent in zip(tokens_of.tolist(), parents_of.tolist(), strict=True):
                found.append((*(found[parent] if parent >= 0 else ()), token))
            assert (found, taken) == (list(expected), expected_taken)


@settings(max_examples=300)
@given(
    st.lists(st.lists(st.integers(0, 11), min_size=3, max_size=3), min_size=12, max_size=12),
    st.lists(st.integers(0, 11), max_size=30),
    st.integers(1, 30),
    st.booleans(),
    st.booleans(),
)
def test_the_merged_tree_equals_the_reference(
    table: list[list[int]], text: list[int], rows: int, released: bool, refill: bool
) -> None:
    drafter = RacerDrafter(
        12,
        ngram=4,
        breadth=3,
        rows=rows,
        breadths="released" if released else "paper",
        refill=refill,
    )
    reference = ReferenceAutomaton(4, 10_000)
    begin(drafter, text, (IMAGE,))
    reference.insert(text, {IMAGE})
    reference.link_failures()
    drafter._matrix[:] = table
    for root in range(12):
        expected, taken = reference.retrieve(root, rows)
        spent = len(expected) if refill else taken
        add_logits_tree(expected, table, root, rows - 1, spent, released, refill, {IMAGE})
        tree = drafter.propose(ids([root]))
        assert paths(tree) == list(expected)
        assert len(tree) <= rows
        drafter._automaton.enter(root)
        reference.enter(root)


@pytest.mark.parametrize(("refill", "expected"), [(True, 6), (False, 3)])
def test_repeated_predictions(refill: bool, expected: int) -> None:
    """Token 10 is followed by 20 alone, four times; 20 by four others."""
    drafter = RacerDrafter(64, breadth=4, rows=6, breadths="paper", refill=refill)
    drafter._matrix[10], drafter._matrix[20] = 20, [30, 31, 32, 33]
    tree = drafter.propose(ids([10]))
    assert children(tree) == [20]
    assert len(tree) == expected


def step(tree: TokenTree, history: list[int], accepted: list[int]) -> VerifiedStep:
    rows = rows_of(tree.tokens.tolist(), 97)
    return VerifiedStep(tree, rows, ids(history), ids(accepted), ids([1]))


def test_the_last_write_of_a_row_stays() -> None:
    drafter = RacerDrafter(vocab_size=97)
    begin(drafter, [1])
    tree = TokenTree([1, 5, 5], [-1, 0, 0], [0, 1, 1])
    rows = rows_of([1, 2, 3], 97)
    drafter.observe(VerifiedStep(tree, rows, ids([1]), ids([]), ids([4])))
    assert drafter._matrix[5].tolist() == rows.topk_ids[2].tolist()
    assert not drafter._matrix[6].any()


def test_new_ngrams_end_at_the_root_and_at_accepted_tokens() -> None:
    drafter = RacerDrafter(vocab_size=97, ngram=3)
    begin(drafter, [1, 2])
    tree = TokenTree.chain(3, [4, 5, 6])
    drafter.observe(step(tree, [1, 2, 3], [1, 2]))
    nodes = drafter._automaton.arrays.nodes
    assert nodes[0, 5] == 3  # 1 2 3, 2 3 4, 3 4 5
    drafter.observe(step(TokenTree.root_only(7), [1, 2, 3, 4, 5, 7], []))
    assert nodes[0, 5] == 4  # 4 5 7


def test_images_are_neither_stored_nor_drafted() -> None:
    drafter = RacerDrafter(vocab_size=10, ngram=3)
    begin(drafter, [1, 2, *[IMAGE] * 2900, 1, 2, 3], (IMAGE,))
    assert drafter._automaton.arrays.header[0] == 1 + 3
    drafter._matrix[:] = IMAGE
    assert drafter.propose(ids([1])).tokens.tolist() == [1]


def test_vocabulary_edges() -> None:
    drafter = RacerDrafter(vocab_size=10)
    begin(drafter, [0, 9])
    assert drafter._matrix.shape == (10, 8)
    tree = drafter.propose(ids([0, 9]))
    assert set(tree.tokens.tolist()) == {0, 9}  # zero rows draft token 0
    tiny = RacerDrafter(vocab_size=3)
    begin(tiny, [2])
    tiny.observe(
        VerifiedStep(TokenTree.root_only(2), rows_of([2], 3, 3), ids([2]), ids([]), ids([0]))
    )
    assert tiny._matrix[2].tolist() == rows_of([2], 3, 3).topk_ids[0].tolist()


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=20), max_size=5), st.integers(0, 9)
)
def test_a_loaded_stream_goes_on_as_if_never_saved(prompts: list[list[int]], spare: int) -> None:
    options = {"ngram": 3, "max_nodes": 5 + spare}
    drafter = RacerDrafter(vocab_size=97, **options)
    for prompt in prompts:
        loaded = RacerDrafter(vocab_size=97, **options)
        loaded.load_stream_state(drafter.stream_state())
        history = [*prompt, 1]
        for one in (drafter, loaded):
            begin(one, prompt)
        for _ in range(4):
            tree, again = drafter.propose(ids(history)), loaded.propose(ids(history))
            assert paths(tree) == paths(again) == paths(drafter.propose(ids(history)))
            accepted = tree.path(len(tree) - 1)[1:].tolist()
            for one in (drafter, loaded):
                one.observe(step(tree, history, accepted))
            history += [*tree.tokens[accepted].tolist(), 1 + len(history) % 5]


def test_reset_forgets_the_stream() -> None:
    drafter, fresh = RacerDrafter(vocab_size=97), RacerDrafter(vocab_size=97)
    begin(drafter, list(range(20)))
    drafter.observe(step(TokenTree.root_only(5), [1, 5], []))
    drafter.reset_stream()
    for name, array in drafter.stream_state().items():
        assert np.array_equal(array, fresh.stream_state()[name])


@pytest.mark.parametrize(
    "options", [{"ngram": 1}, {"max_nodes": 5}, {"rows": 0}, {"breadths": "x"}]
)
def test_refuses_settings_without_meaning(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least|breadths"):
        RacerDrafter(vocab_size=10, **options)


@pytest.mark.parametrize(
    "options", [{}, {"ngram": 4, "max_nodes": 20}, {"breadths": "paper", "refill": False}]
)
def test_keeps_the_contract_of_a_drafter(options: dict[str, Any]) -> None:
    def make() -> RacerDrafter:
        return RacerDrafter(vocab_size=VOCABULARY, **options)

    assert check_lossless(make) > 300
    check_replay(make)
