"""Scopes, slots and commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import build, studies
from analysis import data as scopes
from analysis.artefact import Cell, Table
from analysis.data import PAPER_SCOPE, Data, Scope
from analysis.studies import Slot
from tests.analysis import synthetic

ONE = [{"name": "recap", "method": "recap"}]


def scope_of_run(tmp_path: Path, model: str, device: str, bench: str, accelerator: str) -> Scope:
    config = synthetic.run_config(model, device, bench)
    synthetic.write_run(tmp_path, config, ONE, 2, accelerator=accelerator)
    (data,), _ = scopes.load(tmp_path)
    return data.scope


@pytest.mark.parametrize(
    ("model", "device", "bench", "accelerator", "slug"),
    [
        ("qwen25vl", "cuda", "chartqa", "NVIDIA A100-SXM4-80GB", ""),
        ("llava16", "cuda", "chartqa", "NVIDIA A100-SXM4-80GB", ""),
        ("qwen25vl", "cuda", "chartqa", "NVIDIA H200", "qwen25vl.h200"),
        ("qwen25vl", "cuda", "tiny_chartqa", "NVIDIA A100", "qwen25vl.a100.tiny-inputs"),
        ("tiny_qwen25vl", "cpu", "tiny_chartqa", "", "tiny_qwen25vl.cpu"),
        ("tiny_qwen25vl", "cuda", "tiny_chartqa", "NVIDIA A100", "tiny_qwen25vl.a100"),
        ("tiny_qwen25vl", "cpu", "mmspec", "", "tiny_qwen25vl.cpu.real-inputs"),
        ("smollm2", "cpu", "mmspec", "", "smollm2.cpu"),
    ],
)
def test_only_the_papers_setting_has_a_plain_name(
    tmp_path: Path, model: str, device: str, bench: str, accelerator: str, slug: str
) -> None:
    scope = scope_of_run(tmp_path, model, device, bench, accelerator)
    assert scope.slug == slug
    assert scope.is_paper == (slug == "")


def test_a_difference_is_formed_for_the_papers_models_only() -> None:
    assert PAPER_SCOPE.comparable
    assert Scope(("qwen25vl",), "H200", False).comparable
    assert not Scope(("tiny_qwen25vl",), "CPU", True).comparable
    assert not Scope(("smollm2",), "A100", False).comparable


def test_without_runs_there_is_the_papers_scope_alone(tmp_path: Path) -> None:
    (data,), problems = scopes.load(tmp_path / "nowhere", build.make)
    assert data.scope == PAPER_SCOPE
    assert problems == []


def test_studies_are_read_from_their_files() -> None:
    components = studies.study("components")
    assert components is not None
    options = [studies.overrides(slot) for slot in components.slots]
    assert options[0] == "bench.input_seed=null repeat=0"
    assert options[-1] == "bench.input_seed=null repeat=1"
    assert len(options) == 6
    assert studies.study("unheard_of") is None


def test_a_study_that_builds_on_another_uses_its_runs() -> None:
    growth = studies.study("growth")
    assert growth is not None
    assert growth.name == "replay"
    assert set(growth.benches) == {"chartqa", "textvqa", "ocrbench", "mmt_bench"}


def test_commands_name_one_run_or_the_whole_study() -> None:
    slot = Slot("chartqa", (("bench.input_seed", 17),))
    data = Data(Scope(("tiny_qwen25vl",), "CPU", True), [], scopes.RESULTS)
    run = "python run.py study=fusion model=tiny_qwen25vl bench=tiny_chartqa bench.input_seed=17"
    assert data.command("fusion", "tiny_qwen25vl", slot) == run
    assert data.command("fusion", "tiny_qwen25vl") == "make study-fusion MODEL=tiny_qwen25vl"
    data.root, data.name_root = Path("elsewhere"), True
    assert data.command("fusion", "tiny_qwen25vl", slot) == f"{run} results_root=elsewhere"
    assert data.command("fusion", "tiny_qwen25vl").endswith(" RESULTS=elsewhere")


def test_every_slot_finds_its_run_and_no_other(tiny_data: Data) -> None:
    for name in synthetic.ONLINE:
        found = [tiny_data.at(name, "tiny_qwen25vl", slot) for slot in tiny_data.slots(name)]
        assert None not in found
        assert len({run.name for run in found if run is not None}) == len(found)


def test_the_largest_of_several_runs_counts(tmp_path: Path) -> None:
    for units, limit in ((2, 200), (5, 40), (3, 60)):
        config = synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_chartqa", "null_control")
        config["max_new_tokens"] = limit
        synthetic.write_run(tmp_path, config, [], units)
    (data,), _ = scopes.load(tmp_path)
    run = data.run("null_control", "chartqa", "tiny_qwen25vl")
    assert run is not None
    assert run.max_new_tokens == 40
    assert len(data.unused("null_control", "tiny_qwen25vl")) == 2


def test_a_swept_setting_tells_runs_apart(tiny_data: Data) -> None:
    stream = tiny_data.run("suffix", "chartqa", "tiny_qwen25vl", reset="stream")
    request = tiny_data.run("suffix", "chartqa", "tiny_qwen25vl", reset="request")
    assert stream is not None
    assert request is not None
    assert stream.name != request.name
    assert tiny_data.run("suffix", "chartqa", "tiny_qwen25vl", reset="task") is None


def test_a_run_smaller_than_its_study_is_told() -> None:
    settings = {"bench.per_topic": 2, "max_new_tokens": 200, "timing": "target_forward"}
    assert studies.deviations("components", settings.get) == ["bench.per_topic=2 (the study: 20)"]
    main = {**settings, "bench.per_topic": None, "bench.num_inputs": 24}
    assert studies.deviations("main", main.get) == ["bench.num_inputs=24 (the study: all)"]
    settings["bench.per_topic"] = 20
    assert studies.deviations("components", settings.get) == []
    assert studies.deviations("", settings.get) == []


def test_a_study_of_all_methods_may_have_a_run_for_each(tmp_path: Path) -> None:
    for method in ("recap", "sam"):
        config = synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_mmspec", "mmspec")
        config["arms"] = method
        synthetic.write_run(tmp_path, config, [{"name": method, "method": method}], 3)
    smaller = synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_mmspec", "mmspec")
    folder = synthetic.write_run(tmp_path, smaller, [{"name": "sam", "method": "sam"}], 2)
    (data,), _ = scopes.load(tmp_path, build.make)
    table = data.artefact("table02")
    assert isinstance(table, Table)
    rows = {row[1]: dict(zip(table.headings, row, strict=True)) for row in table.rows}
    for label, measured in (("RECAP", True), ("SAM", True), ("PLD", False)):
        cell = rows[label]["Overall S"]
        assert isinstance(cell, Cell) and cell.measured is measured
    (note,) = (note for note in table.footnotes if note.startswith("Runs that no row comes from"))
    assert folder.name in note and note.count("`") == 2
    assert not any("Left aside" in note for note in table.footnotes)
    order = data.artefact("order")
    assert not order.measured  # what is in separate runs cannot be paired
    assert any("SAM, SAM+ViSkip in one run with RECAP" in gap.what for gap in order.missing)
