"""Table 8: how long U should live, under two schedules of the same inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from analysis import paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import Interval
from analysis.contrasts import gain_cell, lifetime, null_note, pooled, source_notes
from analysis.data import Data, paper_model
from analysis.estimators import Sample, input_changes, pooled_ratio, sample_sd
from analysis.load import Run
from analysis.metrics import Pair

ID = "table08"
TITLE = "Table 8: persistent memory across request streams"
STUDIES = ("streams",)
CAPTION = (
    "Gain: mean paired throughput change against a memory reset per request, per cent; mean over "
    "three input orders, with the 95 % interval over image clusters and the sample SD between the "
    "orders' means. Pooled ratio: summed tokens over summed time of all orders. Blocked: one data "
    "set after another; alternating: round-robin. Fixed priors, no suffix. State: how long U "
    "lives; C and G live for a request."
)
SCHEDULES = ("blocked", "alternating")
SEEDS = (17, 29, 43)
ARMS = {"persistent": "Persistent U", "task_reset": "U reset per data set"}
RESET = "request_reset"
NULL = ("request_reset_again", RESET)
HEADINGS = (
    *("Model", "Memory", "State", "Dataset"),
    *(
        f"{s} {what}"
        for s in ("Blocked", "Alternating")
        for what in ("gain %", "SD", "pooled ratio")
    ),
)


def build(data: Data) -> Table:
    """One row per model, memory and data set."""
    rows: list[list[Entry]] = []
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models_with(("qwen25vl",), STUDIES):
        runs = {schedule: stream_runs(data, model, schedule) for schedule in SCHEDULES}
        both = [run for of_schedule in runs.values() for run in of_schedule]
        for arm, label in ARMS.items():
            for bench, name in paper.DIAGNOSTIC.items():
                cells = [c for s in SCHEDULES for c in _cells(data, model, runs[s], arm, bench, s)]
                rows.append([model, label, lifetime(both, arm), name, *cells])
        notes += _identity_note(runs["alternating"])
        notes += null_note(_nulls(data, model, runs), *NULL)
        notes += source_notes(both)
        missing += data.missing("streams", [model])
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def stream_runs(data: Data, model: str, schedule: str) -> list[Run]:
    """The runs of one schedule, in the order of their seeds."""
    found = [
        data.run("streams", "mixed4", model, bench__schedule=schedule, bench__input_seed=seed)
        for seed in SEEDS
    ]
    return [run for run in found if run is not None]


def pairs_of(data: Data, run: Run, arm: str, bench: str) -> list[Pair]:
    """An arm's pairs with the reset per request in one data set of a mixed stream, whose unit ids
    begin with its name.
    """
    prefix = f"{data.bench_name(bench)}_"
    return [pair for pair in run.pairs(arm, RESET) if pair.reference.unit_id.startswith(prefix)]


def gains(data: Data, runs: Sequence[Run], arm: str, bench: str) -> list[Sample]:
    """Per order the changes against the memory that is reset per request."""
    return [input_changes(pairs_of(data, run, arm, bench)) for run in runs]


def _cells(
    data: Data, model: str, runs: Sequence[Run], arm: str, bench: str, schedule: str
) -> list[Entry]:
    samples = [sample for sample in gains(data, runs, arm, bench) if len(sample)]
    known = arm == "persistent" and paper_model(model) == "qwen25vl"
    name = paper.DIAGNOSTIC[bench] if known else None
    file, column = "table08_request_streams", f"{schedule}_gain_percent"
    gain = paper.value(file, column, dataset=name)
    sd = paper.value(file, f"{schedule}_sd", dataset=name)
    quantity = f"pooled persistence ratio, {schedule}"
    ratio = paper.text_value("App. D", quantity, "qwen25vl", name) if name else None
    spread = sample_sd([float(sample.values.mean()) for sample in samples])
    pairs = [pair for run in runs for pair in pairs_of(data, run, arm, bench)]
    return [
        gain_cell(pooled(samples).mean, _null(data, runs, bench), gain),
        Cell(spread, paper=sd),
        Cell.of(pooled_ratio(pairs), ratio, digits=3),
    ]


def _null(data: Data, runs: Sequence[Run], bench: str) -> Interval:
    """The memory that is reset per request a second time, on the same inputs."""
    return pooled(gains(data, runs, NULL[0], bench)).mean


def _nulls(data: Data, model: str, runs: Mapping[str, Sequence[Run]]) -> dict[str, Interval]:
    """The same by schedule and data set."""
    return {
        f"{model}, {schedule}, {name}": _null(data, runs[schedule], bench)
        for schedule in SCHEDULES
        for bench, name in paper.DIAGNOSTIC.items()
    }


def _identity_note(runs: Sequence[Run]) -> list[str]:
    """Whether a reset per task accepts what one per request does: tasks alternate, so it must."""
    pairs = [pair for run in runs for pair in run.pairs("task_reset", RESET)]
    if not pairs:
        return []
    equal = sum(p.method.num_accepted == p.reference.num_accepted for p in pairs)
    return [
        "Alternating data sets: U reset per data set accepts exactly what U reset per request "
        f"does in {equal} of {len(pairs)} pairs (the paper: all of 600)."
    ]
