"""Table 16 (and Figure 7): fusion against choosing one row, where the rows disagree."""

from __future__ import annotations

from analysis import paper, replays
from analysis.artefact import Cell, Entry, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.data import Data, paper_model
from analysis.replays import Replay

ID = "table16"
TITLE = "Table 16: Recall@8 where sources disagree"
STUDIES = (replays.STUDY,)
CAPTION = (
    "Replay states in which at least two of the rows found have different first predictions; "
    "memories start anew at each input, U with the prompt's rows. RECAP: entropy-confidence "
    "fusion; gate: the most confident row alone; w/o confidence: fixed priors. Recall@8 in per "
    "cent, the difference RECAP - gate in points. 95 % intervals over image clusters, paired."
)
HEADINGS = (
    *("Model", "Dataset", "States", "RECAP", "Confidence gate", "Difference"),
    *("Paper's interval", "w/o confidence"),
)
_FILE = "table16_disagreement"
_STATES = "seeded.disagreement.states"


def build(data: Data) -> Table:
    """One row per model and diagnostic set."""
    rows: list[list[Entry]] = []
    gathered = replays.gather(data)
    for model, found in gathered.found.items():
        rows += [_row(model, bench, replay) for bench, replay in found.items()]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, gathered.notes, gathered.missing)


def recall(replay: Replay, rule: str) -> Interval:
    """A rule's Recall@8 where sources disagree, per cent."""
    return replay.share(_path(rule), of=_STATES)


def difference(replay: Replay) -> Interval:
    """RECAP's Recall@8 minus the gate's, points."""
    return replay.difference(_path("recap"), _path("confidence_gate"), of=_STATES)


def _path(rule: str) -> str:
    return f"seeded.disagreement.{rule}"


def _row(model: str, bench: str, replay: Replay | None) -> list[Entry]:
    name = paper.DIAGNOSTIC[bench]
    known = name if paper_model(model) == "qwen25vl" else None
    states = None if replay is None else float(replay.total(_STATES))
    found = [NOTHING] * 4
    if replay is not None:
        gate, without = recall(replay, "confidence_gate"), recall(replay, "without_confidence")
        found = [recall(replay, "recap"), gate, difference(replay), without]
    columns = ("recap_recall8", "gate_recall8", "difference")
    published = [paper.value(_FILE, column, dataset=known) for column in columns]
    return [
        model,
        name,
        Cell(states, paper=paper.value(_FILE, "states", dataset=known), digits=0),
        Cell.of(found[0], published[0]),
        Cell.of(found[1], published[1]),
        Cell.of(found[2], published[2], signed=True),
        _published_interval(known),
        Cell.of(found[3]),
    ]


def _published_interval(name: str | None) -> str:
    low, high = (paper.value(_FILE, end, dataset=name) for end in ("ci_low", "ci_high"))
    return "-" if low is None or high is None else f"[{low:+.2f}, {high:+.2f}]"
