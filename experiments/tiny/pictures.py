"""Pictures of 112 x 112 pixels and the facts they show.

Three kinds: a bar chart, four coloured shapes on a 2 x 2 grid, and a printed word over a printed
number. Everything is large and aligned to the 28-pixel cells that one image token covers, with a
jitter of at most two pixels, so that a vision tower of three layers can read it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

SIDE = 112
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 30, 30),
    "green": (20, 160, 60),
    "blue": (40, 70, 230),
    "yellow": (245, 205, 30),
    "purple": (150, 40, 190),
    "black": (15, 15, 15),
}
SHAPES = ("circle", "square", "triangle", "cross", "diamond")
WORDS = (
    *("BIRD", "CAKE", "DOOR", "FISH", "GOLD", "KING"),
    *("LAMP", "MOON", "ROCK", "SHIP", "TREE", "WOLF"),
)
MAX_HEIGHT = 6
NUM_BARS = 4
_UNIT = 17  # pixels per unit of bar height: six units fill the picture
_CELL = 56


@dataclass(frozen=True)
class Bar:
    """One bar of a chart: a colour name and a height of 1 to 6."""

    colour: str
    height: int


@dataclass(frozen=True)
class Shape:
    """One shape on the grid: a colour name and a shape name."""

    colour: str
    name: str


@dataclass(frozen=True)
class Chart:
    """Four bars, left to right; colours and heights are distinct."""

    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Grid:
    """Four shapes in the order top left, top right, bottom left, bottom right; distinct colours."""

    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Sign:
    """A printed word over a two-digit number, each with its own colour."""

    word: str
    number: str
    word_colour: str
    number_colour: str


Facts = Chart | Grid | Sign
KINDS = ("chart", "grid", "sign")


def make_facts(kind: str, rng: random.Random) -> Facts:
    """Random facts of one kind out of `KINDS`; raises `ValueError` on another name."""
    if kind == "chart":
        colours = rng.sample(list(COLOURS), NUM_BARS)
        heights = rng.sample(range(1, MAX_HEIGHT + 1), NUM_BARS)
        return Chart(tuple(Bar(c, h) for c, h in zip(colours, heights, strict=True)))
    if kind == "grid":
        colours = rng.sample(list(COLOURS), 4)
        return Grid(tuple(Shape(c, rng.choice(SHAPES)) for c in colours))
    if kind == "sign":
        colours = rng.sample(list(COLOURS), 2)
        return Sign(rng.choice(WORDS), str(rng.randint(10, 99)), *colours)
    raise ValueError(f"unknown picture kind {kind!r}, expected one of {', '.join(KINDS)}")


def draw(facts: Facts, rng: random.Random) -> Image.Image:
    """RGB picture of 112 x 112 pixels showing `facts`; `rng` moves things by a pixel or two."""
    picture = Image.new("RGB", (SIDE, SIDE), (255, 255, 255))
    pen = ImageDraw.Draw(picture)
    if isinstance(facts, Chart):
        _draw_chart(pen, facts, rng)
    elif isinstance(facts, Grid):
        _draw_grid(pen, facts, rng)
    else:
        _draw_sign(pen, facts, rng)
    return picture


def _draw_chart(pen: ImageDraw.ImageDraw, chart: Chart, rng: random.Random) -> None:
    width = SIDE // NUM_BARS
    for index, bar in enumerate(chart.bars):
        left = index * width + rng.randint(3, 5)
        top = SIDE - 4 - bar.height * _UNIT
        pen.rectangle((left, top, left + width - 9, SIDE - 4), fill=COLOURS[bar.colour])
    pen.line((0, SIDE - 3, SIDE, SIDE - 3), fill=(90, 90, 90), width=2)


def _draw_grid(pen: ImageDraw.ImageDraw, grid: Grid, rng: random.Random) -> None:
    for index, shape in enumerate(grid.shapes):
        x = (index % 2) * _CELL + _CELL // 2 + rng.randint(-2, 2)
        y = (index // 2) * _CELL + _CELL // 2 + rng.randint(-2, 2)
        _draw_shape(pen, shape, x, y)


def _draw_shape(pen: ImageDraw.ImageDraw, shape: Shape, x: int, y: int) -> None:
    """Draw one shape of about 40 pixels around the centre `(x, y)`."""
    fill, r = COLOURS[shape.colour], 20
    if shape.name == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=fill)
    elif shape.name == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=fill)
    elif shape.name == "triangle":
        pen.polygon([(x, y - r), (x - r, y + r), (x + r, y + r)], fill=fill)
    elif shape.name == "cross":
        pen.rectangle((x - r, y - 6, x + r, y + 6), fill=fill)
        pen.rectangle((x - 6, y - r, x + 6, y + r), fill=fill)
    else:
        pen.polygon([(x, y - r - 4), (x - r, y), (x, y + r + 4), (x + r, y)], fill=fill)


def _draw_sign(pen: ImageDraw.ImageDraw, sign: Sign, rng: random.Random) -> None:
    x, y = rng.randint(-2, 2), rng.randint(-2, 2)
    word_font, number_font = (
        ImageFont.load_default(size=36),
        ImageFont.load_default(size=60),
    )
    centre = SIDE // 2 + x
    pen.text((centre, 28 + y), sign.word, COLOURS[sign.word_colour], word_font, anchor="mm")
    # Each digit sits in its own half, so that the tower meets it at one place only.
    for index, digit in enumerate(sign.number):
        place = (_CELL * index + _CELL // 2 + x, 82 + y)
        pen.text(place, digit, COLOURS[sign.number_colour], number_font, anchor="mm")
