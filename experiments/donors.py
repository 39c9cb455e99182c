"""Which other picture of a benchmark takes the place of an input's own.

A donor is another picture: of the same category where the category is known and has one, else any.
Every donor serves one target where that is possible, which is a maximum matching between the two;
targets that it leaves over draw one of their candidates once more. Standard library only.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# What `experiments.benches` writes where the data name no category.
UNKNOWN = ("", "default")


@dataclass(frozen=True)
class Picture:
    """What pairing looks at. Equal identities are one picture, however often it is asked about."""

    identity: str
    category: str


@dataclass(frozen=True)
class Donor:
    """A target's donor.

    index:         its place in the pool.
    same_category: whether it has the target's category, where that is known.
    reused:        whether the matching left the target over and the donor serves another one too.
    """

    index: int
    same_category: bool
    reused: bool


def pair(
    targets: Sequence[Picture], pool: Sequence[Picture], benchmark: str, seed: int
) -> list[Donor]:
    """One donor per target. Every target's candidates are shuffled by a generator that ``seed`` and
    the benchmark's name decide, so pairs depend on nothing else.

    Raises ValueError for a target beside which the pool holds no other picture.
    """
    rng = random.Random(seed + benchmark_offset(benchmark))
    candidates = [_candidates(target, pool) for target in targets]
    for indices in candidates:
        rng.shuffle(indices)
    identities = [[pool[index].identity for index in indices] for indices in candidates]
    matched = _matching(identities)
    donors = []
    for number, (target, indices) in enumerate(zip(targets, candidates, strict=True)):
        place = matched.get(number)
        index = rng.choice(indices) if place is None else indices[place]
        donors.append(Donor(index, _alike(target, pool[index]), reused=place is None))
    return donors


def benchmark_offset(benchmark: str) -> int:
    """The first four bytes of the name's sha256, little-endian: benchmarks differ in their pairs.

    >>> benchmark_offset("chartqa")
    2886229258
    """
    return int.from_bytes(hashlib.sha256(benchmark.encode()).digest()[:4], "little")


def _candidates(target: Picture, pool: Sequence[Picture]) -> list[int]:
    """Places in the pool, one per picture that may stand in for the target's."""
    others = [i for i, picture in enumerate(pool) if picture.identity != target.identity]
    others = [i for i in others if _alike(target, pool[i])] or others
    first: dict[str, int] = {}
    for index in others:
        first.setdefault(pool[index].identity, index)
    if not first:
        raise ValueError("there is no other picture to stand in for one: take more inputs")
    return list(first.values())


def _alike(one: Picture, other: Picture) -> bool:
    return one.category not in UNKNOWN and one.category == other.category


# Maximum matching


def _matching(wanted: Sequence[Sequence[str]]) -> dict[int, int]:
    """For every matched target the place in its list ``wanted`` of the donor it gets.

    Targets with the fewest candidates come first. Each looks, breadth-first, for a donor that is
    free or whose target can move on to another one.
    """
    owner: dict[str, int] = {}
    for target in sorted(range(len(wanted)), key=lambda number: len(wanted[number])):
        for donor, taker in list(_augmenting_path(target, wanted, owner)):
            owner[donor] = taker
    return {target: wanted[target].index(donor) for donor, target in owner.items()}


def _augmenting_path(
    target: int, wanted: Sequence[Sequence[str]], owner: dict[str, int]
) -> Iterator[tuple[str, int]]:
    """Who gets which donor so that one more target is served; nothing where that cannot be."""
    reached_from: dict[str, int] = {}
    queue = deque([target])
    while queue:
        current = queue.popleft()
        for donor in wanted[current]:
            if donor in reached_from:
                continue
            reached_from[donor] = current
            if donor not in owner:
                yield from _moves(donor, target, reached_from, owner)
                return
            queue.append(owner[donor])


def _moves(
    free: str, target: int, reached_from: dict[str, int], owner: dict[str, int]
) -> Iterator[tuple[str, int]]:
    """Back along the path from a free donor to the target that looked for one."""
    held = {taker: donor for donor, taker in owner.items()}
    donor = free
    while True:
        taker = reached_from[donor]
        yield donor, taker
        if taker == target:
            return
        donor = held[taker]
