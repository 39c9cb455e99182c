"""Table 12: what to draft from where no row matches the root."""

from __future__ import annotations

from analysis import estimators, paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.load import Run

ID = "table12"
TITLE = "Table 12: root fallback on MMSpec"
STUDIES = ("fallback",)
CAPTION = (
    "S and tau are means over the generation turns of MMSpec's 120-input subset. Change of S: mean "
    "S against the lexical variant's, per cent. Steps with fallback: pooled over steps. Fixed "
    "priors; the semantic index offers up to three rows by cosine, recency the latest one."
)
HEADINGS = ("Model", "Variant", "S", "tau", "Change of S %", "Steps with fallback %")
LEXICAL = "lexical"
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
    for model in data.models_with(("qwen25vl",), STUDIES):
        run = data.run("fallback", "mmspec", model)
        runs.append(run)
        rows += [[model, label, *_cells(run, arm, model)] for arm, label in ARMS.items()]
        missing += data.missing("fallback", [model])
        if run is not None and not any(r.trace for r in run.of(TRACED["semantic"])):
            what = f"{run.name}: no arm traces the semantic fallback; remove it"
            missing.append(Missing(what, data.command("fallback", model)))
    notes = [
        "Which steps fall back is traced in an arm of its own, so that no timed one pays for it.",
        *source_notes(runs),
    ]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _cells(run: Run | None, arm: str, model: str) -> list[Entry]:
    known = paper_model(model) if paper_model(model) == "qwen25vl" else None
    label = ARMS[arm] if known else None
    s, tau = (paper.value("table12_fallback", c, variant=label) for c in ("speedup", "tau"))
    change = paper.text_value("App. H", f"speedup change, {arm} fallback", known, "MMSpec")
    share = paper.text_value("App. H", f"iterations with {arm} lookup", known, "MMSpec")
    found: list[Interval] = [NOTHING] * 4
    if run is not None:
        found[0] = estimators.paired_ratios(run.records, arm).mean
        found[1] = estimators.tau_units(run.records, arm, run.max_new_tokens).mean
        if arm != LEXICAL:
            found[2] = _change(run, arm)
            found[3] = estimators.fallback_share(run.records, TRACED.get(arm, ""))
    last: list[Entry] = [
        Cell.of(found[2], change, signed=True),
        Cell.of(found[3], share),
    ]
    return [Cell.of(found[0], s), Cell.of(found[1], tau), *(last if arm != LEXICAL else ["", ""])]


def _change(run: Run, arm: str) -> Interval:
    ratio = estimators.ratio_of_means(run.records, arm, run.records, LEXICAL)
    return Interval(*(100 * (value - 1) for value in (ratio.mean, ratio.low, ratio.high)))
