"""Table 5: how often the rows of each key length are there, and how often they are right."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import paper, replays
from analysis.artefact import Cell, Entry, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.replays import Replay

ID = "table05"
TITLE = "Table 5: coverage and conditional Recall@8 in empty-initialisation replay"
STUDIES = (replays.STUDY,)
CAPTION = (
    "AR's outputs replayed, memories empty at the start of every input, each state queried before "
    "the memories learn from it. Coverage: states with a candidate, per cent. Recall@8: AR's next "
    "token among the candidates, per cent of covered states. G - U: Recall@8 points on states that "
    "both cover, U seeded from the prompt (section 5.2). 95 % intervals over image clusters."
)
SOURCES = ("U", "C", "G")
HEADINGS = (
    *("Model", "Dataset", "States"),
    *(f"Coverage {source}" for source in SOURCES),
    *(f"Recall@8 {source}" for source in SOURCES),
    "G - U, jointly",
)
_FILE = "table05_coverage_recall"
_JOINT = "Recall@8 gain of G over U"


def build(data: Data) -> Table:
    """One row per model and diagnostic set."""
    rows: list[list[Entry]] = []
    notes: list[str] = []
    gathered = replays.gather(data)
    for model, found in gathered.found.items():
        rows += [_row(model, bench, replay) for bench, replay in found.items()]
        notes += _notes(model, [replay for replay in found.values() if replay is not None])
    footnotes = tuple(dict.fromkeys(notes))
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, footnotes, gathered.missing)


def coverage(replay: Replay, source: str, start: str = "empty") -> Interval:
    """States in which a source has a candidate, per cent."""
    return replay.share(f"{start}.covered.{source}")


def recall(replay: Replay, source: str, start: str = "empty") -> Interval:
    """Recall@8 among the states that a source covers, per cent."""
    return replay.share(f"{start}.hits.{source}", of=f"{start}.covered.{source}")


def joint_gain(replay: Replay) -> Interval:
    """Recall@8 of G minus U's where both have candidates, points."""
    return replay.difference("seeded.joint.G", "seeded.joint.U", of="seeded.joint.states")


def _row(model: str, bench: str, replay: Replay | None) -> list[Entry]:
    name = paper.DIAGNOSTIC[bench]
    known = name if paper_model(model) == "qwen25vl" else None
    cells: list[Entry] = []
    for quantity, estimate in (("coverage", coverage), ("recall8", recall)):
        for source in SOURCES:
            published = paper.value(_FILE, f"{quantity}_{source.lower()}", dataset=known)
            interval = NOTHING if replay is None else estimate(replay, source)
            cells.append(Cell.of(interval, published, digits=1))
    joint = NOTHING if replay is None else joint_gain(replay)
    states = "-" if replay is None else str(replay.total("states"))
    return [model, name, states, *cells, Cell.of(joint, signed=True)]


def _notes(model: str, found: Sequence[Replay]) -> list[str]:
    if not found:
        return []
    states = sum(replay.total("states") for replay in found)
    inputs = sum(len(replay.document["units"]) for replay in found)
    notes = [f"{model}: {states:,} states of {inputs} inputs (the paper: 23,811 of 400)."]
    gains = [gain.mean for gain in map(joint_gain, found) if gain.mean == gain.mean]
    if gains:
        low, high = (
            paper.text_value("5.2", f"{_JOINT} on jointly matched states, {end}imum", "qwen25vl")
            for end in ("min", "max")
        )
        notes.append(
            f"{model}: where G and U both match, G recalls {min(gains):+.2f} to {max(gains):+.2f} "
            f"points more than U (the paper: {low:+.2f} to {high:+.2f})."
        )
    covered = ", ".join(f"{coverage(replay, 'U', 'seeded').mean:.1f}" for replay in found)
    notes.append(f"{model}: seeded from the prompt, U covers {covered} % of the states.")
    return notes + source_notes([replay.run for replay in found])
