"""What the ablations share: one arm's throughput against another's, per input (Equation 11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from analysis import arms, estimators
from analysis.arms import NULL_ARM, noise_mark
from analysis.artefact import Cell
from analysis.bootstrap import NOTHING, Interval
from analysis.estimators import EMPTY, Sample
from analysis.load import Run

SPEED_NOTE = "noise, at S: inside the interval of the null arm (AR a second time) of the same run."


def changes(run: Run | None, arm: str, reference: str) -> Sample:
    """Per cent by which ``arm`` is faster than ``reference``, one value per input."""
    if run is None:
        return EMPTY
    return estimators.input_changes(run.pairs(arm, reference))


def pooled(samples: Iterable[Sample]) -> Sample:
    """All values of several runs as one sample; clusters keep equal pictures together."""
    total = EMPTY
    for sample in samples:
        total = total + sample
    return total


def noise(runs: Iterable[Run | None], null: str, reference: str) -> Interval:
    """What the arm ``null`` shows against the arm that it repeats, in the same runs, in per cent.

    A method against AR is judged by AR a second time, a method against another one by its own
    reference a second time: the two differ in how much their times vary.
    """
    return pooled(changes(run, null, reference) for run in runs).mean


def gain_cell(interval: Interval, null: Interval = NOTHING, published: float | None = None) -> Cell:
    """A change in per cent, marked where it is no larger than the null arm's."""
    return Cell.of(interval, published, signed=True, mark=noise_mark(interval, null, 0.0))


def speed_cell(run: Run | None, arm: str, published: float | None = None) -> Cell:
    """S of an arm, marked where it is no larger than that of AR a second time."""
    if run is None:
        return Cell(paper=published)
    s, null = (estimators.ratios(run.pairs(name)).mean for name in (arm, NULL_ARM))
    mark = "" if arm == NULL_ARM else noise_mark(s, null, 1.0)
    return Cell.of(s, published, mark=mark)


def per_cent(ratio: Interval) -> Interval:
    """A ratio as a change in per cent."""
    return Interval(*(100 * (value - 1) for value in (ratio.mean, ratio.low, ratio.high)))


def lifetime(runs: Iterable[Run | None], *names: str) -> str:
    """How long the arms' memories live, as their records say; both where two arms differ."""
    known = [run for run in runs if run is not None]
    found = [{estimators.state_lifetime(run.of(name), name) for run in known} for name in names]
    of_arms = (", ".join(sorted(states - {""})) for states in found)
    return " vs. ".join(dict.fromkeys(states for states in of_arms if states)) or "-"


def num_inputs(runs: Iterable[Run | None], arm: str, reference: str) -> int:
    """Distinct inputs that both arms have, in however many orders and runs."""
    pairs = [pair for run in runs if run is not None for pair in run.pairs(arm, reference)]
    return len({(p.reference.bench, estimators.input_of(p.reference)) for p in pairs})


def null_note(nulls: Mapping[str, Interval], null: str, reference: str) -> list[str]:
    """The footnote that says how large an effect of nothing is, by where it was measured."""
    shown = [
        f"{where} {found.mean:+.2f} % [{found.low:+.2f}, {found.high:+.2f}]"
        for where, found in nulls.items()
        if found.low == found.low
    ]
    if not shown:
        return []
    return [
        f"`{null}` against `{reference}`, the same arm twice: {'; '.join(shown)}. An effect inside "
        "that interval, or between it and 0, is marked as noise."
    ]


def source_notes(runs: Sequence[Run | None]) -> list[str]:
    """The footnotes on the runs."""
    return arms.sources(run for run in runs if run is not None)
