"""Whether the mechanisms that the paper names show on this model, whatever its speed."""

from __future__ import annotations

from collections.abc import Iterator

from analysis import counterfactuals, metrics, paper, replays
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import source_notes
from analysis.data import Data
from analysis.estimators import EMPTY, Sample
from analysis.load import Run
from analysis.tables import table05

ID = "mechanisms"
TITLE = "Mechanisms: do they show on this model?"
STUDIES = ("replay", "streams")
CAPTION = (
    "Acceptance, coverage and recall do not depend on the device, so these can be tested on any "
    "model. Shows: the 95 % interval over image clusters lies above 0. Does not show: it lies "
    "below. Undecided: it holds 0. Recall is per cent of the states that a source covers, so that "
    "two sources' differ in their states, too; where both match they share them. In the replays "
    "memories start anew at each input."
)
HEADINGS = ("Model", "Mechanism", "Where", "Quantity", "Value", "Verdict")
SCHEDULES = ("blocked", "alternating")
Line = tuple[str, str, str, Cell | str, str]


def build(data: Data) -> Table:
    """One row per model, mechanism and data set."""
    rows: list[list[Entry]] = []
    missing: list[Missing] = []
    runs: list[Run | None] = []
    for model in data.models:
        for bench, name in paper.DIAGNOSTIC.items():
            replay = replays.find(data, model, bench)
            runs.append(None if replay is None else replay.run)
            rows += [[model, *line] for line in _keys(replay, name)]
            rows.append([model, *_picture(data, model, bench, name)])
        for schedule in SCHEDULES:
            found = _streams(data, model, schedule)
            runs += found
            rows.append([model, *_persistence(found, schedule)])
        rows.append([model, *_alternation(_streams(data, model, "alternating"))])
        missing += data.missing("streams", [model])
        missing += data.missing_files(replays.STUDY, [model], replays.FILE)
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, source_notes(runs), missing)


def verdict(interval: Interval) -> str:
    """In words, "-" where nothing is measured."""
    if interval.mean != interval.mean:
        return "-"
    if interval.low > 0:
        return "shows"
    return "does not show" if interval.high < 0 else "undecided"


def _keys(replay: replays.Replay | None, name: str) -> Iterator[Line]:
    """Finer keys cover less and recall more (section 5.2)."""
    for coarse, fine in ("UC", "CG"):
        less = gain = NOTHING
        if replay is not None:
            less = replay.difference(f"empty.covered.{coarse}", f"empty.covered.{fine}")
            shares = [(f"empty.hits.{s}", f"empty.covered.{s}") for s in (fine, coarse)]
            gain = replay.difference_of_shares(*shares)
        yield _line("finer keys cover less", name, f"coverage of {coarse} - {fine}", less)
        yield _line("finer keys recall more", name, f"recall of {fine} - {coarse}", gain)
    joint = NOTHING if replay is None else table05.joint_gain(replay)
    yield _line("G recalls more where both match", name, "recall of G - U", joint)


def _line(mechanism: str, where: str, quantity: str, points: Interval) -> Line:
    return mechanism, where, quantity, Cell.of(points, digits=1, signed=True), verdict(points)


def _picture(data: Data, model: str, bench: str, name: str) -> Line:
    """Rows of the own picture recall more than a swapped one's (Appendix C)."""
    study, file = counterfactuals.RECALL_STUDY, counterfactuals.RECALL_FILE
    found = counterfactuals.find(data, study, file, model, bench)
    gain = NOTHING
    if found is not None:
        gain = counterfactuals.recall_gain(found.document, "fixed_prior", "seeded")
    return _line("rows carry the picture", name, "recall by fixed priors, own - swapped", gain)


def _streams(data: Data, model: str, schedule: str) -> list[Run]:
    runs = data.runs("streams", "mixed4", model)
    return [run for run in runs if run.setting("bench.schedule") == schedule]


def _persistence(runs: list[Run], schedule: str) -> Line:
    """A memory kept over the stream accepts more than one reset per request (Appendix D)."""
    total = EMPTY
    for run in runs:
        total = total + _more_accepted(run)
    cell = Cell.of(total.mean, signed=True)
    what = "accepted per step, persistent - request-reset"
    return "memory is worth keeping", schedule, what, cell, verdict(total.mean)


def _more_accepted(run: Run) -> Sample:
    rows = []
    for pair in run.pairs("persistent", "request_reset"):
        values = [metrics.mean_accepted(r) for r in (pair.method, pair.reference)]
        if values[0] is not None and values[1] is not None:
            rows.append((values[0] - values[1], pair.reference.cluster_id))
    return Sample.of(rows)


def _alternation(runs: list[Run]) -> Line:
    """Where every input changes the data set, a reset per set is one per request."""
    pairs = [p for run in runs for p in run.pairs("task_reset", "request_reset")]
    same = sum(p.method.num_accepted == p.reference.num_accepted for p in pairs)
    what = "units accepted alike, reset per set and per request"
    shown = "-" if not pairs else "shows" if same == len(pairs) else "does not show"
    return "memory is what differs", "alternating", what, f"{same} of {len(pairs)}", shown
