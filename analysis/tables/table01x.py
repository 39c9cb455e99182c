"""Table 1 in full: what its two numbers per cell leave out."""

from __future__ import annotations

from analysis import main_results, paper
from analysis.arms import METHODS
from analysis.artefact import Entry, Missing, Table
from analysis.data import Data
from analysis.main_results import EXTENDED, MAIN
from analysis.tables import table01

ID = "table01x"
TITLE = "Table 1, extended: every benchmark and method in full"
STUDIES = (MAIN,)
CAPTION = (
    "S decode: over decode time alone. S geometric, S pooled: other averages of the same ratios; a "
    "claim of speed holds when all three lie on one side of 1. Null S: AR against AR. tau as "
    "verified: without the cap at the remaining budget. Tokens/verify: decoded tokens per target "
    "forward, pooled, the figure that predicts speed. Prefill %: share of all time. Rows/step: "
    "packed rows per forward, the root included, which methods of equal budget share. Margin at "
    "difference: median of AR's top-2 logit margins where an output first differs from AR's. S on "
    "exact match: over the units whose output equals AR's."
)


def build(data: Data) -> Table:
    """One row per model, benchmark and method."""
    rows: list[list[Entry]] = []
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models:
        found = table01.measured(data, model)
        for bench, of_bench in zip(table01.BENCHES, found, strict=True):
            for method in main_results.shown_methods(found):
                start = [model, paper.SINGLE_TURN[bench], METHODS[method]]
                state = main_results.lifetime([of_bench], method)
                rows.append([*start, state, *main_results.extended(of_bench.get(method))])
        notes += main_results.notes(found, [paper.SINGLE_TURN[b] for b in table01.BENCHES])
        notes += main_results.unused(data, MAIN, model, table01.BENCHES, found)
        missing += main_results.missing(data, MAIN, model, table01.BENCHES, found)
    headings = ["Model", "Benchmark", "Method", "State", *EXTENDED]
    return Table(ID, TITLE, CAPTION, headings, rows, notes, missing)
