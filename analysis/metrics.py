"""Every metric, named once (paper, section 4.1, Equations 9-11). Records in, numbers out; no torch.

Terms: an output's first token comes from prefill, so decoding produces ``outputs - 1`` tokens in
``steps`` target forwards. A pair is one unit on which both the AR arm and the method arm are "ok".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.bootstrap import Interval, Resampler
from experiments.records import RunRecord

RESAMPLES = 10_000

__all__ = ["Interval"]  # where it is looked for


@dataclass(frozen=True)
class Pair:
    """One unit's AR record and method record."""

    reference: RunRecord
    method: RunRecord


def pairs(records: Sequence[RunRecord], arm: str, reference: str = "ar") -> list[Pair]:
    """The units on which both arms are "ok", in record order."""
    references = {r.unit_id: r for r in records if r.arm == reference and r.status == "ok"}
    methods = [r for r in records if r.arm == arm and r.status == "ok"]
    return [Pair(references[m.unit_id], m) for m in methods if m.unit_id in references]


def total_ns(record: RunRecord) -> int:
    """Prefill and decode time."""
    return record.prefill_ns + record.decode_ns


def throughput(record: RunRecord) -> float:
    """Output tokens per nanosecond, end to end."""
    return len(record.output_ids) / total_ns(record)


def speedup_ratio(pair: Pair) -> float:
    """Paired throughput ratio r_i, end to end (Equation 9)."""
    return throughput(pair.method) / throughput(pair.reference)


def decode_ratio(pair: Pair) -> float | None:
    """The same over decode time, counting output tokens minus one; None with nothing to decode."""
    counts = [len(r.output_ids) - 1 for r in (pair.method, pair.reference)]
    if min(counts) < 1:
        return None
    method, reference = pair.method.decode_ns, pair.reference.decode_ns
    return (counts[0] / method) / (counts[1] / reference)


def mean_accepted(record: RunRecord, max_new_tokens: int | None = None) -> float | None:
    """Mean accepted candidates per step; None for a unit without a step.

    With ``max_new_tokens`` each step is capped at the remaining budget minus one, the most
    candidates a step could have added to the output (Equation 10 with the paper's cap).
    """
    if not record.num_accepted:
        return None
    decoded = sum(record.num_accepted) + len(record.num_accepted)
    if max_new_tokens is None or decoded < max_new_tokens:  # no step reached the limit
        return sum(record.num_accepted) / len(record.num_accepted)
    total, remaining = 0, max_new_tokens - 1  # the first token comes from prefill
    for accepted in record.num_accepted:
        total += min(accepted, remaining - 1)
        remaining -= accepted + 1
    return total / len(record.num_accepted)


def tokens_per_verify(records: Sequence[RunRecord]) -> float:
    """Decoded tokens per target forward, pooled over units: the number that predicts speed."""
    steps = sum(len(r.num_accepted) for r in records)
    return sum(len(r.output_ids) - 1 for r in records) / steps if steps else float("nan")


def tokens_per_second(records: Sequence[RunRecord]) -> float:
    """Output tokens per second, end to end, pooled over units."""
    elapsed = sum(total_ns(r) for r in records)
    return 1e9 * sum(len(r.output_ids) for r in records) / elapsed if elapsed else float("nan")


def speedup_pooled(paired: Sequence[Pair]) -> float:
    """Ratio of pooled throughputs."""
    return tokens_per_second([p.method for p in paired]) / tokens_per_second(
        [p.reference for p in paired]
    )


def speedup_geomean(paired: Sequence[Pair]) -> float:
    """Geometric mean of the paired ratios."""
    if not paired:
        return float("nan")
    return float(np.exp(np.mean([np.log(speedup_ratio(p)) for p in paired])))


def num_distinct(records: Sequence[RunRecord]) -> int:
    """Distinct requests: pairs of image and rendered prompt among units that were encoded."""
    return len({(r.cluster_id, r.prompt_sha256) for r in records if r.prompt_sha256})


def num_equal(paired: Sequence[Pair]) -> int:
    """Pairs with identical output tokens."""
    return sum(p.method.output_ids == p.reference.output_ids for p in paired)


def interval(
    values: Sequence[float], clusters: Sequence[str], resamples: int = RESAMPLES
) -> Interval:
    """Mean of ``values`` with a 95 % percentile bootstrap over clusters, ``default_rng(42)``.

    A resample draws as many clusters as there are, with replacement, and averages all their values.
    """
    if not values:
        return Interval(float("nan"), float("nan"), float("nan"))
    return Resampler(clusters, resamples).mean(np.array(values, np.float64))


def pair_interval(
    paired: Sequence[Pair],
    ratio: Callable[[Pair], float | None],
    resamples: int = RESAMPLES,
) -> Interval:
    """The interval of a per-pair ratio, over the pairs that have one."""
    rows = [(ratio(p), p.reference.cluster_id) for p in paired]
    kept = [(value, cluster) for value, cluster in rows if value is not None]
    return interval([value for value, _ in kept], [cluster for _, cluster in kept], resamples)


def tau(
    records: Sequence[RunRecord], max_new_tokens: int | None, resamples: int = RESAMPLES
) -> Interval:
    """Acceptance length: 1 + mean over units of the mean accepted per step.

    ``max_new_tokens`` caps the steps (`mean_accepted`); None gives ``tau_verified``. Units without
    a step are left out.
    """
    rows = [(mean_accepted(r, max_new_tokens), r.cluster_id) for r in records if r.status == "ok"]
    kept = [(1.0 + value, cluster) for value, cluster in rows if value is not None]
    return interval([value for value, _ in kept], [cluster for _, cluster in kept], resamples)
