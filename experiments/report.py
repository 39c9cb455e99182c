"""What a run says of itself: running figures, and at its end a table and ``summary.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis import metrics
from experiments.plan import NULL_ARM, REFERENCE_ARM
from experiments.records import RunRecord, write_atomically

SUMMARY_SCHEMA = 1


def summarise(
    records: Sequence[RunRecord], arms: Sequence[str], max_new_tokens: int
) -> dict[str, Any]:
    """The derived figures of a run, as they stand in ``summary.json``."""
    by_unit: dict[str, list[RunRecord]] = {}
    for record in records:
        by_unit.setdefault(record.unit_id, []).append(record)
    return {
        "schema": SUMMARY_SCHEMA,
        "units": len(by_unit),
        "distinct": metrics.num_distinct([r for r in records if r.arm == REFERENCE_ARM]),
        "skipped": _count(by_unit, "skipped"),
        "errors": _count(by_unit, "error"),
        "arms": {arm: _summarise_arm(records, arm, max_new_tokens) for arm in arms},
    }


def _count(by_unit: dict[str, list[RunRecord]], status: str) -> int:
    return sum(any(r.status == status for r in group) for group in by_unit.values())


def _summarise_arm(records: Sequence[RunRecord], arm: str, max_new_tokens: int) -> dict[str, Any]:
    paired = metrics.pairs(records, arm)
    own = [r for r in records if r.arm == arm and r.status == "ok"]
    return {
        "method": next((r.method for r in records if r.arm == arm), ""),
        "state_lifetime": next((r.state_lifetime for r in records if r.arm == arm), ""),
        "tau": _interval(metrics.tau(own, max_new_tokens)),
        "tau_verified": _interval(metrics.tau(own, None)),
        "tokens_per_verify": _number(metrics.tokens_per_verify(own)),
        "speedup": _interval(metrics.pair_interval(paired, metrics.speedup_ratio)),
        "speedup_decode": _interval(metrics.pair_interval(paired, metrics.decode_ratio)),
        "speedup_geomean": _number(metrics.speedup_geomean(paired)),
        "speedup_pooled": _number(metrics.speedup_pooled(paired)),
        "tokens_per_second": _number(metrics.tokens_per_second(own)),
        "exact_match": {"equal": metrics.num_equal(paired), "of": len(paired)},
    }


def _interval(interval: metrics.Interval) -> dict[str, float | None]:
    return {key: _number(getattr(interval, key)) for key in ("mean", "low", "high")}


def _number(value: float) -> float | None:
    """JSON has no nan: a figure without units is null."""
    return None if math.isnan(value) else value


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write ``summary.json``; it is derived from the records and safe to delete."""
    write_atomically(path, (json.dumps(summary, indent=2) + "\n").encode())


_HEADINGS = (
    "arm",
    "state",
    "S",
    "95 % interval",
    "S decode",
    "tau",
    "tok/verify",
    "tokens/s",
    "exact match",
)


def table(summary: dict[str, Any]) -> str:
    """The summary as text: one row per arm, then what the figures rest on."""
    null = summary["arms"].get(NULL_ARM)
    rows = [_HEADINGS] + [_row(name, arm, null) for name, arm in summary["arms"].items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *_footnotes(summary)])


def _row(name: str, arm: dict[str, Any], null: dict[str, Any] | None) -> tuple[str, ...]:
    reference = name == REFERENCE_ARM
    speedup, exact = arm["speedup"], arm["exact_match"]
    noise = " (noise)" if name != NULL_ARM and _within(speedup["mean"], null) else ""
    return (
        name,
        "-" if arm["method"] == "ar" else arm["state_lifetime"],
        "1 (ref.)" if reference else _figure(speedup["mean"]) + noise,
        "" if reference else f"{_figure(speedup['low'])} .. {_figure(speedup['high'])}",
        "1 (ref.)" if reference else _figure(arm["speedup_decode"]["mean"]),
        _figure(arm["tau"]["mean"]),
        _figure(arm["tokens_per_verify"]),
        _figure(arm["tokens_per_second"], 1),
        "" if reference else f"{exact['equal']}/{exact['of']}",
    )


def _within(mean: float | None, null: dict[str, Any] | None) -> bool:
    """Whether an effect is as small as what the null arm shows."""
    if mean is None or null is None or null["speedup"]["low"] is None:
        return False
    return bool(null["speedup"]["low"] <= mean <= null["speedup"]["high"])


def _figure(value: float | None, digits: int = 3) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _footnotes(summary: dict[str, Any]) -> list[str]:
    lines = [
        f"{summary['units']} units, {summary['distinct']} distinct requests, "
        f"{summary['skipped']} skipped, {summary['errors']} bad"
    ]
    null = summary["arms"].get(NULL_ARM)
    if null is not None and null["speedup"]["mean"] is not None:
        speedup = null["speedup"]
        inside = speedup["low"] <= 1 <= speedup["high"]
        lines.append(
            f"null arm (AR a second time): S {_figure(speedup['mean'], 4)}, interval "
            f"{_figure(speedup['low'], 4)} .. {_figure(speedup['high'], 4)}, "
            f"{'1 lies inside' if inside else '1 LIES OUTSIDE: this machine favours a position'}; "
            "an effect of that size is noise"
        )
    return lines


def running_figures(records: Sequence[RunRecord], arm: str, max_new_tokens: int) -> dict[str, str]:
    """S and tau so far, for the progress bar."""
    ratios = [metrics.speedup_ratio(p) for p in metrics.pairs(records, arm)]
    accepted = [
        value
        for r in records
        if r.arm == arm and (value := metrics.mean_accepted(r, max_new_tokens)) is not None
    ]
    return {
        "S": f"{sum(ratios) / len(ratios):.2f}" if ratios else "n/a",
        "tau": f"{1 + sum(accepted) / len(accepted):.2f}" if accepted else "n/a",
    }
