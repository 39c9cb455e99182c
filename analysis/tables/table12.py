"""Table 12: what to draft from where no row matches the root."""

from __future__ import annotations

from analysis import estimators, paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import (
    SPEED_NOTE,
    gain_cell,
    lifetime,
    null_note,
    per_cent,
    source_notes,
    speed_cell,
)
from analysis.data import Data, paper_model
from analysis.load import Run

ID = "table12"
TITLE = "Table 12: root fallback on MMSpec"
STUDIES = ("fallback",)
CAPTION = (
    "S and tau are means over the generation turns of MMSpec's 120-input subset. Change of S: mean "
    "S against the lexical variant's, per cent. Steps with fallback: pooled over steps. Fixed "
    "priors, 63 candidates, suffix nodes among them; the semantic index offers up to three rows by "
    "cosine, recency the latest one. State: how long U lives; the index lives for a request."
)
HEADINGS = ("Model", "Variant", "State", "S", "tau", "Change of S %", "Steps with fallback %")
LEXICAL = "lexical"
NULL = ("lexical_again", LEXICAL)
ARMS = {
    LEXICAL: "RECAP (lexical)",
    "semantic": "RECAP + semantic fallback",
    "recency": "RECAP + recency fallback",
}
# Arms that trace, by the variant they repeat.
TRACED = {"semantic": "semantic_traced"}


def build(data: Data) -> Table:
    """One row per model and variant."""
    rows: list[list[Entry]] = []
    missing: list[Missing] = []
    runs: list[Run | None] = []
    nulls: dict[str, Interval] = {}
    for model in data.models_with(("qwen25vl",), STUDIES):
        run = data.run("fallback", "mmspec", model)
        runs.append(run)
        nulls[model] = _change(run, *NULL)
        rows += [
            [model, label, lifetime([run], arm), *_cells(run, arm, model, nulls[model])]
            for arm, label in ARMS.items()
        ]
        missing += data.missing("fallback", [model])
        if run is not None and not any(r.trace for r in run.of(TRACED["semantic"])):
            what = f"{run.name}: no arm traces the semantic fallback; remove it"
            missing.append(Missing(what, data.command("fallback", model)))
    notes = [
        "Which steps fall back is traced in an arm of its own, so that no timed one pays for it.",
        SPEED_NOTE,
        *null_note(nulls, *NULL),
        *source_notes(runs),
    ]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _cells(run: Run | None, arm: str, model: str, null: Interval) -> list[Entry]:
    known = paper_model(model) if paper_model(model) == "qwen25vl" else None
    label = ARMS[arm] if known else None
    s, tau = (paper.value("table12_fallback", c, variant=label) for c in ("speedup", "tau"))
    found = NOTHING
    if run is not None:
        found = estimators.tau_units(run.of(arm), arm, run.max_new_tokens).mean
    cells: list[Entry] = [speed_cell(run, arm, s), Cell.of(found, tau)]
    if arm == LEXICAL:
        return [*cells, "", ""]
    change = paper.text_value("App. H", f"speedup change, {arm} fallback", known, "MMSpec")
    share = paper.text_value("App. H", f"iterations with {arm} lookup", known, "MMSpec")
    return [
        *cells,
        gain_cell(_change(run, arm, LEXICAL), null, change),
        Cell.of(_fallback_share(run, arm), share),
    ]


def _change(run: Run | None, arm: str, reference: str) -> Interval:
    """Per cent by which an arm's mean S is above another's."""
    if run is None:
        return NOTHING
    return per_cent(estimators.ratio_of_means(run.pairs(arm), run.pairs(reference)))


def _fallback_share(run: Run | None, arm: str) -> Interval:
    if run is None or arm not in TRACED:
        return NOTHING
    return estimators.fallback_share(run.records, TRACED[arm])
