"""What the ablations share: one arm's throughput against another's, per input (Equation 11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis import arms, estimators, paper
from analysis.arms import NULL_ARM, noise_mark
from analysis.artefact import Cell
from analysis.bootstrap import NOTHING, Interval
from analysis.data import Data
from analysis.estimators import EMPTY, Sample
from analysis.load import REFERENCE_ARM, Run


def changes(run: Run | None, arm: str, reference: str) -> Sample:
    """Per cent by which ``arm`` is faster than ``reference``, one value per input."""
    if run is None:
        return EMPTY
    return estimators.input_changes(run.of(arm, reference), arm, reference)


def pooled(samples: Iterable[Sample]) -> Sample:
    """All values of several runs as one sample; clusters keep equal pictures together."""
    total = EMPTY
    for sample in samples:
        total = total + sample
    return total


def noise(runs: Iterable[Run | None]) -> Interval:
    """What AR against AR shows in the same runs, in per cent."""
    return pooled(changes(run, NULL_ARM, REFERENCE_ARM) for run in runs).mean


def gain_cell(interval: Interval, null: Interval = NOTHING, published: float | None = None) -> Cell:
    """A change in per cent, marked where it is no larger than the null arm's."""
    return Cell.of(interval, published, signed=True, mark=noise_mark(interval, null, 0.0))


def over_diagnostics(
    data: Data, study: str, model: str, arm: str, reference: str, **settings: str
) -> tuple[list[Sample], list[Sample], list[Run]]:
    """Changes on each diagnostic set, those of AR against AR, and the runs they come from."""
    found = [data.run(study, bench, model, **settings) for bench in paper.DIAGNOSTIC]
    samples = [changes(run, arm, reference) for run in found]
    nulls = [changes(run, NULL_ARM, REFERENCE_ARM) for run in found]
    return samples, nulls, [run for run in found if run is not None]


def null_note(null: Interval, what: str = "AR against AR in the same runs") -> list[str]:
    """The footnote that says how large an effect of nothing is."""
    if null.mean != null.mean:
        return []
    return [
        f"{what}: {null.mean:+.2f} % [{null.low:+.2f}, {null.high:+.2f}]; an effect inside "
        "that interval is marked as noise."
    ]


def source_notes(runs: Sequence[Run | None]) -> list[str]:
    """The footnotes on the runs."""
    return arms.sources(run for run in runs if run is not None)
