"""Chat messages of one turn, in the shape every processor's chat template reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]


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
