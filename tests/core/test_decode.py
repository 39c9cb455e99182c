"""The loop is lossless: whatever a drafter proposes, the output is the autoregressive one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.config import RecapConfig
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs
from recap.core.tree import TokenTree
from recap.drafter import RecapDrafter
from tests.fakes import ScriptedTarget

if TYPE_CHECKING:
    from recap.core.interfaces import Generation, IntArray, RequestContext, VerifiedStep


class Ticks:
    """A clock that counts, and remembers what was asked of it."""

    def __init__(self) -> None:
        self.time = 0
        self.laps: list[str] = []
        self.boundaries = {"generation": 0, "forward": 0}

    def now(self) -> int:
        self.time += 1
        return self.time

    def lap(self, phase: str) -> None:
        self.laps.append(phase)

    def generation_boundary(self) -> None:
        self.boundaries["generation"] += 1

    def forward_boundary(self) -> None:
        self.boundaries["forward"] += 1


class ScriptedDrafter:
    """Proposes what it is told to, and keeps what it observes."""

    def __init__(self, propose: object = None) -> None:
        self.needs = Needs(topk=2)
        self.steps: list[VerifiedStep] = []
        self._propose = propose

    def reset_stream(self) -> None: ...

    def begin_request(self, ctx: RequestContext) -> None:
        self.context = ctx

    def propose(self, history: IntArray) -> TokenTree:
        assert not history.flags.writeable
        return (
            self._propose(history) if callable(self._propose) else TokenTree.root_only(history[-1])
        )

    def observe(self, step: VerifiedStep) -> None:
        self.steps.append(step)

    def stream_state(self) -> dict[str, np.ndarray]:
        return {}

    def load_stream_state(self, state: object) -> None: ...


def oracle(target: ScriptedTarget, length: int) -> object:
    """Proposes the next ``length`` tokens of the truth as a chain, beyond any limit."""

    def propose(history: IntArray) -> TokenTree:
        text = history.tolist()
        for _ in range(length):
            text.append(target.next_token(text))
        return TokenTree.chain(history[-1], text[len(history) :])

    return propose


def run(
    target: ScriptedTarget, drafter: object, prompt: list[int], limit: int
) -> tuple[Generation, Ticks]:
    clock = Ticks()
    session = target.open(prompt, drafter.needs)
    return decode(session, drafter, Limits(limit), clock), clock


TARGETS = st.builds(
    ScriptedTarget,
    seed=st.integers(0, 1000),
    vocab_size=st.integers(2, 9),
    order=st.integers(1, 4),
    stop_ids=st.sampled_from([frozenset(), frozenset({0}), frozenset({1, 3})]),
    blocked=st.sampled_from([None, 1]),
)
CONFIGS = st.builds(
    RecapConfig,
    top_k=st.integers(1, 8),
    max_candidates=st.sampled_from([1, 7, 63]),
    suffix_tokens=st.integers(0, 5),
    root_fallback=st.sampled_from([None, "semantic", "recency"]),
)


@settings(max_examples=150)
@given(TARGETS, CONFIGS, st.data())
def test_recap_says_what_the_target_says(
    target: ScriptedTarget, config: RecapConfig, data: st.DataObject
) -> None:
    drafter = RecapDrafter(config, target.vocab_size)
    tokens = st.integers(0, target.vocab_size - 1)
    for _ in range(2):  # the second request meets a filled memory
        prompt = data.draw(st.lists(tokens, min_size=1, max_size=30))
        limit = data.draw(st.integers(1, 40))
        generation, _ = run(target, drafter, prompt, limit)
        assert generation.output_ids == target.greedy(prompt, limit)
        stopped = generation.output_ids[-1] in target.stop_ids
        assert generation.finish_reason == ("stop" if stopped else "length")


@given(TARGETS, st.integers(0, 6), st.integers(1, 20))
def test_an_oracle_is_followed_to_the_limit(
    target: ScriptedTarget, length: int, limit: int
) -> None:
    drafter = ScriptedDrafter(oracle(target, length))
    generation, clock = run(target, drafter, [2 % target.vocab_size], limit)
    assert generation.output_ids == target.greedy([2 % target.vocab_size], limit)
    assert len(generation.num_accepted) == len(generation.step_ns) == len(drafter.steps)
    assert clock.boundaries == {"generation": 2, "forward": 2 + 2 * len(drafter.steps)}


def test_steps_as_observed() -> None:
    target = ScriptedTarget(seed=3)
    drafter = ScriptedDrafter(oracle(target, 3))
    generation, clock = run(target, drafter, [1, 2], 12)
    outputs = generation.output_ids
    position = 2
    for step in drafter.steps:
        position += len(step.committed)
        assert step.history.tolist() == ([1, 2, *outputs])[: position - len(step.committed) + 1]
        assert step.tree.tokens[0] == step.history[-1]
    assert generation.num_candidates == [3, 3, 3]
    # 11 tokens in steps of 4: the last step is verified in full but committed up to the limit.
    assert generation.num_accepted == [3, 3, 3]
    assert [len(step.committed) for step in drafter.steps] == [4, 4, 3]
    assert clock.laps[:3] == ["prefill", "begin_request", "propose"]
    assert clock.laps[-5:] == ["propose", "verify", "accept", "commit", "observe"]


def test_a_stop_token_inside_a_draft_ends_the_output_there() -> None:
    target = ScriptedTarget(seed=5)
    text = target.greedy([1, 2], 9)
    stop = text[4]
    first = text.index(stop)
    stopping = ScriptedTarget(seed=5, stop_ids=frozenset({stop}))
    drafter = ScriptedDrafter(oracle(target, 8))
    generation, _ = run(stopping, drafter, [1, 2], 30)
    assert generation.output_ids == text[: first + 1]
    assert generation.finish_reason == "stop"
    if first > 0:
        assert generation.num_accepted == [8]  # as verified
        assert drafter.steps[0].committed.tolist() == text[1 : first + 1]


@pytest.mark.parametrize("limit", [1, 2])
def test_with_one_token_remaining_nothing_is_drafted(limit: int) -> None:
    target = ScriptedTarget(seed=1)
    drafter = ScriptedDrafter(oracle(target, 5))
    generation, _ = run(target, drafter, [1, 2], limit)
    assert generation.output_ids == target.greedy([1, 2], limit)
    assert generation.num_candidates == [0] * (limit - 1)  # and the root-only step is observed
    assert len(drafter.steps) == limit - 1


def test_a_stop_token_from_prefill_ends_at_once() -> None:
    target = ScriptedTarget(seed=1)
    first = target.next_token([1, 2])
    stopping = ScriptedTarget(seed=1, stop_ids=frozenset({first}))
    generation, _ = run(stopping, ScriptedDrafter(), [1, 2], 10)
    assert generation.output_ids == [first]
    assert generation.finish_reason == "stop"
    assert generation.num_accepted == []


class TracingDrafter(ScriptedDrafter):
    """Tells how often it was asked."""

    calls = 0

    def pop_trace(self) -> dict[str, int]:
        self.calls += 1
        return {"call": self.calls}


@pytest.mark.parametrize(("limit", "events"), [(4, [1, 2, 3]), (1, [1])])
def test_a_trace_has_an_entry_per_step_and_at_least_one(limit: int, events: list[int]) -> None:
    generation, _ = run(ScriptedTarget(seed=3), TracingDrafter(), [1, 2], limit)
    assert [entry["call"] for entry in generation.trace] == events
