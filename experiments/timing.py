"""The clock of every arm, and what is held still while it runs.

Timed: vision tower, prefill, decoding and drafting. Not timed: loading, chat template, processor,
copies of the prompt's inputs to the device, text decoding, writing.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator

SyncPolicy = Literal["generation", "target_forward"]
SYNC_POLICIES: tuple[str, ...] = get_args(SyncPolicy)


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
