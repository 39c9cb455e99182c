"""Answers whose picture-dependent words are marked.

Templates put braces around every word that can only be known from the picture:
`"The red bar reaches {4}."` is the text `The red bar reaches 4.` in which `4` is marked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MARKED = re.compile(r"\{([^{}\s]+)\}")
_TRAILING = ".,;:?!"


@dataclass(frozen=True)
class Answer:
    """A text and the character spans `[start, end)` of its picture-dependent words."""

    text: str
    spans: tuple[tuple[int, int], ...]

    @property
    def marked_words(self) -> list[str]:
        """The marked words in order of appearance."""
        return [self.text[start:end] for start, end in self.spans]


def parse(template: str) -> Answer:
    """Answer for a template with `{marked}` words.

    Raises `ValueError` when braces are left over, so that a broken template cannot train a model.
    """
    text, spans, last = "", [], 0
    for match in _MARKED.finditer(template):
        text += template[last : match.start()]
        spans.append((len(text), len(text) + len(match.group(1))))
        text += match.group(1)
        last = match.end()
    text += template[last:]
    if "{" in text or "}" in text:
        raise ValueError(f"unbalanced braces in answer template: {template!r}")
    return Answer(text, tuple(spans))


def words_right(answer: Answer, generated: str) -> tuple[int, int]:
    """How many marked words `generated` has at the same word position, and how many there are.

    Strict on purpose: a text that drops or adds a word loses every marked word after it.
    Words are separated by whitespace and compared without trailing punctuation.
    """
    theirs = [word.rstrip(_TRAILING) for word in generated.split()]
    right = 0
    for start, end in answer.spans:
        index = len(answer.text[:start].split())
        right += index < len(theirs) and theirs[index] == answer.text[start:end]
    return right, len(answer.spans)
