from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.sam import SamDrafter
from recap.core.interfaces import RequestContext, VerifiedStep
from recap.core.suffix_automaton import SuffixAutomaton
from recap.core.tree import TokenTree
from tests.baselines import drive

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

IMAGE = 9

# Text with the root; the drafts of the official code and of the paper's call order.
EXAMPLES: dict[str, tuple[list[int], list[int], list[int] | None]] = {
    "S-1": (
        [10, 11, 12, 13, 14, 15, 16, 17, 99, 10, 11, 12],
        [13, 14, 15, 16, 17, 99, 10, 11],
        [13, 14, 15, 16],
    ),
    "S-2": ([5, 6, 7, 1, 2, 5, 6, 8, 1, 2, 5, 6], [8, 1, 2, 5], [7, 1, 2, 5]),
    "S-3": (
        [10, 11, 12, 12, 13, 14, 15, 16, 17, 99, 10, 11, 12],
        [12, 13, 14, 15, 16, 17, 99, 10, 11],
        [13, 14, 15, 16, 17, 99, 10, 11, 12],
    ),
    "S-4": ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], [9, 2, 3, 8, 1, 2], None),
    "S-5": ([7, 7, 7, 7], [], []),
    "S-6": ([1, 2, 3], [], []),
    "periodic": ([1, 2, 1, 2, 1, 2], [1], None),
}


def make(**options: Any) -> SamDrafter:
    return SamDrafter(vocab_size=100, **options)


def draft(drafter: SamDrafter, text: Sequence[int]) -> list[int]:
    tokens: list[int] = drafter.propose(np.array(text, np.int32)).tokens.tolist()
    assert tokens[0] == text[-1]
    return tokens[1:]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    text, official, double = EXAMPLES[name]
    assert draft(make(), text) == official
    if double is not None:
        assert draft(make(double_lookup=True), text) == double


# --- against brute force --------------------------------------------------------------------------


def first_end(text: Sequence[int], part: Sequence[int]) -> int:
    """The end of the first occurrence of ``part`` in ``text``, -1 without one."""
    size = len(part)
    ends = [e for e in range(size - 1, len(text)) if list(text[e - size + 1 : e + 1]) == list(part)]
    return ends[0] if ends else -1


def longest_in(text: Sequence[int], query: Sequence[int], blocked: Collection[int]) -> list[int]:
    """The longest suffix of ``query`` inside ``text``, without a blocked id."""
    for size in range(len(query), 0, -1):
        suffix = list(query[-size:])
        if not set(suffix) & set(blocked) and first_end(text, suffix) >= 0:
            return suffix
    return []


def copied(
    text: Sequence[int], match: list[int], max_draft: int, blocked: Collection[int]
) -> list[int]:
    """Behind the first end of ``match``, at most four tokens per matched token."""
    if not match:
        return []
    start = first_end(text, match) + 1
    tokens = list(text[start : start + min(max_draft, 4 * len(match))])
    stops = [place for place, token in enumerate(tokens) if token in blocked]
    return tokens[: stops[0]] if stops else tokens


def official(text: list[int], max_draft: int, blocked: Collection[int]) -> list[int]:
    """The official order: the start is looked up in the text before it."""
    known = text[:-1]
    return copied(known, longest_in(known, text, blocked), max_draft, blocked)


def paper_order(text: list[int], max_draft: int, blocked: Collection[int]) -> list[int]:
    """The paper's: the cursor stands at the match already, and moves on by the root once more."""
    cursor = longest_in(text[:-1], text, blocked)
    if text[-1] in blocked:
        return []
    while cursor and first_end(text, [*cursor, text[-1]]) < 0:
        cursor = cursor[1:]
    return copied(text, [*cursor, text[-1]], max_draft, blocked)


TEXTS = st.lists(st.sampled_from([0, 1, 1, 2, 3, IMAGE]), min_size=1, max_size=60)


@settings(max_examples=150)
@given(TEXTS, st.lists(st.integers(1, 40), min_size=1), st.booleans(), st.sampled_from([3, 39]))
def test_equals_brute_force(
    text: list[int], pieces: list[int], has_images: bool, max_draft: int
) -> None:
    blocked = frozenset({IMAGE}) if has_images else frozenset()
    once, twice = make(max_draft=max_draft), make(max_draft=max_draft, double_lookup=True)
    length = pieces[0] - 1
    context = RequestContext(np.array(text[:length], np.int32), blocked)
    once.begin_request(context)
    twice.begin_request(context)
    for piece in pieces[1:]:
        length += piece
        history = text[:length]
        assert draft(once, history) == official(history, max_draft, blocked)
        assert draft(twice, history) == paper_order(history, max_draft, blocked)


@settings(max_examples=100)
@given(TEXTS, st.integers(0, 4))
def test_match_with_equals_brute_force(text: list[int], token: int) -> None:
    automaton = SuffixAutomaton()
    automaton.extend(text)
    match = longest_in(text, [*text, token], ())
    expected = (len(match), first_end(text, match)) if match else (0, -1)
    assert automaton.match_with(token) == expected


# --- the rest -------------------------------------------------------------------------------------


def test_a_draft_has_at_most_39_tokens() -> None:
    text = [*range(60), *range(30)]
    assert draft(make(), text) == [*range(30, 60), *range(9)]
    assert draft(make(max_draft=5), text) == [30, 31, 32, 33, 34]
    assert draft(make(tokens_per_match=0.5), text) == list(range(30, 45))


def test_images_are_neither_matched_nor_drafted() -> None:
    drafter = make()
    prompt = np.array([1, 2, *[IMAGE] * 3000, 3, 1, 2, IMAGE], np.int32)
    drafter.begin_request(RequestContext(prompt, frozenset({IMAGE})))
    assert draft(drafter, [*prompt.tolist(), IMAGE, 1, 2]) == []
    assert draft(drafter, [*prompt.tolist(), IMAGE, 1, 2, 3]) == [1, 2]


def test_committed_tokens_are_read_once() -> None:
    drafter = make()
    drafter.begin_request(RequestContext(np.array([1, 2, 3], np.int32), frozenset()))
    history = np.array([1, 2, 3, 1], np.int32)
    tree = drafter.propose(history)
    committed = np.array([2, 3, 1], np.int32)
    drafter.observe(VerifiedStep(tree, None, history, committed[:0], committed))  # type: ignore[arg-type]
    assert draft(drafter, [1, 2, 3, 1, 2, 3, 1]) == [2, 3]
    assert len(drafter._text.automaton) == 7


def test_a_step_that_was_not_proposed_is_read_too() -> None:
    """The last step of a generation is a plain one, whatever the drafter would have said."""
    drafter = make()
    history = np.array([1, 2, 1], np.int32)
    committed = np.array([2], np.int32)
    tree = TokenTree.root_only(1)
    drafter.observe(VerifiedStep(tree, None, history, committed[:0], committed))  # type: ignore[arg-type]
    assert draft(drafter, [1, 2, 1, 2]) == [1]


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="max_draft must be at least 1, got 0"):
        make(max_draft=0)
    with pytest.raises(ValueError, match="tokens_per_match must be positive, got 0"):
        make(tokens_per_match=0)


@pytest.mark.parametrize("double_lookup", [False, True])
def test_contract(double_lookup: bool) -> None:
    assert drive.check_lossless(lambda: make(double_lookup=double_lookup)) > 0
    drive.check_replay(lambda: make(double_lookup=double_lookup))
    drive.check_request_local(lambda: make(double_lookup=double_lookup))
