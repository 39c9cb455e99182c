"""`python -m analysis.build`: what is printed, what is written, and what strictness asks for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import build
from analysis import data as scopes
from analysis.artefact import Table
from analysis.data import Data
from tests.analysis import synthetic

# Artefacts by the studies that feed them, as far as the synthetic results have these studies.
FED = {
    "main": {"table01", "table01x", "table03", "table18", "claims", "order"},
    "mmspec": {"table02", "table02x", "table15", "claims", "order"},
    "components": {"table04", "claims"},
    "fusion": {"table04", "table13", "table17", "claims"},
    "suffix": {"table04", "table07", "claims"},
    "backoff": {"backoff", "claims"},
    "streams": {"table08", "mechanisms"},
    "fallback": {"table12"},
    "prompts": {"prompts"},
    "null_control": {"null_control"},
    "timing": {"timing"},
    "equal_rows": {"equal_rows"},
    "replay": {"table05", "table06", "table07", "table14", "table16", "claims", "mechanisms"},
}


@pytest.fixture
def results(tiny_results: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged."""
    return Path(shutil.copytree(tiny_results, tmp_path / "runs"))


def states(data: Data) -> dict[str, str]:
    return {m.ID: build.state(data.artefact(m.ID)) for m in build.modules("tables")}


def without(data: Data, study: str) -> Data:
    """The same runs, read once, but for one study's."""
    return Data(
        data.scope, [run for run in data.found if run.study != study], data.root, build.make
    )


@pytest.mark.parametrize("study", FED)
def test_deleting_a_study_makes_exactly_its_artefacts_incomplete(
    tiny_data: Data, study: str
) -> None:
    before, less = states(tiny_data), without(tiny_data, study)
    after = states(less)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == FED[study] - {name for name in before if before[name] != "complete"}
    assert all(after[name] != "complete" for name in FED[study])
    for name in FED[study]:
        commands = [gap.command for gap in less.artefact(name).missing]
        assert f"make study-{study} MODEL=tiny_qwen25vl" in commands


def test_one_deleted_run_is_named_with_its_own_command(
    results: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (data,), _ = scopes.load(results, build.make)
    run = data.run("suffix", "textvqa", "tiny_qwen25vl", reset="stream")
    assert run is not None
    assert run.folder is not None
    shutil.rmtree(run.folder)
    build.main(["tables", "--results", str(results), "--out", str(tmp_path / "out")])
    command = "python run.py study=suffix model=tiny_qwen25vl bench=tiny_textvqa reset=stream"
    assert command in capsys.readouterr().out
    page = (tmp_path / "out" / "table07.tiny_qwen25vl.cpu.md").read_text()
    assert f"`{command} results_root={results}`" in page


def test_strict_fails_on_what_is_missing_and_the_default_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["tables", "--results", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    monkeypatch.delenv("STRICT", raising=False)
    assert build.main(arguments) == 0
    assert build.main([*arguments, "--strict"]) == 1
    monkeypatch.setenv("STRICT", "1")
    assert build.main(arguments) == 1
    monkeypatch.setenv("STRICT", "0")
    assert build.main(arguments) == 0


def test_one_models_pages_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRICT", raising=False)
    results, out = tmp_path / "runs", tmp_path / "out"
    for model in ("tiny_qwen25vl", "tiny_llava"):
        synthetic.write_study(results, "null_control", model)
    arguments = ["tables", "--results", str(results), "--out", str(out)]
    assert build.main(arguments) == 0
    other = out / "null_control.tiny_llava.cpu.md"
    other.write_text("as it was")
    assert build.main([*arguments, "--model", "tiny_qwen25vl", "--strict"]) == 1
    assert other.read_text() == "as it was"
    assert "tiny_llava" not in capsys.readouterr().out.rpartition("Tables of")[2]
    with pytest.raises(SystemExit):
        build.main([*arguments, "--model", "qwen"])
    assert "holds no run of model qwen" in capsys.readouterr().err


def test_without_runs_the_papers_tables_have_dashes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build.main(["tables", "--results", str(tmp_path / "none"), "--out", str(tmp_path)])
    page = (tmp_path / "table01.md").read_text()
    assert "| qwen25vl | RECAP | - | -<br>paper 1.69 |" in page
    assert "table01        nothing" in capsys.readouterr().out


def test_a_complete_study_is_complete(tiny_data: Data) -> None:
    found = states(tiny_data)
    complete = {name for name, state in found.items() if state == "complete"}
    assert complete >= set().union(*FED.values()) - {"claims"}


def test_an_unfinished_run_is_used_and_said(results: Path) -> None:
    (data,), _ = scopes.load(results, build.make)
    run = data.run("fallback", "mmspec", "tiny_qwen25vl")
    assert run is not None
    assert run.folder is not None
    (run.folder / "summary.json").unlink()
    (data,), _ = scopes.load(results, build.make)
    table = data.artefact("table12")
    assert table.measured
    assert build.state(table) == "partial"
    assert any("unfinished, 9 units so far" in gap.what for gap in table.missing)


def test_scopes_get_files_of_their_own_and_stale_ones_go(tmp_path: Path) -> None:
    root, out = tmp_path / "runs", tmp_path / "out"
    out.mkdir()
    for name in ("table01.gone.cpu.md", "table01.md", "notes.md"):
        (out / name).write_text("old")
    arms = [{"name": "recap", "method": "recap"}]
    for model, device, accelerator in (
        ("tiny_llava", "cpu", ""),
        ("qwen25vl", "cuda", "NVIDIA H200"),
    ):
        bench = synthetic.plain_bench(model, "chartqa")
        config = synthetic.run_config(model, device, bench)
        synthetic.write_run(root, config, arms, 3, accelerator=accelerator)
    build.build("tables", root, out)
    names = {path.name for path in out.glob("table01.*md")}
    assert names == {"table01.tiny_llava.cpu.md", "table01.qwen25vl.h200.md"}
    assert (out / "notes.md").read_text() == "old"
    h200 = (out / "table01.qwen25vl.h200.md").read_text()
    assert "Measured on qwen25vl, H200: not the paper's device" in h200
    assert "paper 1.75 (" in h200
    tiny = (out / "table01.tiny_llava.cpu.md").read_text()
    assert "NOT the paper's models" in tiny
    assert "paper 1.58 |" in tiny


def test_rows_of_table_1_may_come_from_separate_runs(tmp_path: Path) -> None:
    for name in ("recap", "pld"):
        config = synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_chartqa")
        config["method"] = {"name": name}
        synthetic.write_run(tmp_path, config, [{"name": name, "method": name}], 4)
    (data,), _ = scopes.load(tmp_path, build.make)
    table = data.artefact("table01")
    assert isinstance(table, Table)
    measured = {row[1] for row in table.rows if row[11].measured}  # type: ignore[union-attr]
    assert measured == {"PLD", "RECAP", "AR again (null arm)"}
    assert any("ChartQA: rows come from separate runs" in note for note in table.footnotes)
    assert any("on tiny_qwen25vl, tiny_chartqa" in gap.what for gap in table.missing)


def test_other_settings_are_not_the_method(tmp_path: Path) -> None:
    config = synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_chartqa")
    folder = synthetic.write_run(tmp_path, config, [{"name": "recap", "method": "recap"}], 4)
    manifest = folder / "manifest.json"
    text = manifest.read_text().replace(
        '"reset": "stream", "config": {}', '"reset": "stream", "config": {"config": {"orders": 1}}'
    )
    manifest.write_text(text)
    (data,), _ = scopes.load(tmp_path, build.make)
    table = data.artefact("table01")
    assert not table.measured
    assert any("settings are not the defaults" in note for note in table.footnotes)


def test_a_second_run_of_the_same_settings_is_named(tmp_path: Path) -> None:
    for limit, units in ((200, 5), (40, 2)):
        config = synthetic.run_config("tiny_qwen25vl", "cpu", "tiny_mmspec", "fallback")
        config["max_new_tokens"] = limit
        synthetic.write_run(tmp_path, config, synthetic.study_arms("fallback"), units)
    (data,), _ = scopes.load(tmp_path, build.make)
    notes = data.artefact("table12").footnotes
    assert any("at most 200 new tokens" in note for note in notes)
    assert any(note.startswith("Left aside") for note in notes)


def test_figures_are_written_in_both_formats(tiny_results: Path, tmp_path: Path) -> None:
    build.build("figures", tiny_results, tmp_path)
    for name in ("figure03b", "figure04", "figure06", "figure08"):
        stem = tmp_path / f"{name}.tiny_qwen25vl.cpu"
        assert Path(f"{stem}.pdf").read_bytes().startswith(b"%PDF")
        assert Path(f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert "NOT the paper's models" in Path(f"{stem}.md").read_text()


def test_figures_are_the_same_bytes_again(tiny_results: Path, tmp_path: Path) -> None:
    (data,), _ = scopes.load(tiny_results, build.make)
    first, second = tmp_path / "a", tmp_path / "b"
    for out in (first, second):
        out.mkdir()
        data._built.clear()
        build.write(data.artefact("figure08"), data, out)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


def test_neither_command_imports_what_a_laptop_may_lack(tmp_path: Path) -> None:
    code = (
        "import sys; from analysis.build import main; "
        f"[main([k, '--results', {str(tmp_path)!r}, '--out', {str(tmp_path)!r}]) "
        "for k in ('tables', 'figures')]; "
        "loaded = {'torch', 'transformers', 'hydra', 'omegaconf', 'numba', 'recap'}; "
        "sys.exit(str(loaded & set(sys.modules)) if loaded & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
