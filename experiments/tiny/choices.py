"""Short answers to the questions of `phrasings`, and what else one might have answered.

For benchmarks that are multiple choice or keep a short reference answer. Read off the question and
the facts, so that the question stays worded as in training.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterable

from experiments.tiny.phrasings import CORNERS
from experiments.tiny.pictures import (
    COLOURS,
    MAX_HEIGHT,
    SHAPES,
    WORDS,
    Bar,
    Chart,
    Facts,
    Grid,
    Shape,
    Sign,
)

# The right answer, and all that could be answered to such a question (the right one included).
Answers = tuple[str, list[str]]
YES_NO = ["yes", "no"]
_PAIRS = [f"{a} and {b}" for a, b in itertools.permutations(COLOURS, 2)]
_KINDS = {Chart: "chart", Grid: "shapes", Sign: "sign"}


def answers(question: str, facts: Facts) -> Answers:
    """The short answer to a question about `facts`, and every answer of its sort.

    Raises `ValueError` for a question that no phrasing asks.
    """
    for pattern, read in _READERS:
        match = re.fullmatch(pattern, question)
        if match:
            return read(facts, *match.groups())
    raise ValueError(f"no short answer is known for the question {question!r}")


def options(question: str, facts: Facts, count: int, rng: random.Random) -> tuple[list[str], int]:
    """`count` distinct options in random order and the index of the right one.

    Raises `ValueError` where the question has fewer than `count` answers of its sort.
    """
    right, possible = answers(question, facts)
    wrong = rng.sample([answer for answer in possible if answer != right], count - 1)
    index = rng.randrange(count)
    return [*wrong[:index], right, *wrong[index:]], index


def _height(chart: Chart, colour: str) -> Answers:
    return str(_named(chart, colour).height), [str(h) for h in range(1, MAX_HEIGHT + 1)]


def _named(chart: Chart, colour: str) -> Bar:
    return next(bar for bar in chart.bars if bar.colour == colour)


def _taller(chart: Chart, one: str, other: str) -> Answers:
    bars = (_named(chart, one), _named(chart, other))
    return max(bars, key=lambda bar: bar.height).colour, [bar.colour for bar in chart.bars]


def _higher(chart: Chart, one: str, other: str) -> Answers:
    higher = _named(chart, one).height > _named(chart, other).height
    return "yes" if higher else "no", YES_NO


def _extremes(chart: Chart) -> Answers:
    ranked = sorted(chart.bars, key=lambda bar: bar.height)
    return f"{ranked[-1].colour} and {ranked[0].colour}", _PAIRS


def _values(chart: Chart) -> Answers:
    return _in_some_order(str(bar.height) for bar in chart.bars)


def _bars(chart: Chart) -> Answers:
    return _in_some_order(f"{bar.colour} {bar.height}" for bar in chart.bars)


def _bars_backwards(chart: Chart) -> Answers:
    return _in_some_order(f"{bar.colour} {bar.height}" for bar in reversed(chart.bars))


def _shapes(grid: Grid) -> Answers:
    return _in_some_order(map(_shape, grid.shapes))


def _shapes_upwards(grid: Grid) -> Answers:
    return _in_some_order(map(_shape, (*grid.shapes[2:], *grid.shapes[:2])))


def _in_some_order(parts: Iterable[str]) -> Answers:
    orders = [", ".join(order) for order in itertools.permutations(parts)]
    return orders[0], orders


def _shape(shape: Shape) -> str:
    return f"{shape.colour} {shape.name}"


def _at(grid: Grid, corner: str) -> Answers:
    every = [f"{colour} {name}" for colour in COLOURS for name in SHAPES]
    return _shape(grid.shapes[CORNERS.index(corner)]), every


def _find(grid: Grid, colour: str) -> Answers:
    index = next(i for i, shape in enumerate(grid.shapes) if shape.colour == colour)
    return CORNERS[index], list(CORNERS)


def _same(grid: Grid, one: str, other: str) -> Answers:
    a, b = (grid.shapes[CORNERS.index(corner)] for corner in (one, other))
    return "yes" if a.name == b.name else "no", YES_NO


def _text(sign: Sign) -> Answers:
    return f"{sign.word} {sign.number}", [f"{word} {sign.number}" for word in WORDS]


def _word(sign: Sign) -> Answers:
    return sign.word, list(WORDS)


def _number(sign: Sign) -> Answers:
    return sign.number, [str(number) for number in range(10, 100)]


def _text_colours(sign: Sign) -> Answers:
    return f"{sign.word_colour} and {sign.number_colour}", _PAIRS


def _digits(sign: Sign) -> Answers:
    one, two = sign.number[0], sign.number[1]
    order = "larger" if one > two else "smaller" if one < two else "equal"
    return order, ["larger", "smaller", "equal"]


def _kind(facts: Facts) -> Answers:
    return _KINDS[type(facts)], list(_KINDS.values())


_READERS: tuple[tuple[str, Callable[..., Answers]], ...] = (
    (r"(?:How tall is|What is the value of) the (\w+) bar\?", _height),
    (r"Which bar is taller, the (\w+) one or the (\w+) one\?", _taller),
    (r"Is the (\w+) bar higher than the (\w+) bar\? Explain\.", _higher),
    (r"Which bar is the tallest and which is the shortest\?", _extremes),
    (r"What are the values in the bar chart\?", _values),
    (r"Describe the bars of this chart from left to right\.", _bars),
    (r"List every bar with its height, starting on the right\.", _bars_backwards),
    (r"What is in the (\w+ \w+) corner\?", _at),
    (r"Where is the (\w+) shape\?", _find),
    (r"Do the (\w+ \w+) corner and the (\w+ \w+) corner show the same kind of shape\?", _same),
    (r"Describe the shapes in this picture\.", _shapes),
    (r"Which shapes can be seen here, and where are they\?", _shapes),
    (r"List the shapes, beginning with the lower row\.", _shapes_upwards),
    (r"What is written in this image\?|Read the text on the sign\.", _text),
    (r"Which word is printed at the top\?", _word),
    (r"What number does the image show\?", _number),
    (r"Which colours are used for the text\?", _text_colours),
    (r"Compare the two digits of the number\.", _digits),
    (r"Describe this image in detail\.", _kind),
)
