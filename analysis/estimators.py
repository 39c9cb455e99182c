"""What the tables estimate beyond `analysis.metrics`, each named by what it estimates.

A unit is one generation turn, an input one picture with all its turns. Records in, numbers out.
Intervals are 95 %, by 2,000 resamples of image clusters (`analysis.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis import metrics
from analysis.bootstrap import NOTHING, FloatArray, Interval, Resampler, around
from analysis.metrics import Pair
from experiments.records import RunRecord

RESAMPLES = 2000


@dataclass(frozen=True)
class Sample:
    """Values with the image cluster of each: what an interval is made of."""

    values: FloatArray
    clusters: tuple[str, ...]

    @classmethod
    def of(cls, rows: Iterable[tuple[float | None, str]]) -> Sample:
        """Rows of value and cluster; rows without a value are left out."""
        kept = [(value, cluster) for value, cluster in rows if value is not None]
        values = np.array([value for value, _ in kept], np.float64)
        return cls(values, tuple(cluster for _, cluster in kept))

    def __len__(self) -> int:
        return len(self.clusters)

    def __add__(self, other: Sample) -> Sample:
        return Sample(
            np.concatenate([self.values, other.values]), (*self.clusters, *other.clusters)
        )

    @property
    def mean(self) -> Interval:
        """The mean with its interval; one cluster alone has none."""
        if len(self) == 0:
            return NOTHING
        return self._honest(Resampler(self.clusters, RESAMPLES).mean(self.values))

    def percentile(self, level: float) -> Interval:
        """A percentile with its interval."""
        if len(self) == 0:
            return NOTHING
        return self._honest(Resampler(self.clusters, RESAMPLES).percentile(self.values, level))

    def _honest(self, interval: Interval) -> Interval:
        if len(set(self.clusters)) > 1:
            return interval
        return Interval(interval.mean, float("nan"), float("nan"))

    @property
    def median(self) -> Interval:
        """The median with its interval."""
        return self.percentile(50)

    def share_above(self, threshold: float) -> Interval:
        """Per cent of values that are strictly larger."""
        above = np.asarray(self.values > threshold, np.float64)
        return Sample(100 * above, self.clusters).mean


EMPTY = Sample(np.zeros(0), ())


def mean_of_means(samples: Sequence[Sample]) -> Interval:
    """Plain mean of data sets' means; each data set is resampled on its own."""
    if not samples or any(len(sample) == 0 for sample in samples):
        return NOTHING
    draws = [
        Resampler(sample.clusters, RESAMPLES, stratum=number).mean_draws(sample.values)
        for number, sample in enumerate(samples, start=1)
    ]
    estimate = float(np.mean([sample.values.mean() for sample in samples]))
    return around(estimate, np.asarray(np.mean(draws, axis=0), np.float64))


def sample_sd(values: Sequence[float]) -> float | None:
    """Standard deviation with n - 1; None below two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


# One arm's units


def ok(records: Iterable[RunRecord], arm: str) -> list[RunRecord]:
    """An arm's finished units."""
    return [r for r in records if r.arm == arm and r.status == "ok"]


def tau_units(records: Iterable[RunRecord], arm: str, max_new_tokens: int | None) -> Sample:
    """1 + mean accepted per step, one value per unit that has a step."""
    rows = ((metrics.mean_accepted(r, max_new_tokens), r.cluster_id) for r in ok(records, arm))
    return Sample.of((None if a is None else 1.0 + a, cluster) for a, cluster in rows)


def throughputs(records: Iterable[RunRecord], arm: str) -> Sample:
    """Output tokens per second, end to end, one value per unit."""
    return Sample.of((1e9 * metrics.throughput(r), r.cluster_id) for r in ok(records, arm))


def prefill_share(records: Iterable[RunRecord], arm: str) -> float | None:
    """Per cent of an arm's time that is prefill, pooled over units."""
    own = ok(records, arm)
    total = sum(metrics.total_ns(r) for r in own)
    return 100 * sum(r.prefill_ns for r in own) / total if total else None


def rows_per_step(records: Iterable[RunRecord], arm: str) -> tuple[float, int] | None:
    """Mean and largest number of packed rows per target forward, the root included."""
    rows = [1 + n for r in ok(records, arm) for n in r.num_candidates]
    return (sum(rows) / len(rows), max(rows)) if rows else None


def state_lifetime(records: Iterable[RunRecord], arm: str) -> str:
    """How long the arm's memory lives; empty without records."""
    return next((r.state_lifetime for r in records if r.arm == arm), "")


# An arm against another on the same units


def ratios(pairs: Iterable[Pair]) -> Sample:
    """Throughput ratio per unit, end to end (Equation 9)."""
    return _of_pairs(pairs, metrics.speedup_ratio)


def decode_ratios(pairs: Iterable[Pair]) -> Sample:
    """Throughput ratio per unit over decode time."""
    return _of_pairs(pairs, metrics.decode_ratio)


def _of_pairs(pairs: Iterable[Pair], ratio: Callable[[Pair], float | None]) -> Sample:
    return Sample.of((ratio(pair), pair.reference.cluster_id) for pair in pairs)


def exact(pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs whose outputs are token-identical."""
    return [pair for pair in pairs if pair.method.output_ids == pair.reference.output_ids]


def divergence_margins(records: Iterable[RunRecord], arm: str) -> list[float]:
    """AR's top-2 logit margins where an output first differs from AR's."""
    found = (r.divergence for r in ok(records, arm) if r.divergence)
    return [float(d["ar_margin"]) for d in found if d.get("ar_margin") is not None]


# Inputs: the turns of one picture, pooled (Equation 11)


def input_of(record: RunRecord) -> str:
    """The input's id: the unit's without its turn."""
    return record.unit_id.rpartition(":")[0] or record.unit_id


def by_input(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    """The pairs of each input."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(input_of(pair.reference), []).append(pair)
    return groups


def input_changes(pairs: Iterable[Pair]) -> Sample:
    """Per input 100 (R - 1), R the ratio of throughputs pooled over its turns (Equation 11)."""
    return Sample.of(
        (100 * (metrics.speedup_pooled(turns) - 1), turns[0].reference.cluster_id)
        for turns in by_input(pairs).values()
    )


def pooled_ratio(pairs: Sequence[Pair]) -> Interval:
    """Ratio of the arms' throughputs, tokens and times summed over all pairs."""
    if not pairs:
        return NOTHING
    resampler = Resampler([p.reference.cluster_id for p in pairs], RESAMPLES)
    draws = [
        resampler.ratio_draws(
            np.array([len(record.output_ids) for record in side], np.float64),
            np.array([metrics.total_ns(record) for record in side], np.float64),
        )
        for side in ([p.method for p in pairs], [p.reference for p in pairs])
    ]
    return around(metrics.speedup_pooled(pairs), draws[0] / draws[1])


def ratio_of_means(pairs: Sequence[Pair], others: Sequence[Pair]) -> Interval:
    """Mean S of one arm over mean S of another, on the units that both pair with AR: of one run, or
    of two runs of the same inputs.
    """
    found = [
        {p.reference.unit_id: metrics.speedup_ratio(p) for p in each} for each in (pairs, others)
    ]
    clusters = {p.reference.unit_id: p.reference.cluster_id for p in pairs}
    common = [unit for unit in found[0] if unit in found[1]]
    if not common:
        return NOTHING
    columns = [np.array([values[unit] for unit in common], np.float64) for values in found]
    return Resampler([clusters[unit] for unit in common], RESAMPLES).ratio(columns[0], columns[1])


@dataclass(frozen=True)
class Latencies:
    """Seconds per input of an arm and of its reference, on the inputs whose turns are all ok."""

    method: FloatArray
    reference: FloatArray
    clusters: tuple[str, ...]
    left_out: int

    def of(self, side: str) -> Sample:
        """The "method" or the "reference" side."""
        return Sample(self.method if side == "method" else self.reference, self.clusters)

    def percentile_change(self, level: float) -> Interval:
        """Per cent by which a percentile of the method's latencies differs from the reference's."""
        if not self.clusters:
            return NOTHING
        draws = []
        estimates = []
        for values in (self.method, self.reference):
            resampler = Resampler(self.clusters, RESAMPLES)
            draws.append(resampler.percentile_draws(values, level))
            estimates.append(float(np.percentile(values, level)))
        return around(100 * (estimates[0] / estimates[1] - 1), 100 * (draws[0] / draws[1] - 1))

    @property
    def share_faster(self) -> Interval:
        """Per cent of inputs on which the method took less time."""
        if not self.clusters:
            return NOTHING
        return Sample(self.reference / self.method, self.clusters).share_above(1.0)


def input_latencies(records: Sequence[RunRecord], arm: str, reference: str = "ar") -> Latencies:
    """Generation time per input, summed over its turns."""
    both = [r for r in records if r.arm in (arm, reference)]
    turns = {r.unit_id: input_of(r) for r in both}
    groups = by_input(metrics.pairs(both, arm, reference))
    expected: dict[str, int] = {}
    for input_id in turns.values():
        expected[input_id] = expected.get(input_id, 0) + 1
    whole = [pairs for name, pairs in groups.items() if len(pairs) == expected[name]]
    method, other = (
        np.array([sum(metrics.total_ns(getattr(p, side)) for p in pairs) / 1e9 for pairs in whole])
        for side in ("method", "reference")
    )
    clusters = tuple(pairs[0].reference.cluster_id for pairs in whole)
    return Latencies(method, other, clusters, len(expected) - len(whole))


# Traces


def fallback_share(records: Iterable[RunRecord], arm: str) -> Interval:
    """Per cent of steps whose draft came from the root fallback, pooled over steps."""
    own = [r for r in ok(records, arm) if r.trace]
    if not own:
        return NOTHING
    used = [sum(bool(step.get("root_fallback")) for step in r.trace or []) for r in own]
    steps = [len(r.trace or []) for r in own]
    resampler = Resampler([r.cluster_id for r in own], RESAMPLES)
    return resampler.ratio(100 * np.array(used, np.float64), np.array(steps, np.float64))


@dataclass(frozen=True)
class FusionWeights:
    """Mean normalised weights over the fusion calls with so many rows, most specific first."""

    calls: int
    means: tuple[Interval, ...]


def fusion_weights(records: Iterable[RunRecord], arm: str, sources: int) -> FusionWeights:
    """Weights of every call with ``sources`` rows while building candidate trees (Table 17)."""
    own = [r for r in ok(records, arm) if r.trace]
    calls = np.zeros(len(own))
    sums = np.zeros((len(own), sources))
    for place, record in enumerate(own):
        for step in record.trace or []:
            entry = step.get("fusion_weights", {}).get(str(sources))
            if entry:
                calls[place] += entry["calls"]
                sums[place] += entry["weights"]
    if calls.sum() == 0:
        return FusionWeights(0, (NOTHING,) * sources)
    resampler = Resampler([r.cluster_id for r in own], RESAMPLES)
    means = tuple(resampler.ratio(sums[:, i], calls) for i in range(sources))
    return FusionWeights(int(calls.sum()), means)
