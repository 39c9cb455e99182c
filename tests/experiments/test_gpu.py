"""The GPU check in miniature on a CPU, and what is known about its full sizes without a GPU."""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import inspect
import json
import math
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
import yaml

from experiments.gpu import check
from experiments.gpu.device import Device
from experiments.gpu.generations import first_difference, pair_with_itself
from experiments.gpu.identity import TINY
from experiments.gpu.methods import METHODS
from experiments.gpu.models import (
    ARCHITECTURES,
    RandomModel,
    build,
    kv_bytes_per_token,
    picture_inputs,
    step_weight_bytes,
)
from experiments.gpu.report import checks_of, slug, table
from experiments.gpu.sizes import FULL, SMALL

PACKAGE = Path(check.__file__).parent
ROOT = PACKAGE.parents[1]
SMALL_RUN = ("--device", "cpu", "--small")
METHOD_FILES = sorted((ROOT / "conf" / "method").glob("*.yaml"))


def run(out: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and the one JSON in ``out``."""
    status = check.main([*SMALL_RUN, "--out", str(out), *arguments])
    (path,) = out.iterdir()
    return status, json.loads(path.read_text())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, dict[str, Any]]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield run(tmp_path_factory.mktemp("gpu"))
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def report(whole: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    return whole[1]


def results(report: dict[str, Any], section: str) -> dict[str, Any]:
    found: dict[str, Any] = report["sections"][section]["results"]
    return found


def test_every_section_ran_and_every_check_held(whole: tuple[int, dict[str, Any]]) -> None:
    status, report = whole
    assert {name: s["status"] for name, s in report["sections"].items()} == dict.fromkeys(
        check.SECTIONS, "ok"
    )
    assert report["checks"] and all(row["passed"] for row in report["checks"])
    assert status == 0
    assert report["schema"] == check.SCHEMA
    assert report["versions"].keys() == {
        *("python", "torch", "cuda", "transformers", "numpy", "numba")
    }


def test_steps_cover_every_row_count_at_every_context(report: dict[str, Any]) -> None:
    for name in ARCHITECTURES:
        steps = results(report, f"steps_{name}")
        assert [*steps] == [str(context) for context in SMALL.contexts]
        for row in steps.values():
            assert [*row["rows"]] == ["1", "8", "16", "32", "64", "68", "81"]
            assert row["ar"]["step"]["count"] == SMALL.rounds
            assert row["ar"]["share_of_copy_bandwidth"] > 0
            for rows, cell in row["rows"].items():
                assert cell["packed_rows"] == int(rows)  # padding is for CUDA
                ratio = cell["step"]["median_ms"] / row["ar"]["step"]["median_ms"]
                assert cell["over_ar"] == pytest.approx(ratio, rel=1e-3)


def test_full_sizes_are_the_ones_asked_for() -> None:
    assert FULL.contexts == (512, 1500, 3000)
    assert FULL.rows == SMALL.rows == (1, 8, 16, 32, 64, 68, 81)
    assert (FULL.pair_units, FULL.tokens) == (40, 64)


def test_identity_of_every_method(report: dict[str, Any]) -> None:
    for name in TINY:
        found = results(report, f"identity_{name}")
        assert found["tokens"] == [SMALL.tokens] * SMALL.pictures
        assert found["methods"].keys() == METHODS.keys()
        assert all(row["equal"] == row["of"] == 1 for row in found["methods"].values())
        assert sum(row["accepted_per_step"] for row in found["methods"].values()) > 0


def test_host_phases_at_both_vocabularies(report: dict[str, Any]) -> None:
    host = results(report, "host")
    assert [host[name]["vocab_size"] for name in ARCHITECTURES] == [152_064, 32_064]
    for name in ARCHITECTURES:
        for times in host[name]["methods"].values():
            assert times.keys() == {"begin_request", "propose", "observe"}
        phases = {"seed", "suffix_update", "suffix_lookup", "search", "refresh"}
        assert host[name]["recap_phases"].keys() == phases
        assert {"packing", "mask", "ids_and_positions", "accept", "commit"} <= host[name][
            "engine_64_rows"
        ].keys()


def test_ar_against_generate_and_against_itself(report: dict[str, Any]) -> None:
    for name in ARCHITECTURES:
        found = results(report, f"generate_{name}")
        assert found["generate_over_ours"] > 0
        assert found["tokens_equal"] == (found["first_difference"] is None)
    pair = results(report, "pair_qwen25vl")
    assert pair["units"] == pair["of"] == pair["equal_outputs"] == SMALL.pair_units
    assert 0 < pair["low"] <= pair["mean_ratio"] <= pair["high"]


def test_models_and_picture_prompts(report: dict[str, Any]) -> None:
    assert report["models"]["qwen25vl"]["dtype"] == "bfloat16"
    assert report["models"]["llava"]["dtype"] == "float16"
    for name in ARCHITECTURES:
        picture = results(report, f"picture_{name}")
        assert picture["prompt_tokens"] == picture["image_tokens"] + SMALL.text_tokens


def test_all_numbers_are_finite_and_no_paths_are_in_it(report: dict[str, Any]) -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)
        elif isinstance(value, float):
            assert math.isfinite(value)

    walk(report)
    assert str(ROOT) not in json.dumps(report)


def test_table_shows_every_section_and_check(report: dict[str, Any]) -> None:
    text = "\n".join(table(report))
    assert all(f"== {name}: ok" in text for name in check.SECTIONS)
    assert text.count("pass  ") == len(report["checks"])


def test_a_failed_section_is_recorded_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("out of memory\nand a stack")

    monkeypatch.setattr(check, "copy_bandwidth", fail)
    status, report = run(tmp_path, "--only", "bandwidth", "--only", "steps_qwen25vl")
    assert status == 1
    section = report["sections"]["bandwidth"]
    assert (section["status"], section["error"]) == ("failed", "RuntimeError: out of memory")
    steps = results(report, "steps_qwen25vl")
    assert all(row["ar"]["share_of_copy_bandwidth"] is None for row in steps.values())
    assert "== bandwidth: failed, RuntimeError: out of memory" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [
        f"{slug(report['device']['name'])}-partial.json"
    ]


def test_another_token_than_ars_fails_the_check(report: dict[str, Any]) -> None:
    changed = copy.deepcopy(report)
    results(changed, "identity_tiny_llava")["methods"]["sam"]["equal"] = 0
    failed = [row for row in checks_of(changed) if not row["passed"]]
    assert [row["detail"] for row in failed] == ["differing: sam"]


def test_a_share_above_one_and_a_model_left_behind_fail_on_a_gpu(report: dict[str, Any]) -> None:
    changed = copy.deepcopy(report)
    changed["device"]["type"] = "cuda"
    results(changed, "steps_llava")["64"]["ar"]["share_of_copy_bandwidth"] = 1.2
    changed["models"]["qwen25vl"]["allocated_after_release_mib"] = 15_000.0
    failed = {row["check"] for row in checks_of(changed) if not row["passed"]}
    assert failed == {
        "steps_llava: no step reads faster than a copy",
        "qwen25vl left the device",
    }


def test_a_used_up_budget_skips_visibly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = run(tmp_path, "--budget-seconds", "0")
    statuses = {section["status"] for section in report["sections"].values()}
    assert (status, statuses) == (0, {"skipped: out of time"})
    assert report["sections"].keys() == set(check.SECTIONS)
    assert "== host: skipped: out of time" in capsys.readouterr().out


def test_the_pair_stops_when_time_is_up() -> None:
    model = RandomModel("qwen25vl", Device("cpu"), small=True)
    answers = iter([False, False, True])
    pair = pair_with_itself(model, SMALL, lambda: next(answers))
    assert (pair["units"], pair["of"]) == (2, SMALL.pair_units)
    assert pair_with_itself(model, SMALL, lambda: True)["units"] == 0


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([], [1], 0)],
)
def test_first_difference(left: list[int], right: list[int], expected: int | None) -> None:
    assert first_difference(left, right) == expected


def test_a_model_is_gone_before_the_next_one_is_built(tmp_path: Path) -> None:
    """What holds on to it, a cycle or a traceback, would cost a GPU 16 GB."""
    gpu_check = check.GpuCheck("cpu", tmp_path, SMALL, budget_seconds=100)
    gpu_check._hold("qwen25vl")
    assert gpu_check._model is not None
    model = weakref.ref(gpu_check._model.target.model)
    for kind in ("steps", "generate", "picture", "pair"):
        assert gpu_check._run(f"{kind}_qwen25vl")["status"] == "ok"
    gpu_check._hold("llava")
    assert model() is None
    assert gpu_check._model is not None
    model = weakref.ref(gpu_check._model.target.model)
    gpu_check.sizes = dataclasses.replace(SMALL, contexts=(5000,))  # beyond its context
    assert gpu_check._run("steps_llava")["error"].startswith("ContextExceeded: 5000 prompt tokens")
    assert model() is None


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_full_size_models_read_and_cache_what_is_known(name: str) -> None:
    """Bytes per step and per token of both 7B models; image tokens of their largest pictures."""
    model = build(name, torch.device("meta"))
    found = (
        round(step_weight_bytes(model) / 1e9, 2),
        kv_bytes_per_token(model),
        picture_inputs(model.config, FULL.patches)[0],
    )
    assert found == {"qwen25vl": (14.14, 57_344, 1280), "llava": (13.22, 524_288, 2928)}[name]
    assert {weight.dtype for weight in model.parameters()} == {ARCHITECTURES[name].dtype}


def test_timing_waits_for_the_device_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fake = SimpleNamespace(
        current_device=lambda: 3,
        set_device=lambda place: events.append(f"use {place}"),
        synchronize=lambda place: events.append("wait"),
        reset_peak_memory_stats=lambda place: events.append("reset"),
        max_memory_allocated=lambda place: 5 * 2**20,
        memory_allocated=lambda place: 2 * 2**20,
        empty_cache=lambda: events.append("empty"),
    )
    monkeypatch.setattr(torch, "cuda", fake)
    device = Device("cuda")
    returned, finished = device.timed(lambda: events.append("work"))
    assert 0 < returned <= finished
    device.reset_peak()
    device.free_unused()
    assert events == ["use cuda:3", "wait", "work", "wait", "reset", "wait", "empty"]
    assert (device.peak_mib(), device.allocated_mib()) == (5.0, 2.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("../Tesla T4 (MIG 1/7)", "tesla-t4-mig-1-7"),
        ("///", "device"),
    ],
)
def test_device_names_become_file_names(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--device cpu --small"),
        (["--device", "cpu"], "add --small"),
        (["--device", "gpu"], "unknown device 'gpu'"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_device_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert check.main(["--device", "cuda:2"]) == 2
    assert "no device 'cuda:2': this machine has 2" in capsys.readouterr().err


def test_another_transformers_release_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(transformers, "__version__", "5.17.0")
    assert check.main([*SMALL_RUN]) == 2
    assert "5.24 is needed, found 5.17.0" in capsys.readouterr().err


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda path: path.stem)
def test_every_method_is_in_the_table_with_its_settings(path: Path) -> None:
    """A new YAML without an entry in METHODS, or with other settings, fails here."""
    configured = yaml.safe_load(path.read_text())
    kind, settings = METHODS[configured.pop("name")]
    assert kind is _instantiate_target(configured.pop("_target_"))
    for key, value in configured.items():
        if isinstance(value, dict):
            configured[key] = _instantiate_target(value.pop("_target_"))(**value)
    arguments = inspect.signature(kind).bind(vocab_size=100, **settings)
    arguments.apply_defaults()
    found = {key: arguments.arguments[key] for key in configured}
    assert found == configured


def _instantiate_target(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_the_table_has_no_other_methods() -> None:
    assert METHODS.keys() == {path.stem for path in METHOD_FILES}
    assert next(iter(METHODS)) == "ar"  # what the others are compared with


def test_it_needs_no_more_than_a_bare_machine_has() -> None:
    """No word of tqdm: transformers itself imports that."""
    script = (
        "import sys, experiments.gpu.check\n"
        "unwanted = 'hydra omegaconf datasets pandas matplotlib pyarrow'.split()\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_direct_imports(path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "torch", "transformers", "numpy", "numba"}
    allowed |= {"recap", "baselines"}
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    within = {node for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            package = name.partition(".")[0]
            ours = name == "experiments.timing" or name.startswith("experiments.gpu.")
            lazy = package == "PIL" and node in within
            assert package in allowed or ours or lazy, name
