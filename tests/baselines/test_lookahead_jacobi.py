from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baselines.lookahead_jacobi import LookaheadJacobiDrafter, NgramPool, Window
from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from tests.baselines.drive import VOCABULARY, check_lossless, check_replay, check_request_local

IMAGE, STOP = 98, 99
NOTHING = np.empty(0, np.int32)


def ids(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, np.int32)


def begin(drafter: LookaheadJacobiDrafter, prompt: list[int]) -> None:
    drafter.begin_request(
        RequestContext(ids(prompt), frozenset({IMAGE}), stop_ids=frozenset({STOP}))
    )


def observe(drafter: LookaheadJacobiDrafter, tree: TokenTree, next_token: list[int]) -> None:
    n = len(tree)
    rows = Predictions(ids(next_token), np.empty((n, 0), np.int32), np.empty((n, 0), np.float32))
    drafter.observe(VerifiedStep(tree, rows, tree.tokens[:1], NOTHING, ids([next_token[0]])))


def full_window(drafter: LookaheadJacobiDrafter, rows: list[list[int]]) -> None:
    begin(drafter, [1])
    drafter._window.rows = rows


def test_worked_example_of_the_pool() -> None:
    drafter = LookaheadJacobiDrafter(vocab_size=100, ngram=4, window=3, guesses=2)
    rows = [[11, 12], [20, 21, 22], [30, 31, 32]]
    full_window(drafter, [list(row) for row in rows])
    for newest in ([40, 41, 42], [50, 51, 52], [60, 61, 62], [50, 51, 52]):
        drafter._window.rows = [list(row) for row in rows]
        tree = drafter.propose(ids([10]))
        choices = [0] * len(tree)
        choices[6:9] = newest
        observe(drafter, tree, choices)
        if newest[0] == 40:
            assert drafter._pool.get(10) == [(20, 30, 40)]
            assert drafter._pool.get(11) == [(21, 31, 41)]
            assert drafter._pool.get(12) == [(22, 32, 42)]
        if newest[0] == 60:
            assert drafter._pool.get(10) == [(20, 30, 50), (20, 30, 60)]
    assert drafter._pool.get(10) == [(20, 30, 60), (20, 30, 50)]
    assert drafter._window.rows == [[21, 22], [30, 31, 32], [50, 51, 52]]


@pytest.mark.parametrize(
    ("guess", "after", "committed"),
    [((5, 6, 7), [5, 6, 9, 8], [5, 6, 9]), ((4, 6, 7), [5, 6, 9, 8], [5])],
)
def test_worked_examples_of_verification(
    guess: tuple[int, ...], after: list[int], committed: list[int]
) -> None:
    drafter = LookaheadJacobiDrafter(vocab_size=100, ngram=4, window=3)
    full_window(drafter, [[50, 50], [50] * 3, [50] * 3])
    drafter._pool.add(10, guess)
    assert commits(drafter, after) == committed


def commits(drafter: LookaheadJacobiDrafter, after: list[int]) -> list[int]:
    """What a target commits that chooses ``after`` behind the root and the one guess."""
    tree = drafter.propose(ids([10]))
    choices = np.zeros(len(tree), np.int32)
    num_guessed = len(tree) - 9
    choices[0], choices[9:] = after[0], after[1 : 1 + num_guessed]
    node = longest_accepted(tree, choices)
    return [*tree.tokens[tree.path(node)[1:]].tolist(), int(choices[node])]


@pytest.mark.parametrize(("off_by_one", "committed"), [(False, [5, 6, 7, 8]), (True, [5, 6, 7])])
def test_a_full_hit(off_by_one: bool, committed: list[int]) -> None:
    drafter = LookaheadJacobiDrafter(vocab_size=100, ngram=4, window=3, off_by_one=off_by_one)
    full_window(drafter, [[50, 50], [50] * 3, [50] * 3])
    drafter._pool.add(10, (5, 6, 7))
    assert commits(drafter, [5, 6, 7, 8]) == committed


def hand_built(lengths: list[int], guesses: int, guess_length: int) -> tuple[np.ndarray, list[int]]:
    """The official mask and positions: block 0 (root and row 0) is causal; token i of row r sees
    columns 0..i of the block and column i of rows 1..r; a guess sees the root and itself.
    """
    block = 1 + lengths[0]
    size = block + sum(lengths[1:]) + guesses * guess_length
    mask = np.zeros((size, size), bool)
    mask[:block, :block] = np.tril(np.ones((block, block), bool))
    positions = list(range(block))
    start, starts = block, []
    for r, length in enumerate(lengths[1:], start=1):
        starts.append(start)
        for i in range(length):
            mask[start + i, : i + 1] = True
            mask[start + i, [s + i for s in starts]] = True
            positions.append(r + i)
        start += length
    for _ in range(guesses):
        mask[start : start + guess_length, 0] = True
        for i in range(guess_length):
            mask[start + i, start : start + i + 1] = True
            positions.append(1 + i)
        start += guess_length
    return mask, positions


@pytest.mark.parametrize(("ngram", "window", "guesses"), [(4, 5, 2), (5, 7, 7), (3, 2, 1)])
def test_the_tree_is_the_official_mask_from_warm_up_on(
    ngram: int, window: int, guesses: int
) -> None:
    drafter = LookaheadJacobiDrafter(1000, ngram=ngram, window=window, guesses=guesses)
    begin(drafter, list(range(1, 60)))
    lengths = [window + ngram - 3]
    fresh = 100
    for _ in range(ngram + 2):
        tree = drafter.propose(ids([7]))
        num_guesses = len(drafter._pool.get(7))
        mask, positions = hand_built(lengths, num_guesses, ngram - 1)
        assert [len(row) for row in drafter._window.rows] == lengths
        assert (tree.ancestor_mask() == mask).all()
        assert tree.depths.tolist() == positions
        assert len(tree) <= (ngram - 1) * (window + guesses)
        observe(drafter, tree, list(range(fresh, fresh + len(tree))))
        fresh += len(tree)
        if len(lengths) == 1:
            lengths = [lengths[0] - 1, lengths[0]]
        elif len(lengths) < ngram - 1:
            lengths = [*(length - 1 for length in lengths), lengths[-1] - 1]
    assert lengths == [window - 1] + [window] * (ngram - 2)
    assert num_guesses > 0


def test_columns_are_consecutive_on_a_counting_target() -> None:
    """Where every token is followed by the next number, so is every n-gram behind row 0."""
    drafter = LookaheadJacobiDrafter(vocab_size=1000)
    begin(drafter, [500])
    for root in range(12):
        tree = drafter.propose(ids([root]))
        observe(drafter, tree, (tree.tokens + 1).tolist())
    newest = [token + 1 for token in drafter._window.rows[-1]]
    columns = drafter._window.ngrams(12, newest)[1:]
    assert len(columns) == 6
    assert all(list(c) == list(range(c[0], c[0] + 5)) for c in columns)


def test_a_match_through_the_window_counts() -> None:
    drafter = LookaheadJacobiDrafter(vocab_size=100, ngram=4, window=3)
    full_window(drafter, [[1, 2], [20, 21, 22], [30, 31, 32]])
    tree = drafter.propose(ids([10]))
    choices = np.zeros(len(tree), np.int32)
    choices[0], choices[1], choices[4] = 1, 21, 31  # row 0, then down its column
    node = longest_accepted(tree, choices)
    assert tree.tokens[tree.path(node)].tolist() == [10, 1, 21, 31]


def test_row_0_comes_evenly_from_the_prompt_without_images_and_stops() -> None:
    drafter = LookaheadJacobiDrafter(vocab_size=100)
    begin(drafter, [0, IMAGE, 1, STOP, 2, IMAGE, *range(3, 18)])
    assert drafter._window.rows == [[0, 2, 4, 6, 8, 10, 12, 14, 16]]
    begin(drafter, [*[IMAGE] * 2900, 0, 5])
    assert drafter._window.rows == [[0, 0, 0, 0, 0, 5, 5, 5, 5]]
    begin(drafter, [IMAGE, STOP])
    assert drafter._window.rows == [[0] * 9]


def test_a_predicted_image_never_enters_the_window() -> None:
    drafter = LookaheadJacobiDrafter(vocab_size=100)
    begin(drafter, [3, 4, 5])
    for _ in range(8):
        tree = drafter.propose(ids([7]))
        assert IMAGE not in tree.tokens
        observe(drafter, tree, [IMAGE] * len(tree))


def test_a_root_only_step_leaves_the_window_alone() -> None:
    drafter = LookaheadJacobiDrafter(vocab_size=100)
    begin(drafter, [3, 4, 5])
    before = drafter.propose(ids([7]))
    observe(drafter, TokenTree.root_only(7), [8])
    assert drafter.propose(ids([7])).tokens.tolist() == before.tokens.tolist()


def test_a_request_does_not_see_the_one_before() -> None:
    drafter, alone = LookaheadJacobiDrafter(100), LookaheadJacobiDrafter(100)
    begin(drafter, [9, 8, 7])
    for _ in range(9):
        tree = drafter.propose(ids([7]))
        observe(drafter, tree, [7] * len(tree))
    assert drafter._pool.get(7)
    for one in (drafter, alone):
        begin(one, [3, 4, 5])
    for _ in range(9):
        tree, expected = drafter.propose(ids([7])), alone.propose(ids([7]))
        assert tree.tokens.tolist() == expected.tokens.tolist()
        for one in (drafter, alone):
            observe(one, tree, (tree.tokens + 1).tolist())


def test_the_pool_keeps_the_newest() -> None:
    pool = NgramPool(size=2)
    for ngram in ((1, 1), (2, 2), (3, 3)):
        pool.add(0, ngram)
    assert pool.get(0) == [(2, 2), (3, 3)]
    assert pool.get(5) == []


def test_window_of_row_0_alone() -> None:
    assert Window([4, 5], levels=2).nodes() == ([4, 5], [0, 1])


@pytest.mark.parametrize("options", [{"ngram": 2}, {"window": 1}, {"guesses": 0}])
def test_refuses_settings_without_meaning(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected ngram"):
        LookaheadJacobiDrafter(vocab_size=10, **options)


@pytest.mark.parametrize("options", [{}, {"off_by_one": True}])
def test_keeps_the_contract_of_a_drafter(options: dict[str, Any]) -> None:
    def make() -> LookaheadJacobiDrafter:
        return LookaheadJacobiDrafter(vocab_size=VOCABULARY, **options)

    assert check_lossless(make) > 300
    check_replay(make)
    check_request_local(make)
