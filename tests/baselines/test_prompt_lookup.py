from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.prompt_lookup import RULES, PromptLookupDrafter
from recap.core.interfaces import RequestContext
from tests.baselines import drive

if TYPE_CHECKING:
    from collections.abc import Collection

IMAGE = 99
FIFTIES = list(range(50, 60))
TEN_MORE = [*range(50, 61)]

# Text; the drafts of paper (4, 10), hf (4, 10) and original (3, 10).
EXAMPLES: dict[str, tuple[list[int], list[int], list[int], list[int]]] = {
    "P-1": ([1, 2, 3, 4, 5, 6, 7, 8], [], [], []),
    "P-2": ([1, 2, 3, 4, *TEN_MORE, 1, 2, 3, 4], FIFTIES, FIFTIES, FIFTIES),
    "P-3": (
        [1, 2, 3, 4, 50, 51, 9, 1, 2, 3, 4, 60, 61, 9, 9, 1, 2, 3, 4],
        [60, 61, 9, 9, 1, 2, 3, 4],
        [50, 51, 9, 1, 2, 3, 4, 60, 61, 9],
        [50, 51, 9, 1, 2, 3, 4, 60, 61, 9],
    ),
    "P-4": ([1, 2, 3, 4, *TEN_MORE, 9, 8, 3, 4], [], FIFTIES, FIFTIES),
    "P-5": ([7, 8] * 5, [7, 8, 7, 8], [7, 8, 7, 8, 7, 8], []),
    "P-6": (
        [1, 2, 3, 4, 99, 99, 5, 6, 1, 2, 3, 4, 5, 77, 1, 2, 3, 4],
        [5, 77, 1, 2, 3, 4],
        [99, 99, 5, 6, 1, 2, 3, 4, 5, 77],
        [99, 99, 5, 6, 1, 2, 3, 4, 5, 77],
    ),
    "P-7": ([1, 2, 3, 4, 99, 99, 5, 6, 8, 1, 2, 3, 4], [], [99, 99, 5, 6, 8, 1, 2, 3, 4], []),
    "P-8": ([1, 2, 3, 4, 5, 1, 2, 3, 4], [5, 1, 2, 3, 4], [5, 1, 2, 3, 4], []),
}


def make(**options: Any) -> PromptLookupDrafter:
    return PromptLookupDrafter(vocab_size=100, **options)


def draft(
    drafter: PromptLookupDrafter, text: list[int], stop_ids: Collection[int] = ()
) -> list[int]:
    context = RequestContext(
        np.array(text[:-1], np.int32), frozenset({IMAGE}), stop_ids=frozenset(stop_ids)
    )
    drafter.begin_request(context)
    tokens: list[int] = drafter.propose(np.array(text, np.int32)).tokens.tolist()
    assert tokens[0] == text[-1]
    return tokens[1:]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    text, paper, hf, original = EXAMPLES[name]
    assert draft(make(), text) == paper
    assert draft(make(rule="hf", max_key=4), text) == hf
    assert draft(make(rule="original"), text) == original


def paper_rule(text: list[int], blocked: frozenset[int]) -> list[int]:
    """Written from the description: exact four-token key, the most recent match before it."""
    key = text[-4:]
    for start in range(len(text) - 8, -1, -1):
        continuation = text[start + 4 : start + 14]
        if text[start : start + 4] == key and blocked.isdisjoint(key + continuation):
            return continuation
    return []


def hf_rule(text: list[int], max_key: int, stop_ids: frozenset[int]) -> list[int]:
    """The leftmost match of the longest key that has one, its draft cut before a stop id."""
    for size in range(min(max_key, len(text) - 1), 0, -1):
        for start in range(len(text) - size):
            if text[start : start + size] == text[-size:]:
                continuation = text[start + size : start + size + 10]
                stops = [i for i, token in enumerate(continuation) if token in stop_ids]
                return continuation[: stops[0]] if stops else continuation
    return []


def original_rule(text: list[int]) -> list[int]:
    """The leftmost match with a full continuation that starts before the key."""
    for size in range(3, 0, -1):
        for start in range(len(text) - size + 1):
            end = start + size + 10
            fits = end <= len(text) and start + size < len(text) - size
            if text[start : start + size] == text[-size:] and fits:
                return text[start + size : end]
    return []


TEXTS = st.lists(st.sampled_from([0, 1, 1, 2, IMAGE]), min_size=1, max_size=70)


@settings(max_examples=150)
@given(TEXTS, st.integers(0, 70))
def test_equals_brute_force_at_every_length(text: list[int], prompt_length: int) -> None:
    blocked, stop_ids = frozenset({IMAGE}), frozenset({2})
    drafters = [make(), make(rule="hf"), make(rule="hf", max_key=4), make(rule="original")]
    prompt = np.array(text[:prompt_length], np.int32)
    for drafter in drafters:
        drafter.begin_request(RequestContext(prompt, blocked, stop_ids=stop_ids))
    for length in range(max(prompt_length, 1), len(text) + 1):
        history = text[:length]
        expected = [
            paper_rule(history, blocked),
            hf_rule(history, 2, stop_ids),
            hf_rule(history, 4, stop_ids),
            original_rule(history),
        ]
        for drafter, continuation in zip(drafters, expected, strict=True):
            tree = drafter.propose(np.array(history, np.int32))
            assert tree.tokens.tolist() == [history[-1], *continuation]


def any_rule(text: list[int], options: dict[str, Any], blocked: frozenset[int]) -> list[int]:
    """All options at once, by looking everywhere."""
    blocked = blocked if options["skip_blocked"] else frozenset()
    for size in range(options["max_key"], options["min_key"] - 1, -1):
        key = text[-size:]
        starts = range(size, len(text))
        for start in starts if options["match"] == "first" else reversed(starts):
            continuation = text[start : start + options["max_draft"]]
            if options["full"]:
                fits = len(continuation) == options["max_draft"] and start < len(text) - size
            else:
                fits = options["overlap"] or start <= len(text) - size
            if (
                text[start - size : start] == key
                and fits
                and blocked.isdisjoint(key + continuation)
            ):
                return continuation
    return []


@settings(max_examples=300)
@given(
    TEXTS,
    st.fixed_dictionaries(
        {
            "max_key": st.integers(1, 5),
            "max_draft": st.integers(1, 6),
            "match": st.sampled_from(["first", "last"]),
            "overlap": st.booleans(),
            "full": st.booleans(),
            "skip_blocked": st.booleans(),
        }
    ),
    st.sampled_from(["paper", "original"]),
)
def test_every_option_can_be_set(text: list[int], options: dict[str, Any], rule: str) -> None:
    options = {**options, "min_key": (options["max_key"] + 1) // 2}
    drafter = make(rule=rule, **options)
    drafter.begin_request(RequestContext(np.array([], np.int32), frozenset({IMAGE})))
    for length in range(1, len(text) + 1):
        expected = any_rule(text[:length], options, frozenset({IMAGE}))
        tree = drafter.propose(np.array(text[:length], np.int32))
        assert tree.tokens.tolist() == [text[length - 1], *expected]


def test_hf_drafts_end_before_a_stop_id() -> None:
    text = [1, 2, 5, 6, 3, 1, 2]
    assert draft(make(rule="hf"), text) == [5, 6, 3, 1, 2]
    assert draft(make(rule="hf"), text, stop_ids={6}) == [5]
    assert draft(make(rule="hf"), text, stop_ids={5}) == []  # and no other match is tried
    assert draft(make(max_key=2, min_key=2), text, stop_ids={6}) == [5, 6, 3, 1, 2]


class Counted(np.ndarray):
    """A history that counts the tokens that are read from it."""

    read = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        Counted.read += np.size(found)
        return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("period", [1, 5, 1000])
def test_a_step_reads_the_same_however_long_the_history(rule: str, period: int) -> None:
    text = np.arange(8200, dtype=np.int32) % period
    reads = []
    drafter = make(rule=rule)
    drafter.begin_request(RequestContext(text[:500], frozenset({IMAGE})))
    for length in (500, 2000, 8000):
        drafter.propose(text[:length])
        Counted.read = 0
        drafter.propose(text[: length + 3].view(Counted))
        reads.append(Counted.read)
    assert max(reads) < 100


def test_an_index_holds_one_position_per_key() -> None:
    drafter = make()
    drafter.propose(np.array([1, 2, 3, 4, 5] * 200, np.int32))
    assert [len(index._starts) for index in drafter._indexes] == [5]


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="rule is 'best', which is not one of paper, hf, original"):
        make(rule="best")
    with pytest.raises(ValueError, match="match is 'middle'"):
        make(match="middle")
    with pytest.raises(ValueError, match="min_key=4 and max_key=3"):
        make(max_key=3)
    with pytest.raises(ValueError, match="max_draft must be at least 1"):
        make(max_draft=0)


@pytest.mark.parametrize("rule", RULES)
def test_contract(rule: str) -> None:
    assert drive.check_lossless(lambda: make(rule=rule)) > 0
    drive.check_replay(lambda: make(rule=rule))
    drive.check_request_local(lambda: make(rule=rule))
