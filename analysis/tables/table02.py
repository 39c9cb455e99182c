"""Table 2: MMSpec, by category and over all generation turns."""

from __future__ import annotations

from analysis import arms, main_results, paper
from analysis.arms import METHODS, NULL_LABEL
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.data import Data, paper_model
from analysis.main_results import MMSPEC, Rows

ID = "table02"
TITLE = "Table 2: MMSpec speedup and acceptance length"
STUDIES = (MMSPEC,)
CAPTION = (
    "S and tau as in Table 1. A category is a topic; its values and Overall are means over "
    "generation turns, so Overall is turn-weighted."
)
NOTES = (
    "Later turns of a conversation see AR's answers in every row; the paper's PLD and Lookahead "
    "rows had no conversation history.",
    "noise: inside the interval of the null arm (AR a second time) of the same run and turns.",
)


def build(data: Data) -> Table:
    """One row per model and method."""
    rows: list[list[Entry]] = []
    notes = list(NOTES)
    missing: list[Missing] = []
    for model in data.models:
        found = arms.rows(data, MMSPEC, MMSPEC, model)
        rows += [_row(model, method, found) for method in main_results.shown_methods([found])]
        rows.append(_null_row(model, found))
        notes += main_results.notes([found], ["MMSpec"])
        notes += main_results.unused(data, MMSPEC, model, [MMSPEC], [found])
        missing += main_results.missing(data, MMSPEC, model, [MMSPEC], [found])
    return Table(ID, TITLE, CAPTION, _headings(), rows, notes, missing)


def _headings() -> list[str]:
    names = [*paper.TOPICS.values(), "Overall"]
    figures = [f"{name} {what}" for name in names for what in ("S", "tau")]
    return ["Model", "Method", "State", *figures]


def _row(model: str, method: str, found: Rows) -> list[Entry]:
    cells: list[Entry] = [model, METHODS[method], main_results.lifetime([found], method)]
    for topic, name in (*paper.TOPICS.items(), (None, "Overall")):
        values = published(model, method, name)
        cells += main_results.speed_and_tau(found.get(method), values, topic)
    return cells


def published(model: str, method: str, category: str) -> tuple[float | None, float | None]:
    """The paper's S and tau."""
    keys = {"model": paper_model(model), "method": method, "category": category}
    s, tau = (paper.value("table02_mmspec", what, **keys) for what in ("speedup", "tau"))
    return s, tau


def _null_row(model: str, found: Rows) -> list[Entry]:
    cells: list[Entry] = [model, NULL_LABEL, "-"]
    for topic in (*paper.TOPICS, None):
        cells += [Cell.of(main_results.null_sample(found, topic).mean), ""]
    return cells
