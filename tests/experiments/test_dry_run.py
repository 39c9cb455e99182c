"""``dry_run=true``: one screen that says what a run would meet, and all that is missing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

import run
from experiments import benches, compose, dry_run
from experiments.errors import UserError
from experiments.targets import load_target
from experiments.units import encode_turn
from recap.targets import hub
from recap.targets.full_size import KNOWN, LLAVA16_7B, QWEN25VL_7B
from tests.experiments.conftest import MakePlan
from tests.targets.full_size_models import full_size_target
from tests.targets.models import family
from tests.targets.test_load import saved

TINY = compose.REPOSITORY / "experiments" / "tiny" / "checkpoints"
SCREEN = 50


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_out_of_reach", [])


Report = Any


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """The report of a plan, and the error after it."""

    def make(plan: Any) -> tuple[str, str]:
        capsys.readouterr()
        error = ""
        try:
            dry_run.dry_run(plan)
        except UserError as raised:
            error = str(raised)
        return capsys.readouterr().out, error

    return make


def compose_plan(*overrides: str) -> Any:
    return compose.plan_from_cfg(compose.compose_cfg(*overrides))


def line(text: str, label: str) -> str:
    """What stands behind a label, with the lines that continue it."""
    lines = text.splitlines()
    start = next(i for i, each in enumerate(lines) if each.strip().startswith(f"{label} "))
    found = [lines[start].strip().removeprefix(label).strip()]
    for each in lines[start + 1 :]:
        if not each.startswith(" " * 10):
            break
        found.append(each.strip())
    return " ".join(found)


@pytest.mark.parametrize("model", ("tiny_qwen25vl", "tiny_llava"))
def test_the_report_is_what_a_run_meets(model: str, report: Report) -> None:
    plan = compose_plan(f"model={model}", "arms=[recap,pld]", "null=false", "bench.num_inputs=5")
    text, error = report(plan)
    assert error == "" and len(text.splitlines()) <= SCREEN
    loaded = load_target(plan.model)
    request = encode_turn(loaded.target, plan.bench, benches.load(plan.bench).inputs[0], [])
    prompt, images = len(request.prompt_ids), request.num_image_tokens
    assert line(text, "tokens") == f"{prompt} = {images} image + {prompt - images} text"
    assert line(text, "length") == f"{prompt + 200} of 8,192 with 200 new ones: fits"
    assert f"{loaded.settings['parameters']:,} parameters" in line(text, "class")
    assert line(text, "run") == "at most 5 units x 3 arms x 200 new tokens = 3,000"
    assert "transformers 5.24" in line(text, "packages")
    first = request.prompt_text.splitlines()[0]
    assert f"| {first}" in text


def test_weights_are_not_read(tmp_path: Path, report: Report) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY / "tiny_llava", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    with_weights, _ = report(compose_plan("model=tiny_llava"))
    without, error = report(compose_plan("model=tiny_llava", f"model.path={folder}"))
    assert error == ""
    assert without.replace(str(folder), str(TINY / "tiny_llava")) == with_weights


def test_a_text_only_model_drops_the_picture(
    tmp_path: Path, make_plan: MakePlan, report: Report
) -> None:
    folder = saved("causal_lm", tmp_path / "model")
    text, error = report(make_plan("model=smollm2", f"model.path={folder}", "model.gguf_file=null"))
    assert error == ""
    assert line(text, "tokens").endswith("text; the picture is dropped")
    assert line(text, "run").startswith("at most 9 units")  # six inputs, three of them two turns


@pytest.mark.parametrize(
    ("model", "repo", "weights", "row"),
    [
        ("qwen25vl", QWEN25VL_7B, "16.58 GB", "57,344 bytes per token"),
        ("llava16", LLAVA16_7B, "14.13 GB", "524,288 bytes per token"),
    ],
)
def test_a_full_size_folder_without_weights(
    model: str,
    repo: str,
    weights: str,
    row: str,
    tmp_path: Path,
    make_plan: MakePlan,
    report: Report,
) -> None:
    adapter = full_size_target(model).family
    adapter.processor.save_pretrained(tmp_path / "model")
    KNOWN[repo].config().save_pretrained(tmp_path / "model")
    stops = list(KNOWN[repo].stop_ids)
    traps = GenerationConfig(eos_token_id=stops, do_sample=True, repetition_penalty=1.05)
    traps.save_pretrained(tmp_path / "model")
    text, error = report(make_plan(f"model={model}", f"model.path={tmp_path / 'model'}"))
    assert error == ""
    assert line(text, "weights").startswith(weights) and "sizes from" not in text
    assert row in line(text, "KV cache")
    assert line(text, "neutralised") == "do_sample=True repetition_penalty=1.05"
    assert f"stop ids {', '.join(map(str, sorted(stops)))}" in text
    assert line(text, "length").endswith("with 12 new ones: fits")


def test_memory_is_what_the_engine_allocates(make_plan: MakePlan, report: Report) -> None:
    plan = make_plan("model=tiny_qwen25vl")
    text, _ = report(plan)
    target = load_target(plan.model).target
    item = benches.load(plan.bench).inputs[0]
    session = target.open(encode_turn(target, plan.bench, item, []), plan_needs(plan), 12)
    allocated = session._cache.storage.nbytes
    session.close()
    assert dry_run._bytes(allocated) in line(text, "KV cache")
    weights = sum(tensor.nbytes for tensor in target.model.parameters())
    assert line(text, "weights").startswith(dry_run._bytes(weights)[:4])


def plan_needs(plan: Any) -> Any:
    return plan.arms[0].make(1024).needs


def test_a_prompt_beyond_the_context(tmp_path: Path, make_plan: MakePlan, report: Report) -> None:
    adapter = family("llava")
    adapter.model.save_pretrained(tmp_path)
    adapter.processor.save_pretrained(tmp_path)
    plan = make_plan("model=tiny_llava", f"model.path={tmp_path}", "max_new_tokens=500")
    text, error = report(plan)
    assert error == ""  # a run would skip the unit and go on
    assert "does not fit, the unit would be skipped" in line(text, "length")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("model", "repo", "weights"),
    [("qwen25vl", QWEN25VL_7B, "16.58 GB"), ("llava16", LLAVA16_7B, "14.13 GB")],
)
def test_everything_missing_is_told_on_one_screen(
    model: str,
    repo: str,
    weights: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = ["run.py", "method=recap", f"model={model}", "bench=chartqa", "dry_run=true"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(run, "failures", [])
    assert run.main() == 2
    out, err = capfd.readouterr()
    assert len((out + err).splitlines()) <= SCREEN
    assert "2 things missing, see above" in err
    assert "Traceback" not in out + err and "Retry" not in out + err
    # The data: what, and how to get it.
    assert "lmms-lab-encoder/ChartQA" in out and "split test, 2,500 rows" in out
    assert "hf download lmms-lab-encoder/ChartQA --repo-type dataset" in out
    assert "bench.data_root=FOLDER" in out
    # The model: likewise, and its size without having it.
    revision = compose_plan(f"model={model}").model["revision"]
    assert f"`hf download {repo} --revision {revision}`" in out
    assert "model.path=FOLDER" in out
    assert line(out, "weights").startswith(weights)
    assert line(out, "sizes from").startswith(f"{repo}'s known configuration")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("offline")
def test_one_thing_missing(make_plan: MakePlan, report: Report) -> None:
    text, error = report(make_plan("model=qwen25vl"))
    assert error == "A run would stop here: 1 thing missing, see above."
    assert line(text, "first input").startswith("m0, category general vqa")
    text, error = report(compose_plan("bench=mmspec"))
    assert error == "A run would stop here: 1 thing missing, see above."
    assert "set bench.data_root=FOLDER" in text and line(text, "class")


def test_an_unreadable_picture_is_told(
    mmspec_root: Path, make_plan: MakePlan, report: Report
) -> None:
    (mmspec_root / "test" / "images" / "m0.jpg").write_bytes(b"no picture")
    text, error = report(make_plan())
    assert "1 thing missing" in error
    assert "Input m0 cannot be encoded: unreadable image" in text


def test_a_missing_cuda_device_is_told(make_plan: MakePlan, report: Report) -> None:
    text, error = report(make_plan("device=cuda"))
    assert error == ""  # prompts can be looked at where there is no GPU
    assert line(text, "device") == "cuda"
    available = line(text, "available")
    assert "no CUDA device" in available or "free of" in available


def test_long_prompts_are_cut_in_the_middle() -> None:
    shown = dry_run._shown("\n".join(f"line {i}" for i in range(40)))
    assert len(shown) == dry_run.PROMPT_LINES
    assert shown[0] == "line 0\u23ce" and shown[-1] == "line 39"
    assert "lines left out" in shown[10]


def test_unprintable_characters_are_visible() -> None:
    assert dry_run._shown("a\u00a0b\tc\x07") == ["a\\xa0b\\tc\\x07"]


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 B"), (57_344, "57.34 kB"), (16_584_333_312, "16.58 GB")]
)
def test_sizes_are_decimal(size: int, text: str) -> None:
    assert dry_run._bytes(size) == text
