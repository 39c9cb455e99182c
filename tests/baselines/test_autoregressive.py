"""The capturing arm: AR's tokens, and what the target predicted along the way."""

from __future__ import annotations

import json

import numpy as np
import pytest

from baselines.autoregressive import AutoregressiveDrafter
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs
from tests.baselines import drive
from tests.fakes import ScriptedTarget

TARGET = ScriptedTarget(3, drive.VOCABULARY, 2, frozenset({0}), drive.PLACEHOLDER)


def test_plain_ar_asks_nothing_of_the_engine_and_traces_nothing() -> None:
    drafter = AutoregressiveDrafter(drive.VOCABULARY)
    assert drafter.needs == Needs()
    drive.generate(drafter, TARGET, drive.PROMPTS[1])
    assert drafter.pop_trace() is None


@pytest.mark.parametrize("capture", [0, 4])
def test_capturing_changes_no_token(capture: int) -> None:
    assert (
        drive.check_lossless(lambda: AutoregressiveDrafter(drive.VOCABULARY, capture)) == 0
    )  # nothing is ever drafted


def test_a_trace_is_what_the_target_said_after_each_prompt_and_output_token() -> None:
    drafter = AutoregressiveDrafter(drive.VOCABULARY, capture=4)
    for prompt in drive.PROMPTS:
        output = decode(TARGET.open(prompt, drafter.needs), drafter, Limits(25)).output_ids
        trace = drafter.pop_trace()
        assert trace is not None
        trace = json.loads(json.dumps(trace))
        assert trace["prompt_ids"] == prompt
        assert trace["blocked_ids"] == [drive.PLACEHOLDER]
        assert trace["vocab_size"] == drive.VOCABULARY
        tokens = [t for t in dict.fromkeys(prompt) if t != drive.PLACEHOLDER]
        assert trace["prompt_row_tokens"] == tokens
        firsts = [prompt[: prompt.index(token) + 1] for token in tokens]
        _check(trace["prompt_topk_ids"], trace["prompt_topk_probs"], firsts)
        texts = [[*prompt, *output[: i + 1]] for i in range(len(output) - 1)]
        _check(trace["topk_ids"], trace["topk_probs"], texts)


def _check(ids: list[list[int]], probs: list[list[float]], texts: list[list[int]]) -> None:
    """Rows as the target gives them, to the last bit of their float32 values."""
    rows = TARGET.rows(texts, 4)
    assert np.array_equal(np.array(ids).reshape(-1, 4), rows.topk_ids)
    assert np.array_equal(np.array(probs, np.float32).reshape(-1, 4), rows.topk_probs)


def test_float32_values_survive_as_short_decimals() -> None:
    drafter = AutoregressiveDrafter(drive.VOCABULARY, capture=4)
    decode(TARGET.open([3, 4], drafter.needs), drafter, Limits(25))
    trace = drafter.pop_trace()
    assert trace is not None
    assert all(len(str(p)) <= 14 for row in trace["topk_probs"] for p in row)


def test_traces_may_be_taken_step_by_step() -> None:
    """The prompt comes once, with the first; together they are the whole."""
    whole, parts = [AutoregressiveDrafter(drive.VOCABULARY, capture=4) for _ in range(2)]
    taken = []

    class Stepwise:
        needs = parts.needs
        begin_request = staticmethod(parts.begin_request)
        propose = staticmethod(parts.propose)

        def observe(self, step: object) -> None:
            parts.observe(step)
            taken.append(parts.pop_trace())

    for drafter in (whole, Stepwise()):
        decode(TARGET.open([1, 2, 3], whole.needs), drafter, Limits(25))
    expected = whole.pop_trace()
    assert expected is not None
    assert taken[0] is not None and "prompt_ids" in taken[0]
    assert all(part is not None and set(part) == {"topk_ids", "topk_probs"} for part in taken[1:])
    assert [row for part in taken if part for row in part["topk_ids"]] == expected["topk_ids"]


def test_a_new_request_drops_what_nobody_took() -> None:
    drafter = AutoregressiveDrafter(drive.VOCABULARY, capture=4)
    for prompt in ([3, 4], [5]):
        decode(TARGET.open(prompt, drafter.needs), drafter, Limits(1))
    trace = drafter.pop_trace()
    assert trace is not None
    assert trace["prompt_ids"] == [5]
    assert trace["topk_ids"] == []  # one output token: nothing was decoded


@pytest.mark.parametrize("capture", [-1, 1.5, True, "8"])
def test_a_capture_that_is_no_count_is_refused(capture: object) -> None:
    with pytest.raises(ValueError, match="capture must be a whole number"):
        AutoregressiveDrafter(drive.VOCABULARY, capture)
