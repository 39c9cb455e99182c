from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.sam_token_recycling import SamTokenRecyclingDrafter
from baselines.token_recycling import TEMPLATE, TokenRecyclingDrafter
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.suffix_automaton import SuffixAutomaton
from tests.baselines import drive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.core.tree import TokenTree

IMAGE = 9
TEXTS = st.lists(st.sampled_from([0, 1, 1, 2, 3, IMAGE]), min_size=1, max_size=60)


def make(vocab_size: int = 100, **options: Any) -> SamTokenRecyclingDrafter:
    return SamTokenRecyclingDrafter(vocab_size=vocab_size, **options)


def propose(drafter: SamTokenRecyclingDrafter, text: Sequence[int]) -> TokenTree:
    return drafter.propose(np.array(text, np.int32))


def test_worked_example() -> None:
    """S-7."""
    drafter = make(num_rows=5, match_threshold=3)
    assert propose(drafter, [1, 2, 3, 9, 2, 3, 8, 1, 2, 3]).tokens.tolist() == [3, 9, 2, 3, 8]


def ends(text: Sequence[int], part: Sequence[int]) -> list[int]:
    size = len(part)
    return [e for e in range(size - 1, len(text)) if list(text[e - size + 1 : e + 1]) == list(part)]


def walked(text: list[int], count: int) -> tuple[int, int]:
    """Length and first end, by walking over the classes of suffixes with equal ends in the text
    before the root.
    """
    known = text[:-1]
    lengths = [n for n in range(len(known), 0, -1) if ends(known, text[-n:])]
    if not lengths:
        return 0, -1
    length = lengths[0]
    while len(known) - 1 - ends(known, text[-length:])[0] < count:
        shorter = [n for n in lengths if ends(known, text[-n:]) != ends(known, text[-length:])]
        shorter = [n for n in shorter if n < length]
        if not shorter:
            break
        length = shorter[0]
    return length, ends(known, text[-length:])[0]


@settings(max_examples=300)
@given(TEXTS, st.integers(1, 12))
def test_walk_equals_brute_force(text: list[int], count: int) -> None:
    automaton = SuffixAutomaton()
    automaton.extend(text)
    assert automaton.match_followed_by(count) == walked(text, count)


@settings(max_examples=100)
@given(TEXTS, st.integers(2, 12), st.integers(1, 3), st.booleans())
def test_chains_equal_brute_force(
    text: list[int], num_rows: int, threshold: int, pad: bool
) -> None:
    drafter = make(num_rows=num_rows, match_threshold=threshold, pad=pad)
    drafter.begin_request(RequestContext(np.array(text[:5], np.int32), frozenset()))
    for length in range(min(6, len(text)), len(text) + 1):
        history = text[:length]
        tree = propose(drafter, history)
        if walked(history, 0)[0] < threshold:
            assert tree.parents.tolist() == TEMPLATE.parents.tolist()
            continue
        _, end = walked(history, num_rows)
        expected = history[end + 1 : min(end + num_rows, length - 1)]
        if pad:
            expected += [0] * (num_rows - 1 - len(expected))
        assert tree.tokens.tolist() == [history[-1], *expected]
        assert tree.depths.tolist() == list(range(len(tree)))


def test_a_shorter_match_with_more_behind_it_is_preferred() -> None:
    text = [2, 3, *range(10, 60), 1, 2, 3, 70, 1, 2, 3]
    drafter = make(match_threshold=3)
    # 1 2 3 ends earlier, but with only 3 tokens behind it; 2 3 stands at the beginning.
    assert propose(drafter, text).tokens.tolist() == [3, *range(10, 49)]


def test_the_threshold_chooses() -> None:
    text = [*range(20, 30), *range(20, 24)]
    drafter = make()
    assert len(propose(drafter, text)) == 81
    chain = propose(drafter, [*text, 24])
    assert len(chain) == 40
    # The walk ends at the shortest suffix; what is missing is filled with id 0.
    assert chain.tokens.tolist() == [24, *range(25, 30), *range(20, 24), *[0] * 30]
    assert len(propose(make(pad=False), [*text, 24])) == 10


def test_images_are_not_copied() -> None:
    drafter = make(match_threshold=2, pad=False)
    prompt = np.array([1, 2, 3, IMAGE, IMAGE, 5], np.int32)
    drafter.begin_request(RequestContext(prompt, frozenset({IMAGE})))
    assert propose(drafter, [*prompt.tolist(), 1, 2]).tokens.tolist() == [2, 3]


def observe(drafter: Any, tree: TokenTree, history: list[int]) -> None:
    ids = (tree.tokens[:, None] + np.arange(1, 9, dtype=np.int32) + len(history)) % 100
    predictions = Predictions(ids[:, 0].copy(), ids, np.zeros(ids.shape, np.float32))
    committed = ids[0, :1]
    step = VerifiedStep(tree, predictions, np.array(history, np.int32), committed[:0], committed)
    drafter.observe(step)


def test_every_pass_updates_the_matrix() -> None:
    """A copied chain's rows are written, too, its filling included."""
    text = [*range(20, 30), *range(20, 25)]
    drafter, recycling = make(), TokenRecyclingDrafter(vocab_size=100, duplicates="last")
    for history in ([21], text):
        tree = (
            propose(drafter, history)
            if history is text
            else recycling.propose(np.array(history, np.int32))
        )
        observe(drafter, tree, history)
        observe(recycling, tree, history)
        drafter.begin_request(RequestContext(np.empty(0, np.int32), frozenset()))
    state, expected = drafter.stream_state(), recycling.stream_state()
    assert len(expected["tokens"]) > 10
    assert state["tokens"].tolist() == expected["tokens"].tolist()
    assert state["rows"].tolist() == expected["rows"].tolist()


def test_prompt_rows_are_written_by_default() -> None:
    drafter = make()
    assert drafter.needs.topk == 8
    assert drafter.needs.prompt_rows
    assert not make(seed_prompt=False).needs.prompt_rows
    ids = np.array([[4] * 8], np.int32)
    rows = Predictions(ids[:, 0].copy(), ids, np.zeros(ids.shape, np.float32))
    prompt = np.array([9], np.int32)
    drafter.begin_request(RequestContext(prompt, frozenset(), rows, prompt))
    assert propose(drafter, [9, 9]).tokens[:9].tolist() == [9] + [4] * 8


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="num_rows must be at least 2, got 1"):
        make(num_rows=1)
    with pytest.raises(ValueError, match="match_threshold must be at least 1, got 0"):
        make(match_threshold=0)
    with pytest.raises(ValueError, match="duplicates is 'best'"):
        make(duplicates="best")


@pytest.mark.parametrize("pad", [False, True])
def test_contract(pad: bool) -> None:
    assert drive.check_lossless(lambda: make(drive.VOCABULARY, pad=pad)) > 0
    drive.check_replay(lambda: make(drive.VOCABULARY, pad=pad))
