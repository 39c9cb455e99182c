"""The bootstrap against resampling by hand."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.bootstrap import Interval, Resampler, around


def by_hand(clusters: list[str], resamples: int) -> list[list[int]]:
    """Positions of the units in each resample, drawn one cluster after the other."""
    names = sorted(set(clusters))
    draws = np.random.default_rng(42).integers(len(names), size=(resamples, len(names)))
    members = [[i for i, c in enumerate(clusters) if c == name] for name in names]
    return [[i for cluster in row for i in members[cluster]] for row in draws]


CLUSTERS = ["b", "a", "a", "c", "d", "d", "d", "e"]
VALUES = np.array([1.0, 4.0, 2.0, 8.0, 5.0, 7.0, 3.0, 6.0])


def test_means_are_those_of_the_drawn_units() -> None:
    expected = [VALUES[rows].mean() for rows in by_hand(CLUSTERS, 300)]
    assert Resampler(CLUSTERS, 300).mean_draws(VALUES) == pytest.approx(expected)


def test_ratios_are_ratios_of_sums() -> None:
    weights = np.array([2.0, 1.0, 3.0, 1.0, 1.0, 4.0, 2.0, 2.0])
    expected = [VALUES[r].sum() / weights[r].sum() for r in by_hand(CLUSTERS, 300)]
    assert Resampler(CLUSTERS, 300).ratio_draws(VALUES, weights) == pytest.approx(expected)


@pytest.mark.parametrize("level", [0, 10, 50, 95, 100])
def test_percentiles_are_numpys_of_the_drawn_units(level: float) -> None:
    expected = [np.percentile(VALUES[rows], level) for rows in by_hand(CLUSTERS, 300)]
    found = Resampler(CLUSTERS, 300).percentile_draws(VALUES, level)
    assert found == pytest.approx(expected)


def test_many_resamples_are_drawn_in_pieces_of_one_sequence() -> None:
    expected = [VALUES[rows].mean() for rows in by_hand(CLUSTERS, 1201)]
    assert Resampler(CLUSTERS, 1201).mean_draws(VALUES) == pytest.approx(expected)


def test_strata_draw_independently() -> None:
    first, second = (Resampler(CLUSTERS, 200, stratum=k).mean_draws(VALUES) for k in (1, 2))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.3
    assert (first != second).any()


def test_the_estimate_is_not_the_mean_of_its_draws() -> None:
    assert around(3.0, np.array([1.0, 2.0])) == Interval(3.0, pytest.approx(1.025), 1.975)


def test_draws_without_a_value_are_left_out() -> None:
    interval = around(1.0, np.array([np.nan, 2.0, 2.0]))
    assert (interval.low, interval.high) == (2.0, 2.0)
