"""What a careless user meets at the door, through the real command."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import run
from experiments.plan import REPOSITORY

CASES = [
    (["method=recpa"], "Unknown method 'recpa'. Valid: recap,"),
    (["model=tiny_qwen"], "Unknown model 'tiny_qwen'. Valid: tiny_qwen25vl,"),
    (["bench=mmspek"], "Unknown bench 'mmspek'. Valid: mmspec,"),
    (["arms=[recpa]"], "Unknown method 'recpa'. Valid: recap,"),
    (["arms=recap"], "arms must be a list such as arms=[recap]"),
    (["arms=[{nam: x}]"], "Unknown arm option 'nam'. Valid: name,"),
    (["arms=[recap,recap]"], "Two arms are named 'recap'"),
    (["max_new_token=3"], "Unknown option 'max_new_token'. Valid: max_new_tokens,"),
    (["+foo=1"], "Unknown option 'foo'"),
    (["method.config.fusoin=backoff"], "Unknown option 'method.config.fusoin'. Valid: fusion,"),
    (["method.config.fusion=back_off"], "backoff"),
    (["method=sam", "method.double_lokup=true"], "Valid: double_lookup"),
    (["arms=[{method: sam, config: {double: true}}]"], "of method sam 'double'. Valid: double_"),
    (["max_new_tokens=0"], "max_new_tokens must be a whole number of at least 1, got 0."),
    (["timing=forward"], "timing=forward is not valid. Valid: target_forward"),
    (["bench=mmspec"], "set bench.data_root=FOLDER"),
    (["bench=mmspec", "bench.data_root=nowhere"], "bench.data_root=nowhere does not exist"),
    (["bench=mmspec", "bench.split=train"], "bench.split=train is not valid. Valid: "),
    (["model.path=nowhere"], "Set model.path=... to a local copy"),
    (["dtype=float33"], "unknown dtype 'float33'"),
    (["device=gpu"], "unknown device 'gpu'"),
    (["model.min_pixels=abc"], "model.min_pixels must be a whole number"),
    (["bench.layout=csv"], "bench.layout=csv is not valid. Valid: mmspec, table"),
    (["bench.distinct_prompts=maybe"], "bench.distinct_prompts must be true, false or null"),
    (["arms=[{method: recap, config: 5}]"], "An arm's config is a mapping"),
    (["method.config=null"], "method=recap"),
    (["results_root=/dev/null/x", "bench.num_inputs=1"], "Set results_root=FOLDER"),
]


@pytest.mark.parametrize(("overrides", "message"), CASES, ids=lambda case: str(case)[:40])
def test_mistakes_are_answered_in_one_sentence(
    overrides: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", *overrides])
    monkeypatch.setattr(run, "failures", [])
    assert run.main() == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir()), "a refused run leaves nothing behind"


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.skipif(
    importlib.util.find_spec("submitit") is None, reason="the extra 'cluster' is not installed"
)
def test_a_clusters_launcher_runs_every_job_and_a_failed_one_is_told(tmp_path: Path) -> None:
    command = [
        *(sys.executable, str(REPOSITORY / "run.py"), "-m", "hydra/launcher=submitit_local"),
        *("bench=mmspec,tiny_chartqa", "bench.num_inputs=1", "max_new_tokens=8", "warmup=false"),
        f"results_root={tmp_path}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2
    assert "Error in a job: Benchmark mmspec needs its data" in done.stderr
    assert len(list(tmp_path.glob("tiny_qwen25vl/tiny_chartqa/recap/*/summary.json"))) == 1
