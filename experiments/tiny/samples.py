"""Seeded samples: one picture, one to four turns about it, and the task they belong to.

`make_sample(task, seed)` is a pure function, so a data set is a range of seeds. Training,
evaluation and the committed benchmarks use ranges that cannot meet (see the `*_SEEDS` constants).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from PIL import Image

from experiments.tiny.markup import Answer, parse
from experiments.tiny.phrasings import LONG, SHORT, Phrasing
from experiments.tiny.pictures import KINDS, Facts, draw, make_facts

TASKS = ("shapes", "text", "caption", "chart", "reasoning", "multi_turn")
SHORT_TASK = "short"
TRAIN_SEEDS = 0
EVAL_SEEDS = 1_000_000_000
BENCH_SEEDS = 2_000_000_000


@dataclass(frozen=True)
class Turn:
    """One question and its answer."""

    question: str
    answer: Answer


@dataclass(frozen=True)
class Sample:
    """A picture, what it shows, and a conversation about it."""

    task: str
    kind: str
    facts: Facts
    picture: Image.Image
    turns: tuple[Turn, ...]


def make_sample(
    task: str, seed: int, num_turns: int | None = None, kind: str | None = None
) -> Sample:
    """The sample number `seed` of a task; the same arguments always give the same sample.

    `task` is one of `TASKS` or `short` (three one-line answers, for the curriculum). `num_turns`
    overrides the number of turns of `multi_turn` (two or three otherwise), `kind` the kind of
    picture. Raises `ValueError` for another task, or a kind that the task does not have.
    """
    if task not in (*TASKS, SHORT_TASK):
        raise ValueError(f"unknown task {task!r}, expected one of {', '.join(TASKS)}, {SHORT_TASK}")
    rng = random.Random(f"{task}:{seed}")
    kinds = [k for k in KINDS if task in LONG[k] or task in ("multi_turn", SHORT_TASK)]
    if kind is not None and kind not in kinds:
        raise ValueError(f"task {task!r} has no {kind!r} pictures, only {', '.join(kinds)}")
    kind = kind or rng.choice(kinds)
    facts = make_facts(kind, rng)
    picture = draw(facts, rng)
    phrasings = _choose(task, kind, num_turns, rng)
    turns = tuple(_turn(phrasing, facts, rng) for phrasing in phrasings)
    return Sample(task, kind, facts, picture, turns)


def _choose(task: str, kind: str, num_turns: int | None, rng: random.Random) -> list[Phrasing]:
    """The phrasings of a sample, one per turn, without repetition."""
    if task == SHORT_TASK:
        return rng.sample(SHORT[kind], 3)
    if task == "multi_turn":
        pool = [phrasing for group in LONG[kind].values() for phrasing in group]
        return rng.sample(pool, num_turns or rng.randint(2, 3))
    return [rng.choice(LONG[kind][task])]


def _turn(phrasing: Phrasing, facts: Facts, rng: random.Random) -> Turn:
    question, template = phrasing(facts, rng)
    return Turn(question, parse(template))
