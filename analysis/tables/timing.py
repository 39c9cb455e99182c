"""What the place of synchronisation does to S: the same inputs under both timings."""

from __future__ import annotations

from analysis import contrasts, estimators
from analysis.arms import METHODS, NULL_ARM, NULL_LABEL, noise_mark
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
    return NULL_LABEL if arm == NULL_ARM else METHODS[arm]


def _mark(arm: str, s: Interval, null: Interval) -> str:
    return "" if arm == NULL_ARM else noise_mark(s, null, 1.0)


def _cells(runs: list[Run | None], arm: str) -> list[Entry]:
    found = [[] if run is None else run.records for run in runs]
    cells: list[Entry] = []
    for records in found:
        s, null = (estimators.paired_ratios(records, name).mean for name in (arm, NULL_ARM))
        cells.append(Cell.of(s, mark=_mark(arm, s, null)))
    factor = estimators.ratio_of_means(found[1], arm, found[0], arm)
    return [*cells, Cell.of(factor, digits=3)]
