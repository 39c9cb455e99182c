"""The longest suffix that also ends earlier, by looking everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def longest_match(text: Sequence[int], separators: Collection[int] = ()) -> tuple[int, int, int]:
    """Length, first end and latest earlier end of the longest suffix that also ends earlier.

    (0, -1, -1) where there is none. No token of a match is a separator.
    """
    longest, first, last = 0, -1, -1
    for end in range(len(text) - 1):
        length = 0
        while length <= end and text[end - length] == text[-1 - length] not in separators:
            length += 1
        if length > longest:
            longest, first = length, end
        if length == longest > 0:
            last = end
    return longest, first, last


def suffix_path(text: Sequence[int], separators: Collection[int], limit: int) -> list[int]:
    """What followed the latest earlier end, cut at a separator or a repeated edge."""
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
