"""Metrics against hand-computed values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import metrics
from experiments.records import RunRecord


def record(
    arm: str, unit: str, tokens: int, accepted: list[int], seconds: float, **more: Any
) -> RunRecord:
    """A record with a tenth of its time in prefill."""
    total = int(seconds * 1e9)
    fields: dict[str, Any] = {
        "study": "",
        "model": "m",
        "bench": "b",
        "unit_id": unit,
        "turn": 0,
        "category": "c",
        "cluster_id": unit,
        "prompt_sha256": f"p-{unit}",
        "arm": arm,
        "method": arm,
        "repeat": 0,
        "session": "s",
        "order_index": 0,
        "output_ids": list(range(tokens)),
        "num_accepted": accepted,
        "prefill_ns": total // 10,
        "decode_ns": total - total // 10,
    }
    return RunRecord(**{**fields, **more})


RECORDS = [
    record("ar", "a", 10, [0] * 9, 2.0),
    record("m", "a", 10, [2, 2, 2], 1.0),
    record("ar", "b", 4, [0] * 3, 1.0),
    record("m", "b", 4, [1, 5], 2.0),
    record("ar", "c", 4, [0] * 3, 1.0),
    record("m", "c", 0, [], 1.0, status="error"),
]


def test_speedup_is_the_mean_of_paired_ratios_on_units_where_both_are_ok() -> None:
    paired = metrics.pairs(RECORDS, "m")
    assert [p.method.unit_id for p in paired] == ["a", "b"]
    assert [metrics.speedup_ratio(p) for p in paired] == pytest.approx([2.0, 0.5])
    interval = metrics.pair_interval(paired, metrics.speedup_ratio)
    assert interval.mean == pytest.approx(1.25)
    assert (interval.low, interval.high) == pytest.approx((0.5, 2.0))
    assert metrics.speedup_geomean(paired) == pytest.approx(1.0)
    assert metrics.speedup_pooled(paired) == pytest.approx((14 / 3) / (14 / 3))


def test_decode_speedup_counts_output_tokens_minus_one() -> None:
    long, short = record("ar", "a", 10, [], 1.0), record("m", "a", 19, [], 1.0)
    assert metrics.decode_ratio(metrics.Pair(long, short)) == pytest.approx(2.0)
    single = record("m", "a", 1, [], 1.0)
    assert metrics.decode_ratio(metrics.Pair(long, single)) is None


def test_tau_caps_each_step_at_the_remaining_budget() -> None:
    # After 1 and 1 + 2 tokens 9 and 7 remain: caps 8 and 6; [1, 5] fits. With 4 tokens: caps 2 and
    # 0.
    unit = record("m", "b", 4, [1, 5], 1.0)
    assert metrics.mean_accepted(unit) == 3.0
    assert metrics.mean_accepted(unit, 10) == 3.0
    assert metrics.mean_accepted(unit, 4) == pytest.approx((1 + 0) / 2)


def test_a_unit_without_a_step_has_no_tau_but_counts_for_speed() -> None:
    records = [record("m", "a", 1, [], 1.0), record("m", "b", 4, [2], 1.0)]
    assert metrics.tau(records, 10).mean == pytest.approx(3.0)
    assert math.isnan(metrics.tau(records[:1], 10).mean)
    assert metrics.tokens_per_second(records) == pytest.approx(2.5)


def test_tokens_per_verify_pools_steps() -> None:
    own = [r for r in RECORDS if r.arm == "m" and r.status == "ok"]
    assert metrics.tokens_per_verify(own) == pytest.approx((9 + 3) / (3 + 2))


def test_exact_match_and_distinct_requests() -> None:
    assert metrics.num_equal(metrics.pairs(RECORDS, "m")) == 2
    assert metrics.num_distinct(RECORDS) == 3


def test_interval_resamples_clusters_not_units() -> None:
    values = [1.0, 1.0, 1.0, 5.0]
    together = metrics.interval(values, ["x", "x", "x", "y"])
    assert together.mean == 2.0
    assert (together.low, together.high) == (1.0, 5.0)
    alone = metrics.interval([1.0, 1.0], ["x", "x"])
    assert (alone.low, alone.high) == (1.0, 1.0)


def test_interval_covers_the_mean_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(60):
        sample = rng.normal(3.0, 1.0, 40)
        interval = metrics.interval(sample.tolist(), [str(i) for i in range(40)])
        hits += interval.low <= 3.0 <= interval.high
    assert hits >= 51


def test_interval_is_deterministic() -> None:
    values, clusters = [0.3, 0.9, 1.4, 2.2], ["a", "b", "c", "d"]
    assert metrics.interval(values, clusters) == metrics.interval(values, clusters)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(2, 60))
@settings(derandomize=True)
def test_steps_are_capped_at_the_remaining_budget(drafted: list[int], limit: int) -> None:
    """Generation ends with the step that reaches the limit; no other one is cut."""
    accepted: list[int] = []
    kept: list[int] = []
    remaining = limit - 1
    for count in drafted:
        if remaining <= 0:
            break
        taken = 0 if remaining == 1 else count  # the loop drafts nothing for one token
        accepted.append(taken)
        kept.append(min(taken, remaining - 1))
        remaining -= taken + 1
    found = metrics.mean_accepted(record("m", "a", limit, accepted, 1.0), limit)
    assert found == pytest.approx(sum(kept) / len(kept))
