"""Phases of decoding steps (``profile.json`` of study=profile): from sums to milliseconds.

The clock's own time is taken off every phase: its laps times what one lap costs. Both input orders
are pooled; intervals are over clusters of pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.bootstrap import NOTHING, FloatArray, Interval, Resampler, around
from analysis.data import Data
from analysis.estimators import RESAMPLES
from analysis.load import Run

STUDY = "profile"
FILE = "profile.json"
MAIN_ARM = "cap63"

# The paper's stages and the phases each is made of; "Other decoding" is the rest of a step.
OTHER = "Other decoding"
VERIFICATION = "Target verification"
STAGES: dict[str, tuple[str, ...]] = {
    "Suffix lookup": ("suffix_lookup",),
    "Lookup, fusion, search": ("search",),
    "Packing": ("packing",),
    "Memory refresh": ("refresh",),
    "Suffix index update": ("suffix_update",),
    "Token commitment": ("commit",),
    OTHER: (),
    VERIFICATION: ("verify",),
}
NAMED = tuple(phase for phases in STAGES.values() for phase in phases)
PREPARATION = ("suffix_lookup", "search", "packing")
UPKEEP = ("refresh", "suffix_update")


class Arm:
    """One arm's requests of all runs: arrays with a value per request, the clock's time taken off.

    steps, candidates: numbers. total: nanoseconds of the steps. wall, cpu: by phase. timer: wall
    nanoseconds that were taken off.
    """

    def __init__(self, arms: Sequence[Mapping[str, Any]], costs: Sequence[Mapping[str, float]]):
        self._requests = [arm["requests"] for arm in arms]
        self.clusters = [name for part in self._requests for name in part["cluster_id"]]
        self.steps = self._column("steps")
        self.candidates = self._column("candidates")
        sizes = [len(part["steps"]) for part in self._requests]
        per_lap = {what: np.repeat([c[what] for c in costs], sizes) for what in costs[0]}
        names = dict.fromkeys(name for part in self._requests for name in part["phases"])
        laps = {name: self._phase(name, "laps") for name in names}
        self.wall, self.cpu = (
            {name: self._phase(name, what) - laps[name] * per_lap[what] for name in names}
            for what in ("wall_ns", "cpu_ns")
        )
        self.timer: FloatArray = _sum(laps.values(), len(self.steps)) * per_lap["wall_ns"]
        self.total: FloatArray = self._column("step_ns") - self.timer
        held = [arm["host_bytes"] for arm in arms if arm["host_bytes"] is not None]
        peaks = [arm["peak_device_bytes"] for arm in arms if arm["peak_device_bytes"] is not None]
        self.host_bytes: dict[str, dict[str, int]] | None
        self.host_bytes = max(held, key=lambda found: sum(found["occupied"].values()), default=None)
        self.peak_device_bytes: int | None = max(peaks, default=None)

    def _column(self, key: str) -> FloatArray:
        return np.array([value for part in self._requests for value in part[key]], np.float64)

    def _phase(self, name: str, what: str) -> FloatArray:
        """One phase's values; 0 in runs that have no such phase."""
        parts = [
            part["phases"][name][what] if name in part["phases"] else [0] * len(part["steps"])
            for part in self._requests
        ]
        return np.array([value for part in parts for value in part], np.float64)

    def wall_of(self, phases: Iterable[str]) -> FloatArray:
        """Nanoseconds of several phases together."""
        return _sum((self.wall[name] for name in phases if name in self.wall), len(self.steps))

    def stage(self, stage: str) -> FloatArray:
        """Nanoseconds of one of the `STAGES`."""
        return self.total - self.wall_of(NAMED) if stage == OTHER else self.wall_of(STAGES[stage])

    def stage_cpu(self, stage: str) -> FloatArray:
        """Its CPU time. What a step spends outside every phase has none of its own."""
        rest = [name for name in self.cpu if name not in NAMED]
        phases = rest if stage == OTHER else STAGES[stage]
        return _sum((self.cpu[name] for name in phases if name in self.cpu), len(self.steps))

    def per_step(self, values: FloatArray, scale: float = 1e-6) -> Interval:
        """The sum of ``values`` per decoding step; by default nanoseconds in milliseconds."""
        return self._ratio(scale * values, self.steps)

    def share(self, nanoseconds: FloatArray) -> Interval:
        """Per cent of the steps' wall time."""
        return self._ratio(100 * nanoseconds, self.total)

    def _ratio(self, numerator: FloatArray, denominator: FloatArray) -> Interval:
        if denominator.sum() <= 0:
            return NOTHING
        return Resampler(self.clusters, RESAMPLES).ratio(numerator, denominator)

    def p95_of_request_means(self, nanoseconds: FloatArray) -> Interval:
        """95th percentile of the requests' own means per step, in milliseconds."""
        kept = np.flatnonzero(self.steps)
        if len(kept) == 0:
            return NOTHING
        means = 1e-6 * nanoseconds[kept] / self.steps[kept]
        return Resampler([self.clusters[i] for i in kept], RESAMPLES).percentile(means, 95)


def _sum(arrays: Iterable[FloatArray], length: int) -> FloatArray:
    return np.asarray(np.sum([np.zeros(length), *arrays], axis=0), np.float64)


@dataclass(frozen=True)
class Profile:
    """The profiled runs of a model, one per input order."""

    runs: Sequence[Run]
    documents: Sequence[Mapping[str, Any]]

    def arm(self, name: str) -> Arm | None:
        """One arm over all runs, or None where no run has it."""
        having = [document for document in self.documents if name in document["arms"]]
        if not having:
            return None
        return Arm([d["arms"][name] for d in having], [d["lap_cost"] for d in having])

    def overhead(self) -> Interval:
        """Per cent that profiling adds to the median latency of a request."""
        plain, profiled = (self._latencies(stream) for stream in ("plain", "profiled"))
        if len(plain) == 0:
            return NOTHING
        resampler = Resampler(self._overhead_clusters(), RESAMPLES)
        draws = resampler.percentile_draws(profiled, 50) / resampler.percentile_draws(plain, 50)
        ratio = float(np.median(profiled) / np.median(plain))
        return around(100 * (ratio - 1), 100 * (draws - 1))

    def _latencies(self, stream: str) -> FloatArray:
        measured = [document["overhead"][stream]["latency_ns"] for document in self.documents]
        return np.array([value for part in measured for value in part], np.float64)

    def _overhead_clusters(self) -> list[str]:
        clusters: list[str] = []
        for document in self.documents:
            requests = document["arms"][document["overhead"]["arm"]]["requests"]
            known = dict(zip(requests["unit_id"], requests["cluster_id"], strict=True))
            clusters += [known[unit_id] for unit_id in document["overhead"]["unit_ids"]]
        return clusters

    def device_us(self) -> dict[str, float]:
        """Microseconds of device time per step by phase; empty where it was not measured."""
        traced = [d["device_time"] for d in self.documents if d["device_time"] is not None]
        steps = sum(trace["steps"] for trace in traced)
        phases = dict.fromkeys(name for trace in traced for name in trace["phase_ns"])
        if steps == 0:
            return {}
        return {
            name: sum(trace["phase_ns"].get(name, 0) for trace in traced) / steps / 1e3
            for name in phases
        }


def find(data: Data, model: str) -> Profile | None:
    """The profile of a model, or None."""
    runs, documents = [], []
    for slot in data.slots(STUDY):
        run = data.at(STUDY, model, slot)
        document = data.derived(run, FILE)
        if run is not None and document is not None:
            runs.append(run)
            documents.append(document)
    return Profile(runs, documents) if runs else None
