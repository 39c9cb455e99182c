"""What every method promises, over ``conf/method``: a new YAML is covered without a new test."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments import compose, runner
from recap.core.interfaces import Drafter, Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from tests.baselines import drive

METHODS = [name for name in compose.config_names("method") if name != "ar"]


@functools.cache
def maker(method: str) -> Callable[[int], Drafter]:
    plan = compose.plan_from_cfg(compose.compose_cfg(f"method={method}"))
    return plan.arm(method).make


def make(method: str) -> Callable[[], Drafter]:
    return lambda: maker(method)(drive.VOCABULARY)


@pytest.mark.parametrize("method", METHODS)
def test_lossless_on_scripted_targets_and_not_by_drafting_nothing(method: str) -> None:
    """Stop ids inside drafts, one token left, empty and overlong drafts, image ids, edge ids."""
    assert drive.check_lossless(make(method)) > 0


@pytest.mark.parametrize("method", METHODS)
def test_streams_replay_after_reset_and_from_a_saved_state(method: str) -> None:
    drive.check_replay(make(method))


@pytest.mark.parametrize("method", METHODS)
def test_request_local_methods_forget(method: str) -> None:
    if make(method)().stream_state():
        pytest.skip("keeps memory over the stream, and says so by its stream_state")
    drive.check_request_local(make(method))


@pytest.mark.parametrize("method", METHODS)
def test_states_survive_the_snapshot_file(method: str, tmp_path: Path) -> None:
    from experiments.snapshot import load_snapshot, save_snapshot
    from tests.fakes import ScriptedTarget

    drafter, resumed = make(method)(), make(method)()
    target = ScriptedTarget(2, drive.VOCABULARY, 2, frozenset(), drive.PLACEHOLDER)
    drive.generate(drafter, target, drive.PROMPTS[1])
    save_snapshot(tmp_path / "stream.npz", 1, {"arm": drafter.stream_state()})
    loaded = load_snapshot(tmp_path / "stream.npz")
    assert loaded is not None
    resumed.load_stream_state(loaded[1].get("arm", {}))
    prompt = drive.PROMPTS[4]
    assert drive.generate(resumed, target, prompt)[1] == drive.generate(drafter, target, prompt)[1]


@pytest.mark.parametrize("method", METHODS)
def test_the_vocabularys_last_id_can_be_drafted_and_observed(method: str) -> None:
    vocab = 152_064
    drafter = maker(method)(vocab)
    prompt = np.array([vocab - 1, 0, vocab - 1, 0, vocab - 1], np.int32)
    k = drafter.needs.topk
    ids = np.arange(vocab - k, vocab, dtype=np.int32)

    def rows(count: int) -> Predictions:
        probs = np.full((count, k), 1 / k if k else 0.0, np.float32)
        last = np.full(count, vocab - 1, np.int32)
        return Predictions(last, np.tile(ids, (count, 1)), probs)

    distinct = np.array([vocab - 1, 0], np.int32)
    context = RequestContext(prompt, frozenset({7}), rows(2), distinct)
    drafter.begin_request(context)
    history = np.append(prompt, np.int32(0))
    for _ in range(3):
        tree: TokenTree = drafter.propose(history)
        hidden = np.zeros((len(tree), 4), np.float32) if drafter.needs.hidden_states else None
        committed = np.array([vocab - 1], np.int32)
        nothing = np.empty(0, np.int32)
        drafter.observe(
            VerifiedStep(tree, rows(len(tree)), history, nothing, committed, 0.0, hidden)
        )
        history = np.append(history, committed)


@pytest.mark.parametrize("model", ["tiny_qwen25vl", "tiny_llava"])
def test_every_method_is_token_identical_to_ar_on_the_shipped_models(
    model: str, tmp_path: Path
) -> None:
    plan = compose.plan_from_cfg(
        compose.compose_cfg(
            f"model={model}",
            "bench=tiny_mmspec",
            "bench.per_topic=1",
            "max_new_tokens=24",
            "warmup=false",
            "null=false",
            f"arms=[{','.join(METHODS)}]",
            f"results_root={tmp_path}",
        )
    )
    summary = runner.run_plan(plan)
    assert summary["errors"] == summary["skipped"] == 0
    for name, arm in summary["arms"].items():
        assert arm["exact_match"]["equal"] == arm["exact_match"]["of"] == summary["units"], name
