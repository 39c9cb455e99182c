"""Warm-up: the same code as a measured unit, with its results thrown away.

Every arm runs on the longest and the shortest prompt until two successive rounds agree, so kernels
are compiled, caches are warm and clocks have settled before the first measured unit. The memories
are reset afterwards.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

MAX_ROUNDS = 5
AGREEMENT = 0.02
WARMUP_TOKENS = 32


def warm_up(arms: Sequence[str], step_times: Callable[[str], list[int]]) -> dict[str, Any]:
    """Run rounds until every arm's median step time agrees with its previous round's within 2 %.

    step_times: runs one arm on the warm-up prompts and returns its step times in nanoseconds.
    Returns the rounds run, whether they agreed, and the last medians: the manifest's account.
    """
    rounds = [_medians(arms, step_times)]
    agreed = False
    while not agreed and len(rounds) < MAX_ROUNDS:
        rounds.append(_medians(arms, step_times))
        agreed = all(_agree(rounds[-2][arm], rounds[-1][arm]) for arm in arms)
    return {"rounds": len(rounds), "agreed": agreed, "median_step_ns": rounds[-1]}


def _medians(arms: Sequence[str], step_times: Callable[[str], list[int]]) -> dict[str, float]:
    return {arm: _median(step_times(arm)) for arm in arms}


def _median(times: list[int]) -> float:
    return float(statistics.median(times)) if times else 0.0


def _agree(first: float, second: float) -> bool:
    return abs(first - second) <= AGREEMENT * max(first, second)
