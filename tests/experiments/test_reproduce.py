"""The pipeline's plan: every study once, cut as asked, with estimates that add up."""

from __future__ import annotations

import sys

import pytest

from experiments import reproduce
from experiments.compose import config_names


def test_the_tiny_plan_holds_every_study_and_the_second_model_two() -> None:
    planned = reproduce.steps(
        (reproduce.TINY, reproduce.TINY_SECOND), config_names("study"), (), None
    )
    of = {
        model: [s.study for s in planned if s.model == model]
        for model in ("tiny_qwen25vl", "tiny_llava")
    }
    assert of["tiny_qwen25vl"] == config_names("study")
    assert of["tiny_llava"] == ["main", "mmspec"]
    assert all(run.bench.name.startswith("tiny_") for step in planned for run in step.runs)


def test_a_benchmark_cuts_the_plan_to_the_studies_that_have_it() -> None:
    planned = reproduce.steps(["qwen25vl"], ["suffix", "mmspec", "streams"], [], "chartqa")
    (step,) = planned
    assert step.command == ["run.py", "study=suffix", "model=qwen25vl", "bench=chartqa"]
    assert {run.bench.name for run in step.runs} == {"chartqa"}
    tiny = reproduce.steps(["tiny_llava"], ["main"], [], "tiny_textvqa")
    assert [run.bench.name for run in tiny[0].runs] == ["tiny_textvqa"]


def test_units_follow_from_the_configuration() -> None:
    def units(study: str) -> list[int]:
        (step,) = reproduce.steps(["qwen25vl"], [study], [], None)
        return [reproduce.num_units(run) for run in step.runs]

    assert units("main") == [1000] * 7
    assert units("mmspec") == [723]
    assert units("streams") == [200] * 6
    assert units("suffix") == [100] * 8
    (step,) = reproduce.steps(["qwen25vl"], ["null_control"], [], None)
    hours = reproduce.seconds(step.runs[0], "qwen25vl") / 3600
    assert hours == pytest.approx(2 * 1000 * 60 / 39.4 / 3600)


def test_downloads_are_counted_once_and_only_where_nothing_ships() -> None:
    planned = reproduce.steps(["qwen25vl"], ["streams", "suffix", "mmspec"], [], None)
    diagnostic = {"chartqa", "textvqa", "ocrbench", "mmt_bench"}
    assert set(reproduce.downloads(planned)) == {"qwen25vl", "mmspec", *diagnostic}
    assert reproduce.downloads(reproduce.steps(["tiny_llava"], ["main"], [], None)) == {}
    everything = reproduce.steps(reproduce.MODELS, config_names("study"), [], None)
    names = {b.name for s in everything for r in s.runs for b in (r.bench.parts or (r.bench,))}
    assert names | set(reproduce.MODELS) == set(reproduce.DOWNLOAD_GB)


def test_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--plan", "--model", "llava16", "--study", "suffix"])
    assert reproduce.main() == 0
    out = capsys.readouterr().out
    assert "suffix         llava16            8" in out and "A100" in out
    assert "llava16 14.1, chartqa 0.07, mmt_bench 0.7" in out and ": 15.9 in all." in out
    monkeypatch.setattr(sys, "argv", ["x", "--plan", "--study", "sufix"])
    assert reproduce.main() == 2
    assert "Unknown study 'sufix'. Valid: suffix" in capsys.readouterr().err


def test_a_failing_study_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[str]] = []

    class Done:
        returncode = 0

    def run(command: list[str], cwd: object) -> Done:
        commands.append(command[1:])
        done = Done()
        done.returncode = 2 if "study=suffix" in command else 0
        return done

    monkeypatch.setattr("experiments.reproduce.subprocess.run", run)
    monkeypatch.setattr(
        sys, "argv", ["x", "--tiny", "--model", "tiny_llava", "--study", "suffix,main"]
    )
    monkeypatch.setattr(reproduce, "TINY_SECOND_STUDIES", ("suffix", "main"))
    assert reproduce.main() == 2
    assert [command[:2] for command in commands] == [
        ["run.py", "study=suffix"],
        ["run.py", "study=main"],
        ["-m", "analysis.build"],
        ["-m", "analysis.build"],
        ["-m", "analysis.report"],
    ]
    assert "Failed: python run.py study=suffix" in capsys.readouterr().err
