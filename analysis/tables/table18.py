"""Table 18: how RECAP's paired ratios are distributed over inputs."""

from __future__ import annotations

from analysis import estimators, main_results, paper
from analysis.arms import Row
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.data import Data, paper_model
from analysis.estimators import EMPTY, Sample
from analysis.main_results import MAIN, speed
from analysis.tables import table01

ID = "table18"
TITLE = "Table 18: distribution of RECAP's paired throughput ratios"
STUDIES = (MAIN,)
CAPTION = (
    "Percentiles over units of the paired ratio against AR, end to end and over decode time alone, "
    "with 95 % intervals over image clusters. Faster: units with a strictly larger throughput than "
    "AR. Exact: the median over units whose output equals AR's, so that both sides of each ratio "
    "produced the same tokens. State: how long U lives; all else of RECAP lives for a request."
)
LEVELS = (10, 50, 90)
HEADINGS = (
    *("Model", "Dataset", "State"),
    *(f"P{level}" for level in LEVELS),
    "Faster %",
    *(f"Decode P{level}" for level in LEVELS),
    *("Decode faster %", "Exact P50"),
)
_FILE = "table18_ratio_distribution"


def build(data: Data) -> Table:
    """One row per model and benchmark."""
    rows: list[list[Entry]] = []
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models:
        found = table01.measured(data, model)
        for name, of_bench in zip(paper.SINGLE_TURN.values(), found, strict=True):
            state = main_results.lifetime([of_bench], "recap")
            rows.append([model, name, state, *_cells(model, name, of_bench.get("recap"))])
        recap = [{m: row for m, row in rows_.items() if m == "recap"} for rows_ in found]
        notes += main_results.notes(recap, list(paper.SINGLE_TURN.values()))
        missing += main_results.missing(data, MAIN, model, table01.BENCHES, found, ["recap"])
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _cells(model: str, bench: str, row: Row | None) -> list[Entry]:
    keys = {"model": paper_model(model), "bench": bench}
    published = [paper.value(_FILE, f"p{level}", **keys) for level in LEVELS]
    faster = paper.value(_FILE, "percent_faster", **keys)
    exact = decode = EMPTY
    if row is not None:
        pairs = row.run.pairs(row.method)
        exact, decode = estimators.ratios(estimators.exact(pairs)), estimators.decode_ratios(pairs)
    return [
        *_distribution(speed(row), published, faster),
        *_distribution(decode, [None] * len(LEVELS), None),
        Cell.of(exact.median),
    ]


def _distribution(
    sample: Sample, published: list[float | None], faster: float | None
) -> list[Entry]:
    cells: list[Entry] = [
        Cell.of(sample.percentile(level), value)
        for level, value in zip(LEVELS, published, strict=True)
    ]
    return [*cells, Cell.of(sample.share_above(1.0), faster, digits=1)]
