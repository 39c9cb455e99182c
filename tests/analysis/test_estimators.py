"""Every estimator against values computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analysis import estimators, metrics
from analysis.artefact import Cell
from analysis.estimators import Sample
from experiments.records import RunRecord
from tests.analysis.test_metrics import record


def unit(arm: str, unit_id: str, tokens: int, seconds: float, **more: Any) -> RunRecord:
    accepted = more.pop("accepted", [0] * (tokens - 1))
    return record(arm, unit_id, tokens, accepted, seconds, cluster_id=unit_id[0], **more)


# Input x has two turns, y has one. Throughputs of "a" against "b":
# x: (10 + 20) / (1 + 2) = 10 against (10 + 20) / (2 + 2) = 7.5: ratio 4/3
# y: 12 / 3 = 4 against 12 / 2 = 6: ratio 2/3
RECORDS = [
    unit("a", "x:0", 10, 1.0),
    unit("b", "x:0", 10, 2.0),
    unit("a", "x:1", 20, 2.0),
    unit("b", "x:1", 20, 2.0),
    unit("a", "y:0", 12, 3.0),
    unit("b", "y:0", 12, 2.0),
]


def test_input_changes_pool_an_inputs_turns_before_dividing() -> None:
    sample = estimators.input_changes(metrics.pairs(RECORDS, "a", "b"))
    assert sample.values == pytest.approx([100 / 3, -100 / 3])
    assert sample.clusters == ("x", "y")
    assert sample.mean.mean == pytest.approx(0.0)
    assert (sample.mean.low, sample.mean.high) == pytest.approx((-100 / 3, 100 / 3))


def test_paired_ratios_are_per_turn() -> None:
    found = estimators.ratios(metrics.pairs(RECORDS, "a", "b"))
    assert found.values == pytest.approx([2.0, 1.0, 2 / 3])


def test_pooled_ratio_sums_tokens_and_times() -> None:
    interval = estimators.pooled_ratio(metrics.pairs(RECORDS, "a", "b"))
    assert interval.mean == pytest.approx((42 / 6) / (42 / 6))
    assert (interval.low, interval.high) == pytest.approx((2 / 3, 4 / 3))


def test_ratio_of_means_uses_the_units_both_arms_have() -> None:
    records = [
        *(unit("ar", name, 10, 2.0) for name in ("x:0", "y:0", "z:0")),
        *(unit("a", name, 10, 1.0) for name in ("x:0", "y:0", "z:0")),
        unit("b", "x:0", 10, 2.0),
        unit("b", "y:0", 10, 0.5),
        unit("b", "z:0", 10, 0.1, status="error"),
    ]
    pairs = [metrics.pairs(records, arm) for arm in "ab"]
    assert estimators.ratio_of_means(*pairs).mean == pytest.approx(4.0 / 5.0)


def test_median_and_percentiles_are_numpys() -> None:
    sample = Sample(np.array([1.0, 2.0, 4.0, 8.0]), ("a", "b", "c", "d"))
    assert sample.median.mean == 3.0
    assert sample.percentile(90).mean == pytest.approx(6.8)


def test_share_above_is_strict() -> None:
    sample = Sample(np.array([0.9, 1.0, 1.1, 1.2]), ("a", "b", "c", "d"))
    assert sample.share_above(1.0).mean == 50.0


def test_mean_of_means_weighs_data_sets_alike() -> None:
    small = Sample(np.array([4.0]), ("a",))
    large = Sample(np.array([1.0, 1.0, 1.0]), ("b", "c", "d"))
    interval = estimators.mean_of_means([small, large])
    assert (interval.mean, interval.low, interval.high) == (2.5, 2.5, 2.5)


def test_mean_of_means_needs_every_data_set() -> None:
    interval = estimators.mean_of_means([Sample(np.array([4.0]), ("a",)), estimators.EMPTY])
    assert interval.mean != interval.mean


def test_mean_of_means_is_less_spread_than_its_parts() -> None:
    rng = np.random.default_rng(1)
    parts = [Sample(rng.normal(size=50), tuple(map(str, range(50)))) for _ in range(4)]
    widths = [part.mean.high - part.mean.low for part in parts]
    whole = estimators.mean_of_means(parts)
    # Four independent means: half the width of one.
    assert whole.high - whole.low == pytest.approx(np.mean(widths) / 2, rel=0.15)


def test_sample_sd_divides_by_one_less() -> None:
    assert estimators.sample_sd([1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert estimators.sample_sd([1.0]) is None


def test_latencies_sum_turns_and_leave_inputs_with_a_bad_turn_out() -> None:
    records = [
        unit("ar", "x:0", 10, 2.0),
        unit("m", "x:0", 10, 1.0),
        unit("ar", "x:1", 10, 3.0),
        unit("m", "x:1", 10, 1.5),
        unit("ar", "y:0", 10, 1.0),
        unit("m", "y:0", 10, 2.0),
        unit("ar", "z:0", 10, 1.0),
        unit("m", "z:0", 10, 1.0),
        unit("ar", "z:1", 10, 1.0),
        unit("m", "z:1", 10, 1.0, status="error"),
    ]
    latencies = estimators.input_latencies(records, "m")
    assert latencies.reference == pytest.approx([5.0, 1.0])
    assert latencies.method == pytest.approx([2.5, 2.0])
    assert latencies.left_out == 1
    assert latencies.share_faster.mean == 50.0
    assert latencies.percentile_change(50).mean == pytest.approx(100 * (2.25 / 3.0 - 1))


def test_throughputs_and_prefill_share() -> None:
    records = [unit("ar", "x:0", 10, 2.0), unit("ar", "y:0", 30, 3.0)]
    assert estimators.throughputs(records, "ar").values == pytest.approx([5.0, 10.0])
    assert estimators.prefill_share(records, "ar") == pytest.approx(10.0)
    assert estimators.prefill_share(records, "m") is None


def test_rows_per_step_count_the_root() -> None:
    records = [unit("m", "x:0", 4, 1.0, num_candidates=[63, 0]), unit("ar", "x:0", 4, 1.0)]
    assert estimators.rows_per_step(records, "m") == (32.5, 64)
    assert estimators.rows_per_step(records, "absent") is None


def test_exact_match_ratios_and_margins() -> None:
    records = [
        unit("ar", "x:0", 10, 2.0),
        unit("m", "x:0", 10, 1.0),
        unit("ar", "y:0", 10, 2.0),
        unit("m", "y:0", 9, 1.0, divergence={"index": 4, "ar_margin": 0.02}),
        unit("ar", "z:0", 10, 2.0),
        unit("m", "z:0", 9, 1.0, divergence={"index": 0, "ar_margin": None}),
    ]
    exact = estimators.exact(metrics.pairs(records, "m"))
    assert estimators.ratios(exact).values == pytest.approx([2.0])
    assert estimators.divergence_margins(records, "m") == [0.02]


def step(fallback: bool, two: tuple[int, list[float]]) -> dict[str, Any]:
    calls, weights = two
    fusion = {"2": {"calls": calls, "weights": weights}, "3": {"calls": 0, "weights": [0.0] * 3}}
    return {"fusion_weights": fusion, "root_fallback": fallback}


def test_traces_are_pooled_over_steps_and_calls() -> None:
    records = [
        unit("m", "x:0", 4, 1.0, trace=[step(True, (1, [0.5, 0.5])), step(False, (3, [2.4, 0.6]))]),
        unit(
            "m", "y:0", 4, 1.0, trace=[step(False, (0, [0.0, 0.0])), step(False, (4, [3.1, 0.9]))]
        ),
        unit("m", "z:0", 4, 1.0),
    ]
    assert estimators.fallback_share(records, "m").mean == pytest.approx(25.0)
    weights = estimators.fusion_weights(records, "m", 2)
    assert weights.calls == 8
    assert [w.mean for w in weights.means] == pytest.approx([6.0 / 8, 2.0 / 8])
    assert estimators.fusion_weights(records, "m", 3).calls == 0


def test_tau_units_leave_a_unit_without_a_step_out() -> None:
    records = [unit("m", "x:0", 1, 1.0, accepted=[]), unit("m", "y:0", 4, 1.0, accepted=[2])]
    assert estimators.tau_units(records, "m", 200).values == pytest.approx([3.0])


def test_one_picture_alone_has_no_interval() -> None:
    sample = Sample(np.array([1.0, 3.0]), ("x", "x"))
    assert sample.mean.mean == 2.0
    assert sample.mean.low != sample.mean.low
    cell = Cell.of(sample.mean)
    assert (cell.value, cell.low, cell.high) == (2.0, None, None)
