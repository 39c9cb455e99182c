"""The clock of every arm, and what is held still while it runs.

Timed: vision tower, prefill, decoding and drafting. Not timed: loading, chat template, processor,
copies of the prompt's inputs to the device, text decoding, writing.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from recap.core.interfaces import NULL_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recap.core.interfaces import Drafter, Session

SyncPolicy = Literal["generation", "target_forward", "phases"]
SYNC_POLICIES: tuple[str, ...] = get_args(SyncPolicy)

LAST_OF_PREFILL = "begin_request"  # the loop's phase behind which steps begin


class WallClock:
    """Monotonic nanoseconds, exclusive named phases, and the run's synchronisation policy.

    "generation" synchronises the device at generation boundaries only; "target_forward" also around
    every target forward (the paper's setting for its main runs), which takes away the overlap of
    host and device work. ``synchronize`` is a no-op on a CPU.
    """

    def __init__(self, policy: SyncPolicy, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._sync_forwards = policy == "target_forward"
        self._last = 0
        self.phase_ns: dict[str, int] = {}

    def now(self) -> int:
        """Integer nanoseconds of a monotonic clock."""
        return time.perf_counter_ns()

    def lap(self, phase: str) -> None:
        """Charge the time since the previous lap to ``phase``."""
        now = time.perf_counter_ns()
        self.phase_ns[phase] = self.phase_ns.get(phase, 0) + now - self._last
        self._last = now

    def generation_boundary(self) -> None:
        """Synchronise; the next lap counts from here."""
        self._synchronize()
        self._last = time.perf_counter_ns()

    def forward_boundary(self) -> None:
        """Synchronise under "target_forward"."""
        if self._sync_forwards:
            self._synchronize()


class PhaseClock(WallClock):
    """Synchronises at the end of every phase; for profiling, since no two phases overlap any more.

    ``steps`` holds, per phase of the decoding steps, its laps with their wall and process CPU time
    in nanoseconds; prefill is left out. A lap costs time itself, which falls into the phase that it
    ends: see `lap_cost`. ``now`` begins a phase, so that what the loop does between two steps
    belongs to none.
    """

    def __init__(self, synchronize: Callable[[], None]) -> None:
        super().__init__("phases", synchronize)
        self._last_cpu = 0
        self.steps: dict[str, list[int]] = {}

    def now(self) -> int:
        """Integer nanoseconds of a monotonic clock."""
        self._last = time.perf_counter_ns()
        self._last_cpu = time.process_time_ns()
        return self._last

    def lap(self, phase: str) -> None:
        """Wait for the device, then charge the time since the previous lap to ``phase``."""
        self._synchronize()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        elapsed = wall - self._last
        self.phase_ns[phase] = self.phase_ns.get(phase, 0) + elapsed
        laps = self.steps.setdefault(phase, [0, 0, 0])
        laps[0] += 1
        laps[1] += elapsed
        laps[2] += cpu - self._last_cpu
        if phase == LAST_OF_PREFILL:
            self.steps.clear()
        self._last, self._last_cpu = wall, cpu

    def generation_boundary(self) -> None:
        """Synchronise; the next lap counts from here."""
        self._synchronize()
        self.now()


def make_clock(policy: SyncPolicy, synchronize: Callable[[], None]) -> WallClock:
    """The clock of one generation."""
    return PhaseClock(synchronize) if policy == "phases" else WallClock(policy, synchronize)


def lap_cost(synchronize: Callable[[], None], batches: int = 21) -> tuple[float, float]:
    """Nanoseconds of wall and of CPU time that one lap of a `PhaseClock` adds to its phase.

    Medians over batches of 100 laps with nothing between them. Everything is in the processor's
    caches here, so in a generation it is somewhat more.
    """
    totals = []
    for _ in range(batches):
        clock = PhaseClock(synchronize)
        clock.now()
        for _ in range(100):
            clock.lap("nothing")
        totals.append(clock.steps["nothing"])
    wall, cpu = (statistics.median(total[i] / total[0] for total in totals) for i in (1, 2))
    return wall, cpu


@contextmanager
def inner_phases(clock: PhaseClock, drafter: Drafter, session: Session) -> Iterator[None]:
    """Let a drafter name its own phases on ``clock``, and tell packing from verification."""
    named: Any = drafter if hasattr(drafter, "clock") else None
    packing: Any = session if hasattr(session, "_packer") else None
    if packing is not None:
        packing._packer = _TimedPacker(packing._packer, clock)
    if named is not None:
        named.clock = clock
    try:
        yield
    finally:
        if named is not None:
            named.clock = NULL_CLOCK


class _TimedPacker:
    """A session's packer that ends the phase "packing": only sessions that are profiled have it."""

    def __init__(self, packer: Any, clock: PhaseClock) -> None:
        self._packer = packer
        self._clock = clock

    def pack(self, *arguments: Any) -> Any:
        """What the packer returns, on the device by now."""
        packed = self._packer.pack(*arguments)
        self._clock.lap("packing")
        return packed


@contextmanager
def still_garbage_collector() -> Iterator[None]:
    """Freeze what is alive and collect only where the caller asks to (between units)."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
