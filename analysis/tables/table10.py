"""Table 10: what the candidate budget costs in time and memory."""

from __future__ import annotations

from analysis import paper, profiles
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import Interval
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.load import Run
from analysis.profiles import Arm, Profile

ID = "table10"
TITLE = "Table 10: candidate budget, preparation time and memory"
STUDIES = (profiles.STUDY,)
CAPTION = (
    "Candidates: mean per decoding step, suffix included. Preparation: suffix lookup, row lookup, "
    "fusion, search and packing, per step; its 95th percentile is over the requests' own means. "
    "Host memory: of U, C, G, the suffix automaton and the search's workspace in the request that "
    "held the most, what is occupied and what is set aside. Device memory: the largest peak of the "
    "arm's own generations, weights included. U lives for a data set, all else for a request."
)
HEADINGS = (
    *("Model", "Cap", "Candidates", "Preparation ms", "P95 ms"),
    *("Host MiB", "Host MiB set aside", "Device GiB"),
)
CAPS = (31, 63, 127)
NOTES = (
    "The paper counted Python objects; these are arrays. U is dense, so that its memory is set "
    "aside for the whole vocabulary before it holds a row.",
)
_FILE = "table10_budget"
_MIB, _GIB = 1 << 20, 1 << 30


def build(data: Data) -> Table:
    """One row per model and cap."""
    rows: list[list[Entry]] = []
    runs: list[Run] = []
    missing: list[Missing] = []
    for model in data.models:
        profile = profiles.find(data, model)
        rows += [_row(model, cap, profile) for cap in CAPS]
        missing += data.missing_files(profiles.STUDY, [model], profiles.FILE)
        runs += () if profile is None else profile.runs
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, (*NOTES, *source_notes(runs)), missing)


def _row(model: str, cap: int, profile: Profile | None) -> list[Entry]:
    arm = None if profile is None else profile.arm(f"cap{cap}")
    published = [
        paper.value(_FILE, column, model=paper_model(model), cap=str(cap))
        for column in ("mean_nodes", "prep_ms", "p95_ms", "host_mib", "gpu_gib")
    ]
    nodes, preparation, p95 = _means(arm)
    occupied, allocated = (_mib(arm, kind) for kind in ("occupied", "allocated"))
    peak = None if arm is None or arm.peak_device_bytes is None else arm.peak_device_bytes / _GIB
    return [
        *(model, str(cap)),
        Cell.of(nodes, published[0], digits=1),
        Cell.of(preparation, published[1], digits=3),
        Cell.of(p95, published[2], digits=3),
        Cell(occupied, paper=published[3]),
        Cell(allocated),
        Cell(peak, paper=published[4]),
    ]


def _means(arm: Arm | None) -> tuple[Interval | None, Interval | None, Interval | None]:
    """Candidates per step, preparation per step, and its percentile over requests."""
    if arm is None:
        return None, None, None
    prepared = arm.wall_of(profiles.PREPARATION)
    return (
        arm.per_step(arm.candidates, scale=1.0),
        arm.per_step(prepared),
        arm.p95_of_request_means(prepared),
    )


def _mib(arm: Arm | None, kind: str) -> float | None:
    """Host memory of one kind, in MiB."""
    if arm is None or arm.host_bytes is None:
        return None
    return sum(arm.host_bytes[kind].values()) / _MIB
