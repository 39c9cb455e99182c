"""The one bootstrap: percentile intervals over clusters of units, all resamples at once.

A resample is a vector of how often each cluster was drawn, so a statistic over resamples is a
matrix product. Draws depend on the number of clusters, the number of resamples and the stratum
only: tables that ask for many intervals over the same inputs draw once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
SEED = 42
LEVELS = (2.5, 97.5)
_CHUNK = 500  # resamples at a time, which bounds the memory that full-size arrays take


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % bootstrap interval over clusters; nan where there is no unit."""

    mean: float
    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Whether ``value`` lies outside the interval."""
        return not self.low <= value <= self.high


NOTHING = Interval(float("nan"), float("nan"), float("nan"))


class Resampler:
    """Resamples of units by cluster; each method gives a statistic's interval or its draws.

    stratum: datasets that are resampled side by side and then averaged take different ones, so that
             their draws are independent.
    """

    def __init__(self, clusters: Sequence[str], resamples: int, stratum: int = 0) -> None:
        self.size = len(clusters)
        names, self._index = np.unique(np.array(clusters), return_inverse=True)
        self._num_clusters = len(names)
        self._counts = _counts(self._num_clusters, resamples, stratum)

    def _per_cluster(self, values: FloatArray) -> FloatArray:
        sums = np.bincount(self._index, weights=values, minlength=self._num_clusters)
        return sums.astype(np.float64)

    def ratio_draws(self, numerator: FloatArray, denominator: FloatArray) -> FloatArray:
        """Per resample the sum of the one over the sum of the other; nan where that is 0."""
        pair = np.stack([self._per_cluster(numerator), self._per_cluster(denominator)], axis=1)
        parts = [
            self._counts[start : start + _CHUNK].astype(np.float64) @ pair
            for start in range(0, len(self._counts), _CHUNK)
        ]
        sums = np.concatenate(parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums[:, 0] / sums[:, 1])

    def mean_draws(self, values: FloatArray) -> FloatArray:
        """Per resample the mean of all values drawn."""
        return self.ratio_draws(values, np.ones(len(values)))

    def mean(self, values: FloatArray) -> Interval:
        """The mean of ``values``, one per unit."""
        return around(float(np.mean(values)), self.mean_draws(values))

    def ratio(self, numerator: FloatArray, denominator: FloatArray) -> Interval:
        """The ratio of two sums."""
        draws = self.ratio_draws(numerator, denominator)
        return around(float(numerator.sum() / denominator.sum()), draws)

    def percentile(self, values: FloatArray, level: float) -> Interval:
        """A percentile of the units' values (numpy's default, linear between two of them)."""
        return around(float(np.percentile(values, level)), self.percentile_draws(values, level))

    def percentile_draws(self, values: FloatArray, level: float) -> FloatArray:
        """Per resample the percentile of all values drawn."""
        order = np.argsort(values, kind="stable")
        ranked = values[order]
        drawn = np.cumsum(self._counts[:, self._index[order]], axis=1, dtype=np.int64)
        places = level / 100 * (drawn[:, -1] - 1)
        below = np.floor(places)
        lower, upper = (_at_place(ranked, drawn, k) for k in (below, np.ceil(places)))
        return np.asarray(lower + (places - below) * (upper - lower), np.float64)


def _at_place(ranked: FloatArray, drawn: NDArray[np.int64], places: FloatArray) -> FloatArray:
    """Per resample the value at a place from 0 in its sorted sample."""
    return np.asarray(ranked[np.argmax(drawn > places[:, None], axis=1)], np.float64)


def around(estimate: float, draws: FloatArray) -> Interval:
    """The percentile interval of ``draws`` around an estimate."""
    kept = draws[np.isfinite(draws)]
    if len(kept) == 0:
        return Interval(estimate, float("nan"), float("nan"))
    low, high = np.percentile(kept, LEVELS)
    return Interval(estimate, float(low), float(high))


@functools.lru_cache(maxsize=16)
def _counts(num_clusters: int, resamples: int, stratum: int) -> NDArray[np.uint8]:
    """How often each cluster is drawn in each resample, uint8[resamples, num_clusters]."""
    rng = np.random.default_rng(SEED if stratum == 0 else [SEED, stratum])
    counts = np.empty((resamples, num_clusters), np.uint8)
    for start in range(0, resamples, _CHUNK):
        rows = counts[start : start + _CHUNK]
        draws = rng.integers(num_clusters, size=rows.shape)
        draws += np.arange(len(rows))[:, None] * num_clusters
        rows[:] = np.bincount(draws.ravel(), minlength=rows.size).reshape(rows.shape)
    return counts
