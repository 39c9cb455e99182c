"""Table 14: what the fusion rule changes about the root's candidates."""

from __future__ import annotations

from collections.abc import Mapping

from analysis import paper, replays
from analysis.artefact import Cell, Entry, Table
from analysis.bootstrap import NOTHING
from analysis.data import Data, paper_model
from analysis.replays import Replay

ID = "table14"
TITLE = "Table 14: offline Recall@8 of fusion rules"
STUDIES = (replays.STUDY,)
CAPTION = (
    "All-query Recall@8 at the root as points above the rule without confidence (fixed priors), "
    "whose own Recall@8 in per cent is the first row. U seeded from the prompt, C and G empty at "
    "the start of every input; a state without any row is a miss for every rule. Soft priors: "
    ".55, .30, .15; sharp: .85, .10, .05. 95 % intervals over image clusters, paired."
)
HEADINGS = ("Model", "Rule", *paper.DIAGNOSTIC.values())
REFERENCE = "without_confidence"
# Names in replay.json and in the paper.
RULES = {
    "recap": "recap",
    "without_confidence": "w/o confidence",
    "without_prior": "w/o prior",
    "uniform": "uniform",
    "confidence_gate": "confidence gate",
    "backoff": "specificity backoff",
    "soft_prior": "w/o conf., soft prior",
    "sharp_prior": "w/o conf., sharp prior",
}
_FILE = "table14_offline_fusion_recall"


def build(data: Data) -> Table:
    """One row per model and rule."""
    rows: list[list[Entry]] = []
    gathered = replays.gather(data)
    for model, found in gathered.found.items():
        rows.append([model, "w/o confidence, Recall@8 %", *map(_reference, found.values())])
        rows += [_row(model, rule, found) for rule in RULES]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, gathered.notes, gathered.missing)


def _path(rule: str) -> str:
    return f"seeded.rules.{rule}"


def _reference(replay: Replay | None) -> Entry:
    return Cell.of(NOTHING if replay is None else replay.share(_path(REFERENCE)))


def _row(model: str, rule: str, found: Mapping[str, Replay | None]) -> list[Entry]:
    known = RULES[rule] if paper_model(model) == "qwen25vl" else None
    cells: list[Entry] = []
    for bench, replay in found.items():
        interval = NOTHING
        if replay is not None:
            interval = replay.difference(_path(rule), _path(REFERENCE))
        published = paper.value(_FILE, paper.DIAGNOSTIC[bench], variant=known)
        cells.append(Cell.of(interval, published, signed=True))
    return [model, RULES[rule], *cells]
