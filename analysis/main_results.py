"""What Tables 1, 2, 3, 15, 18 and Figures 6, 8 share: a method's results on a benchmark."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from analysis import arms, contrasts, estimators, metrics
from analysis.arms import METHODS, NULL_ARM, PAPER_METHODS, Row
from analysis.artefact import Cell, Entry, Missing
from analysis.bootstrap import NOTHING
from analysis.data import Data, faults
from analysis.estimators import EMPTY, Sample
from analysis.load import REFERENCE_ARM, Run
from experiments.records import RunRecord

MAIN, MMSPEC = "main", "mmspec"
BY_METHOD = (MAIN, MMSPEC)  # studies whose methods may each have a run of their own
Rows = dict[str, Row]


@functools.lru_cache(maxsize=4096)
def _ratios(run: Run, arm: str, category: str | None) -> Sample:
    """Paired throughput ratios of an arm's units against AR."""
    pairs = run.pairs(arm)
    return estimators.ratios(p for p in pairs if category in (None, p.reference.category))


@functools.lru_cache(maxsize=4096)
def _tau_units(run: Run, arm: str, category: str | None) -> Sample:
    records = [r for r in run.of(arm) if category in (None, r.category)]
    return estimators.tau_units(records, arm, run.max_new_tokens)


def speed(row: Row | None, category: str | None = None) -> Sample:
    """Paired throughput ratios of a row's units, of one category where it is named."""
    return EMPTY if row is None else _ratios(row.run, row.method, category)


def acceptance(row: Row | None, category: str | None = None) -> Sample:
    """Acceptance lengths of a row's units."""
    return EMPTY if row is None else _tau_units(row.run, row.method, category)


def speed_and_tau(
    row: Row | None, published: tuple[float | None, float | None], category: str | None = None
) -> list[Entry]:
    """Cells for S, marked where it is noise, and tau."""
    s, tau = speed(row, category).mean, acceptance(row, category).mean
    null = NOTHING if row is None else _ratios(row.run, NULL_ARM, category).mean
    mark = arms.noise_mark(s, null, 1.0)
    return [Cell.of(s, published[0], mark=mark), Cell.of(tau, published[1])]


def shown_methods(found: Iterable[Rows]) -> list[str]:
    """The paper's methods, and others where they are measured."""
    measured = {method for rows in found for method in rows}
    return [method for method in METHODS if method in PAPER_METHODS or method in measured]


def lifetime(found: Iterable[Rows], method: str) -> str:
    """How long a method's memory lives, as its records say."""
    return contrasts.lifetime((rows[method].run for rows in found if method in rows), method)


def missing(
    data: Data,
    study: str,
    model: str,
    benches: Sequence[str],
    found: Sequence[Rows],
    methods: Iterable[str] = PAPER_METHODS,
) -> list[Missing]:
    """Benchmarks without a method, and runs in use that are unfinished or lost records."""
    wanted = list(methods)
    slots = {slot.bench: slot for slot in data.slots(study)}
    if not any(method in rows for rows in found for method in wanted):
        return [Missing(f"{study} on {model}", data.command(study, model))]
    gaps: list[Missing] = []
    for bench, rows in zip(benches, found, strict=True):
        absent = [METHODS[method] for method in wanted if method not in rows]
        command = data.command(study, model, slots.get(bench))
        if absent:
            names = "all methods" if len(absent) == len(wanted) > 1 else ", ".join(absent)
            gaps.append(Missing(f"{names} on {model}, {data.bench_name(bench)}", command))
        runs = {row.run.name: row.run for method, row in rows.items() if method in wanted}
        for run in runs.values():
            again = command if run.study else "python run.py, with the options it was started with"
            gaps += [Missing(what, again) for what in faults(run)]
    return gaps


def null_sample(rows: Rows, category: str | None = None) -> Sample:
    """AR against AR in the run with most methods among those that have the null arm."""
    counted = [row for row in rows.values() if NULL_ARM in row.run.arms]
    row = max(counted, key=lambda row: len(row.run.arms), default=None)
    return EMPTY if row is None else _ratios(row.run, NULL_ARM, category)


def notes(found: Sequence[Rows], names: Sequence[str]) -> list[str]:
    """Footnotes on runs: which rows come from where, and how they were made."""
    used = [row.run for rows in found for row in rows.values()]
    return [*arms.separate_runs(found, names), *arms.sources(used)]


def unused(
    data: Data, study: str, model: str, benches: Sequence[str], found: Sequence[Rows]
) -> list[str]:
    """The footnote on runs that no row comes from."""
    return arms.passed_over_note(
        run
        for bench, rows in zip(benches, found, strict=True)
        for run in arms.passed_over(data, study, bench, model, rows)
    )


# Beyond the paper's tables

EXTENDED = (
    *("S", "S decode", "S geometric", "S pooled", "Null S", "tau", "tau as verified"),
    *("Tokens/verify", "S/tau", "Tokens/s", "Prefill %", "AR prefill %", "Rows/step", "Rows max"),
    *("Exact match %", "Exact of", "Margin at difference", "S on exact match"),
)


def extended(row: Row | None) -> list[Entry]:
    """One entry per heading of `EXTENDED`."""
    if row is None:
        return [*(Cell() for _ in EXTENDED[:15]), "-", Cell(), Cell()]
    own = estimators.ok(row.run.of(row.method), row.method)
    pairs = row.run.pairs(row.method)
    return [
        *_speeds(row, pairs),
        *_acceptance(row, own),
        *_shares(row, own),
        *_exactness(row, own, pairs),
    ]


def _speeds(row: Row, pairs: Sequence[metrics.Pair]) -> list[Entry]:
    s = speed(row).mean
    several = (s.mean, metrics.speedup_geomean(pairs), metrics.speedup_pooled(pairs))
    agree = all(value > 1 for value in several) or all(value < 1 for value in several)
    return [
        Cell.of(s, mark="" if agree or not pairs else "signs differ"),
        Cell.of(estimators.decode_ratios(pairs).mean),
        _cell(several[1]),
        _cell(several[2]),
        Cell.of(_ratios(row.run, NULL_ARM, None).mean),
    ]


def _acceptance(row: Row, own: Sequence[RunRecord]) -> list[Entry]:
    tau = acceptance(row).mean
    return [
        Cell.of(tau),
        Cell.of(estimators.tau_units(own, row.method, None).mean),
        _cell(metrics.tokens_per_verify(own)),
        _cell(speed(row).mean.mean / tau.mean),
    ]


def _shares(row: Row, own: Sequence[RunRecord]) -> list[Entry]:
    rows = estimators.rows_per_step(own, row.method)
    return [
        _cell(metrics.tokens_per_second(own), 1),
        _cell(estimators.prefill_share(own, row.method), 1),
        _cell(_reference_prefill_share(row.run), 1),
        _cell(rows[0] if rows else None, 1),
        _cell(rows[1] if rows else None, 0),
    ]


@functools.lru_cache(maxsize=256)
def _reference_prefill_share(run: Run) -> float | None:
    return estimators.prefill_share(run.of(REFERENCE_ARM), REFERENCE_ARM)


def _exactness(row: Row, own: Sequence[RunRecord], pairs: Sequence[metrics.Pair]) -> list[Entry]:
    exact = estimators.exact(pairs)
    margins = estimators.divergence_margins(own, row.method)
    return [
        _cell(100 * len(exact) / len(pairs) if pairs else None, 1),
        f"{len(exact)}/{len(pairs)}",
        _cell(float(np.median(margins)) if margins else None, 3),
        Cell.of(estimators.ratios(exact).mean),
    ]


def _cell(value: float | None, digits: int = 2) -> Cell:
    """A number without an interval."""
    return Cell(None if value is None or value != value else value, digits=digits)
