"""What the place of synchronisation does to S: the same inputs under both timings."""

from __future__ import annotations

from analysis import contrasts, estimators
from analysis.arms import METHODS, NULL_ARM, NULL_LABEL
from analysis.artefact import Cell, Entry, Table
from analysis.data import Data
from analysis.load import Run

ID = "timing"
TITLE = "Timing: synchronised at generation boundaries, and around every target forward"
STUDIES = ("timing",)
CAPTION = (
    "S under both timings on the same inputs, and their factor. Waiting for the device around "
    "every forward takes away what host and device do at once, most from AR's many short steps. "
    "The paper timed its main and MMSpec runs that way, PLD, Lookahead and SAM+ViSkip the other. "
    "State: how long a method's memory lives."
)
HEADINGS = ("Model", "Benchmark", "Method", "State", "S, generation", "S, target_forward", "Factor")
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
        rows += [[model, "ChartQA", *_row(runs, arm)] for arm in ARMS]
    missing = data.missing(STUDIES[0], data.models)
    notes = [contrasts.SPEED_NOTE, *contrasts.source_notes(used)]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _row(runs: list[Run | None], arm: str) -> list[Entry]:
    pairs = [[] if run is None else run.pairs(arm) for run in runs]
    is_null = arm == NULL_ARM
    return [
        NULL_LABEL if is_null else METHODS[arm],
        "-" if is_null else contrasts.lifetime(runs, arm),
        *(contrasts.speed_cell(run, arm) for run in runs),
        Cell.of(estimators.ratio_of_means(pairs[1], pairs[0]), digits=3),
    ]
