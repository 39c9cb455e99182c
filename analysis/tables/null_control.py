"""The null control: AR against AR, which is what this harness can tell apart."""

from __future__ import annotations

from analysis import contrasts, estimators
from analysis.arms import NULL_ARM
from analysis.artefact import Cell, Entry, Table
from analysis.data import Data
from analysis.load import Run

ID = "null_control"
TITLE = "Null control: autoregressive decoding against itself"
STUDIES = ("null_control",)
CAPTION = (
    "Both arms are the same method, so every S should be 1. An interval without 1 says that "
    "this machine favoured a position or drifted; an effect inside these intervals is noise. The "
    "control study comes first, then the null arm of every other run."
)
HEADINGS = ("Model", "Study", "Benchmark", "Run", "S", "S decode", "Half width %", "1 inside")


def build(data: Data) -> Table:
    """One row per run with a null arm."""
    runs = [run for run in data.found if NULL_ARM in run.arms]
    runs.sort(key=lambda run: (run.study not in STUDIES, run.study, run.bench, run.name))
    rows = [_row(run) for run in runs]
    missing = data.missing(STUDIES[0], data.models)
    notes = [
        f"1 lies inside in {sum(row[-1] == 'yes' for row in rows)} of {len(rows)} runs. Of true "
        "95 % intervals one in twenty leaves it out, of those over a dozen inputs somewhat more.",
        *contrasts.source_notes([run for run in runs if run.study in STUDIES]),
    ]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _row(run: Run) -> list[Entry]:
    s = estimators.ratios(run.pairs(NULL_ARM)).mean
    decode = estimators.decode_ratios(run.pairs(NULL_ARM)).mean
    inside = s.low <= 1 <= s.high
    return [
        run.model,
        run.study or "-",
        run.bench,
        run.name.rpartition("/")[2],
        Cell.of(s, digits=4),
        Cell.of(decode, digits=4),
        Cell(50 * (s.high - s.low) if s.low == s.low else None),
        "yes" if inside else "NO",
    ]
