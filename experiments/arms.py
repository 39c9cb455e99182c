"""The arms of a run at work: one drafter each, with memory of its own, over one shared target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import memory_use
from experiments.snapshot import StreamStates
from experiments.telemetry import Telemetry
from experiments.timing import PhaseClock, WallClock, inner_phases, make_clock
from recap.core.decode import decode
from recap.core.interfaces import Drafter, Generation, Limits, Needs, Session
from recap.core.tree import TokenTree
from recap.targets.packing import BUCKETS

if TYPE_CHECKING:
    from experiments.plan import Arm, RunPlan
    from recap.targets.hf import HFTarget
    from recap.targets.request import Request


@dataclass(frozen=True)
class Outcome:
    """A generation with what the machine was doing meanwhile."""

    generation: Generation
    telemetry: dict[str, Any]


class ArmSet:
    """Drafters by arm name, their scopes, and how one arm generates."""

    def __init__(self, plan: RunPlan, target: HFTarget) -> None:
        self._arms: dict[str, Arm] = {arm.name: arm for arm in plan.arms}
        self._drafters: dict[str, Drafter] = {
            arm.name: arm.make(target.vocab_size) for arm in plan.arms
        }
        self._target = target
        self._protocol = plan.protocol
        self._telemetry = Telemetry(str(target.device))
        self._synchronize = device_synchronizer(target.device.type)
        self._persistent = {name for name, d in self._drafters.items() if d.stream_state()}
        self._tasks: dict[str, str] = {}

    @property
    def names(self) -> list[str]:
        """Arm names, the AR reference first."""
        return list(self._arms)

    def method(self, name: str) -> str:
        """The method behind an arm."""
        return self._arms[name].method

    def state_lifetime(self, name: str) -> str:
        """How long the arm's memory lives: "request", "task" or "persistent"."""
        if name not in self._persistent:
            return "request"
        reset = self._arms[name].reset
        return "persistent" if reset == "stream" else reset

    def has_stream_state(self, name: str) -> bool:
        """Whether something of the arm outlives a request."""
        return self.state_lifetime(name) != "request"

    def generate(self, name: str, request: Request, max_new_tokens: int) -> Outcome:
        """One timed generation. Raises ContextExceeded when the request does not fit the model."""
        drafter = self._drafters[name]
        session = self._target.open(request, drafter.needs, max_new_tokens)
        clock = make_clock(self._protocol.timing, self._synchronize)
        try:
            with _profile(clock, drafter, session, self._target) as profile:
                self._telemetry.start()
                generation = decode(session, drafter, Limits(max_new_tokens), clock)
                telemetry = self._telemetry.read()
        finally:
            session.close()
        generation.phase_ns = clock.phase_ns
        telemetry |= profile
        return Outcome(generation, telemetry)

    def warm_widths(self, name: str, request: Request) -> None:
        """Run one packed forward of every bucket's width with what the arm asks of the engine."""
        session = self._target.open(request, self._drafters[name].needs, 1)
        try:
            token = session.prefill().first_token
            for width in BUCKETS:
                session.verify(TokenTree.chain(token, [token] * (width - 1)))
        finally:
            session.close()

    def begin_unit(self, name: str, task: str) -> None:
        """Reset the arm's memory where its scope ends, untimed."""
        reset = self._arms[name].reset
        new_task = self._tasks.get(name) != task
        self._tasks[name] = task
        if reset == "request" or (reset == "task" and new_task):
            self._drafters[name].reset_stream()

    def reset(self) -> None:
        """Forget everything in every arm."""
        self._tasks.clear()
        for drafter in self._drafters.values():
            drafter.reset_stream()

    def states(self) -> StreamStates:
        """What outlives a request, of the arms whose scope lets it."""
        return {
            name: drafter.stream_state()
            for name, drafter in self._drafters.items()
            if self.has_stream_state(name)
        }

    def restore(self, states: Mapping[str, Mapping[str, Any]], task: str) -> None:
        """Put back what `states` returned after a unit of that task."""
        self._tasks = dict.fromkeys(self._arms, task)
        for name, state in states.items():
            self._drafters[name].load_stream_state(state)


@contextmanager
def _profile(
    clock: WallClock, drafter: Drafter, session: Session, target: HFTarget
) -> Iterator[dict[str, Any]]:
    """What a profiled generation adds to its record's telemetry; nothing for any other."""
    found: dict[str, Any] = {}
    if not isinstance(clock, PhaseClock):
        yield found
        return
    memory_use.reset_device_peak(target.device)
    with inner_phases(clock, drafter, session):
        yield found
    columns = ("laps", "wall_ns", "cpu_ns")
    found["phases"] = {
        name: dict(zip(columns, total, strict=True)) for name, total in clock.steps.items()
    }
    found["host_bytes"] = memory_use.host_bytes(drafter)
    found["peak_device_bytes"] = memory_use.device_peak(target.device)


def device_synchronizer(device_type: str) -> Callable[[], None]:
    """A function that waits for the device; nothing to wait for on a CPU."""
    if device_type != "cuda":
        return _nothing
    import torch

    return torch.cuda.synchronize


def _nothing() -> None:
    return None


def divergence(
    target: HFTarget, request: Request, reference: list[int], output: list[int]
) -> dict[str, Any] | None:
    """Where ``output`` first differs from AR's tokens, and how close AR was there; None if equal.

    The margin is the difference of AR's two largest logits, from decoding AR's own tokens again,
    untimed. It is None at index 0, which both arms take from the same prefill.
    """
    if output == reference:
        return None
    index = next(
        (i for i, (a, b) in enumerate(zip(reference, output, strict=False)) if a != b),
        min(len(reference), len(output)),
    )
    return {"index": index, "ar_margin": _top2_margin(target, request, reference, index)}


def _top2_margin(
    target: HFTarget, request: Request, reference: list[int], index: int
) -> float | None:
    if index == 0:
        return None
    session = target.open(request, Needs(topk=2), len(reference))
    try:
        session.prefill()
        for token in reference[:index]:
            probs = session.verify(TokenTree.root_only(token)).predictions.topk_probs[0]
            session.commit(np.zeros(1, np.int32))
    finally:
        session.close()
    # A softmax over two logits keeps their difference as the log of its ratio.
    return float(np.log(probs[0]) - np.log(probs[1])) if probs[1] > 0 else None
