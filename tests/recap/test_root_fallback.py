"""Root fallbacks, against an index that is a plain list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap import fusion, root_fallback
from recap.config import RecapConfig
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from recap.drafter import RecapDrafter
from recap.root_fallback import make_root_fallback
from tests.recap.streams import World, path_contexts, verified
from tests.reference.drafter import rows_of


class ListIndex:
    """(key, row, state) of verified nodes whose row memory still holds, oldest first."""

    def __init__(self, orders: int, capacity: int) -> None:
        self.orders, self.capacity = orders, capacity
        self.entries: list[tuple[tuple[int, ...], list, np.ndarray]] = []
        self.query: np.ndarray | None = None

    def observe(self, step: VerifiedStep) -> None:
        new: dict[tuple[int, ...], tuple[list, np.ndarray]] = {}
        texts = path_contexts(step.tree, step.history)
        for node, row in enumerate(rows_of(step.predictions)):
            new.setdefault(tuple(texts[node][-self.orders :]), (row, step.hidden_states[node]))
        for key, (row, state) in new.items():
            self.entries = [entry for entry in self.entries if entry[0] != key]
            self.entries = [*self.entries, (key, row, state)][-self.capacity :]
        self.query = step.hidden_states[step.accepted[-1] if len(step.accepted) else 0]

    def rows(self, name: str) -> list[list]:
        if name == "recency":
            return [self.entries[-1][1]] if self.entries else []
        newest_first = self.entries[::-1]
        newest_first.sort(key=lambda entry: -self.similarity(entry[2]))
        return [row for _, row, _ in newest_first[:3]]

    def similarity(self, state: np.ndarray) -> float:
        product = np.linalg.norm(state) * np.linalg.norm(self.query)
        return float(state @ self.query / product)


@given(
    st.sampled_from(["semantic", "recency"]),
    st.integers(1, 3),
    st.integers(0, 2**32),
    st.integers(3, 40),
)
def test_equals_a_plain_list(name: str, orders: int, seed: int, capacity: int) -> None:
    rng = np.random.default_rng(seed)
    world = World(seed, tuple(range(6)), 4)
    drafter = RecapDrafter(RecapConfig(top_k=4, max_candidates=12), 6)
    history = np.array([1, 2, 3], np.int32)[-int(rng.integers(1, 4)) :]
    work = fusion.workspace(4, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(root_fallback, "CAPACITY", capacity)
        rule, index = make_root_fallback(name, orders, 4), ListIndex(orders, capacity)
        for _ in range(6):
            step = verified(drafter.propose(history), history, world, rng)
            object.__setattr__(step, "hidden_states", rng.normal(size=(len(step.tree), 5)))
            for observer in (drafter, rule, index):
                observer.observe(step)
            history = np.concatenate([history, step.committed])
            count = rule.fill(work)
            expected = index.rows(name)
            assert count == len(expected)
            for place, row in enumerate(expected):
                pairs = list(zip(work.ids[place], work.probs[place], strict=True))
                assert pairs == row


def observed(root_fallback_name: str | None) -> tuple[RecapDrafter, np.ndarray]:
    """A drafter that has verified 3 -> 4, and a history that ends in an unknown token."""
    config = RecapConfig(top_k=2, suffix_tokens=0, depth=2, root_fallback=root_fallback_name)
    drafter = RecapDrafter(config, 50, trace=True)
    drafter.begin_request(RequestContext(np.array([1, 2], np.int32), frozenset()))
    ids = np.array([[4, 5], [6, 7]], np.int32)
    rows = Predictions(np.array([9, 6]), ids, np.array([[0.9, 0.1], [0.6, 0.4]], np.float32))
    drafter.observe(
        VerifiedStep(
            TokenTree.chain(3, [4]),
            rows,
            np.array([1, 2, 3], np.int32),
            np.empty(0, np.int32),
            np.array([9], np.int32),
            hidden_states=np.array([[1.0, 0.0], [0.0, 1.0]], np.float32),
        )
    )
    return drafter, np.array([1, 2, 3, 9], np.int32)


def test_without_a_fallback_an_unknown_root_stands_alone() -> None:
    drafter, history = observed(None)
    assert drafter.propose(history).tokens.tolist() == [9]


def test_recency_takes_the_newest_row() -> None:
    drafter, history = observed("recency")
    assert drafter.propose(history).tokens.tolist() == [9, 6, 7]
    traces = [drafter.pop_trace(), drafter.pop_trace()]
    assert [trace and trace["root_fallback"] for trace in traces] == [True, False]


def test_semantic_fuses_the_most_similar_rows() -> None:
    drafter, history = observed("semantic")
    tree = drafter.propose(history)
    # The query is the state of node 0: its row (4 .9, 5 .1) weighs .7 e^-H, the other one .2 e^-H.
    assert tree.tokens[tree.depths == 1].tolist() == [4, 6]
    assert drafter.propose(history).tokens.tolist() == tree.tokens.tolist()


def test_a_known_root_needs_no_fallback() -> None:
    drafter, _ = observed("recency")
    tree = drafter.propose(np.array([1, 2, 3, 3], np.int32))
    assert tree.tokens[tree.depths == 1].tolist() == [4, 5]
    trace = drafter.pop_trace()
    assert trace is not None
    assert not trace["root_fallback"]


def test_nothing_verified_yet() -> None:
    for name in ("semantic", "recency"):
        drafter = RecapDrafter(RecapConfig(root_fallback=name), 50)
        drafter.trace = True
        assert drafter.propose(np.array([1], np.int32)).tokens.tolist() == [1]
        trace = drafter.pop_trace()
        assert trace is not None and not trace["root_fallback"]


def test_semantic_asks_for_hidden_states() -> None:
    drafter = RecapDrafter(RecapConfig(root_fallback="semantic"), 50)
    history = np.array([1], np.int32)
    world = World(0, tuple(range(20)), 8)
    step = verified(TokenTree.root_only(1), history, world, np.random.default_rng(0))
    with pytest.raises(ValueError, match="hidden_states"):
        drafter.observe(step)
