"""The order of methods: RECAP against each of them on the same units."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import arms, contrasts, estimators, main_results, metrics, paper
from analysis.arms import METHODS, PAPER_METHODS
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import Interval
from analysis.data import Data
from analysis.estimators import Sample, mean_of_means
from analysis.load import Run
from analysis.main_results import MAIN, MMSPEC
from analysis.metrics import Pair

ID = "order"
TITLE = "Order of methods: RECAP against each, paired"
STUDIES = (MAIN, MMSPEC)
CAPTION = (
    "Units of runs that have both methods. tau difference: mean accepted per step of RECAP minus "
    "the other method's, capped as tau is. S ratio: RECAP's throughput over the other's, end to "
    "end. Seven benchmarks: plain mean of their means. With 95 % intervals over image clusters; a "
    "tie is an interval that holds no difference. tau does not depend on the device, S does."
)
HEADINGS = (
    *("Model", "Inputs", "Method", "State"),
    *("tau, RECAP - it", "RECAP accepts", "S, RECAP / it", "RECAP is"),
)
RECAP = "recap"
PLACES = {MAIN: "Seven benchmarks", MMSPEC: "MMSpec"}
BENCHES = {MAIN: tuple(paper.SINGLE_TURN), MMSPEC: (MMSPEC,)}


def build(data: Data) -> Table:
    """One row per model, set of inputs and method beside RECAP."""
    rows: list[list[Entry]] = []
    missing: list[Missing] = []
    used: list[Run] = []
    for model in data.models:
        for study, benches in BENCHES.items():
            found = [arms.rows(data, study, bench, model) for bench in benches]
            runs = [row.run if (row := rows_.get(RECAP)) else None for rows_ in found]
            rows += [_row(model, study, method, runs) for method in METHODS if method != RECAP]
            missing += main_results.missing(data, study, model, benches, found)
            missing += _apart(data, study, model, runs)
            used += [run for run in runs if run is not None]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, contrasts.source_notes(used), missing)


def _row(model: str, study: str, method: str, runs: Sequence[Run | None]) -> list[Entry]:
    pairs = [[] if run is None else run.pairs(RECAP, method) for run in runs]
    more = mean_of_means([_more_accepted(run, p) for run, p in zip(runs, pairs, strict=True)])
    faster = mean_of_means([estimators.ratios(p) for p in pairs])
    return [
        *(model, PLACES[study], METHODS[method], contrasts.lifetime(runs, method)),
        Cell.of(more, digits=3, signed=True),
        _verdict(more, 0.0, ("less", "more")),
        Cell.of(faster, digits=3),
        _verdict(faster, 1.0, ("slower", "faster")),
    ]


def _more_accepted(run: Run | None, pairs: Sequence[Pair]) -> Sample:
    """Per unit the mean accepted of RECAP minus the other's."""
    limit = None if run is None else run.max_new_tokens
    return Sample.of(
        (None if mine is None or other is None else mine - other, pair.reference.cluster_id)
        for pair in pairs
        for mine, other in [
            [metrics.mean_accepted(r, limit) for r in (pair.method, pair.reference)]
        ]
    )


def _verdict(interval: Interval, neutral: float, words: tuple[str, str]) -> str:
    if interval.mean != interval.mean:
        return "-"
    if not interval.excludes(neutral):
        return "a tie"
    return words[interval.mean > neutral]


def _apart(data: Data, study: str, model: str, runs: Sequence[Run | None]) -> list[Missing]:
    """Runs of RECAP without another method of the paper: nothing there can be paired."""
    slots = {slot.bench: slot for slot in data.slots(study)}
    gaps = []
    for bench, run in zip(BENCHES[study], runs, strict=True):
        absent = [METHODS[m] for m in PAPER_METHODS if run is not None and m not in run.arms]
        if absent:
            what = f"{', '.join(absent)} in one run with RECAP on {model}, {data.bench_name(bench)}"
            gaps.append(Missing(what, data.command(study, model, slots.get(bench))))
    return gaps
