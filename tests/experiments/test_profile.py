"""Timing by phases: it adds up, it changes no token, and profile.json tells what it found."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.autograd import DeviceType

from analysis.data import Data, Scope
from baselines.autoregressive import AutoregressiveDrafter
from experiments import device_time, fusion_cost, host_file, memory_use, runner
from experiments.arms import device_synchronizer
from experiments.records import read_records
from experiments.timing import PhaseClock, WallClock, inner_phases, lap_cost, make_clock
from recap.config import RecapConfig
from recap.core.decode import SILENT_CLOCK, decode
from recap.core.interfaces import NULL_CLOCK, Generation, Limits, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from recap.drafter import RecapDrafter
from recap.targets.hf import HFTarget
from tests.experiments.conftest import MakePlan
from tests.experiments.fakes import FakeTarget
from tests.experiments.test_runner import facts, run_folder
from tests.fakes import ScriptedTarget
from tests.reference.drafter import fuse as readable_fuse
from tests.targets.models import family, turn

LOOP = {"propose", "verify", "accept", "commit", "observe"}
DRAFTER = {"suffix_lookup", "search", "refresh", "suffix_update"}
NO_WAIT = device_synchronizer("cpu")
CAPS = {"cap31": 31, "cap63": 63, "cap127": 127}

# The clock


def scripted(clock: Any, drafter: RecapDrafter | None = None) -> Generation:
    target = ScriptedTarget(seed=3, vocab_size=12, order=2)
    drafter = drafter or RecapDrafter(RecapConfig(), 12)
    session = target.open([1, 2, 3, 1, 2], drafter.needs)
    if not isinstance(clock, PhaseClock):
        return decode(session, drafter, Limits(40), clock)  # type: ignore[arg-type]
    with inner_phases(clock, drafter, session):  # type: ignore[arg-type]
        return decode(session, drafter, Limits(40), clock)  # type: ignore[arg-type]


def test_phases_add_up_to_the_steps_but_for_the_clocks_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a clock on which only reading it takes time, all that is left over is the last look."""
    wall, cpu = iter(range(10, 10**6, 10)), iter(range(7, 10**6, 7))
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(wall))
    monkeypatch.setattr("time.process_time_ns", lambda: next(cpu))
    clock = PhaseClock(NO_WAIT)
    generation = scripted(clock)
    steps = len(generation.step_ns)
    assert steps > 3
    assert clock.steps.keys() == LOOP | DRAFTER
    for name, (laps, wall_ns, cpu_ns) in clock.steps.items():
        # The last step may have one token left, for which nothing is drafted.
        assert laps in ({steps, steps - 1} if name in {"suffix_lookup", "search"} else {steps})
        assert (wall_ns, cpu_ns) == (10 * laps, 7 * laps)
    assert sum(generation.step_ns) == sum(wall for _, wall, _ in clock.steps.values()) + 10 * steps
    assert generation.step_ns[0] == 10 * (len(LOOP | DRAFTER) + 1)
    assert {"prefill", "begin_request", "seed"} < clock.phase_ns.keys()


def test_phases_add_up_in_real_time() -> None:
    clock = PhaseClock(NO_WAIT)
    generation = scripted(clock)
    named = sum(wall for _, wall, _ in clock.steps.values())
    # At most a moment per step is in no phase; a busy machine may make it a long one.
    assert 0 <= sum(generation.step_ns) - named <= 0.2 * sum(generation.step_ns)
    assert all(cpu >= 0 for _, _, cpu in clock.steps.values())


def test_a_profiled_generation_says_the_same_and_leaves_no_clock_behind() -> None:
    drafter = RecapDrafter(RecapConfig(), 12)
    profiled, plain = scripted(PhaseClock(NO_WAIT), drafter), scripted(SILENT_CLOCK)
    assert profiled.output_ids == plain.output_ids
    assert profiled.num_accepted == plain.num_accepted
    assert drafter.clock is NULL_CLOCK


def test_the_device_is_waited_for_at_the_end_of_every_phase() -> None:
    waits: list[int] = []
    clock = PhaseClock(lambda: waits.append(1))
    generation = scripted(clock)
    laps = sum(total[0] for total in clock.steps.values())
    assert len(waits) == laps + 2 + len({"prefill", "seed", "suffix_update", "begin_request"})
    assert laps >= 9 * (len(generation.step_ns) - 1)


def test_only_timing_by_phases_makes_a_phase_clock() -> None:
    kinds = {p: type(make_clock(p, NO_WAIT)) for p in ("generation", "target_forward", "phases")}  # type: ignore[arg-type]
    assert kinds == {"generation": WallClock, "target_forward": WallClock, "phases": PhaseClock}
    wall, cpu = lap_cost(NO_WAIT, batches=3)
    assert 0 < wall < 1e6 and 0 <= cpu < 1e6


def test_packing_is_told_from_verification_on_a_real_session_only_while_profiled() -> None:
    target = HFTarget(family("causal_lm"))
    request = target.encode(turn("What do you see here?", images=0))
    outputs = []
    for clock in (WallClock("generation", NO_WAIT), PhaseClock(NO_WAIT)):
        drafter = RecapDrafter(RecapConfig(), target.vocab_size)
        session = target.open(request, drafter.needs, 24)
        packer: Any = session._packer
        if isinstance(clock, PhaseClock):
            with inner_phases(clock, drafter, session):
                outputs.append(decode(session, drafter, Limits(24), clock).output_ids)
            assert session._packer is not packer
            assert clock.steps["packing"][0] == clock.steps["verify"][0]
            assert clock.steps["packing"][1] > 0
        else:
            outputs.append(decode(session, drafter, Limits(24), clock).output_ids)
            assert session._packer is packer
        session.close()
    assert outputs[0] == outputs[1]


# Memory


def test_occupied_memory_is_rows_times_their_size() -> None:
    drafter = RecapDrafter(RecapConfig(top_k=8), 1000)
    rows = ScriptedTarget(vocab_size=12).rows([[3], [4]], 8)
    drafter.begin_request(RequestContext(np.array([1, 2, 3], np.int32), frozenset()))
    empty = memory_use.host_bytes(drafter)
    assert empty is not None and empty["occupied"]["U"] == empty["occupied"]["C+G"] == 0
    history, tree = np.array([1, 2, 3], np.int32), TokenTree.chain(3, [4])
    accepted, committed = np.array([1], np.int32), np.array([4, 5], np.int32)
    drafter.observe(VerifiedStep(tree, rows, history, accepted, committed))
    held = memory_use.host_bytes(drafter)
    assert held is not None
    # 8 ids and 8 probabilities of 4 bytes, a confidence of 8; a presence byte or a slot of 16.
    assert held["occupied"]["U"] == 2 * (8 * 4 + 8 * 4 + 8 + 1)
    assert held["occupied"]["C+G"] == 4 * (8 * 4 + 8 * 4 + 8 + 16)
    assert held["allocated"]["U"] == 1000 * 73
    assert all(held["occupied"][name] <= held["allocated"][name] for name in held["allocated"])
    assert held["occupied"]["suffix"] > empty["occupied"]["suffix"]
    assert memory_use.host_bytes(AutoregressiveDrafter(10)) is None


# profile.json


@pytest.fixture(scope="module")
def small_fusion() -> dict[str, Any]:
    return fusion_cost.measure(count=6, repeats=2)


@pytest.fixture
def profiled(
    make_plan: MakePlan,
    target: FakeTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_fusion: dict[str, Any],
) -> Path:
    monkeypatch.setattr(fusion_cost, "measure", lambda: small_fusion)
    runner.run_plan(make_plan("study=profile", "bench.per_topic=1", "bench.num_inputs=null"))
    return run_folder(tmp_path)


def test_profile_json_holds_what_the_tables_need(profiled: Path) -> None:
    document = json.loads((profiled / "profile.json").read_text())
    records = read_records(profiled / "records.jsonl")
    assert document["schema"] == 1
    assert document["arms"].keys() == {"ar", *CAPS}
    for name, cap in CAPS.items():
        arm, own = document["arms"][name], [r for r in records if r.arm == name]
        assert arm["steps"] == sum(len(r.step_ns) for r in own)
        assert arm["step_ns"] == sum(sum(r.step_ns) for r in own)
        assert arm["candidates"] == sum(sum(r.num_candidates) for r in own)
        assert max(n for r in own for n in r.num_candidates) <= cap + 4
        assert arm["phases"].keys() == LOOP | DRAFTER  # the scripted engine packs nothing
        assert sum(phase["wall_ns"] for phase in arm["phases"].values()) <= arm["step_ns"]
        requests = arm["requests"]
        assert requests["unit_id"] == [r.unit_id for r in own]
        for phase, columns in requests["phases"].items():
            assert {len(values) for values in columns.values()} == {len(own)}
            assert arm["phases"][phase] == {what: sum(v) for what, v in columns.items()}
        sizes = [sum(r.telemetry["host_bytes"]["occupied"].values()) for r in own]
        assert sum(arm["host_bytes"]["occupied"].values()) == max(sizes)
        assert arm["peak_device_bytes"] is None
    assert document["arms"]["ar"]["host_bytes"] is None
    assert document["device_time"] is None and "no CUDA device" in document["not_measured"][0]
    assert document["lap_cost"].keys() == {"wall_ns", "cpu_ns"}
    assert {r.sync_policy for r in records} == {"phases"}


def test_the_overhead_and_the_fusion_microbenchmark(profiled: Path, tmp_path: Path) -> None:
    """The middle budget is compared with itself; the microbenchmark lies where tables look."""
    found = json.loads((profiled / "profile.json").read_text())["overhead"]
    assert found["arm"] == "cap63"
    assert found["unit_ids"] == ["m0:0", "m3:0"]
    assert found["equal"] == 2
    for stream in ("plain", "profiled"):
        assert all(ns > 0 for ns in found[stream]["decode_ns"])
        pairs = zip(found[stream]["latency_ns"], found[stream]["decode_ns"], strict=True)
        assert all(latency > decoding for latency, decoding in pairs)
    scope = Scope(("tiny_qwen25vl",), "CPU", True)
    beside = Data(scope, (), tmp_path / "runs").host(fusion_cost.NAME)
    assert beside["queries"] == 6 and beside["environment"]["cpus"] > 0
    assert host_file.host_path(tmp_path, "x", "cpu") == tmp_path / "host" / "x.cpu.json"


def test_what_was_measured_is_kept_when_a_complete_run_is_run_again(
    profiled: Path, make_plan: MakePlan
) -> None:
    before = json.loads((profiled / "profile.json").read_text())
    again = ("study=profile", "bench.per_topic=1", "bench.num_inputs=null")
    runner.run_plan(make_plan(*again))
    assert json.loads((profiled / "profile.json").read_text()) == before
    (profiled / "profile.json").write_text("{")
    runner.run_plan(make_plan(*again))
    after = json.loads((profiled / "profile.json").read_text())
    assert after["arms"] == before["arms"] and after["overhead"] != before["overhead"]


def test_the_same_tokens_as_without_profiling(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for timing in ("phases", "generation"):
        root = tmp_path / timing
        options = ("study=profile", f"timing={timing}", "study.after=[profile_phases]")
        few = ("bench.per_topic=1", "bench.num_inputs=null", f"results_root={root / 'runs'}")
        runner.run_plan(make_plan(*options, *few))
        found.append(facts(read_records(run_folder(root) / "records.jsonl")))
        assert (run_folder(root) / "profile.json").exists() is (timing == "phases")
    assert found[0] == found[1]
    assert "it needs timing=phases, this run has timing=generation" in capsys.readouterr().out


# Device time


def event(kind: DeviceType, name: str, start: float, duration: float = 0.0) -> Any:
    time_range = SimpleNamespace(start=start, elapsed_us=lambda: duration)
    return SimpleNamespace(device_type=kind, name=name, time_range=time_range)


def test_device_time_goes_to_the_phase_whose_mark_comes_next() -> None:
    marks = [(5, "prefill"), (9, "begin_request"), (12, "search"), (20, "packing")]
    marks += [(50, "verify"), (60, "search"), (66, "packing"), (90, "verify")]
    kernels = [(3, 100), (7, 100), (15, 2.5), (30, 12), (40, 8), (62, 1.5), (70, 16), (95, 100)]
    events = [event(DeviceType.CPU, device_time.PREFIX + n, t) for t, n in reversed(marks)]
    events += [event(DeviceType.CUDA, "gemm", t, d) for t, d in kernels]
    events += [event(DeviceType.CUDA, device_time.PREFIX + "verify", 50, 7)]  # the mark's shadow
    events += [event(DeviceType.CPU, "aten::mm", 30, 12)]
    found = device_time.by_phase(device_time._operations(events), device_time._marks(events))
    assert found == {"search": 0, "packing": 4000, "verify": 36000}


def test_marks_are_left_in_a_real_profile() -> None:
    from torch.profiler import ProfilerActivity, profile

    clock = device_time.MarkingClock(NO_WAIT)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        generation = scripted(clock)
    marks = device_time._marks(profiler.events() or ())
    names = [name for _, name in marks]
    assert names[0] == "prefill" and names.count("verify") == len(generation.step_ns)
    assert device_time.by_phase([], marks)["verify"] == 0


# Fusion


def test_both_fusions_of_the_microbenchmark_agree(small_fusion: dict[str, Any]) -> None:
    queries = fusion_cost.make_queries(8)
    rows = fusion_cost._as_lists(queries)
    assert [len(found) for found in rows] == [2, 3] * 4
    overlapping = [len({token for row in found for token, _ in row}) for found in rows]
    assert all(size < 8 * len(found) for size, found in zip(overlapping, rows, strict=True))
    for rule in fusion_cost.RULES:
        first = [
            readable_fuse(found, rule, fusion_cost.PRIORS, fusion_cost.TOP_K)[0][0]
            for found in rows
        ]
        assert fusion_cost._kernel_work(queries, rule)() == sum(first)
    assert small_fusion["sources"] == 15
    for who in ("kernel", "python"):
        assert small_fusion[who].keys() == {"fixed_prior", "entropy_confidence"}
        assert all(len(times) == 2 for times in small_fusion[who].values())
