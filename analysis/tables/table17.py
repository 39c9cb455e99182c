"""Table 17: the weights that fusion gave to its sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis import paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.estimators import fusion_weights
from analysis.load import Run
from analysis.tables import table13
from experiments.records import RunRecord

ID = "table17"
TITLE = "Table 17: mean normalised fusion weights"
STUDIES = ("fusion",)
CAPTION = (
    "Weights of the entropy-confidence rule by decreasing specificity of the available rows, "
    "averaged over all lookups with two or three rows while building candidate trees, repeats "
    "included, both input orders pooled; 95 % intervals over image clusters. From a traced arm "
    "that no time is taken from. U persists over each stream of one data set and order."
)
ARM = "traced"
HEADINGS = (
    *("Model", "Dataset", "Calls, two", "w1 of two", "w2 of two"),
    *("Calls, three", "w1 of three", "w2 of three", "w3 of three"),
)
_FILE = "table17_fusion_weights"
_COLUMNS = {2: ("w1_two", "w2_two"), 3: ("w1_three", "w2_three", "w3_three")}
_CALLS = {2: "calls_two", 3: "calls_three"}


def build(data: Data) -> Table:
    """One row per model and data set, and the sets pooled."""
    rows: list[list[Entry]] = []
    missing: list[Missing] = []
    used: list[Run] = []
    for model in data.models:
        runs = {bench: table13.order_runs(data, model, bench) for bench in paper.DIAGNOSTIC}
        for bench, name in paper.DIAGNOSTIC.items():
            rows.append([model, name, *_cells(model, name, runs[bench])])
        every = [run for found in runs.values() for run in found]
        rows.append([model, "Pooled", *_cells(model, "Pooled", every)])
        used += every
        missing += data.missing("fusion", [model])
        missing += [_without_traces(data, run) for run in every if not _calls(run)]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, source_notes(used), missing)


def _cells(model: str, dataset: str, runs: Sequence[Run]) -> list[Entry]:
    keys = {"model": paper_model(model), "dataset": dataset}
    cells: list[Entry] = []
    for sources, columns in _COLUMNS.items():
        weights = fusion_weights(_traced(runs), ARM, sources)
        calls = paper.value(_FILE, _CALLS[sources], **keys)
        cells.append(Cell(weights.calls or None, paper=calls, digits=0))
        for interval, column in zip(weights.means, columns, strict=True):
            cells.append(Cell.of(interval, paper.value(_FILE, column, **keys), digits=3))
    return cells


def _calls(run: Run) -> int:
    """Traced fusion calls of a run."""
    return sum(fusion_weights(_traced([run]), ARM, sources).calls for sources in _COLUMNS)


def _without_traces(data: Data, run: Run) -> Missing:
    command = data.command("fusion", run.model)
    return Missing(f"{run.name}: its traced arm holds no traces; remove it", command)


def _traced(runs: Iterable[Run]) -> list[RunRecord]:
    return [record for run in runs for record in run.of(ARM)]
