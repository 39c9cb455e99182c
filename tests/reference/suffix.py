"""The longest suffix that also ends earlier, by looking everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def longest_match(text: Sequence[int], separators: Collection[int] = ()) -> tuple[int, int, int]:
    """(length, first end, latest earlier end) of the longest suffix that also ends earlier; (0, -1,
    -1) if none.

    No token of a match is a separator.
    """
    for length in range(len(text) - 1, 0, -1):
        suffix = text[len(text) - length :]
        if any(token in separators for token in suffix):
            continue
        ends = [
            e for e in range(length - 1, len(text) - 1) if text[e - length + 1 : e + 1] == suffix
        ]
        if ends:
            return length, ends[0], ends[-1]
    return 0, -1, -1


def suffix_path(text: Sequence[int], separators: Collection[int], limit: int) -> list[int]:
    """What RECAP inserts: the continuation of the latest earlier end, cut at a separator or a
    repeated edge.
    """
    length, _, end = longest_match(text, separators)
    path: list[int] = []
    if length == 0:
        return path
    edges: set[tuple[int, int]] = set()
    previous = text[-1]
    for token in text[end + 1 : end + 1 + limit]:
        if token in separators or (previous, token) in edges:
            break
        edges.add((previous, token))
        path.append(token)
        previous = token
    return path
