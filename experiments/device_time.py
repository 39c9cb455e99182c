"""Device time per phase, from torch profiles of a few generations on CUDA.

The clock waits for the device at the end of every phase and then leaves a mark, so that whatever
the device began between two marks was launched by the phase between them: nothing runs over.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from experiments.timing import LAST_OF_PREFILL, PhaseClock
from recap.core.interfaces import Generation

PREFIX = "end of phase "


class MarkingClock(PhaseClock):
    """Leaves a mark with the phase's name in a running torch profile."""

    def lap(self, phase: str) -> None:
        """Wait for the device, charge the time, mark the end."""
        super().lap(phase)
        with record_function(PREFIX + phase):
            pass


def device_time(generations: Sequence[Callable[[MarkingClock], Generation]]) -> dict[str, Any]:
    """Nanoseconds of kernels and memory operations by phase of the decoding steps, prefill left
    out.

    generations: each runs once under a profile with the clock that it is given.
    """
    busy: Counter[str] = Counter()
    steps = 0
    for generate in generations:
        generation, events = _traced(generate)
        operations, marks = _operations(events), _marks(events)
        busy.update(by_phase(operations, marks))
        steps += len(generation.step_ns)
    return {"traces": len(generations), "steps": steps, "phase_ns": dict(busy)}


def _traced(generate: Callable[[MarkingClock], Generation]) -> tuple[Generation, Sequence[Any]]:
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    clock = MarkingClock(torch.cuda.synchronize)
    with profile(activities=activities) as profiler:
        generation = generate(clock)
        torch.cuda.synchronize()
    return generation, profiler.events() or ()


def _operations(events: Sequence[Any]) -> list[tuple[float, float]]:
    """Start and duration in microseconds of everything the device did."""
    return [
        (event.time_range.start, event.time_range.elapsed_us())
        for event in events
        if event.device_type.name == "CUDA" and not event.name.startswith(PREFIX)
    ]


def _marks(events: Sequence[Any]) -> list[tuple[float, str]]:
    """Time in microseconds and phase of every mark, in order."""
    return sorted(
        (event.time_range.start, event.name.removeprefix(PREFIX))
        for event in events
        if event.device_type.name == "CPU" and event.name.startswith(PREFIX)
    )


def by_phase(
    operations: Sequence[tuple[float, float]], marks: Sequence[tuple[float, str]]
) -> dict[str, int]:
    """Nanoseconds of ``operations`` (start, duration) by the phase whose mark comes next.

    Only marks behind the last one of prefill count. A phase that launched nothing has 0.
    """
    times = [time for time, _ in marks]
    first = next(i for i, (_, name) in enumerate(marks) if name == LAST_OF_PREFILL) + 1
    busy = dict.fromkeys((name for _, name in marks[first:]), 0.0)
    for start, duration in operations:
        mark = bisect_left(times, start)
        if first <= mark < len(marks):
            busy[marks[mark][1]] += duration
    return {name: round(1000 * microseconds) for name, microseconds in busy.items()}
