"""Studies: every overlay composes, expands to the runs it names, and its runs hang together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments import benches, compose, runner
from experiments.compose import compose_cfg, config_names, plan_from_cfg, plans_from_cfg
from experiments.errors import UserError
from experiments.freeze import settings_of
from experiments.plan import REPOSITORY
from experiments.records import read_records
from tests.experiments.fakes import FakeTarget


def plans(*overrides: str) -> list[Any]:
    return plans_from_cfg(compose_cfg(*overrides), overrides)


@pytest.mark.parametrize("study", config_names("study"))
def test_every_study_expands_on_the_tiny_and_the_real_models(study: str) -> None:
    for model, prefix in (("tiny_qwen25vl", "tiny_"), ("qwen25vl", "")):
        runs = plans(f"study={study}", f"model={model}")
        if compose_cfg(f"study={study}").study.get("alone"):
            assert not runs  # a study of the machine
            continue
        assert runs
        # A study may share another one's runs.
        name = compose_cfg(f"study={study}").study.name
        assert {run.protocol.study for run in runs} == {name}
        assert all(run.bench.name.startswith(prefix) for run in runs)
        assert all(run.label for run in runs)
        identities = [(run.bench.name, str(run.bench), run.protocol) for run in runs]
        assert len(set(map(str, identities))) == len(runs), "two runs would be one"


def test_a_method_in_a_study_of_all_methods_is_run_alone() -> None:
    (run,) = plans("study=mmspec", "method=sam")
    assert [arm.name for arm in run.arms] == ["ar", "sam", "null"]
    (run,) = plans("study=mmspec", "method=sam", "arms=all")
    assert {"sam", "recap", "pld"} < {arm.name for arm in run.arms}
    with pytest.raises(UserError, match="study=suffix compares arms of its own"):
        plans("study=suffix", "method=sam")


def test_a_sweep_is_every_combination_and_the_command_line_wins() -> None:
    runs = plans("study=suffix", "model=qwen25vl")
    assert [(run.bench.name, run.protocol.reset) for run in runs] == [
        (bench, reset)
        for bench in ("chartqa", "textvqa", "ocrbench", "mmt_bench")
        for reset in ("request", "stream")
    ]
    assert all(run.bench.num_inputs == 100 for run in runs)
    (one,) = plans("study=suffix", "model=qwen25vl", "bench=chartqa", "reset=task")
    assert (one.bench.name, one.protocol.reset) == ("chartqa", "task")
    fewer = plans("study=suffix", "model=tiny_llava", "bench.num_inputs=2")
    assert {run.bench.num_inputs for run in fewer} == {2}


def test_a_further_run_stands_beside_the_sweep() -> None:
    runs = plans("study=components", "model=qwen25vl")
    assert [(run.bench.input_seed, run.protocol.repeat) for run in runs] == [
        (None, 0),
        (17, 0),
        (29, 0),
        (43, 0),
        (59, 0),
        (None, 1),
    ]


def test_an_arm_may_set_options_of_the_drafter_beside_those_of_its_config() -> None:
    plan = plan_from_cfg(compose_cfg("arms=[{name: t, config: {trace: true, width: 4}}]"))
    config = plan.arm("t").config
    assert config["trace"] is True and config["config"]["width"] == 4


def test_the_order_of_inputs_is_a_seeded_shuffle() -> None:
    """The same shuffle as the paper's evaluator: random.Random(seed).shuffle."""
    import random

    plain = [i.input_id for i in benches.load(settings_of("tiny_chartqa")).inputs]
    expected = plain[:10]
    random.Random(17).shuffle(expected)
    seeded = settings_of("tiny_chartqa", "bench.num_inputs=10", "bench.input_seed=17")
    assert [i.input_id for i in benches.load(seeded).inputs] == expected
    with pytest.raises(UserError, match=r"bench.input_seed must be a whole number"):
        settings_of("tiny_chartqa", "bench.input_seed=x")


@pytest.mark.parametrize("schedule", ["blocked", "alternating"])
def test_a_mixed_stream_holds_its_parts(schedule: str) -> None:
    options = ("bench.num_inputs=3", f"bench.schedule={schedule}", "bench.input_seed=29")
    loaded = benches.load(settings_of("tiny_mixed4", *options))
    parts = ["tiny_chartqa", "tiny_textvqa", "tiny_ocrbench", "tiny_mmt_bench"]
    tasks = [item.task for item in loaded.inputs]
    if schedule == "blocked":
        assert tasks == [part for part in parts for _ in range(3)]
    else:
        assert tasks == parts * 3
    for part in parts:
        own = benches.load(settings_of(part, "bench.num_inputs=3", "bench.input_seed=29"))
        mine = [item.input_id for item in loaded.inputs if item.task == part]
        assert mine == [item.input_id for item in own.inputs]
    assert loaded.frozen is not None and set(loaded.frozen) == set(parts)


def test_a_mixed_stream_from_a_folder_and_with_an_unknown_part() -> None:
    folder = REPOSITORY / "data_manifests" / "tiny"
    real = settings_of("mixed4", f"bench.data_root={folder}")
    assert [part.data_root for part in real.parts] == [
        str(folder / name) for name in ("chartqa", "textvqa", "ocrbench", "mmt_bench")
    ]
    with pytest.raises(
        UserError, match=r"Unknown part of the benchmark 'chartqq'\. Valid: chartqa"
    ):
        settings_of("mixed4", "bench.parts=[chartqq]")


def test_alternation_makes_a_reset_per_task_one_per_request(
    target: FakeTarget, tmp_path: Path
) -> None:
    options = ["study=streams", "model=tiny_qwen25vl", "bench.num_inputs=2", "warmup=false"]
    options += ["max_new_tokens=12", f"results_root={tmp_path}", "bench.input_seed=17"]
    blocked, alternating = plans(*options)
    for plan in (blocked, alternating):
        runner.run_plan(plan)
    folder = tmp_path / "tiny_qwen25vl" / "tiny_mixed4" / "streams"
    assert len(list(folder.iterdir())) == 2
    for path in folder.iterdir():
        records = read_records(path / "records.jsonl")
        assert {record.study for record in records} == {"streams"}
        accepted = {
            arm: [record.num_accepted for record in records if record.arm == arm]
            for arm in ("task_reset", "request_reset", "persistent")
        }
        schedule = (path / "config.yaml").read_text()
        if "schedule: alternating" in schedule:
            assert accepted["task_reset"] == accepted["request_reset"]
        else:
            assert accepted["persistent"] != accepted["request_reset"]


def test_unknown_studies_and_options_are_refused() -> None:
    with pytest.raises(Exception, match="study") as error:
        compose_cfg("study=sufix")
    assert "Unknown study 'sufix'. Valid: suffix" in compose.explain(error.value)
    cfg = compose_cfg("study=suffix", "+study.bench=3")
    with pytest.raises(UserError, match=r"Unknown option of study 'bench'\. Valid: benches"):
        plan_from_cfg(cfg)
