"""The offline replay's counts (`experiments.replay`): ratios of sums with intervals over clusters.

A count is named by its path in ``replay.json``: "states", "empty.covered.U", "seeded.rules.recap".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis import paper
from analysis.artefact import Missing
from analysis.bootstrap import NOTHING, FloatArray, Interval, Resampler, around
from analysis.contrasts import source_notes
from analysis.data import Data
from analysis.estimators import RESAMPLES
from analysis.load import Run

STUDY = "replay"
FILE = "replay.json"


@dataclass(frozen=True)
class Replay:
    """One captured run, replayed. Counts are lists over its inputs."""

    run: Run
    document: Mapping[str, Any]

    def counts(self, path: str) -> FloatArray:
        """float64[inputs]: one count of every input."""
        node: Any = self.document
        for key in path.split("."):
            node = node[key]
        return np.array(node, np.float64)

    def total(self, path: str) -> int:
        """A count over all inputs."""
        return int(self.counts(path).sum())

    def mean(self, path: str, scale: float = 1.0) -> Interval:
        """A count per state."""
        return self._ratio(self.counts(path), "states", scale)

    def share(self, path: str, of: str = "states") -> Interval:
        """A count in per cent of another one."""
        return self._ratio(self.counts(path), of, 100.0)

    def difference(
        self, path: str, other: str, of: str = "states", scale: float = 100.0
    ) -> Interval:
        """A count minus another one, by default in points of the share of states."""
        return self._ratio(self.counts(path) - self.counts(other), of, scale)

    def difference_of_shares(self, share: tuple[str, str], other: tuple[str, str]) -> Interval:
        """A share minus another one, points; each is a count and what it is a share of."""
        resampler = Resampler(self.document["clusters"], RESAMPLES)
        pairs = [(self.counts(path), self.counts(of)) for path, of in (share, other)]
        if any(of.sum() == 0 for _, of in pairs):
            return NOTHING
        draws = [resampler.ratio_draws(100 * count, of) for count, of in pairs]
        means = [100 * float(count.sum() / of.sum()) for count, of in pairs]
        return around(means[0] - means[1], draws[0] - draws[1])

    def _ratio(self, numerator: FloatArray, of: str, scale: float) -> Interval:
        denominator = self.counts(of)
        if denominator.sum() == 0:
            return NOTHING
        resampler = Resampler(self.document["clusters"], RESAMPLES)
        return resampler.ratio(scale * numerator, denominator)


def find(data: Data, model: str, bench: str) -> Replay | None:
    """The replay of a model's capture on a diagnostic benchmark, or None."""
    run = data.run(STUDY, bench, model)
    document = data.derived(run, FILE)
    return None if run is None or document is None else Replay(run, document)


@dataclass(frozen=True)
class Gathered:
    """The replays that a table of all diagnostic benchmarks is made of.

    found: by model, then benchmark; None where there is no replay.
    """

    found: dict[str, dict[str, Replay | None]]
    missing: list[Missing]

    @property
    def notes(self) -> tuple[str, ...]:
        """The footnotes on the runs behind them, each once."""
        replays = [r for of_model in self.found.values() for r in of_model.values()]
        return tuple(source_notes([None if r is None else r.run for r in replays]))


def gather(data: Data) -> Gathered:
    """Every replay of the scope's models, the paper's one and those that have runs."""
    models = data.models_with(("qwen25vl",), (STUDY,))
    found = {model: {b: find(data, model, b) for b in paper.DIAGNOSTIC} for model in models}
    return Gathered(found, data.missing_files(STUDY, models, FILE))
