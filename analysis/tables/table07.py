"""Table 7: what suffix insertion adds, replayed offline and measured online."""

from __future__ import annotations

from analysis import paper, replays
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import changes, gain_cell, noise, source_notes
from analysis.data import Data, paper_model
from analysis.estimators import tau_units
from analysis.load import Run
from analysis.replays import Replay

ID = "table07"
TITLE = "Table 7: suffix retrieval, offline and online"
STUDIES = (replays.STUDY, "suffix")
CAPTION = (
    "Offline: mean matched continuation length per replay state, prompt-seeded U, fixed priors, "
    "suffix inside the 63-node cap, both trees at the smaller one's node count. Online: paired "
    "throughput change by suffix insertion (Equation 11) and tau before and after. U is reset per "
    "request (the reading that fits the paper's tau) or kept over the stream."
)
HEADINGS = (
    *("Model", "Dataset", "Offline fusion", "Offline + suffix", "Difference"),
    *("Gain %, per request", "tau before", "tau after"),
    *("Gain %, one stream", "tau before, stream", "tau after, stream"),
)
_FILE = "table07_suffix"


def build(data: Data) -> Table:
    """One row per model and diagnostic set."""
    rows: list[list[Entry]] = []
    missing: list[Missing] = []
    used: list[Run | None] = []
    models = data.models_with(("qwen25vl",), STUDIES)
    for model in models:
        for bench, name in paper.DIAGNOSTIC.items():
            known = name if paper_model(model) == "qwen25vl" else None
            runs = [data.run("suffix", bench, model, reset=s) for s in ("request", "stream")]
            replay = replays.find(data, model, bench)
            rows.append(
                [
                    model,
                    name,
                    *_offline(replay, known),
                    *_online(runs[0], known),
                    *_online(runs[1], None),
                ]
            )
            used += [*runs, None if replay is None else replay.run]
        missing += data.missing("suffix", [model])
        missing += data.missing_files(replays.STUDY, [model], replays.FILE)
    notes = source_notes(used)
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _offline(replay: Replay | None, name: str | None) -> list[Entry]:
    columns = ("offline_fusion", "offline_suffix", "offline_difference")
    published = [paper.value(_FILE, column, dataset=name) for column in columns]
    found: list[Interval] = [NOTHING] * 3
    if replay is not None:
        before, after = "seeded.suffix.fusion", "seeded.suffix.fusion_suffix"
        found = [replay.mean(before), replay.mean(after), replay.difference(after, before, scale=1)]
    return [Cell.of(i, p, digits=3) for i, p in zip(found, published, strict=True)]


def _online(run: Run | None, name: str | None) -> list[Entry]:
    columns = ("online_gain_percent", "tau_before", "tau_after")
    gain, before, after = (paper.value(_FILE, column, dataset=name) for column in columns)
    cells: list[Entry] = [
        gain_cell(changes(run, "fusion_suffix", "fusion").mean, noise([run]), gain)
    ]
    for arm, published in (("fusion", before), ("fusion_suffix", after)):
        tau = NOTHING if run is None else tau_units(run.records, arm, run.max_new_tokens).mean
        cells.append(Cell.of(tau, published))
    return cells
