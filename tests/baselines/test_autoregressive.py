"""The capturing arm: AR's tokens, and what the target predicted along the way."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from baselines.autoregressive import AutoregressiveDrafter
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs
from tests.baselines import drive
from tests.fakes import ScriptedTarget

ROWS = ("topk_ids", "topk_probs", "topk_mass")
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
        generation = decode(TARGET.open(prompt, drafter.needs), drafter, Limits(25))
        output = generation.output_ids
        trace = json.loads(json.dumps(_joined(generation.trace)))
        assert trace["prompt_ids"] == prompt
        assert trace["blocked_ids"] == [drive.PLACEHOLDER]
        assert trace["vocab_size"] == drive.VOCABULARY
        tokens = [t for t in dict.fromkeys(prompt) if t != drive.PLACEHOLDER]
        assert trace["prompt_row_tokens"] == tokens
        firsts = [prompt[: prompt.index(token) + 1] for token in tokens]
        _check([trace[f"prompt_{name}"] for name in ROWS], firsts)
        texts = [[*prompt, *output[: i + 1]] for i in range(len(output) - 1)]
        _check([trace[name] for name in ROWS], texts)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One trace from those of single steps: the prompt comes with the first."""
    rows = {key: [row for part in parts for row in part[key]] for key in ROWS}
    return {**parts[0], **rows}


def _check(found: list[Any], texts: list[list[int]]) -> None:
    """Rows as the target gives them, to the last bit of their float32 values."""
    ids, probs, mass = found
    rows = TARGET.rows(texts, 4, mass=True)
    assert np.array_equal(np.array(ids).reshape(-1, 4), rows.topk_ids)
    assert np.array_equal(np.array(probs, np.float32).reshape(-1, 4), rows.topk_probs)
    assert np.array_equal(np.array(mass, np.float32), rows.topk_mass)


def test_float32_values_survive_as_short_decimals() -> None:
    drafter = AutoregressiveDrafter(drive.VOCABULARY, capture=4)
    generation = decode(TARGET.open([3, 4], drafter.needs), drafter, Limits(25))
    trace = _joined(generation.trace)
    assert all(len(str(p)) <= 14 for row in trace["topk_probs"] for p in row)


def test_the_prompt_comes_once_with_the_first_step() -> None:
    drafter = AutoregressiveDrafter(drive.VOCABULARY, capture=4)
    generation = decode(TARGET.open([1, 2, 3], drafter.needs), drafter, Limits(25))
    first, *others = generation.trace
    assert "prompt_ids" in first
    assert all(set(part) == set(ROWS) for part in others)
    assert [len(part["topk_ids"]) for part in generation.trace] == [1] * len(generation.step_ns)


def test_a_generation_without_a_step_still_tells_its_prompt() -> None:
    drafter = AutoregressiveDrafter(drive.VOCABULARY, capture=4)
    for prompt in ([3, 4], [5]):
        (trace,) = decode(TARGET.open(prompt, drafter.needs), drafter, Limits(1)).trace
        assert trace["prompt_ids"] == prompt
        assert trace["topk_ids"] == []  # one output token: nothing was decoded


@pytest.mark.parametrize("capture", [-1, 1.5, True, "8"])
def test_a_capture_that_is_no_count_is_refused(capture: object) -> None:
    with pytest.raises(ValueError, match="capture must be a whole number"):
        AutoregressiveDrafter(drive.VOCABULARY, capture)
