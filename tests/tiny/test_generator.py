"""The generated pictures, questions and answers."""

from __future__ import annotations

import random

import pytest

from experiments.tiny.markup import parse, words_right
from experiments.tiny.phrasings import LONG, SHORT
from experiments.tiny.pictures import KINDS, SIDE, draw, make_facts
from experiments.tiny.samples import SHORT_TASK, TASKS, make_sample

ALL_TASKS = (*TASKS, SHORT_TASK)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_a_sample_is_a_function_of_its_seed(task: str) -> None:
    first, second, other = make_sample(task, 7), make_sample(task, 7), make_sample(task, 8)
    assert first.turns == second.turns and first.facts == second.facts
    assert first.picture.tobytes() == second.picture.tobytes()
    assert (first.facts, first.turns) != (other.facts, other.turns)


@pytest.mark.parametrize("task", ALL_TASKS)
def test_marked_words_are_whole_words_of_the_answer(task: str) -> None:
    for seed in range(60):
        for turn in make_sample(task, seed).turns:
            words = [word.rstrip(".,:;") for word in turn.answer.text.split()]
            assert turn.answer.spans
            assert all(word in words for word in turn.answer.marked_words)
            assert not set("{}") & set(turn.question + turn.answer.text)


def test_the_picture_decides_the_marked_words() -> None:
    """The same question about other facts gives the same wording with other marked words."""
    for kind in KINDS:
        for phrasing in [p for group in LONG[kind].values() for p in group]:
            answers: dict[str, set[str]] = {}
            for seed in range(40):
                facts = make_facts(kind, random.Random(seed))
                question, template = phrasing(facts, random.Random(0))
                answers.setdefault(question, set()).add(template)
            assert max(len(seen) for seen in answers.values()) > 1, phrasing.__name__


def test_short_answers_consist_of_marked_words() -> None:
    for kind in KINDS:
        facts = make_facts(kind, random.Random(3))
        for phrasing in SHORT[kind]:
            answer = parse(phrasing(facts, random.Random(1))[1])
            assert answer.text.split() == answer.marked_words


def test_wordings_vary_and_questions_tell_them_apart() -> None:
    """One question stands for one wording, except captions, whose kind the picture tells."""
    questions = {}
    for kind in KINDS:
        facts = make_facts(kind, random.Random(0))
        for task, phrasings in LONG[kind].items():
            for phrasing in phrasings:
                if task != "caption":
                    questions[phrasing.__name__] = phrasing(facts, random.Random(0))[0]
    assert len(questions) >= 18
    assert len(set(questions.values())) == len(questions)


def test_pictures_differ_and_have_the_stated_size() -> None:
    for kind in KINDS:
        rng = random.Random(11)
        pictures = [draw(make_facts(kind, rng), rng) for _ in range(4)]
        assert {p.size for p in pictures} == {(SIDE, SIDE)} and pictures[0].mode == "RGB"
        assert len({p.tobytes() for p in pictures}) == 4


def test_turn_count_and_kind_can_be_fixed() -> None:
    assert len(make_sample("multi_turn", 5, num_turns=3).turns) == 3
    assert make_sample("reasoning", 5, kind="sign").kind == "sign"
    with pytest.raises(ValueError, match="no 'grid' pictures"):
        make_sample("text", 5, kind="grid")
    with pytest.raises(ValueError, match="unknown task"):
        make_sample("poetry", 5)


def test_words_right_is_strict_about_places() -> None:
    answer = parse("The {red} bar reaches {4}, the {blue} bar {2}.")
    assert answer.marked_words == ["red", "4", "blue", "2"]
    assert words_right(answer, "The red bar reaches 4, the blue bar 2.") == (4, 4)
    assert words_right(answer, "The red bar reaches 5, the blue bar 2.") == (3, 4)
    assert words_right(answer, "The red one, a bar, reaches 4, the blue bar 2.") == (1, 4)
    assert words_right(answer, "") == (0, 4)


def test_broken_templates_are_refused() -> None:
    with pytest.raises(ValueError, match="unbalanced braces"):
        parse("The {red bar} reaches {4}.")
