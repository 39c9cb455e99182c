"""Errors that are the user's to mend: one sentence that says what to do, never a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Shown as its message alone; `run.py` exits with status 2."""


def closest_first(word: str, names: Iterable[str]) -> list[str]:
    """All ``names``, the most similar to ``word`` first."""
    return sorted(names, key=lambda name: -difflib.SequenceMatcher(None, word, name).ratio())


def unknown_name(kind: str, word: str, names: Iterable[str]) -> UserError:
    """The error for a name that does not exist, with the valid ones, closest first."""
    ordered = closest_first(word, names)
    return UserError(f"Unknown {kind} '{word}'. Valid: {', '.join(ordered)}.")
