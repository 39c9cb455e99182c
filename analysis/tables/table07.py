"""Table 7: what suffix insertion adds, replayed offline and measured online."""

from __future__ import annotations

from analysis import paper, replays
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import changes, gain_cell, noise, null_note, source_notes
from analysis.data import Data, paper_model
from analysis.estimators import tau_units
from analysis.load import Run
from analysis.replays import Replay

ID = "table07"
TITLE = "Table 7: suffix retrieval, offline and online"
STUDIES = (replays.STUDY, "suffix")
CAPTION = (
    "Offline: mean matched continuation length per replay state, memories anew at each input, "
    "prompt-seeded U, fixed priors, suffix inside the 63-node cap, both trees at the smaller one's "
    "node count. First hits: states whose next token is a candidate at depth 1 only with the "
    "suffix (added) or only without (lost), per cent of all states. Online: paired throughput "
    "change by suffix insertion (Equation 11) and tau before and after. State, online: U is reset "
    "per request (the reading that fits the paper's tau) or kept over the stream; all else lives "
    "for a request."
)
HEADINGS = (
    *("Model", "Dataset", "Offline fusion", "Offline + suffix", "Difference"),
    *("First hits added %", "First hits lost %"),
    *("Gain %, per request", "tau before", "tau after"),
    *("Gain %, one stream", "tau before, stream", "tau after, stream"),
)
SCOPES = {"request": "per request", "stream": "one stream"}
NULL = ("fusion_again", "fusion")
_FILE = "table07_suffix"


def build(data: Data) -> Table:
    """One row per model and diagnostic set."""
    rows: list[list[Entry]] = []
    missing: list[Missing] = []
    used: list[Run | None] = []
    nulls: dict[str, Interval] = {}
    for model in data.models_with(("qwen25vl",), STUDIES):
        for bench, name in paper.DIAGNOSTIC.items():
            known = name if paper_model(model) == "qwen25vl" else None
            replay = replays.find(data, model, bench)
            row: list[Entry] = [model, name, *_offline(replay, known), *_first_hits(replay, known)]
            for scope, label in SCOPES.items():
                run = data.run("suffix", bench, model, reset=scope)
                null = nulls[f"{model}, {name}, {label}"] = noise([run], *NULL)
                row += _online(run, null, known if scope == "request" else None)
                used.append(run)
            rows.append(row)
            used.append(None if replay is None else replay.run)
        missing += data.missing("suffix", [model])
        missing += data.missing_files(replays.STUDY, [model], replays.FILE)
    notes = [*null_note(nulls, *NULL), *source_notes(used)]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _offline(replay: Replay | None, name: str | None) -> list[Entry]:
    columns = ("offline_fusion", "offline_suffix", "offline_difference")
    published = [paper.value(_FILE, column, dataset=name) for column in columns]
    found: list[Interval] = [NOTHING] * 3
    if replay is not None:
        before, after = "seeded.suffix.fusion", "seeded.suffix.fusion_suffix"
        found = [replay.mean(before), replay.mean(after), replay.difference(after, before, scale=1)]
    return [Cell.of(i, p, digits=3) for i, p in zip(found, published, strict=True)]


def _first_hits(replay: Replay | None, name: str | None) -> list[Entry]:
    """First-token hits that the suffix adds (Appendix C), and those that it crowds out."""
    known = "qwen25vl" if name else None
    quantity = "first-token hits added by suffix"
    added = paper.text_value("App. C", quantity, known, name or "")
    return [
        Cell.of(None if replay is None else replay.share(f"seeded.suffix.first_{what}"), published)
        for what, published in (("gained", added), ("lost", None))
    ]


def _online(run: Run | None, null: Interval, name: str | None) -> list[Entry]:
    columns = ("online_gain_percent", "tau_before", "tau_after")
    gain, before, after = (paper.value(_FILE, column, dataset=name) for column in columns)
    cells: list[Entry] = [gain_cell(changes(run, "fusion_suffix", "fusion").mean, null, gain)]
    for arm, published in (("fusion", before), ("fusion_suffix", after)):
        tau = NOTHING if run is None else tau_units(run.of(arm), arm, run.max_new_tokens).mean
        cells.append(Cell.of(tau, published))
    return cells
