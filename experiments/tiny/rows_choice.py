"""Rows of the tiny benchmarks that are multiple choice: ScienceQA, SEED-Bench, MMT-Bench."""

from __future__ import annotations

from typing import Any

from PIL import Image

from experiments.tiny.choices import answers, options
from experiments.tiny.rows import LETTERS, Row, cell, fitting_sample, row_rng

# --- scienceqa ----------------------------------------------------------------------------------

_SUBJECTS = {
    "shapes": ("natural science", "physics", "Geometry of objects", "Name objects in a picture"),
    "text": ("language science", "reading", "Words and numbers", "Read a sign"),
    "chart": ("social science", "economics", "Data", "Read a bar chart"),
    "reasoning": ("natural science", "science practices", "Comparing", "Compare two observations"),
}
_HINTS = {
    "chart": "The picture shows a bar chart. The heights of its bars are whole numbers.",
    "grid": "The picture shows four shapes, one in each corner.",
    "sign": "The picture shows a sign with a word and a number.",
}


def scienceqa(rows: int) -> list[Row]:
    """Pictures of all kinds with two to four choices; half of them have a hint."""
    tasks = list(_SUBJECTS)
    result = []
    for index in range(rows):
        sample = fitting_sample("scienceqa", index, tasks[index % len(tasks)])
        question, rng = sample.turns[0].question, row_rng("scienceqa", index)
        most = min(4, len(answers(question, sample.facts)[1]))
        choices, right = options(question, sample.facts, rng.randint(2, most), rng)
        subject, topic, category, skill = _SUBJECTS[sample.task]
        result.append(
            {
                "image": cell(sample.picture, path="image.png"),
                "question": question,
                "choices": choices,
                "answer": right,
                "hint": _HINTS[sample.kind] if index // len(tasks) % 2 else "",
                "task": "closed choice",
                "grade": f"grade{2 + index % 7}",
                "subject": subject,
                "topic": topic,
                "category": category,
                "skill": skill,
                "lecture": "" if index % 3 else "Look at the whole picture before you answer.",
                "solution": sample.turns[0].answer.text,
            }
        )
    return result


# --- seed_bench ---------------------------------------------------------------------------------

_IMAGES_PER_VIDEO = 8  # rows between two rows of the other kind
_FRAMES = (8, 2, 3)


def seed_bench(rows: int) -> list[Row]:
    """`rows` rows about one grid each, and among them rows of several frames, to be filtered out.

    Case of `data_type` varies, because the filter ignores it.
    """
    result = []
    for index in range(rows):
        if index % _IMAGES_PER_VIDEO == 0:
            number = index // _IMAGES_PER_VIDEO
            frames = _FRAMES[number % len(_FRAMES)]
            kind = "Video" if number % 3 == 2 else "video"
            result.append(_seed_row(rows + number, kind, frames))
        result.append(_seed_row(index, "Image" if index % 16 == 9 else "image", 1))
    return result


def _seed_row(index: int, data_type: str, frames: int) -> Row:
    sample = fitting_sample("seed_bench", index, "shapes", possible=4)
    question = sample.turns[0].question
    choices, right = options(question, sample.facts, 4, row_rng("seed_bench", index))
    # Frames of a film: the picture drifts to the right.
    pictures = [sample.picture.transform(*_drift(sample.picture, 2 * i)) for i in range(frames)]
    return {
        "question_id": str(101_669 + index),
        "question": question,
        **{f"choice_{letter}": choice for letter, choice in zip("abcd", choices, strict=True)},
        "answer": LETTERS[right],
        "data_type": data_type,
        "image": [cell(picture) for picture in pictures],
    }


def _drift(picture: Image.Image, by: int) -> tuple[Any, ...]:
    return picture.size, Image.Transform.AFFINE, (1, 0, -by, 0, 1, 0)


# --- mmt_bench ----------------------------------------------------------------------------------

_META_TASKS = {
    "shapes": ("shape_recognition", "visual_recognition"),
    "text": ("sign_reading", "ocr"),
    "chart": ("bar_height_reading", "counting"),
    "reasoning": ("fact_comparison", "localization"),
}


def mmt_bench(rows: int) -> list[Row]:
    """Pictures of all kinds with two to nine options; the other option columns are empty."""
    tasks = list(_META_TASKS)
    result = []
    for index in range(rows):
        count = 2 + (index // len(tasks) + index) % 8
        sample = fitting_sample("mmt_bench", index, tasks[index % len(tasks)], possible=count)
        question = sample.turns[0].question
        choices, right = options(question, sample.facts, count, row_rng("mmt_bench", index))
        category, l2_category = _META_TASKS[sample.task]
        result.append(
            {
                "index": 10_000 + 7 * index,
                "question": question,
                "answer": LETTERS[right],
                **dict.fromkeys(LETTERS, ""),
                **dict(zip(LETTERS, choices, strict=False)),
                "image": cell(sample.picture),
                "category": category,
                "l2-category": l2_category,
                "split": "VAL",
            }
        )
    return result
