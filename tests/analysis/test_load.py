"""Runs are found; records that cannot be trusted are named and left out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from analysis import build, load
from analysis import data as scopes
from analysis.artefact import Cell
from experiments.records import RunRecord, write_records
from tests.analysis import synthetic
from tests.analysis.test_metrics import record


def good() -> list[RunRecord]:
    return [
        record(arm, name, 4, [0] * 3 if arm == "ar" else [2], 1.0)
        for name in ("u:0", "v:0", "w:0")
        for arm in ("ar", "m")
    ]


def read(
    tmp_path: Path, records: list[RunRecord], *lines: str
) -> tuple[list[RunRecord], list[str]]:
    path = tmp_path / "records.jsonl"
    write_records(path, records)
    with path.open("a") as file:
        file.writelines(line + "\n" for line in lines)
    return load.read_valid(path)


def line_of(entry: RunRecord, **changes: Any) -> str:
    """A record as a line, with fields that a record would refuse."""
    return json.dumps({**dataclasses.asdict(entry), **changes})


def test_whole_records_are_all_read(tmp_path: Path) -> None:
    records, problems = read(tmp_path, good())
    assert records == good()
    assert problems == []


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"schema_version": 0}, "schema version 0, this code reads 1"),
        ({"schema_version": None}, "schema version None"),
        ({"decode_ns": float("nan")}, "holds NaN"),
        ({"trace": [{"weights": float("inf")}]}, "holds Infinity"),
        ({"decode_ns": "1"}, "no whole numbers"),
        ({"prefill_ns": 1.5}, "no whole numbers"),
        ({"prefill_ns": -1}, "no whole numbers"),
        ({"prefill_ns": 0, "decode_ns": 0}, "no whole numbers"),
        ({"num_accepted": [1, float("nan")]}, "holds NaN"),
        ({"output_ids": []}, "or that is empty"),
        ({"output_ids": None}, "no whole numbers"),
        ({"unheard_of": 1}, "other fields"),
        ({"status": "fine"}, "other fields"),
    ],
)
def test_a_poisoned_record_takes_its_unit_along(
    tmp_path: Path, changes: dict[str, Any], fault: str
) -> None:
    poisoned = line_of(record("m", "x:0", 4, [2], 1.0), **changes)
    records, problems = read(tmp_path, [*good(), record("ar", "x:0", 4, [0] * 3, 1.0)], poisoned)
    assert records == good()
    assert len(problems) == 2
    assert any(fault in problem for problem in problems)
    assert any("lost AR or every arm beside it" in problem for problem in problems)


def test_a_half_written_line_is_named(tmp_path: Path) -> None:
    records, problems = read(tmp_path, good(), '{"schema_version":1,"arm":')
    assert records == good()
    assert problems == ["1 left out: a line that is not whole, as a killed process leaves"]


def test_a_unit_with_one_arm_is_left_out(tmp_path: Path) -> None:
    alone = [record("ar", "x:0", 4, [0] * 3, 1.0), record("m", "y:0", 4, [2], 1.0)]
    records, problems = read(tmp_path, [*good(), *alone])
    assert records == good()
    assert problems == ["2 left out: a unit that has lost AR or every arm beside it"]


def test_a_record_that_stands_twice_is_not_counted_once(tmp_path: Path) -> None:
    records, problems = read(tmp_path, [*good(), record("m", "u:0", 4, [1], 9.0)])
    assert records == good()[2:]
    assert any("stand there twice" in problem for problem in problems)


def test_other_arms_of_a_unit_stay(tmp_path: Path) -> None:
    records = [*good(), record("other", "u:0", 4, [1], 1.0)]
    found, problems = read(tmp_path, records, line_of(records[0], arm="bad", decode_ns=0.5))
    assert found == records
    assert len(problems) == 1


def test_skipped_units_are_kept(tmp_path: Path) -> None:
    skipped = [
        record(arm, "x:0", 0, [], 0.0, status="skipped", error="too long") for arm in ("ar", "m")
    ]
    records, problems = read(tmp_path, [*good(), *skipped])
    assert records == [*good(), *skipped]
    assert problems == []


def poisoned_run(tmp_path: Path) -> Path:
    config = synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_chartqa", "main")
    folder = synthetic.write_run(tmp_path, config, synthetic.study_arms("main"), 4)
    path = folder / "records.jsonl"
    lines = path.read_text().splitlines()
    bad = [json.loads(line) for line in lines]
    for entry in bad:
        if entry["arm"] == "recap" and entry["unit_id"].endswith("00:0"):
            entry["decode_ns"] = float("nan")
    path.write_text("".join(json.dumps(entry) + "\n" for entry in bad))
    return folder


def test_poison_is_never_averaged_and_never_silent(tmp_path: Path) -> None:
    poisoned_run(tmp_path)
    (data,), _ = scopes.load(tmp_path, build.make)
    table = data.artefact("table01")
    row = next(dict(zip(table.headings, r, strict=True)) for r in table.rows if r[1] == "RECAP")
    cell = row["ChartQA S"]
    assert isinstance(cell, Cell)
    assert cell.value == cell.value
    assert any("holds NaN" in gap.what for gap in table.missing)
    assert build.state(table) == "partial"


def test_folders_that_are_no_runs_are_named_or_passed_over(tmp_path: Path) -> None:
    synthetic.write_run(
        tmp_path,
        synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_chartqa"),
        [{"name": "recap", "method": "recap"}],
        2,
    )
    broken = tmp_path / "m" / "b" / "s" / "h"
    broken.mkdir(parents=True)
    (broken / "config.yaml").write_text("model: {name: [")
    nameless = tmp_path / "m" / "b" / "s" / "i"
    nameless.mkdir()
    (nameless / "config.yaml").write_text("max_new_tokens: 3\n")
    started = tmp_path / "tiny_llava" / "tiny_chartqa" / "recap" / "j"
    started.mkdir(parents=True)
    (started / "config.yaml").write_text("model: {name: tiny_llava}\nbench: {name: tiny_chartqa}\n")
    runs, problems = load.find_runs(tmp_path)
    assert [run.model for run in runs] == ["tiny_qwen25vl"]
    assert len(problems) == 2


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_devices_have_short_names(name: str, short: str) -> None:
    assert load.short_device({"name": name}) == short


def test_sessions_on_two_devices_are_no_ones_setting() -> None:
    sessions = [{"environment": {"accelerator": {"name": f"NVIDIA {n}"}}} for n in ("H200", "A100")]
    manifest = {"target": {"device": "cuda"}, "sessions": sessions}
    assert load.device_name(manifest) == "A100+H200"


def test_a_missing_summary_means_unfinished(tmp_path: Path) -> None:
    folder = synthetic.write_run(
        tmp_path,
        synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_chartqa"),
        [{"name": "recap", "method": "recap"}],
        2,
    )
    assert scopes.faults(load.load_run(folder)) == []
    (folder / "summary.json").unlink()
    (fault,) = scopes.faults(load.load_run(folder))
    assert "unfinished, 2 units so far" in fault
