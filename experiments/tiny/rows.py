"""Rows of the tiny benchmarks that ask for text, and what the row makers share.

A row is a dictionary with the columns of the real benchmark. What those hold beside picture and
question is imitated as far as a loader could care: ids, options, filters, modes of pictures. The
other makers are in `rows_choice` and `rows_mathvista`.
"""

from __future__ import annotations

import io
import random
import re
from typing import Any

from PIL import Image

from experiments.tiny.choices import answers
from experiments.tiny.pictures import Sign
from experiments.tiny.samples import BENCH_SEEDS, Sample, make_sample

Row = dict[str, Any]
LETTERS = "ABCDEFGHI"
_SEEDS_PER_BENCH = 1_000_000
_SEEDS_PER_ROW = 1_000
# Position decides a benchmark's seeds: add at the end. ChartQA and MMSpec use the first million.
_SEED_ORDER = (
    *("chartqa", "ocrbench", "textvqa", "scienceqa"),
    *("seed_bench", "mmt_bench", "mathvista"),
)


def encode(picture: Image.Image, fmt: str = "PNG") -> bytes:
    """The picture as a PNG or (best quality) JPEG file."""
    buffer = io.BytesIO()
    save: dict[str, Any] = {"quality": 95, "subsampling": 0} if fmt == "JPEG" else {}
    picture.save(buffer, fmt, **save)
    return buffer.getvalue()


def cell(picture: Image.Image, path: str | None = None) -> Row:
    """The picture as the `datasets` library stores it."""
    return {"bytes": encode(picture), "path": path}


def fitting_sample(
    bench: str,
    index: int,
    task: str,
    *,
    kind: str | None = None,
    turns: int | None = None,
    asks: str = "",
    possible: int = 2,
) -> Sample:
    """The first of row `index`'s own seeds whose questions fit.

    asks: pattern that every question contains; possible: how many answers of its sort every
    question must have. Up to a thousand rows per benchmark keep their seeds apart.
    """
    first = BENCH_SEEDS + _SEEDS_PER_BENCH * _SEED_ORDER.index(bench) + _SEEDS_PER_ROW * index
    for seed in range(first, first + _SEEDS_PER_ROW):
        sample = make_sample(task, seed, turns, kind)
        questions = [turn.question for turn in sample.turns]
        if all(
            re.search(asks, question) and len(answers(question, sample.facts)[1]) >= possible
            for question in questions
        ):
            return sample
    raise ValueError(f"no {task} sample asks {asks!r} with {possible} possible answers")


def row_rng(bench: str, index: int) -> random.Random:
    return random.Random(f"{bench}:{index}")


# --- chartqa ------------------------------------------------------------------------------------


def chartqa_samples(rows: int) -> list[Sample]:
    """`rows` one-turn chart samples: the first half reasoning, the second half plain reading."""
    tasks = ["reasoning"] * (rows // 2) + ["chart"] * (rows - rows // 2)
    return [make_sample(task, BENCH_SEEDS + i, kind="chart") for i, task in enumerate(tasks)]


def chartqa(rows: int) -> list[Row]:
    """`answer` lists the picture-dependent words of the reference answer."""
    return [
        {
            "type": "human_test" if sample.task == "reasoning" else "augmented_test",
            "question": sample.turns[0].question,
            "answer": ", ".join(sample.turns[0].answer.marked_words),
            "image": cell(sample.picture),
        }
        for sample in chartqa_samples(rows)
    ]


# --- ocrbench -----------------------------------------------------------------------------------

# Kinds of questions in file order, their twentieths of all rows, and what stands for each here.
OCR_TYPES: tuple[tuple[str, int, str], ...] = (
    ("Regular Text Recognition", 1, "What is written|Read the text"),
    ("Irregular Text Recognition", 1, "What is written|Read the text"),
    ("Artistic Text Recognition", 1, "Which word"),
    ("Handwriting Recognition", 1, "Read the text|Which word"),
    ("Digit String Recognition", 1, "What number"),
    ("Non-Semantic Text Recognition", 1, "What number"),
    ("Scene Text-centric VQA", 4, "Which word|What number|Which colours"),
    ("Doc-oriented VQA", 4, "What is written|Which colours"),
    ("Key Information Extraction", 4, "Which word|What number"),
    ("Handwritten Mathematical Expression Recognition", 2, "Compare the two digits"),
)


def ocrbench(rows: int) -> list[Row]:
    """Signs to read, grouped by the ten kinds of questions as in the real file."""
    twentieths = [name for name in OCR_TYPES for _ in range(name[1])]
    result = []
    for index in range(rows):
        name, _, asks = twentieths[index * len(twentieths) // rows]
        maths = "Mathematical" in name
        sample = fitting_sample(
            "ocrbench", index, "reasoning" if maths else "text", kind="sign", asks=asks
        )
        question = sample.turns[0].question
        right = answers(question, sample.facts)[0]
        result.append(
            {
                "dataset": "HME100k" if maths else "tiny_signs",
                "question": question,
                "question_type": name,
                "answer": _spellings(right),
                # The real file's pictures have an empty path.
                "image": cell(sample.picture, path=""),
            }
        )
    return result


def _spellings(right: str) -> list[str]:
    """The answers that count: a sign's text on one line, or on two as printed."""
    on_two_lines = re.sub(r" (?=\d)", "\n", right)
    return [right] if on_two_lines == right else [right, on_two_lines]


# --- textvqa ------------------------------------------------------------------------------------

# Questions about one picture after another; of every 24 rows, 8 share theirs.
_QUESTIONS_PER_PICTURE = (1, 1, 3, 1, 1, 1, 1, 2, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 1)


def textvqa(rows: int) -> list[Row]:
    """Signs with up to three questions each, which share `image_id` and picture."""
    result: list[Row] = []
    picture = 0
    while len(result) < rows:
        turns = _QUESTIONS_PER_PICTURE[picture % len(_QUESTIONS_PER_PICTURE)]
        # No captions: their questions have no text for an answer.
        sample = fitting_sample(
            "textvqa", picture, "multi_turn", kind="sign", turns=turns, asks="^(?!Describe)"
        )
        for turn in sample.turns:
            row = _textvqa_row(sample, turn.question, f"{picture:016x}", len(result))
            result.append(row)
        picture += 1
    return result[:rows]


def _textvqa_row(sample: Sample, question: str, image_id: str, index: int) -> Row:
    assert isinstance(sample.facts, Sign)
    right = answers(question, sample.facts)[0].lower()
    return {
        "image_id": image_id,
        "question_id": 34_602 + index,  # where the real validation split begins
        "question": question,
        "question_tokens": re.findall(r"\w+", question.lower()),
        "image": cell(sample.picture),
        "image_width": sample.picture.width,
        "image_height": sample.picture.height,
        "flickr_original_url": f"https://example.com/original/{image_id}.png",
        "flickr_300k_url": f"https://example.com/300k/{image_id}.png",
        # Ten people, two of whom see it differently.
        "answers": [*[right] * 8, right.split()[0], "unanswerable"],
        "image_classes": ["Sign", "Text"],
        "set_name": "val",
        "ocr_tokens": [sample.facts.word, sample.facts.number],
    }
