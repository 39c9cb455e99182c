"""Tree methods at equal numbers of packed rows: what remains when nobody verifies more."""

from __future__ import annotations

from analysis import contrasts, estimators, metrics
from analysis.arms import METHODS
from analysis.artefact import Cell, Entry, Table
from analysis.bootstrap import Interval
from analysis.data import Data
from analysis.load import Run

ID = "equal_rows"
TITLE = "Equal budgets: tree methods at the same number of packed rows"
STUDIES = ("equal_rows",)
CAPTION = (
    "MMSpec's 120-input subset; a step packs at most so many rows, the root and suffix nodes "
    "counted. A device charges for rows, not for names, so S and tau are compared at equal rows. "
    "RECAP against it: mean over inputs of the paired throughput change, per cent (Equation 11)."
)
HEADINGS = (
    *("Model", "Rows at most", "Method", "Rows per step", "S", "tau", "Tokens per verify"),
    "RECAP against it %",
)
# By budget: RECAP's arm, then the methods with that many rows.
BUDGETS = {
    64: ("recap_64", "racer", "lookahead", "suffix_decoding"),
    81: ("recap_81", "token_recycling", "sam_token_recycling"),
}


def build(data: Data) -> Table:
    """One row per model, budget and method."""
    rows: list[list[Entry]] = []
    runs: list[Run | None] = []
    notes: list[str] = []
    for model in data.models:
        run = data.run(STUDIES[0], "mmspec", model)
        runs.append(run)
        null = contrasts.noise([run])
        notes += contrasts.null_note(null, f"{model}: AR against AR in the same run")
        for budget, (recap, *others) in BUDGETS.items():
            for arm in (recap, *others):
                rows.append([model, str(budget), _label(arm), *_cells(run, arm, recap, null)])
    missing = data.missing(STUDIES[0], data.models)
    notes += contrasts.source_notes(runs)
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _label(arm: str) -> str:
    return METHODS.get(arm, "RECAP")


def _cells(run: Run | None, arm: str, recap: str, null: Interval) -> list[Entry]:
    if run is None:
        return [Cell() for _ in HEADINGS[3:]]
    records = run.records
    packed = estimators.rows_per_step(records, arm)
    against: Entry = ""
    if arm != recap:
        against = contrasts.gain_cell(contrasts.changes(run, recap, arm).mean, null)
    return [
        Cell(packed[0] if packed else None, digits=1),
        Cell.of(estimators.paired_ratios(records, arm).mean),
        Cell.of(estimators.tau_units(records, arm, run.max_new_tokens).mean),
        Cell(metrics.tokens_per_verify(estimators.ok(records, arm))),
        against,
    ]
