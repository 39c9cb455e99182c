"""Rows of the tiny MathVista: reading and comparing numbers, multiple choice and free form."""

from __future__ import annotations

from PIL import Image

from experiments.tiny.choices import answers, options
from experiments.tiny.rows import LETTERS, Row, cell, fitting_sample, row_rng

# Task, kind of picture, question, number of options (0: free form), answer type, unit.
_MATHS: tuple[tuple[str, str, str, int, str, str | None], ...] = (
    ("reasoning", "chart", "Which bar is taller", 4, "text", None),
    ("chart", "chart", "How tall|What is the value", 0, "integer", None),
    ("reasoning", "chart", "Is the", 2, "text", None),
    ("chart", "chart", "How tall", 0, "float", "cm"),
    ("chart", "chart", "What are the values", 0, "list", None),
    ("chart", "chart", "What is the value", 4, "integer", None),
    ("reasoning", "chart", "Which bar is the tallest", 5, "text", None),
    ("chart", "chart", "What is the value", 0, "float", None),
    ("reasoning", "sign", "Compare the two digits", 3, "text", None),
    ("chart", "chart", "How tall", 0, "integer", "cm"),
    ("reasoning", "grid", "Do the", 2, "text", None),
    ("text", "sign", "What number", 0, "integer", None),
)
_CONTEXTS = {"chart": "bar chart", "grid": "abstract scene", "sign": "document image"}
_MODES = ("RGB", "P", "RGB", "RGBA", "RGB")
_NUMBER_HINTS = {
    "integer": "an integer answer and provide the final value, e.g., 1, 2, 3",
    "float1": "a floating-point number with one decimal place and provide the final value, "
    "e.g., 1.2, 1.3, 1.4",
    "float2": "a floating-point number with two decimal places and provide the final value, "
    "e.g., 1.23, 1.34, 1.45",
    "list": "a Python list as an answer and provide the final list, e.g., [1, 2, 3], "
    "[1.2, 1.3, 1.4]",
}


def mathvista(rows: int) -> list[Row]:
    """Reading and comparing numbers, as multiple choice and as free form."""
    return [_mathvista_row(index) for index in range(rows)]


def _mathvista_row(index: int) -> Row:
    task, kind, asks, count, answer_type, unit = _MATHS[index % len(_MATHS)]
    sample = fitting_sample("mathvista", index, task, kind=kind, asks=asks)
    question = sample.turns[0].question
    choices = right = precision = None
    if count:
        choices, place = options(question, sample.facts, count, row_rng("mathvista", index))
        right = choices[place]
    else:
        right = answers(question, sample.facts)[0]
    if answer_type == "float":
        precision = 1.0 + index // len(_MATHS) % 2
        right = f"{float(right):.{int(precision)}f}"
    elif answer_type == "list":
        right = f"[{right}]"
    picture = in_mode(sample.picture, _MODES[index % len(_MODES)])
    return {
        "pid": str(index + 1),
        "question": question,
        "image": f"images/{index + 1}.png",
        "decoded_image": cell(picture),
        "choices": choices,
        "unit": unit,
        "precision": precision,
        "answer": right,
        "question_type": "multi_choice" if choices else "free_form",
        "answer_type": answer_type,
        "metadata": {
            "category": "general-vqa" if kind == "sign" else "math-targeted-vqa",
            "context": _CONTEXTS[kind],
            "grade": "elementary school" if index % 2 else "daily life",
            "img_height": picture.height,
            "img_width": picture.width,
            "language": "english",
            "skills": ["statistical reasoning"] if kind == "chart" else ["arithmetic reasoning"],
            "source": "RECAP-bench",
            "split": "testmini",
            "task": "figure question answering" if kind == "chart" else "visual question answering",
        },
        "query": _query(question, choices, unit, answer_type, precision),
    }


def in_mode(picture: Image.Image, mode: str) -> Image.Image:
    """The same picture stored otherwise: with a palette (`P`), or white made transparent (`RGBA`).

    `convert("RGB")` gives the original back, except that more than 256 colours lose their nuances.
    """
    if mode == "P":
        return picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    if mode == "RGBA":
        ink = picture.convert("L").point([255] * 255 + [0])
        picture = picture.copy()
        picture.putalpha(ink)
    return picture


def _query(
    question: str,
    choices: list[str] | None,
    unit: str | None,
    answer_type: str,
    precision: float | None,
) -> str:
    """Hint, question and choices, as the real column has them."""
    if choices:
        hint = "answer the question and provide the correct option letter, e.g., A, B, C, D"
    else:
        suffix = "" if precision is None else str(int(precision))
        hint = f"answer the question requiring {_NUMBER_HINTS[answer_type + suffix]}"
    lines = [f"Hint: Please {hint}, at the end.", f"Question: {question}"]
    if unit:
        lines[1] += f" (Unit: {unit})"
    if choices:
        lines.append("Choices:")
        pairs = zip(LETTERS, choices, strict=False)
        lines += [f"({letter}) {choice}" for letter, choice in pairs]
    return "\n".join(lines)
