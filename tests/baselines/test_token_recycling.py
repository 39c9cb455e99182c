from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.token_recycling import PATHS, TEMPLATE, TokenRecyclingDrafter
from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from tests.baselines import drive

if TYPE_CHECKING:
    from collections.abc import Callable

    from recap.core.interfaces import IntArray

# Parent of each node, as runs of (value, length).
PARENT_RUNS = """
-1x1 0x8 1x8 2x4 3x3 4x2 5x1 6x1 7x1 8x1 9x8 10x3 11x2 12x1 13x1 14x1 15x1 16x1 17x2 18x1 21x1 24x1
26x1 27x1 30x5 31x2 32x1 33x1 34x1 38x1 41x1 48x1 51x1 52x1 55x3 56x1 57x1 60x1 65x1 67x1 70x2 73x1
"""
NUM_CHILDREN = """
0:8 1:4 2:3 3:2 4:1 5:1 6:1 7:1 00:8 01:3 02:2 03:1 04:1 05:1 06:1 07:1 10:2 11:1 20:1 30:1 40:1
50:1 000:5 001:2 002:1 003:1 004:1 010:1 020:1 100:1 200:1 300:1 0000:3 0001:1 0002:1 0010:1 0100:1
1000:1 00000:2 00010:1
"""


# --- topology -------------------------------------------------------------------------------------


def test_parents() -> None:
    parents: list[int] = []
    for run in PARENT_RUNS.split():
        value, length = run.split("x")
        parents += [int(value)] * int(length)
    assert TEMPLATE.parents.tolist() == parents
    assert len(parents) == 81


def test_layers() -> None:
    layers = [layer for layer, _, _ in TEMPLATE.layers]
    assert [layer.start for layer in layers] == [1, 9, 30, 55, 70, 78]
    assert layers[-1].stop == 81
    assert np.bincount(TEMPLATE.depths).tolist() == [1, 8, 21, 25, 15, 8, 3]


def test_paths_are_prefix_closed_and_sorted() -> None:
    paths = PATHS.split()
    assert paths == sorted(paths, key=lambda path: (len(path), path))
    assert {path[:-1] for path in paths} <= {"", *paths}
    counts = Counter(path[:-1] for path in paths)
    expected = dict(entry.split(":") for entry in NUM_CHILDREN.split()) | {"": "8"}
    assert counts == {path: int(count) for path, count in expected.items()}
    leaves = Counter(len(path) for path in paths if path not in counts)
    assert leaves == {2: 7, 3: 15, 4: 9, 5: 6, 6: 3}


def test_attention_row_and_positions() -> None:
    """TR-5."""
    tree = TokenTree(np.zeros(81, np.int32), TEMPLATE.parents, TEMPLATE.depths)
    assert np.flatnonzero(tree.ancestor_mask()[80]).tolist() == [0, 1, 9, 30, 56, 73, 80]
    assert tree.depths[:12].tolist() == [0, *[1] * 8, 2, 2, 2]


def test_a_smaller_tree_is_the_beginning_of_the_whole_one() -> None:
    whole = TokenRecyclingDrafter(vocab_size=8)
    history = np.array([3], np.int32)
    for count in (1, 8, 9, 63, 80):
        tree = TokenRecyclingDrafter(vocab_size=8, max_candidates=count).propose(history)
        assert tree.num_candidates == count
        kept = whole.propose(history)
        assert tree.parents.tolist() == kept.parents[: count + 1].tolist()
        assert tree.tokens.tolist() == kept.tokens[: count + 1].tolist()
    refused: list[Any] = [0, 81, "x", 6.5]
    for count in refused:
        with pytest.raises(ValueError, match="max_candidates must be a whole number from 1 to 80"):
            TokenRecyclingDrafter(vocab_size=8, max_candidates=count)


# --- drafting and updating ------------------------------------------------------------------------


def by_path(tree: TokenTree) -> dict[str, int]:
    return dict(zip(["", *PATHS.split()], tree.tokens.tolist(), strict=True))


def write(drafter: TokenRecyclingDrafter, rows: dict[int, list[int]]) -> None:
    """Rows by token, as one observed step."""
    tokens = np.array(list(rows), np.int32)
    zeros = np.zeros(len(tokens), np.int32)
    ids = np.array(list(rows.values()), np.int32)
    predictions = Predictions(ids[:, 0].copy(), ids, np.zeros(ids.shape, np.float32))
    tree = TokenTree(tokens, zeros - (np.arange(len(zeros)) == 0), np.minimum(1, range(len(zeros))))
    drafter.observe(VerifiedStep(tree, predictions, tokens[:1], zeros[:0], ids[:1, 0]))


def test_filling() -> None:
    """TR-1."""
    drafter = TokenRecyclingDrafter(vocab_size=100)
    write(drafter, {t: list(range(b, b + 8)) for t, b in [(10, 20), (20, 30), (21, 40)]})
    write(drafter, {t: list(range(b, b + 8)) for t, b in [(30, 50), (50, 60)]})
    tokens = by_path(drafter.propose(np.array([10], np.int32)))
    expected = """0:20 7:27 00:30 07:37 10:40 13:43 20:0 70:0 000:50 007:57 010:0 100:0 0000:60
    0004:64 00000:0 000100:0"""
    for entry in expected.split():
        path, token = entry.split(":")
        assert tokens[path] == int(token), path


def step(
    drafter: TokenRecyclingDrafter, history: list[int], successor: Callable[[int, int, int], int]
) -> TokenTree:
    """One iteration on a fake language model; ``history`` grows."""
    view = np.array(history, np.int32)
    tree = drafter.propose(view)
    positions = len(history) - 1 + tree.depths
    rows = [
        [successor(token, rank, position) for rank in range(8)]
        for token, position in zip(tree.tokens.tolist(), positions.tolist(), strict=True)
    ]
    ids = np.array(rows, np.int32)
    predictions = Predictions(ids[:, 0].copy(), ids, np.zeros(ids.shape, np.float32))
    node = longest_accepted(tree, predictions.next_token)
    accepted = tree.path(node)[1:]
    committed = np.append(tree.tokens[accepted], predictions.next_token[node])
    history += committed.tolist()
    drafter.observe(VerifiedStep(tree, predictions, view, accepted, committed))
    return tree


def plain(token: int, rank: int, position: int) -> int:
    return (7 * token + 3 + 5 * rank) % 48


def run(drafter: TokenRecyclingDrafter, prompt: list[int], steps: int) -> list[int]:
    """Tokens per iteration, as the official loop counts: the root and the accepted ones."""
    history, lengths = list(prompt), []
    for _ in range(steps):
        before = len(history)
        step(drafter, history, plain)
        lengths.append(len(history) - before)
    return lengths


def test_official_generation() -> None:
    """TR-2. The official loop keeps the last prompt token out of prefill, so driving the drafter
    from the whole prompt is the same thing.
    """
    drafter = TokenRecyclingDrafter(vocab_size=50)
    history = [5, 9, 1]
    trees = [step(drafter, history, plain)]
    assert trees[0].tokens.tolist() == [1] + [0] * 80
    assert drafter._matrix[1].tolist() == [10, 15, 20, 25, 30, 35, 40, 45]
    trees += [step(drafter, history, plain) for _ in range(4)]
    assert trees[1].tokens[:10].tolist() == [10] + [0] * 8 + [3]
    assert trees[3].tokens[:9].tolist() == [34, 1, 6, 11, 16, 21, 26, 31, 36]
    # The newest token is the root of a sixth tree, which the official output ends before.
    assert history[:-1] == [5, 9, 1, *[10, 25, 34, 1] * 4]
    assert run(TokenRecyclingDrafter(vocab_size=50), [5, 9, 1], 5) == [1, 1, 1, 7, 7]


def test_the_matrix_outlives_a_request() -> None:
    """TR-3."""
    drafter = TokenRecyclingDrafter(vocab_size=50)
    run(drafter, [5, 9, 1], 5)
    drafter.begin_request(RequestContext(np.array([7], np.int32), frozenset()))
    assert run(drafter, [7, 1], 2) == [7, 7]
    drafter.reset_stream()
    assert run(drafter, [7, 1], 5) == [1, 1, 1, 7, 7]


@pytest.mark.parametrize(
    ("duplicates", "row"),
    [
        ("first", [6, 11, 16, 21, 26, 31, 36, 41]),  # node 1, position 3
        ("last", [11, 16, 21, 26, 31, 36, 41, 46]),  # node 80, position 8
    ],
)
def test_duplicate_rule(duplicates: str, row: list[int]) -> None:
    """TR-4."""
    drafter = TokenRecyclingDrafter(vocab_size=50, duplicates=duplicates)
    step(drafter, [5, 9, 1], lambda t, r, p: (7 * t + 3 + 5 * r + p) % 48)
    assert drafter._matrix[0].tolist() == row


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**31 - 1)), min_size=1, max_size=30),
    st.booleans(),
    st.integers(1, 8),
)
def test_matrix_equals_a_loop_over_nodes(
    nodes: list[tuple[int, int]], first: bool, row_length: int
) -> None:
    drafter = TokenRecyclingDrafter(vocab_size=10, duplicates="first" if first else "last")
    expected = np.zeros((10, 8), int)
    for _ in range(2):
        written: set[int] = set()
        rows = []
        for token, seed in nodes:
            rows.append(np.random.default_rng(seed).integers(0, 10, row_length))
            if not first or token not in written:
                expected[token, :row_length] = rows[-1]
            written.add(token)
        tokens = np.array([token for token, _ in nodes], np.int32)
        ids = np.array(rows, np.int32)
        predictions = Predictions(ids[:, 0].copy(), ids, np.zeros(ids.shape, np.float32))
        observed = TokenTree.chain(int(tokens[0]), tokens[1:])
        no_tokens: IntArray = tokens[:0]
        drafter.observe(VerifiedStep(observed, predictions, tokens[:1], no_tokens, no_tokens))
        assert drafter._matrix.tolist() == expected.tolist()
        nodes = nodes[::-1]


def test_prompt_rows_are_written_only_on_request() -> None:
    ids = np.array([[4] * 8, [5] * 8], np.int32)
    rows = Predictions(ids[:, 0].copy(), ids, np.zeros(ids.shape, np.float32))
    prompt = np.array([8, 9], np.int32)
    seeded = TokenRecyclingDrafter(vocab_size=10, seed_prompt=True)
    assert seeded.needs.prompt_rows
    seeded.begin_request(RequestContext(prompt, frozenset(), rows, prompt))
    assert seeded.propose(prompt).tokens[:9].tolist() == [9] + [5] * 8
    assert not TokenRecyclingDrafter(vocab_size=10).needs.prompt_rows


def test_a_prompt_may_have_no_rows() -> None:
    """A prompt of image placeholders alone."""
    drafter = TokenRecyclingDrafter(vocab_size=10, seed_prompt=True)
    none = np.empty((0, 8), np.int32)
    rows = Predictions(none[:, 0], none, none.astype(np.float32))
    drafter.begin_request(RequestContext(np.array([9], np.int32), frozenset({9}), rows, none[:, 0]))
    assert drafter.stream_state()["tokens"].tolist() == []


def test_state_holds_the_rows_that_are_written() -> None:
    drafter = TokenRecyclingDrafter(vocab_size=152_064)
    assert drafter.stream_state()["tokens"].tolist() == []
    write(drafter, {152_063: [152_063] * 8, 0: [1] * 8})
    state = drafter.stream_state()
    assert state["tokens"].tolist() == [0, 152_063]
    other = TokenRecyclingDrafter(vocab_size=152_064)
    write(other, {7: [7] * 8})
    other.load_stream_state(state)
    assert (other._matrix == drafter._matrix).all()
    with pytest.raises(ValueError, match="outside the vocabulary of 10 tokens"):
        TokenRecyclingDrafter(vocab_size=10).load_stream_state(state)
    with pytest.raises(ValueError, match="saved rows have shape"):
        other.load_stream_state({"tokens": state["tokens"], "rows": state["rows"][:, :4]})


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="duplicates is 'best', which is not one of first, last"):
        TokenRecyclingDrafter(vocab_size=10, duplicates="best")


@pytest.mark.parametrize("duplicates", ["first", "last"])
@pytest.mark.parametrize("seed_prompt", [False, True])
def test_contract(duplicates: str, seed_prompt: bool) -> None:
    def make() -> TokenRecyclingDrafter:
        return TokenRecyclingDrafter(
            vocab_size=drive.VOCABULARY, duplicates=duplicates, seed_prompt=seed_prompt
        )

    assert drive.check_lossless(make) > 0
    drive.check_replay(make)
