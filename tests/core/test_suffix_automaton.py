from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.core.suffix_automaton import SuffixAutomaton
from tests.reference.suffix import longest_match, suffix_path

PLACEHOLDER = 9
ALPHABET = st.sampled_from([0, 1, 1, 2, 3, PLACEHOLDER])
PIECES = st.lists(st.lists(ALPHABET, max_size=60), min_size=1, max_size=8)


@settings(max_examples=1000)
@given(PIECES, st.booleans(), st.integers(1, 6))
def test_equals_brute_force(pieces: list[list[int]], restart: bool, limit: int) -> None:
    """Pieces of any size: single tokens walk, long pieces are settled in bulk, and it grows."""
    automaton = SuffixAutomaton(capacity=4)
    separators = [PLACEHOLDER] if restart else []
    automaton.reset(separators)
    text: list[int] = []
    for piece in pieces:
        automaton.extend(piece)
        text += piece
        assert len(automaton) == len(text)
        assert automaton.match() == longest_match(text, separators)
        expected = suffix_path(text, separators, limit) if text else []
        assert automaton.suffix_path(limit).tolist() == expected


@settings(max_examples=50)
@given(st.lists(st.sampled_from([5, 6]), min_size=1, max_size=120))
def test_token_by_token_equals_at_once(text: list[int]) -> None:
    at_once, one_by_one = SuffixAutomaton(), SuffixAutomaton()
    at_once.extend(text)
    for token in text:
        one_by_one.extend([token])
    assert at_once.match() == one_by_one.match()


@pytest.mark.parametrize(
    ("text", "length", "continuation"),
    [
        ([10, 11, 12, 13, 14, 15, 16, 17, 99, 10, 11, 12], 3, [13, 14, 15, 16]),
        ([5, 6, 7, 1, 2, 5, 6, 8, 1, 2, 5, 6], 4, [8, 1, 2, 5]),
        ([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 3, [9, 2, 3, 8]),
        ([1, 2, 9, 1, 2, 8, 1, 2], 2, [8, 1, 2]),  # the latest earlier end, not the first
        ([7, 7, 7, 7], 3, [7]),
        ([1, 2, 3], 0, []),
    ],
)
def test_worked_examples(text: list[int], length: int, continuation: list[int]) -> None:
    automaton = SuffixAutomaton()
    automaton.extend(text)
    match = automaton.match()
    assert match.length == length
    followed = automaton.continuation(match.last_end, 4).tolist() if length else []
    assert followed == continuation


def test_a_run_of_placeholders_costs_nothing() -> None:
    automaton = SuffixAutomaton(capacity=4096)
    automaton.reset([PLACEHOLDER])
    automaton.extend([1, 2] + [PLACEHOLDER] * 2900 + [1, 2])
    assert automaton.match() == (2, 1, 1)
    assert automaton._header[0] <= 4  # states: no placeholder has one


def test_a_reset_forgets_text_and_separators() -> None:
    automaton = SuffixAutomaton()
    automaton.reset([1])
    automaton.extend([1, 2, 1, 2])
    assert automaton.match().length == 1
    automaton.reset()
    automaton.extend([1, 2])
    assert automaton.match().length == 0
    automaton.extend([1, 2])
    assert automaton.match().length == 2


def test_reads_a_read_only_view() -> None:
    text = np.array([1, 2, 1], np.int64)
    text.flags.writeable = False
    automaton = SuffixAutomaton()
    automaton.extend(text)
    assert automaton.match() == (1, 0, 0)
