"""Table 6: how far a tree agrees with what AR went on to say, at equal node counts."""

from __future__ import annotations

from collections.abc import Mapping

from analysis import paper, replays
from analysis.artefact import Cell, Entry, Table
from analysis.bootstrap import NOTHING
from analysis.data import Data, paper_model
from analysis.replays import Replay

ID = "table06"
TITLE = "Table 6: matched continuation length in empty-initialisation replay"
STUDIES = (replays.STUDY,)
CAPTION = (
    "Mean over states of the longest path that AR's own continuation begins with, root and bonus "
    "token excluded. At every state all five trees (63 candidates at most, depth 10, no suffix) "
    "have as many candidates as the smallest of them; states without one count as 0. Uniform and "
    "prior-weighted fusion (fixed priors) use U, C and G. Memories start empty at each input. 95 % "
    "intervals over image clusters."
)
HEADINGS = ("Model", "Policy", *paper.DIAGNOSTIC.values())
# Names in replay.json and in the paper.
POLICIES = {
    "U": "U",
    "UC_backoff": "U+C backoff",
    "UCG_backoff": "U+C+G backoff",
    "uniform": "Uniform fusion",
    "fixed_prior": "Prior-weighted fusion",
}
_FILE = "table06_matched_length"


def build(data: Data) -> Table:
    """One row per model and policy, and the number of candidates they share."""
    rows: list[list[Entry]] = []
    gathered = replays.gather(data)
    for model, found in gathered.found.items():
        rows += [_row(model, policy, found) for policy in POLICIES]
        rows.append([model, "Candidates per tree", *(_nodes(r) for r in found.values())])
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, gathered.notes, gathered.missing)


def _row(model: str, policy: str, found: Mapping[str, Replay | None]) -> list[Entry]:
    known = POLICIES[policy] if paper_model(model) == "qwen25vl" else None
    cells: list[Entry] = []
    for bench, replay in found.items():
        interval = NOTHING if replay is None else replay.mean(f"empty.matched.{policy}")
        published = paper.value(_FILE, paper.DIAGNOSTIC[bench], policy=known)
        cells.append(Cell.of(interval, published, digits=3))
    return [model, POLICIES[policy], *cells]


def _nodes(replay: Replay | None) -> Entry:
    return "-" if replay is None else f"{replay.mean('empty.matched.nodes').mean:.1f}"
