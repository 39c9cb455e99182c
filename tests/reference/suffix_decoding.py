"""SuffixDecoding by counting every substring, see `baselines.suffix_decoding`."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

Drafted = tuple[list[int], list[int], float]


def cut(tokens: Sequence[int], separators: Collection[int]) -> list[list[int]]:
    """The pieces between separators."""
    pieces: list[list[int]] = [[]]
    for token in tokens:
        if token in separators:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return pieces


def count_substrings(sequences: Iterable[Sequence[int]], depth: int) -> Counter[tuple[int, ...]]:
    """How often every substring of at most ``depth`` tokens occurs."""
    counts: Counter[tuple[int, ...]] = Counter()
    for sequence in sequences:
        for start in range(len(sequence)):
            for stop in range(start + 1, min(start + depth, len(sequence)) + 1):
                counts[tuple(sequence[start:stop])] += 1
    return counts


def speculate(
    counts: Counter[tuple[int, ...]],
    context: Sequence[int],
    limit: int,
    best: Drafted,
    *,
    path: bool,
    cap: int,
    factor: float,
    offset: float,
    min_prob: float,
) -> Drafted:
    """The better of ``best`` and what the suffixes of ``context`` lead to: tokens, parents,
    score.
    """
    for m in range(min(limit, len(context)), 0, -1):
        suffix = tuple(context[len(context) - m :])
        if counts[suffix] == 0:
            continue
        most = min(cap, int(m * factor + offset + 1e-6))
        draft = _grow(counts, suffix, most, min_prob, path)
        if draft[2] > best[2] + 1e-6:
            best = draft
    return best


def _grow(
    counts: Counter[tuple[int, ...]],
    suffix: tuple[int, ...],
    most: int,
    min_prob: float,
    path: bool,
) -> Drafted:
    tokens: list[int] = []
    parents: list[int] = []
    score = 0.0
    queue: list[tuple[float, int, int, tuple[int, ...]]] = []

    def push(text: tuple[int, ...], prob: float, parent: int) -> None:
        children = [t for t in sorted({s[-1] for s in counts}) if counts[(*text, t)]]
        if path:
            children = sorted(children, key=lambda t: -counts[(*text, t)])[:1]
        for token in children:
            child = (*text, token)
            same = counts[child] == counts[text]
            share = prob if same else prob * counts[child] / counts[text]
            if share >= min_prob:
                heapq.heappush(queue, (-share, parent, token, child))

    push(suffix, 1.0, -1)
    while queue and len(tokens) < most:
        negative, parent, token, text = heapq.heappop(queue)
        tokens.append(token)
        parents.append(parent)
        score -= negative
        push(text, -negative, len(tokens) - 1)
    return tokens, parents, score
