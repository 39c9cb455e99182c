"""What the user says: the text of a question in a prompt style, and a turn's chat messages.

A style is a list of lines with fields in braces (``conf/bench``); a line whose fields are all empty
is left out. Messages have the shape that every processor's chat template reads.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError, unknown_name

if TYPE_CHECKING:
    from experiments.plan import BenchSettings

Message = dict[str, Any]
Row = Mapping[str, Any]


def render_question(
    settings: BenchSettings,
    question: str,
    options: Sequence[tuple[str, str]],
    context: str,
    row: Row,
) -> str:
    """The user's text for one row in the benchmark's prompt style.

    options: letters and texts of the answers to choose from; context: a text that comes with the
    question; row: all columns, for the benchmark's own template fields.
    """
    values = {
        "question": question,
        "question_capitalized": question.capitalize(),
        "options": "\n".join(
            settings.option_line.format(letter=letter, text=text) for letter, text in options
        ),
        "context": context,
    }
    if settings.template_fields is not None:
        values |= TEMPLATE_FIELDS[settings.template_fields](row)
    lines = [_line(template, values) for template in settings.prompts[settings.prompt_style]]
    return "\n".join(line for line in lines if line is not None)


def _line(template: str, values: Mapping[str, str]) -> str | None:
    """The filled line, or None when it has fields and all of them are empty."""
    names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    for name in names:
        if name not in values:
            raise unknown_name("field of a prompt", name, values)
    if names and not any(values[name] for name in names):
        return None
    return template.format_map(values)


def mathvista_fields(row: Row) -> dict[str, str]:
    """MathVista's unit, and lmms-eval's sentence about the form of the answer.

    Raises UserError for a kind of answer the data set is not known to have.
    """
    unit = f" (Unit: {row['unit']})" if row["unit"] else ""
    if row["question_type"] == "multi_choice":
        form = "Answer with the option's letter from the given choices directly."
        return {"unit": unit, "answer_format": form}
    kind = row["answer_type"]
    if kind == "float":
        kind = f"float with {row['precision']:.0f} decimals"
    if kind not in _ANSWER_FORMS:
        raise UserError(
            f"MathVista question {row['pid']} asks for an answer of type {kind!r}, known are "
            f"{', '.join(_ANSWER_FORMS)}; use another bench.prompt_style."
        )
    return {"unit": unit, "answer_format": _ANSWER_FORMS[kind]}


_SINGLE = "Answer the question using a single"
_ANSWER_FORMS = {
    "integer": f"{_SINGLE} integer number.",
    "float with 1 decimals": f"{_SINGLE} floating-point number with one decimal place.",
    "float with 2 decimals": f"{_SINGLE} floating-point number with two decimal places.",
    "list": "Answer the question using a Python list.",
}

TEMPLATE_FIELDS: dict[str, Callable[[Row], dict[str, str]]] = {"mathvista": mathvista_fields}


def turn_messages(
    system: str | None, turns: Sequence[str], answers: Sequence[str]
) -> list[Message]:
    """Messages that end with the user's turn ``len(answers)``.

    The picture stands before the text of the first user turn; later turns are text alone, with the
    earlier answers between them. ``turns`` has at least one entry more than ``answers``.
    """
    messages: list[Message] = []
    if system is not None:
        messages.append(_message("system", [_text(system)]))
    for index, question in enumerate(turns[: len(answers) + 1]):
        picture = [{"type": "image"}] if index == 0 else []
        messages.append(_message("user", [*picture, _text(question)]))
        if index < len(answers):
            messages.append(_message("assistant", [_text(answers[index])]))
    return messages


def _message(role: str, content: list[dict[str, str]]) -> Message:
    return {"role": role, "content": content}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}
