"""What study=profile makes of a run that was timed by phases: ``profile.json`` in its folder.

The run's records give phases, budgets and memory. Three things are measured here, on the run's own
inputs and once: what a lap of the clock costs, how much slower a profiled stream is than an
unprofiled one, and on CUDA how much device time every phase launches (paper, Appendix G.1).

Sums are raw: whoever reads them takes the timer's own cost off, laps times `lap_cost`.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from experiments.arms import device_synchronizer
from experiments.derived import read_document, write_document
from experiments.device_time import MarkingClock, device_time
from experiments.plan import REFERENCE_ARM, Arm
from experiments.records import RunRecord, read_records
from experiments.timing import (
    PhaseClock,
    WallClock,
    inner_phases,
    lap_cost,
    still_garbage_collector,
)
from experiments.units import encode_turn
from experiments.warmup import WARMUP_TOKENS
from recap.core.decode import decode
from recap.core.interfaces import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.benches import BenchInput
    from experiments.runner import FinishedRun
    from recap.core.interfaces import Generation
    from recap.targets.request import Request

FILE = "profile.json"
MAIN_ARM = "cap63"  # is compared with itself unprofiled, and traced
NUM_TRACES = 4
TRACE_TOKENS = 64
NO_DEVICE = "no CUDA device: neither device time per phase nor peak device memory"
MEASURED = ("lap_cost", "overhead", "device_time", "not_measured")


def after_run(run: FinishedRun) -> None:
    """Write ``profile.json``; what an earlier call measured for the same units is kept."""
    policy = run.plan.protocol.timing
    if policy != "phases":
        print(f"No {FILE}: it needs timing=phases, this run has timing={policy}.")
        return
    records = [r for r in read_records(run.folder / "records.jsonl") if r.status == "ok"]
    if not records:
        print(f"No {FILE}: no unit of this run is ok.")
        return
    path = run.folder / FILE
    measured = _kept(path, records) or measure(run, records)
    print(f"Profiled: {write_document(path, {'arms': summarise(records), **measured})}")


def _kept(path: Path, records: Sequence[RunRecord]) -> dict[str, Any] | None:
    """The measured part of an earlier file over the same units; None where there is none."""
    document = read_document(path)
    if document is None or document["overhead"]["unit_ids"] != _first_turns(records):
        return None
    return {key: document[key] for key in MEASURED}


def _first_turns(records: Sequence[RunRecord]) -> list[str]:
    """Units in the run's order that every arm finished and whose prompt holds no earlier answer."""
    arms = {record.arm for record in records}
    finished = Counter(record.unit_id for record in records if record.turn == 0)
    return [unit_id for unit_id, count in finished.items() if count == len(arms)]


# From the records


def summarise(records: Sequence[RunRecord]) -> dict[str, dict[str, Any]]:
    """Per arm, sums over all decoding steps, and the same per request.

    steps, step_ns, candidates: their number, wall time and candidates (suffix included).
    phases:            by name laps, wall_ns and cpu_ns.
    requests:          the same as lists over units, with unit_id and cluster_id.
    host_bytes:        of the request that held the most, see `experiments.memory_use.host_bytes`.
    peak_device_bytes: the largest; None without a CUDA device.
    """
    arms = dict.fromkeys(record.arm for record in records)
    return {arm: _summary([r for r in records if r.arm == arm]) for arm in arms}


def _summary(records: Sequence[RunRecord]) -> dict[str, Any]:
    requests: dict[str, Any] = {
        "unit_id": [record.unit_id for record in records],
        "cluster_id": [record.cluster_id for record in records],
        "steps": [len(record.step_ns) for record in records],
        "step_ns": [sum(record.step_ns) for record in records],
        "candidates": [sum(record.num_candidates) for record in records],
        "phases": _phases(records),
    }
    snapshots = [record.telemetry["host_bytes"] for record in records]
    peaks = [record.telemetry["peak_device_bytes"] for record in records]
    return {
        **{key: sum(requests[key]) for key in ("steps", "step_ns", "candidates")},
        "phases": {
            name: {what: sum(values) for what, values in columns.items()}
            for name, columns in requests["phases"].items()
        },
        "requests": requests,
        "host_bytes": max(filter(None, snapshots), key=_occupied, default=None),
        "peak_device_bytes": max(filter(None, peaks), default=None),
    }


def _phases(records: Sequence[RunRecord]) -> dict[str, dict[str, list[int]]]:
    """Laps and times by phase, as lists over units; 0 where a unit has no such phase."""
    found = [record.telemetry["phases"] for record in records]
    names = dict.fromkeys(name for phases in found for name in phases)
    return {
        name: {
            what: [phases.get(name, {}).get(what, 0) for phases in found]
            for what in ("laps", "wall_ns", "cpu_ns")
        }
        for name in names
    }


def _occupied(snapshot: dict[str, dict[str, int]]) -> int:
    return sum(snapshot["occupied"].values())


# Measured here


def measure(run: FinishedRun, records: Sequence[RunRecord]) -> dict[str, Any]:
    """What the records cannot tell.

    lap_cost:     wall_ns and cpu_ns that one lap of the clock adds to its phase.
    overhead:     see `overhead`.
    device_time:  see `experiments.device_time.device_time`; None without a CUDA device.
    not_measured: what is None, and why.
    """
    wall, cpu = lap_cost(device_synchronizer(run.target.device.type))
    arm = _main_arm(run)
    units = _first_turns(records)
    with still_garbage_collector():
        compared = overhead(run, arm, units)
        traced = _traced(run, arm, units) if run.target.device.type == "cuda" else None
    return {
        "lap_cost": {"wall_ns": wall, "cpu_ns": cpu},
        "overhead": compared,
        "device_time": traced,
        "not_measured": [] if traced else [NO_DEVICE],
    }


def _main_arm(run: FinishedRun) -> Arm:
    """`MAIN_ARM`; where the command line chose other arms, the first that drafts."""
    drafting = [arm for arm in run.plan.arms if arm.name != REFERENCE_ARM]
    return next((arm for arm in drafting if arm.name == MAIN_ARM), drafting[0])


def overhead(run: FinishedRun, arm: Arm, unit_ids: Sequence[str]) -> dict[str, Any]:
    """An unprofiled stream of ``arm`` beside a profiled one, unit by unit, taking turns at going
    first.

    Both hold latency_ns (prefill and decoding) and decode_ns per unit; ``equal`` counts the units
    in which they said the same.
    """
    synchronize = device_synchronizer(run.target.device.type)
    clocks: dict[str, Callable[[], WallClock]] = {
        "plain": lambda: WallClock("generation", synchronize),
        "profiled": lambda: PhaseClock(synchronize),
    }
    streams = {name: _Stream(run, arm) for name in clocks}
    found: dict[str, Any] = {name: {"latency_ns": [], "decode_ns": []} for name in clocks}
    equal = 0
    for index, (item, request) in enumerate(_requests(run, unit_ids)):
        if index == 0:
            for name, stream in streams.items():
                stream.warm_up(request, clocks[name]())
        outputs = []
        gc.collect()
        for name in sorted(clocks, reverse=index % 2 == 1):
            generation = streams[name].generate(item, request, clocks[name]())
            found[name]["latency_ns"].append(generation.prefill_ns + generation.decode_ns)
            found[name]["decode_ns"].append(generation.decode_ns)
            outputs.append(generation.output_ids)
        equal += outputs[0] == outputs[1]
    return {"arm": arm.name, "unit_ids": list(unit_ids), **found, "equal": equal}


def _traced(run: FinishedRun, arm: Arm, unit_ids: Sequence[str]) -> dict[str, Any]:
    """Device time per phase over the first input of each data set."""
    tasks = {f"{item.input_id}:0": item.task for item in run.inputs}
    firsts = {tasks[unit_id]: unit_id for unit_id in reversed(unit_ids)}
    chosen = [unit_id for unit_id in unit_ids if unit_id in firsts.values()][:NUM_TRACES]
    stream = _Stream(run, arm, min(TRACE_TOKENS, run.plan.protocol.max_new_tokens))

    def trace(item: BenchInput, request: Request) -> Callable[[MarkingClock], Generation]:
        return lambda clock: stream.generate(item, request, clock)

    return device_time([trace(item, request) for item, request in _requests(run, chosen)])


def _requests(run: FinishedRun, unit_ids: Sequence[str]) -> Iterator[tuple[BenchInput, Request]]:
    """Inputs and their encoded first turns, again."""
    inputs = {f"{item.input_id}:0": item for item in run.inputs}
    for unit_id in unit_ids:
        item = inputs[unit_id]
        yield item, encode_turn(run.target, run.plan.bench, item, [])


class _Stream:
    """One arm's memory over the run's inputs, reset where the run resets it."""

    def __init__(self, run: FinishedRun, arm: Arm, limit: int | None = None) -> None:
        self._target = run.target
        self._limit = limit or run.plan.protocol.max_new_tokens
        self._reset = arm.reset
        self._task = ""
        self._drafter = arm.make(run.target.vocab_size)

    def generate(self, item: BenchInput, request: Request, clock: WallClock) -> Generation:
        """The next unit."""
        if self._reset == "request" or (self._reset == "task" and item.task != self._task):
            self._drafter.reset_stream()
        self._task = item.task
        return self._timed(request, self._limit, clock)

    def warm_up(self, request: Request, clock: WallClock) -> None:
        """A short generation that leaves nothing behind."""
        self._timed(request, min(WARMUP_TOKENS, self._limit), clock)
        self._drafter.reset_stream()

    def _timed(self, request: Request, limit: int, clock: WallClock) -> Generation:
        session = self._target.open(request, self._drafter.needs, limit)
        try:
            with (
                inner_phases(clock, self._drafter, session)
                if isinstance(clock, PhaseClock)
                else nullcontext()
            ):
                return decode(session, self._drafter, Limits(limit), clock)
        finally:
            session.close()
