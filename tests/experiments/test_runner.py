"""The runner on a scripted target: pairing, history, scopes, bad units, resuming."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import runner
from experiments.errors import UserError
from experiments.records import RunRecord, read_records
from experiments.rundir import RunDirectory
from tests.experiments.conftest import MakePlan
from tests.experiments.fakes import FakeTarget


def run_folder(root: Path) -> Path:
    (found,) = root.glob("runs/*/*/*/*/records.jsonl")
    return found.parent


def facts(records: list[RunRecord]) -> list[tuple[Any, ...]]:
    """What has to be identical in two runs of one plan: everything but times."""
    return [
        (r.unit_id, r.arm, r.order_index, r.status, r.output_ids, r.num_accepted, r.num_candidates)
        for r in records
    ]


def test_every_unit_has_one_record_per_arm_and_equal_outputs(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path
) -> None:
    summary = runner.run_plan(make_plan("null=true"))
    records = read_records(run_folder(tmp_path) / "records.jsonl")
    assert summary["units"] == 9
    assert sorted({r.arm for r in records}) == ["ar", "null", "recap"]
    assert len(records) == 27
    assert summary["arms"]["recap"]["exact_match"] == {"equal": 9, "of": 9}
    assert summary["arms"]["recap"]["tau"]["mean"] > 1
    assert all(r.order_index == i % 3 for i, r in enumerate(records))


def test_later_turns_see_the_reference_arms_answers(
    make_plan: MakePlan, target: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts: list[str] = []
    encode = target.encode

    def spy(messages: Any, images: Any = ()) -> Any:
        request = encode(messages, images)
        prompts.append(request.prompt_text)
        return request

    monkeypatch.setattr(target, "encode", spy)
    runner.run_plan(make_plan())
    second_turns = [p for p in prompts if "And what" in p]
    assert len(second_turns) == 3
    assert all("w" in p.split("|")[3] for p in second_turns)
    assert target.images_seen  # the picture goes along with every turn


def test_a_corrupt_image_is_one_bad_unit(
    make_plan: MakePlan, target: FakeTarget, mmspec_root: Path, tmp_path: Path
) -> None:
    (mmspec_root / "test" / "images" / "m3.jpg").write_bytes(b"not a picture")
    with pytest.raises(UserError, match="more than 5%"):
        runner.run_plan(make_plan())
    records = read_records(run_folder(tmp_path) / "records.jsonl")
    status = {(r.unit_id, r.status) for r in records if r.unit_id.startswith("m3")}
    assert status == {("m3:0", "error"), ("m3:1", "skipped")}
    assert all(r.error and "unreadable image" in r.error for r in records if r.status == "error")
    assert sum(r.status == "ok" for r in records) == 14


def test_what_does_not_fit_the_context_is_skipped_not_truncated(
    make_plan: MakePlan, target: FakeTarget
) -> None:
    # First turns need some 45 tokens with the output, second turns more than 60.
    target.context = 50
    summary = runner.run_plan(make_plan())
    assert summary["skipped"] == 3
    assert summary["errors"] == 0


def test_distinct_prompts_drops_repeats_for_text_models(
    make_plan: MakePlan, target: FakeTarget, mmspec_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = mmspec_root / "test" / "mmspec.jsonl"
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    for row in rows[:3]:
        row["turns"] = ["Describe this image in detail."]
    table.write_text("\n".join(json.dumps(row) for row in rows))
    target.text_only = True
    summary = runner.run_plan(make_plan())
    assert summary["units"] == summary["distinct"] == 7
    assert "2 inputs dropped" in capsys.readouterr().out
    summary = runner.run_plan(make_plan("bench.distinct_prompts=false"))
    assert (summary["units"], summary["distinct"]) == (9, 7)


def test_several_arms_keep_their_own_memory(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path
) -> None:
    arms = "arms=[recap,{name: fresh, reset: request},{name: bare, config: {suffix_tokens: 0}}]"
    runner.run_plan(make_plan(arms))
    records = read_records(run_folder(tmp_path) / "records.jsonl")
    lifetimes = {r.arm: r.state_lifetime for r in records}
    assert lifetimes == {
        "ar": "request",
        "null": "request",
        "recap": "persistent",
        "fresh": "request",
        "bare": "persistent",
    }

    def accepted(arm: str) -> int:
        return sum(sum(r.num_accepted) for r in records if r.arm == arm)

    assert accepted("recap") > accepted("fresh")


SCOPES = "arms=[recap,{name: by_task, reset: task},{name: fresh, reset: request}]"


class Crash(BaseException):
    pass


def crash_at(monkeypatch: pytest.MonkeyPatch, target: FakeTarget, verification: int) -> None:
    """Die inside the given verification, as a killed process would: nothing is cleaned up."""

    def die() -> None:
        if target.verified == verification:
            raise Crash

    monkeypatch.setattr(target, "before_verify", die)


@pytest.mark.parametrize("fraction", [0.0, 0.2, 0.5, 0.8, 0.99])
def test_resuming_after_a_crash_gives_the_records_of_an_uninterrupted_run(
    make_plan: MakePlan,
    target: FakeTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fraction: float,
) -> None:
    runner.run_plan(make_plan(SCOPES))
    verification = 1 + int(fraction * target.verified)
    folder = run_folder(tmp_path)
    expected = facts(read_records(folder / "records.jsonl"))
    for path in folder.iterdir():
        path.unlink()
    target.verified = 0
    crash_at(monkeypatch, target, verification)
    with pytest.raises(Crash):
        runner.run_plan(make_plan(SCOPES))
    runner.run_plan(make_plan(SCOPES))
    assert facts(read_records(folder / "records.jsonl")) == expected


@pytest.mark.parametrize(
    "damage", ["records", "snapshot", "half_line", "no_snapshot", "records_ahead"]
)
def test_damaged_files_cost_no_finished_result(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path, damage: str
) -> None:
    runner.run_plan(make_plan())
    folder = run_folder(tmp_path)
    records, snapshot = folder / "records.jsonl", folder / "stream.npz"
    expected = facts(read_records(records))
    lines = records.read_text().splitlines(keepends=True)
    if damage == "records":
        records.write_text("".join(lines[:9]))
    elif damage == "half_line":
        records.write_text("".join(lines)[:-40])
    elif damage == "snapshot":
        snapshot.write_bytes(snapshot.read_bytes()[:100])
        records.write_text("".join(lines[:12]))
    elif damage == "no_snapshot":
        snapshot.unlink()
    else:  # killed between the records and the snapshot of the last unit
        from experiments.snapshot import load_snapshot, save_snapshot

        runner.run_plan(make_plan("repeat=1", "bench.num_inputs=5"))
        (other,) = tmp_path.glob("runs/*/*/*/*-r1")
        found = load_snapshot(other / "stream.npz")
        assert found is not None
        save_snapshot(snapshot, *found)
    runner.run_plan(make_plan())
    assert facts(read_records(records)) == expected
    assert records.read_text().startswith("".join(lines[:8])), "finished units were run again"
    assert not list(folder.glob("*.tmp"))


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("snapshot", [True, False])
def test_a_task_that_begins_with_a_bad_unit_is_another_task_after_resuming_too(
    make_plan: MakePlan,
    target: FakeTarget,
    mmspec_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fraction: float,
    snapshot: bool,
) -> None:
    real = runner.list_units

    def two_tasks(inputs: Any) -> list[Any]:
        tasks = {f"m{i}": "early" if i < 3 else "late" for i in range(6)}
        return [
            replace(unit, item=replace(unit.item, task=tasks[unit.item.input_id]))
            for unit in real(inputs)
        ]

    monkeypatch.setattr(runner, "list_units", two_tasks)
    monkeypatch.setattr(runner, "BAD_UNIT_LIMIT", 1.0)
    (mmspec_root / "test" / "images" / "m3.jpg").write_bytes(b"not a picture")
    runner.run_plan(make_plan(SCOPES))
    folder = run_folder(tmp_path)
    expected = read_records(folder / "records.jsonl")
    drafted = {(r.unit_id, r.arm): r.num_candidates for r in expected if r.status == "ok"}
    assert drafted["m4:0", "by_task"] == drafted["m4:0", "fresh"] != drafted["m4:0", "recap"]
    assert drafted["m2:0", "by_task"] == drafted["m2:0", "recap"] != drafted["m2:0", "fresh"]
    for path in folder.iterdir():
        path.unlink()
    verification, target.verified = 1 + int(fraction * target.verified), 0
    crash_at(monkeypatch, target, verification)
    with pytest.raises(Crash):
        runner.run_plan(make_plan(SCOPES))
    if not snapshot:
        (folder / "stream.npz").unlink(missing_ok=True)
    runner.run_plan(make_plan(SCOPES))
    assert facts(read_records(folder / "records.jsonl")) == facts(expected)


def test_records_behind_a_damaged_line_are_put_aside_not_lost(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run_plan(make_plan())
    folder = run_folder(tmp_path)
    records = folder / "records.jsonl"
    expected = facts(read_records(records))
    lines = records.read_text().splitlines(keepends=True)
    lines[4] = "not a record\n"
    records.write_text("".join(lines))
    runner.run_plan(make_plan())
    assert facts(read_records(records)) == expected
    (aside,) = folder.glob("*.damaged")
    assert aside.read_text() == "".join(lines)
    assert "records.jsonl is damaged" in capsys.readouterr().err


def test_a_complete_run_is_not_run_again(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner.run_plan(make_plan())
    done = target.verified
    (run_folder(tmp_path) / "summary.json").unlink()
    runner.run_plan(make_plan())
    assert target.verified == done
    last_line = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(Path(last_line).read_text())["schema"] == 1


def test_the_same_data_elsewhere_is_the_same_run(
    make_plan: MakePlan, target: FakeTarget, mmspec_root: Path, tmp_path: Path
) -> None:
    runner.run_plan(make_plan())
    done = target.verified
    elsewhere = tmp_path / "moved"
    mmspec_root.rename(elsewhere)
    runner.run_plan(make_plan(f"bench.data_root={elsewhere}"))
    assert target.verified == done
    assert run_folder(tmp_path)


def test_changed_inputs_are_another_run(
    make_plan: MakePlan, target: FakeTarget, mmspec_root: Path, tmp_path: Path
) -> None:
    runner.run_plan(make_plan())
    table = mmspec_root / "test" / "mmspec.jsonl"
    table.write_text(table.read_text().replace("number 0", "numeral 0"))
    runner.run_plan(make_plan())
    assert len(list(tmp_path.glob("runs/*/*/*/*/records.jsonl"))) == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "m0"', "is not JSON"),
        ('["m0"]', "is not a JSON object"),
        ('{"id": "m0", "image": "m0.jpg"}', "expected the columns"),
        (
            '{"id":"a","image":"../../a.jpg","turns":["q"],"category":"c","topic":"t"}',
            "which lies outside",
        ),
        (
            '{"id":"a","image":"a.jpg","turns":"q","category":"c","topic":"t"}',
            "turns must be a list",
        ),
    ],
)
def test_broken_tables_are_refused_in_a_sentence(
    make_plan: MakePlan, target: FakeTarget, mmspec_root: Path, line: str, message: str
) -> None:
    (mmspec_root / "test" / "mmspec.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=message):
        runner.run_plan(make_plan())


def test_a_broken_parquet_file_is_refused_in_a_sentence(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir(exist_ok=True)
    (tmp_path / "data" / "test-0.parquet").write_bytes(b"junk")
    plan = make_plan("bench=tiny_chartqa", f"bench.data_root={tmp_path}")
    with pytest.raises(UserError, match="cannot be read as parquet"):
        runner.run_plan(plan)


def test_two_processes_never_write_one_run(tmp_path: Path) -> None:
    first = RunDirectory(tmp_path / "run")
    with pytest.raises(UserError, match="Another process"):
        RunDirectory(tmp_path / "run")
    first.close()
    RunDirectory(tmp_path / "run").close()
