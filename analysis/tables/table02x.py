"""Table 2 in full: what its two numbers per cell leave out."""

from __future__ import annotations

from analysis import arms, main_results
from analysis.arms import METHODS
from analysis.artefact import Entry, Missing, Table
from analysis.data import Data
from analysis.main_results import EXTENDED, MMSPEC
from analysis.tables import table01x

ID = "table02x"
TITLE = "Table 2, extended: MMSpec, all turns, every method in full"
STUDIES = (MMSPEC,)
CAPTION = table01x.CAPTION


def build(data: Data) -> Table:
    """One row per model and method."""
    rows: list[list[Entry]] = []
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models:
        found = arms.rows(data, MMSPEC, MMSPEC, model)
        for method in main_results.shown_methods([found]):
            state = main_results.lifetime([found], method)
            row = main_results.extended(found.get(method))
            rows.append([model, METHODS[method], state, *row])
        notes += main_results.notes([found], ["MMSpec"])
        notes += main_results.unused(data, MMSPEC, model, [MMSPEC], [found])
        missing += main_results.missing(data, MMSPEC, model, [MMSPEC], [found])
    headings = ["Model", "Method", "State", *EXTENDED]
    return Table(ID, TITLE, CAPTION, headings, rows, notes, missing)
