"""Table 13: the fusion rules online, against fixed priors."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import changes, gain_cell, lifetime, pooled, source_notes
from analysis.data import Data, paper_model
from analysis.estimators import EMPTY, Sample, mean_of_means, tau_units
from analysis.load import Run

ID = "table13"
TITLE = "Table 13: online fusion ablations"
STUDIES = ("fusion",)
CAPTION = (
    "Mean paired throughput change (per cent, Equation 11) against w/o confidence, 50 inputs per "
    "data set under two orders, with 95 % intervals over image clusters (both orders of a picture "
    "stay together). Mean: plain mean of the four sets. Median: of all paired changes. State: how "
    "long U lives; a stream is one data set in one order. C, G and the suffix live for a request."
)
REFERENCE, NULL = "fixed_prior", "fixed_prior_again"
ARMS = {
    "entropy_confidence": "recap",
    REFERENCE: "w/o confidence",
    "no_prior": "w/o prior",
    "uniform": "uniform",
    "confidence_gate": "confidence gate",
    NULL: "w/o confidence, a second time (null)",
}
SEEDS = (17, 29)
HEADINGS = ("Model", "Variant", "State", *paper.DIAGNOSTIC.values(), "Mean", "Median", "tau")
_FILE = "table13_online_fusion"


def build(data: Data) -> Table:
    """One row per model and rule, and the null arm."""
    rows: list[list[Entry]] = []
    missing: list[Missing] = []
    used: list[Run] = []
    for model in data.models:
        runs = {bench: order_runs(data, model, bench) for bench in paper.DIAGNOSTIC}
        nulls = [_changes(found, NULL) for found in runs.values()]
        rows += [_row(model, arm, runs, nulls) for arm in ARMS]
        used += [run for found in runs.values() for run in found]
        missing += data.missing("fusion", [model])
    notes = [
        "noise: inside the interval of the null arm, the reference rule a second time.",
        "Both orders of an input are in one mean: their variation is that of a fixed input set.",
        *source_notes(used),
    ]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def order_runs(data: Data, model: str, bench: str) -> list[Run]:
    """The runs of a data set, one per input order."""
    found = [data.run("fusion", bench, model, bench__input_seed=seed) for seed in SEEDS]
    return [run for run in found if run is not None]


def _changes(runs: Sequence[Run], arm: str) -> Sample:
    return pooled(changes(run, arm, REFERENCE) for run in runs)


def _row(model: str, arm: str, runs: dict[str, list[Run]], nulls: Sequence[Sample]) -> list[Entry]:
    published = {"model": paper_model(model), "variant": ARMS[arm]}
    samples = [EMPTY if arm == REFERENCE else _changes(found, arm) for found in runs.values()]
    state = lifetime((run for found in runs.values() for run in found), arm)
    cells: list[Entry] = [model, "RECAP" if ARMS[arm] == "recap" else ARMS[arm], state]
    judged = [NOTHING if arm == NULL else null.mean for null in nulls]
    for name, sample, null in zip(paper.DIAGNOSTIC.values(), samples, judged, strict=True):
        cells.append(_gain(arm, sample.mean, null, paper.value(_FILE, name, **published), runs))
    null_mean = NOTHING if arm == NULL else mean_of_means(nulls)
    mean = mean_of_means(samples)
    cells.append(_gain(arm, mean, null_mean, paper.value(_FILE, "mean", **published), runs))
    cells.append(_median(arm, model, samples))
    tau = paper.value(_FILE, "tau", **published)
    return [*cells, Cell.of(_tau(runs, arm), tau)]


def _gain(
    arm: str, gain: Interval, null: Interval, published: float | None, runs: dict[str, list[Run]]
) -> Cell:
    if arm == REFERENCE and any(runs.values()):
        return Cell(0.0, paper=published, signed=True)
    return gain_cell(gain, null, published)


def _median(arm: str, model: str, samples: Sequence[Sample]) -> Entry:
    """The paper has it for the full rule only."""
    if arm == REFERENCE:
        return ""
    quantity = "median paired change of confidence"
    known = paper_model(model) if arm == "entropy_confidence" else None
    published = paper.text_value("App. I", quantity, known)
    return Cell.of(pooled(samples).median, published, signed=True)


def _tau(runs: dict[str, list[Run]], arm: str) -> Interval:
    units = [
        tau_units(run.records, arm, run.max_new_tokens) for found in runs.values() for run in found
    ]
    return pooled(units).mean
