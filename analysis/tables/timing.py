"""What the place of synchronisation does to S: the same inputs under both timings."""

from __future__ import annotations

from analysis import contrasts, estimators
from analysis.arms import METHODS, NULL_ARM, noise_mark
from analysis.artefact import Cell, Entry, Table
from analysis.bootstrap import Interval
from analysis.data import Data
from analysis.load import Run

ID = "timing"
TITLE = "Timing: synchronised at generation boundaries, and around every target forward"
STUDIES = ("timing",)
CAPTION = (
    "S under both timings on the same inputs, and their factor. Waiting for the device around "
    "every forward takes away what host and device do at once, most from AR's many short steps. "
    "The paper timed its main and MMSpec runs that way, PLD, Lookahead and SAM+ViSkip the other."
)
HEADINGS = ("Model", "Benchmark", "Method", "S, generation", "S, target_forward", "Factor")
ARMS = ("recap", "token_recycling", "sam", "pld", NULL_ARM)


def build(data: Data) -> Table:
    """One row per model and method."""
    rows: list[list[Entry]] = []
    used: list[Run | None] = []
    for model in data.models:
        runs = [
            data.run(STUDIES[0], "chartqa", model, timing=timing)
            for timing in ("generation", "target_forward")
        ]
        used += runs
        rows += [[model, "ChartQA", _label(arm), *_cells(runs, arm)] for arm in ARMS]
    missing = data.missing(STUDIES[0], data.models)
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, contrasts.source_notes(used), missing)


def _label(arm: str) -> str:
    return "AR again (null arm)" if arm == NULL_ARM else METHODS[arm]


def _mark(arm: str, s: Interval, null: Interval) -> str:
    return "" if arm == NULL_ARM else noise_mark(s, null, 1.0)


def _cells(runs: list[Run | None], arm: str) -> list[Entry]:
    samples = [
        estimators.EMPTY if run is None else estimators.paired_ratios(run.records, arm)
        for run in runs
    ]
    nulls = [
        estimators.EMPTY if run is None else estimators.paired_ratios(run.records, NULL_ARM)
        for run in runs
    ]
    cells = [
        Cell.of(sample.mean, mark=_mark(arm, sample.mean, null.mean))
        for sample, null in zip(samples, nulls, strict=True)
    ]
    if any(len(sample) == 0 for sample in samples):
        return [*cells, Cell()]
    return [*cells, Cell(samples[1].values.mean() / samples[0].values.mean(), digits=3)]
