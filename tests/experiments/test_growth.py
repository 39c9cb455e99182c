"""Growth of U: against what single writes leave, on trajectories and folders without a model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments import growth, replay
from experiments.capture import Trajectory
from experiments.errors import UserError
from experiments.growth import Writes
from recap.core.interfaces import Predictions
from recap.core.memory import PredictionMemory
from recap.core.tree import TokenTree
from tests.experiments.trajectories import (
    TOP_K,
    VOCABULARY,
    captured_folder,
    make_trajectory,
    predictions,
    random_trajectory,
)

NO_TOKENS = np.empty(0, np.int32)


def memory() -> PredictionMemory:
    return PredictionMemory(VOCABULARY, TOP_K, orders=1)


@pytest.mark.parametrize("with_prompt", [True, False])
def test_one_write_per_request_leaves_what_single_steps_leave(with_prompt: bool) -> None:
    rng = np.random.default_rng(5)
    at_once, step_by_step = memory(), memory()
    for _ in range(40):
        trajectory = random_trajectory(rng, int(rng.integers(1, 12)))
        writes = Writes(trajectory, with_prompt)
        at_once.seed(writes.tokens, writes.rows, NO_TOKENS)
        _serve(step_by_step, trajectory, with_prompt)
        left, expected = at_once.stream_state(), step_by_step.stream_state()
        assert all(np.array_equal(left[name], expected[name]) for name in expected)


def _serve(memory: PredictionMemory, trajectory: Trajectory, with_prompt: bool) -> None:
    if with_prompt:
        memory.seed(trajectory.prompt_row_tokens, trajectory.prompt_rows, trajectory.blocked)
    rows = trajectory.rows
    for i in range(len(rows)):
        row = Predictions(rows.next_token[[i]], rows.topk_ids[[i]], rows.topk_probs[[i]])
        memory.refresh(TokenTree.root_only(int(trajectory.output_ids[i])), -1, -1, row)


def test_keys_along_a_stream_counted_by_hand() -> None:
    """Prompt 1 2; outputs 3 4 5 and 3 6, whose last tokens have no row."""
    probs = [0.6, 0.3, 0.1]
    prompt_rows = predictions([[7, 8, 0]] * 2, probs)
    pool = [
        make_trajectory([1, 2], prompt_rows, outputs, predictions([[7, 8, 0]] * rows, probs))
        for outputs, rows in (([3, 4, 5], 2), ([3, 6], 1))
    ]
    for with_prompt, both in ((True, 4), (False, 2)):
        requests = [Writes(trajectory, with_prompt) for trajectory in pool]
        curves = growth.curves(memory(), requests, [1, 2, 5])
        assert len(curves) == len(growth.SEEDS)
        for first, second, last in curves:
            assert first in (both, both - 1)  # 3 and 4, or 3 alone
            assert second == last == both


def test_every_pass_serves_the_whole_pool_in_an_order_of_its_own() -> None:
    pool: Any = list(range(20))
    served = list(growth.stream(pool, seed=17, length=50))
    assert len(served) == 50
    assert sorted(served[:20]) == sorted(served[20:40]) == pool
    assert len({tuple(served[:20]), tuple(served[20:40]), tuple(pool)}) == 3
    assert served == list(growth.stream(pool, seed=17, length=50))
    assert served != list(growth.stream(pool, seed=29, length=50))


# Folders


def run_folder(root: Path, name: str, digest: str = "abc", **manifest: Any) -> Path:
    folder = captured_folder(root / "tiny_m" / name / "replay" / digest)
    facts = {"bench": {"num_inputs": 3}, "sessions": [{"started": "2026-01-01"}], **manifest}
    (folder / "manifest.json").write_text(json.dumps(facts))
    replay.write_replay(folder)
    return folder


def test_growth_is_written_once_all_captures_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth, "REQUESTS", 300)
    folders = []
    for bench in growth.BENCHES:
        folders.append(run_folder(tmp_path, f"tiny_{bench}"))
        run: Any = SimpleNamespace(folder=folders[-1])
        growth.after_run(run)
        assert (folders[0] / "growth.json").exists() == (len(folders) == 4)
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [
        f"Growth of U: {n} of the 4 captures it needs are there." for n in (1, 2, 3)
    ]
    document = json.loads((folders[0] / "growth.json").read_text())
    assert document["runs"] == [f"tiny_m/tiny_{bench}/replay/abc" for bench in growth.BENCHES]
    assert document["trajectories"] == 12
    assert document["requests"] == [1, 2, 5, 10, 12, 20, 50, 100, 200, 300]
    assert document["bytes_per_row"] == 8 * (4 + 4) + 8 + 1
    assert document["allocated_bytes"] == VOCABULARY * document["bytes_per_row"]
    for curves in document["keys"].values():
        assert len(curves) == 3 and all(len(curve) == 10 for curve in curves)
        at_twelve = [curve[4] for curve in curves]
        assert len(set(at_twelve)) == 1  # every order has seen everything once
        assert all(curve[-1] == at_twelve[0] for curve in curves)
        assert all(curve == sorted(curve) for curve in curves)
    with_prompt, outputs_only = document["keys"].values()
    assert with_prompt[0][-1] >= outputs_only[0][-1]


def test_companions_are_captures_of_the_same_setting_and_the_newest(tmp_path: Path) -> None:
    chart = run_folder(tmp_path, "tiny_chartqa")
    run_folder(tmp_path, "chartqa")  # real inputs
    run_folder(tmp_path, "tiny_textvqa", "few", bench={"num_inputs": 2})
    run_folder(tmp_path, "tiny_textvqa", "other", weights="changed")
    run_folder(tmp_path, "tiny_ocrbench", "old")
    new = run_folder(tmp_path, "tiny_ocrbench", "new", sessions=[{"started": "2026-02-01"}])
    unfinished = run_folder(tmp_path, "tiny_mmt_bench")
    (unfinished / "replay.json").unlink()
    assert growth.companions(new) == [chart, new]


def test_captures_of_different_vocabularies_are_refused(tmp_path: Path) -> None:
    folders = [captured_folder(tmp_path / name) for name in ("a", "b")]
    records = folders[1] / "records.jsonl"
    records.write_text(records.read_text().replace('"vocab_size":10', '"vocab_size":11'))
    with pytest.raises(UserError, match=r"different vocabularies: \[10, 11\]"):
        growth.grow(folders)
