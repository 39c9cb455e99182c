"""Method against method inside one run, on the units where all its arms are ok.

    python -m analysis.compare results/runs/smollm2/mmspec/.../<hash> --reference recap

Prints a Markdown table: per arm its S and tau, and the paired ratio and difference of the reference
arm against it, with 95 % intervals over clusters. A ratio whose interval holds 1 is a tie.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis import metrics
from analysis.load import Run, load_run
from analysis.metrics import Interval, Pair
from experiments.records import RunRecord

_HEADINGS = (
    "arm",
    "S",
    "S decode",
    "tau",
    "tok/verify",
    "exact match",
    "{reference} / arm, S",
    "{reference} - arm, tau",
    "verdict on S",
)


def comparison(run: Run, reference: str) -> str:
    """The table, one row per arm besides the reference, then what it rests on."""
    records = run.common(run.arms)
    rows = [[heading.format(reference=reference) for heading in _HEADINGS]]
    rows += [_row(run, records, arm, reference) for arm in run.arms if arm != "ar"]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(_HEADINGS))
    units = [r for r in records if r.arm == "ar"]
    note = f"{len(units)} units on which every arm is ok, {metrics.num_distinct(units)} distinct."
    return "\n".join([*lines, "", note])


def _row(run: Run, records: list[RunRecord], arm: str, reference: str) -> list[str]:
    own = [r for r in records if r.arm == arm]
    against_ar = metrics.pairs(records, arm)
    ratio = metrics.pair_interval(metrics.pairs(records, reference, arm), metrics.speedup_ratio)
    difference = metrics.pair_interval(
        metrics.pairs(records, reference, arm), lambda pair: _tau_difference(pair, run)
    )
    is_reference = arm == reference
    return [
        arm,
        _show(metrics.pair_interval(against_ar, metrics.speedup_ratio)),
        _show(metrics.pair_interval(against_ar, metrics.decode_ratio)),
        _show(metrics.tau(own, run.max_new_tokens)),
        f"{metrics.tokens_per_verify(own):.3f}",
        f"{metrics.num_equal(against_ar)}/{len(against_ar)}",
        "-" if is_reference else _show(ratio),
        "-" if is_reference else _show(difference),
        "-" if is_reference else _verdict(ratio),
    ]


def _tau_difference(pair: Pair, run: Run) -> float | None:
    """The reference's mean accepted minus the arm's, on one unit."""
    values = [metrics.mean_accepted(r, run.max_new_tokens) for r in (pair.method, pair.reference)]
    return None if values[0] is None or values[1] is None else values[0] - values[1]


def _show(interval: Interval) -> str:
    return f"{interval.mean:.3f} ({interval.low:.3f} .. {interval.high:.3f})"


def _verdict(ratio: Interval) -> str:
    if not ratio.excludes(1.0):
        return "tie"
    return "faster" if ratio.mean > 1 else "slower"


def main() -> None:
    """Print the comparison of one run folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--reference", default="recap", help="the arm to compare with the others")
    options = parser.parse_args()
    try:
        run = load_run(options.run)
    except FileNotFoundError as error:
        parser.error(str(error))
    if options.reference not in run.arms:
        parser.error(f"--reference {options.reference}: the run has the arms {', '.join(run.arms)}")
    print(comparison(run, options.reference))


if __name__ == "__main__":
    main()
