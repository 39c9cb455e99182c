from __future__ import annotations

import numpy as np
import pytest

from recap.core import kernels, memory
from recap.core.interfaces import Predictions
from recap.core.memory import MISSING, PredictionMemory
from recap.core.tree import TokenTree

NOTHING_BLOCKED = np.empty(0, np.int32)


def predictions(*rows: list[int]) -> Predictions:
    """Rows of the given ids; the first probability tells them apart."""
    ids = np.array(rows, np.int32)
    probs = np.linspace(0.9, 0.1, ids.size, dtype=np.float32).reshape(ids.shape)
    return Predictions(ids[:, 0].copy(), ids, probs)


def held(store: PredictionMemory, *context: int) -> list[int] | None:
    """The ids under a key."""
    row = store.lookup(*context)
    return None if row is None else row[0].tolist()


def test_every_node_is_written_under_its_path() -> None:
    store = PredictionMemory(vocab_size=50, top_k=2)
    tree = TokenTree([3, 4, 5], [-1, 0, 1], [0, 1, 2])
    store.refresh(tree, 1, 2, predictions([10, 11], [12, 13], [14, 15]))
    assert held(store, 3) == held(store, 2, 3) == held(store, 1, 2, 3) == [10, 11]
    assert held(store, 4) == held(store, 3, 4) == held(store, 2, 3, 4) == [12, 13]
    assert held(store, 5) == held(store, 4, 5) == held(store, 3, 4, 5) == [14, 15]
    assert held(store, 1, 3) is None
    assert held(store, 2) is None
    assert (store.num_unigram_rows, store.num_context_rows) == (3, 6)


@pytest.mark.parametrize(("orders", "num_context_rows"), [(1, 0), (2, 1), (3, 2)])
def test_orders(orders: int, num_context_rows: int) -> None:
    store = PredictionMemory(50, 2, orders)
    store.refresh(TokenTree.root_only(3), 1, 2, predictions([10, 11]))
    assert store.num_context_rows == num_context_rows


def test_keys_are_undefined_where_the_text_begins() -> None:
    store = PredictionMemory(50, 2)
    store.refresh(TokenTree.chain(3, [4]), MISSING, MISSING, predictions([10, 11], [12, 13]))
    assert held(store, 3) == [10, 11]
    assert held(store, 3, 4) == [12, 13]
    assert store.num_context_rows == 1


def test_within_a_step_the_first_occurrence_wins_per_map() -> None:
    store = PredictionMemory(50, 2)
    # 1 -> 2, 1 -> 3 -> 2: token 2 occurs twice, after different tokens.
    tree = TokenTree([1, 2, 3, 2], [-1, 0, 0, 2], [0, 1, 1, 2])
    store.refresh(tree, 7, 8, predictions([10, 11], [12, 13], [14, 15], [16, 17]))
    assert held(store, 2) == [12, 13]
    assert held(store, 1, 2) == [12, 13]
    assert held(store, 3, 2) == [16, 17]
    store.refresh(TokenTree.root_only(2), 1, 3, predictions([18, 19]))  # a newer step replaces
    assert held(store, 2) == held(store, 3, 2) == held(store, 1, 3, 2) == [18, 19]
    assert held(store, 1, 2) == [12, 13]


def test_a_request_ends_c_and_g_but_not_u() -> None:
    store = PredictionMemory(50, 2)
    store.refresh(TokenTree.root_only(3), 1, 2, predictions([10, 11]))
    store.begin_request()
    assert (held(store, 3), held(store, 2, 3), held(store, 1, 2, 3)) == ([10, 11], None, None)
    store.reset_stream()
    assert held(store, 3) is None


def test_seeding_replaces_skips_blocked_ids_and_keeps_first_occurrences() -> None:
    store = PredictionMemory(50, 2)
    store.refresh(TokenTree.root_only(3), 1, 2, predictions([10, 11]))
    rows = predictions([20, 21], [22, 23], [24, 25])
    store.seed(np.array([3, 9, 3], np.int32), rows, np.array([9], np.int32))
    assert held(store, 3) == [20, 21]
    assert held(store, 9) is None
    assert held(store, 2, 3) == [10, 11]


def test_keys_near_the_packing_limit_do_not_meet() -> None:
    top = kernels.MAX_VOCAB - 1
    store = PredictionMemory(kernels.MAX_VOCAB, 1)
    contexts = [(u, v, x) for u in (0, 1, top) for v in (0, 1, top) for x in (0, 1, top)]
    for number, (u, v, x) in enumerate(contexts):
        store.refresh(TokenTree.root_only(x), u, v, predictions([number]))
    assert [held(store, *context) for context in contexts] == [[n] for n in range(27)]
    assert store.num_context_rows == 27 + 9
    keys = {kernels.triple_key(*c) for c in contexts} | {kernels.pair_key(*c[1:]) for c in contexts}
    assert len(keys) == 27 + 9


def test_a_vocabulary_beyond_the_packing_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="2,097,152"):
        PredictionMemory(kernels.MAX_VOCAB + 1, 8)


def test_the_table_grows_within_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIRST_SLOTS", 4)
    store = PredictionMemory(5000, 2)
    for token in range(3000):
        store.refresh(TokenTree.root_only(token), 1, 2, predictions([token, token + 1]))
    assert store.num_context_rows == 6000
    assert len(store.arrays.table.slots) == 16384  # never over half full
    for token in range(3000):
        assert held(store, 2, token) == held(store, 1, 2, token) == [token, token + 1]


def test_stream_state_round_trip_is_exact() -> None:
    rng = np.random.default_rng(0)
    store, copy = PredictionMemory(300, 4), PredictionMemory(300, 4)
    probs = np.sort(rng.dirichlet(np.ones(4), 100).astype(np.float32))[:, ::-1]
    rows = Predictions(np.zeros(100), rng.integers(0, 300, (100, 4)), probs)
    store.seed(rng.integers(0, 300, 100).astype(np.int32), rows, NOTHING_BLOCKED)
    copy.refresh(TokenTree.root_only(299), 1, 2, predictions([1, 2, 3, 4]))
    copy.load_stream_state(store.stream_state())
    held_rows = np.flatnonzero(store.arrays.present)
    assert np.array_equal(copy.arrays.present, store.arrays.present)
    for left, right in zip(store.arrays.unigrams, copy.arrays.unigrams, strict=True):
        assert np.array_equal(left[held_rows], right[held_rows])  # confidence too
    assert copy.num_context_rows == 0


def test_a_state_that_does_not_fit_is_refused() -> None:
    state = PredictionMemory(50, 2).stream_state()
    with pytest.raises(ValueError, match="shapes"):
        PredictionMemory(50, 3).load_stream_state(state)
    one_row = {"ids": np.array([[1, 2]]), "probs": np.array([[0.5, 0.5]])}
    for tokens, ids in (([60], [[1, 2]]), ([1], [[1, 60]])):
        with pytest.raises(ValueError, match="vocabulary"):
            PredictionMemory(50, 2).load_stream_state(
                {**one_row, "tokens": np.array(tokens), "ids": np.array(ids)}
            )


@pytest.mark.parametrize(
    ("tokens", "ids", "message"),
    [
        ([50], [[1, 2]], "outside the vocabulary"),
        ([-1], [[1, 2]], "outside the vocabulary"),
        ([1], [[1, 50]], "outside the vocabulary"),
        ([1], [[1, -1]], "outside the vocabulary"),
        ([1], [[1, 2, 3]], "Needs.topk"),
        ([1], np.empty((1, 0), np.int32), "Needs.topk"),
        ([1], [[1, 2], [3, 4]], "one row for each of 1 tokens"),
    ],
)
def test_bad_rows_are_refused_before_anything_is_written(
    tokens: list[int], ids: list[list[int]], message: str
) -> None:
    store = PredictionMemory(50, 2)
    rows = Predictions(np.zeros(len(ids)), np.array(ids), np.full(np.shape(ids), 0.5))
    with pytest.raises(ValueError, match=message):
        store.seed(np.array(tokens), rows, NOTHING_BLOCKED)
    assert store.num_unigram_rows == 0


def test_shorter_rows_are_kept_as_they_are() -> None:
    """A vocabulary smaller than top_k has no longer ones."""
    store = PredictionMemory(3, 8)
    store.refresh(TokenTree.root_only(1), 1, 2, predictions([2, 0, 1]))
    assert held(store, 1) == [2, 0, 1]


def test_u_of_a_large_vocabulary_fits_twelve_mebibytes() -> None:
    assert PredictionMemory(152_064, 8).unigram_bytes() <= 12 * 2**20
