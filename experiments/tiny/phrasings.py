"""Questions about a picture and their answers, long ones in several wordings and short ones.

A phrasing is a function `(facts, rng) -> (question, answer template)`. The wording of an answer
follows from the wording of its question, so greedy decoding can learn it; the random generator only
chooses what is asked about. Marked words (see `markup`) are those that need the picture.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from experiments.tiny.pictures import Bar, Chart, Facts, Grid, Shape, Sign

Phrased = tuple[str, str]  # question, answer template
Phrasing = Callable[..., Phrased]
ORDINALS = ("first", "second", "third", "last")
CORNERS = ("top left", "top right", "bottom left", "bottom right")


def _bar(bar: Bar, template: str) -> str:
    return template.replace("C", f"{{{bar.colour}}}").replace("H", f"{{{bar.height}}}")


def _shape(shape: Shape) -> str:
    return f"{{{shape.colour}}} {{{shape.name}}}"


def _corner(index: int) -> str:
    row, side = CORNERS[index].split()
    return f"{{{row}}} {{{side}}}"


def _extremes(chart: Chart) -> tuple[Bar, Bar]:
    """The tallest and the shortest bar."""
    ranked = sorted(chart.bars, key=lambda bar: bar.height)
    return ranked[-1], ranked[0]


# --- charts -------------------------------------------------------------------------------------


def chart_bars(chart: Chart, rng: random.Random) -> Phrased:
    """All bars, left to right."""
    parts = [
        f"the {name} bar is " + _bar(bar, "C and reaches H")
        for name, bar in zip(ORDINALS, chart.bars, strict=True)
    ]
    tall, short = _extremes(chart)
    return (
        "Describe the bars of this chart from left to right.",
        f"The chart shows four bars. From left to right, {parts[0]}, {parts[1]}, {parts[2]}, and "
        f"{parts[3]}. The tallest bar is {{{tall.colour}}} and the shortest bar is "
        f"{{{short.colour}}}.",
    )


def chart_values(chart: Chart, rng: random.Random) -> Phrased:
    """All values, left to right, then the range."""
    a, b, c, d = (_bar(bar, "C is at H") for bar in chart.bars)
    tall, short = _extremes(chart)
    return (
        "What are the values in the bar chart?",
        f"Reading the chart from the left side gives these values: {a}, {b}, {c}, and finally {d}. "
        f"So the highest value is {{{tall.height}}}, which belongs to {{{tall.colour}}}, while the "
        f"lowest value is {{{short.height}}}, which belongs to {{{short.colour}}}.",
    )


def chart_backwards(chart: Chart, rng: random.Random) -> Phrased:
    """All bars, right to left."""
    lines = [
        f"Bar {number}: " + _bar(bar, "C, height H.")
        for number, bar in zip(("four", "three", "two", "one"), reversed(chart.bars), strict=True)
    ]
    return (
        "List every bar with its height, starting on the right.",
        "Here is every bar with its height, starting on the right. "
        + " ".join(lines)
        + " No other bars can be seen in the figure.",
    )


def chart_height(chart: Chart, rng: random.Random) -> Phrased:
    """One bar by colour, with its place and the tallest bar for comparison."""
    index = rng.randrange(4)
    bar, (tall, short) = chart.bars[index], _extremes(chart)
    return (
        f"How tall is the {bar.colour} bar?",
        f"The {bar.colour} bar reaches a height of {{{bar.height}}}. Counted from the left it is "
        f"the {{{ORDINALS[index]}}} bar. For comparison, the tallest bar in the chart is "
        f"{{{tall.colour}}} with a height of {{{tall.height}}}, and the shortest one is "
        f"{{{short.colour}}} with a height of {{{short.height}}}.",
    )


def chart_value(chart: Chart, rng: random.Random) -> Phrased:
    """One bar by colour, then the values of the others."""
    index = rng.randrange(4)
    bar = chart.bars[index]
    a, b, c = (_bar(other, "C has H") for other in chart.bars if other is not bar)
    return (
        f"What is the value of the {bar.colour} bar?",
        f"In this chart, the value of the {bar.colour} bar is {{{bar.height}}}. The other bars are "
        f"as follows: {a}, {b}, and {c}. These values were read from left to right.",
    )


def chart_taller(chart: Chart, rng: random.Random) -> Phrased:
    """Which of two bars is taller."""
    a, b = rng.sample(chart.bars, 2)
    winner = a if a.height > b.height else b
    return (
        f"Which bar is taller, the {a.colour} one or the {b.colour} one?",
        f"To compare them, look at both heights. The {a.colour} bar reaches {{{a.height}}} and the "
        f"{b.colour} bar reaches {{{b.height}}}. Therefore the {{{winner.colour}}} bar is the "
        f"taller one of the two, and the difference between them is "
        f"{{{abs(a.height - b.height)}}}.",
    )


def chart_higher(chart: Chart, rng: random.Random) -> Phrased:
    """Yes or no: is one bar higher than another."""
    a, b = rng.sample(chart.bars, 2)
    yes, more, up = ("yes", "more", "higher") if a.height > b.height else ("no", "less", "lower")
    return (
        f"Is the {a.colour} bar higher than the {b.colour} bar? Explain.",
        f"First, the {a.colour} bar has the value {{{a.height}}}. Second, the {b.colour} bar has "
        f"the value {{{b.height}}}. Since {{{a.height}}} is {{{more}}} than {{{b.height}}}, the "
        f"answer is {{{yes}}}: the {a.colour} bar is {{{up}}} than the {b.colour} bar.",
    )


def chart_extremes(chart: Chart, rng: random.Random) -> Phrased:
    """The tallest and the shortest bar, after looking at all of them."""
    a, b, c, d = (_bar(bar, "C H") for bar in chart.bars)
    tall, short = _extremes(chart)
    return (
        "Which bar is the tallest and which is the shortest?",
        f"Let us look at the bars one after another: {a}, {b}, {c}, {d}. Comparing these heights, "
        f"the tallest bar is the {{{tall.colour}}} one, and the shortest bar is the "
        f"{{{short.colour}}} one. They differ by {{{tall.height - short.height}}}.",
    )


def chart_caption(chart: Chart, rng: random.Random) -> Phrased:
    """Caption of a chart."""
    a, b, c, d = (_bar(bar, "a C bar of height H") for bar in chart.bars)
    return (
        "Describe this image in detail.",
        f"This image is a simple bar {{chart}} with a white background. From left to right it "
        f"contains {a}, {b}, {c}, and {d}. A thin gray line runs along the bottom of the image, "
        f"and all the bars stand on it.",
    )


# --- grids --------------------------------------------------------------------------------------


def grid_corners(grid: Grid, rng: random.Random) -> Phrased:
    """All shapes by corner."""
    a, b, c, d = map(_shape, grid.shapes)
    return (
        "Describe the shapes in this picture.",
        f"The picture shows four shapes. In the top left corner there is a {a}, and in the top "
        f"right corner there is a {b}. In the bottom left corner there is a {c}, and next to it, "
        f"in the bottom right corner, there is a {d}.",
    )


def grid_rows(grid: Grid, rng: random.Random) -> Phrased:
    """All shapes by row."""
    a, b, c, d = map(_shape, grid.shapes)
    return (
        "Which shapes can be seen here, and where are they?",
        f"There are four shapes here. The upper row has a {a} on the left and a {b} on the right. "
        f"The lower row has a {c} on the left and a {d} on the right. No shape covers another one.",
    )


def grid_upwards(grid: Grid, rng: random.Random) -> Phrased:
    """All shapes, lower row first."""
    a, b, c, d = map(_shape, grid.shapes)
    return (
        "List the shapes, beginning with the lower row.",
        f"Beginning with the lower row, we find a {c} and then a {d}. Above them, in the upper "
        f"row, we find a {a} and then a {b}. That makes four shapes in total.",
    )


def grid_at(grid: Grid, rng: random.Random) -> Phrased:
    """The shape in one corner, then its neighbours."""
    index = rng.randrange(4)
    a, b, c, d = (grid.shapes[index ^ flip] for flip in (0, 1, 2, 3))
    return (
        f"What is in the {CORNERS[index]} corner?",
        f"The object in the {CORNERS[index]} corner is a {_shape(a)}. Beside it, in the same row, "
        f"there is a {_shape(b)}. In the same column there is a {_shape(c)}, and in the opposite "
        f"corner one can see a {_shape(d)}.",
    )


def grid_find(grid: Grid, rng: random.Random) -> Phrased:
    """Where the shape of one colour is, and what it is."""
    index = rng.randrange(4)
    shape = grid.shapes[index]
    return (
        f"Where is the {shape.colour} shape?",
        f"The {shape.colour} shape is in the {_corner(index)} corner of the picture, and it is a "
        f"{{{shape.name}}}. Beside it, in the same row, there is a {_shape(grid.shapes[index ^ 1])}"
        f", and the other row has a {_shape(grid.shapes[(index & 2) ^ 2])} and a "
        f"{_shape(grid.shapes[((index & 2) ^ 2) + 1])}.",
    )


def grid_same(grid: Grid, rng: random.Random) -> Phrased:
    """Whether two corners hold the same kind of shape."""
    i, j = sorted(rng.sample(range(4), 2))
    a, b = grid.shapes[i], grid.shapes[j]
    verdict, word = ("the {same}", "yes") if a.name == b.name else ("{different} kinds of", "no")
    return (
        f"Do the {CORNERS[i]} corner and the {CORNERS[j]} corner show the same kind of shape?",
        f"The {CORNERS[i]} corner shows a {_shape(a)}. The {CORNERS[j]} corner shows a {_shape(b)}"
        f". A {{{a.name}}} and a {{{b.name}}} are {verdict} shape, so the answer is {{{word}}}.",
    )


def grid_caption(grid: Grid, rng: random.Random) -> Phrased:
    """Caption of a grid."""
    a, b, c, d = map(_shape, grid.shapes)
    return (
        "Describe this image in detail.",
        f"This image is a simple drawing of four {{shapes}} on a white background. The upper half "
        f"contains a {a} and a {b}. The lower half contains a {c} and a {d}. The shapes are about "
        f"equally large, and each one has a single plain colour.",
    )


# --- signs --------------------------------------------------------------------------------------


def sign_text(sign: Sign, rng: random.Random) -> Phrased:
    """Everything that is printed, with colours."""
    return (
        "What is written in this image?",
        f"The image contains printed text. The word at the top is {{{sign.word}}}, printed in "
        f"{{{sign.word_colour}}} letters. Below it there is the number {{{sign.number}}}, printed "
        f"in {{{sign.number_colour}}} digits. There is no other text in the image.",
    )


def sign_lines(sign: Sign, rng: random.Random) -> Phrased:
    """The two lines, then the whole text."""
    return (
        "Read the text on the sign.",
        f"The sign has two lines of text. The first line reads {{{sign.word}}} and its letters are "
        f"{{{sign.word_colour}}}. The second line reads {{{sign.number}}} and its digits are "
        f"{{{sign.number_colour}}}. Put together, the sign says {{{sign.word}}} {{{sign.number}}}.",
    )


def sign_word(sign: Sign, rng: random.Random) -> Phrased:
    """The word, spelled, then the number."""
    letters = ", ".join(f"{{{letter}}}" for letter in sign.word)
    return (
        "Which word is printed at the top?",
        f"The word printed at the top is {{{sign.word}}}. It is spelled with the four letters "
        f"{letters}. The letters are {{{sign.word_colour}}}, and under the word one can read the "
        f"number {{{sign.number}}}.",
    )


def sign_number(sign: Sign, rng: random.Random) -> Phrased:
    """The number, digit by digit, then the word."""
    one, two = sign.number[0], sign.number[1]
    return (
        "What number does the image show?",
        f"The number shown in the image is {{{sign.number}}}. Its first digit is {{{one}}} and its "
        f"second digit is {{{two}}}. The number is printed in {{{sign.number_colour}}}, and the "
        f"word {{{sign.word}}} above it is printed in {{{sign.word_colour}}}.",
    )


def sign_colours(sign: Sign, rng: random.Random) -> Phrased:
    """Which colours are used."""
    return (
        "Which colours are used for the text?",
        f"Two colours are used for the text. The word {{{sign.word}}} is printed in "
        f"{{{sign.word_colour}}}, and the number {{{sign.number}}} is printed in "
        f"{{{sign.number_colour}}}. The background of the sign is plain white.",
    )


def sign_bigger(sign: Sign, rng: random.Random) -> Phrased:
    """Which of the two digits is larger."""
    one, two = int(sign.number[0]), int(sign.number[1])
    order = "larger than" if one > two else "smaller than" if one < two else "equal to"
    first, *rest = order.split()
    return (
        "Compare the two digits of the number.",
        f"The number under the word {{{sign.word}}} is {{{sign.number}}}. Its first digit is "
        f"{{{one}}} and its second digit is {{{two}}}. Comparing both digits, the first one is "
        f"{{{first}}} {' '.join(rest)} the second one.",
    )


def sign_caption(sign: Sign, rng: random.Random) -> Phrased:
    """Caption of a sign."""
    return (
        "Describe this image in detail.",
        f"This image is a simple {{sign}} with a white background. In the upper half, the word "
        f"{{{sign.word}}} is printed in large {{{sign.word_colour}}} letters. In the lower half, "
        f"the number {{{sign.number}}} is printed in even larger {{{sign.number_colour}}} digits.",
    )


# --- short forms, in which every word needs the picture -----------------------------------------


def short_bars(chart: Chart, rng: random.Random) -> Phrased:
    """Colours and heights, left to right."""
    return "Bars, in short.", " ".join(_bar(bar, "C H") for bar in chart.bars)


def short_height(chart: Chart, rng: random.Random) -> Phrased:
    """The height and the place of one bar."""
    index = rng.randrange(4)
    bar = chart.bars[index]
    return f"The {bar.colour} bar, in short.", f"{{{bar.height}}} {{{ORDINALS[index]}}}"


def short_extremes(chart: Chart, rng: random.Random) -> Phrased:
    """The tallest and the shortest bar."""
    tall, short = _extremes(chart)
    return "Tallest and shortest, in short.", _bar(tall, "C H") + " " + _bar(short, "C H")


def short_pair(chart: Chart, rng: random.Random) -> Phrased:
    """The heights of two bars and the colour of the taller one."""
    a, b = rng.sample(chart.bars, 2)
    winner = a if a.height > b.height else b
    answer = f"{{{a.height}}} {{{b.height}}} {{{winner.colour}}}"
    return f"The {a.colour} bar and the {b.colour} bar, in short.", answer


def short_shapes(grid: Grid, rng: random.Random) -> Phrased:
    """All shapes in reading order."""
    return "Shapes, in short.", " ".join(map(_shape, grid.shapes))


def short_at(grid: Grid, rng: random.Random) -> Phrased:
    """The shape in one corner."""
    index = rng.randrange(4)
    return f"The {CORNERS[index]} corner, in short.", _shape(grid.shapes[index])


def short_find(grid: Grid, rng: random.Random) -> Phrased:
    """The corner and the name of the shape of one colour."""
    index = rng.randrange(4)
    shape = grid.shapes[index]
    return f"The {shape.colour} shape, in short.", f"{_corner(index)} {{{shape.name}}}"


def short_text(sign: Sign, rng: random.Random) -> Phrased:
    """Word and number."""
    return "Text, in short.", f"{{{sign.word}}} {{{sign.number}}}"


def short_colours(sign: Sign, rng: random.Random) -> Phrased:
    """Colours of word and number."""
    return "Colours, in short.", f"{{{sign.word_colour}}} {{{sign.number_colour}}}"


def short_kind(facts: Facts, rng: random.Random) -> Phrased:
    """What kind of picture it is."""
    names = {Chart: "chart", Grid: "shapes", Sign: "sign"}
    return "What is it, in short?", f"{{{names[type(facts)]}}}"


# kind -> task -> wordings
LONG: dict[str, dict[str, tuple[Phrasing, ...]]] = {
    "chart": {
        "chart": (chart_bars, chart_values, chart_backwards, chart_height, chart_value),
        "reasoning": (chart_taller, chart_higher, chart_extremes),
        "caption": (chart_caption,),
    },
    "grid": {
        "shapes": (grid_corners, grid_rows, grid_upwards, grid_at, grid_find),
        "reasoning": (grid_same,),
        "caption": (grid_caption,),
    },
    "sign": {
        "text": (sign_text, sign_lines, sign_word, sign_number, sign_colours),
        "reasoning": (sign_bigger,),
        "caption": (sign_caption,),
    },
}
SHORT: dict[str, tuple[Phrasing, ...]] = {
    "chart": (short_bars, short_height, short_pair, short_extremes, short_kind),
    "grid": (short_shapes, short_at, short_find, short_kind),
    "sign": (short_text, short_colours, short_kind),
}
