"""Table 15: generation latency per MMSpec input."""

from __future__ import annotations

from dataclasses import replace

from analysis import arms, main_results, paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING
from analysis.data import Data, paper_model
from analysis.estimators import Latencies, input_latencies
from analysis.load import REFERENCE_ARM
from analysis.main_results import MMSPEC

ID = "table15"
TITLE = "Table 15: MMSpec per-input generation latency, percentiles in seconds"
STUDIES = (MMSPEC,)
CAPTION = (
    "Prefill and decoding of all turns of an input, summed. Pk: kth percentile (numpy's default) "
    "over inputs, with 95 % intervals over image clusters. Faster: inputs that took less time than "
    "with AR. State: how long U lives; all else of RECAP lives for a request."
)
LEVELS = (50, 90, 95, 99)
HEADINGS = ("Model", "Method", "State", *(f"P{level}" for level in LEVELS), "Faster %")
DERIVED = "the paper's is derived"
_FILE = "table15_latency_percentiles_s"


def build(data: Data) -> Table:
    """AR, RECAP and the change between them, per model."""
    rows: list[list[Entry]] = []
    notes = [
        "RECAP's rows are lost in the paper's text. Its P95 is derived from the reduction in "
        "Appendix J: 11.63 s x (1 - 0.4769) and 14.27 s x (1 - 0.4217)."
    ]
    missing: list[Missing] = []
    for model in data.models:
        found = arms.rows(data, MMSPEC, MMSPEC, model)
        latencies = recap_latencies(found)
        state = main_results.lifetime([found], "recap")
        rows += _rows(model, state, latencies, 2 if data.scope.comparable else 3)
        if latencies is not None and latencies.left_out:
            notes.append(f"{model}: {latencies.left_out} inputs with a bad turn are left out.")
        recap = {method: row for method, row in found.items() if method == "recap"}
        notes += main_results.notes([recap], ["MMSpec"])
        missing += main_results.missing(data, MMSPEC, model, [MMSPEC], [found], ["recap"])
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def recap_latencies(found: main_results.Rows) -> Latencies | None:
    """Latencies of RECAP and its AR; None where RECAP is not measured."""
    row = found.get("recap")
    return (
        None if row is None else input_latencies(row.run.of(row.method, REFERENCE_ARM), row.method)
    )


def _rows(model: str, state: str, latencies: Latencies | None, digits: int) -> list[list[Entry]]:
    """``digits``: tiny models answer in hundredths of a second."""
    known = paper_model(model)
    rows: list[list[Entry]] = []
    for method, side in (("ar", "reference"), ("recap", "method")):
        cells: list[Entry] = [model, *(("AR", "-") if method == "ar" else ("RECAP", state))]
        for level in LEVELS:
            interval = NOTHING if latencies is None else latencies.of(side).percentile(level)
            published = paper.value(_FILE, f"p{level}", model=known, method=method)
            derived = method == "recap" and published is not None  # its printed row is lost
            cell = Cell.of(interval, published, digits)
            cells.append(replace(cell, mark=DERIVED) if derived else cell)
        faster = NOTHING if latencies is None or method == "ar" else latencies.share_faster
        share = paper.text_value("App. J", "inputs faster than AR", known, "MMSpec")
        rows.append([*cells, "" if method == "ar" else Cell.of(faster, share)])
    return [*rows, _change_row(model, state, latencies)]


def _change_row(model: str, state: str, latencies: Latencies | None) -> list[Entry]:
    cells: list[Entry] = [model, "RECAP, change %", state]
    for level in LEVELS:
        interval = NOTHING if latencies is None else latencies.percentile_change(level)
        quantity = f"P{level} latency change"
        published = paper.text_value("App. J", quantity, paper_model(model), "MMSpec")
        cells.append(Cell.of(interval, published, signed=True))
    return [*cells, ""]
