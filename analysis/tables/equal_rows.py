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
    "RECAP against it: mean over inputs of the paired throughput change, per cent (Equation 11). "
    "State: how long a method's memory lives."
)
HEADINGS = (
    *("Model", "Rows at most", "Method", "State", "Rows per step", "S", "tau"),
    *("Tokens per verify", "RECAP against it %"),
)
# By budget: RECAP's arm, then the methods with that many rows.
BUDGETS = {
    64: ("recap_64", "racer", "lookahead", "suffix_decoding", "token_recycling_64"),
    81: ("recap_81", "token_recycling", "sam_token_recycling"),
}
LABELS = {
    **METHODS,
    "recap_64": "RECAP",
    "recap_81": "RECAP",
    "token_recycling_64": "Token Recycling, its first 63 candidates",
}
NULL = ("recap_64_again", "recap_64")


def build(data: Data) -> Table:
    """One row per model, budget and method."""
    rows: list[list[Entry]] = []
    runs: list[Run | None] = []
    nulls: dict[str, Interval] = {}
    for model in data.models:
        run = data.run(STUDIES[0], "mmspec", model)
        runs.append(run)
        null = nulls[model] = contrasts.noise([run], *NULL)
        for budget, (recap, *others) in BUDGETS.items():
            for arm in (recap, *others):
                start = [model, str(budget), LABELS[arm], contrasts.lifetime([run], arm)]
                rows.append([*start, *_cells(run, arm, recap, null)])
    missing = data.missing(STUDIES[0], data.models)
    notes = [
        contrasts.SPEED_NOTE,
        *contrasts.null_note(nulls, *NULL),
        *contrasts.source_notes(runs),
    ]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _cells(run: Run | None, arm: str, recap: str, null: Interval) -> list[Entry]:
    own = [] if run is None else estimators.ok(run.of(arm), arm)
    if run is None or not own:
        return [Cell() for _ in HEADINGS[4:]]
    packed = estimators.rows_per_step(own, arm)
    against: Entry = ""
    if arm != recap:
        against = contrasts.gain_cell(contrasts.changes(run, recap, arm).mean, null)
    return [
        Cell(packed[0] if packed else None, digits=1),
        contrasts.speed_cell(run, arm),
        Cell.of(estimators.tau_units(own, arm, run.max_new_tokens).mean),
        Cell(metrics.tokens_per_verify(own)),
        against,
    ]
