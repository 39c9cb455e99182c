from __future__ import annotations

import gc

import pytest

from experiments.timing import WallClock, still_garbage_collector


@pytest.mark.parametrize(("policy", "expected"), [("generation", 2), ("target_forward", 8)])
def test_the_policy_decides_where_the_device_is_synchronised(policy: str, expected: int) -> None:
    calls = []
    clock = WallClock(policy, lambda: calls.append(1))  # type: ignore[arg-type]
    clock.generation_boundary()
    for _ in range(3):  # prefill and two steps
        clock.forward_boundary()
        clock.forward_boundary()
    clock.generation_boundary()
    assert len(calls) == expected


def test_phases_are_exclusive_and_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10, 13, 20, 22])
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(times))
    clock = WallClock("generation", lambda: None)
    clock.generation_boundary()
    clock.lap("propose")
    clock.lap("verify")
    clock.lap("propose")
    assert clock.phase_ns == {"propose": 5, "verify": 7}


def test_garbage_is_collected_between_units_only() -> None:
    with still_garbage_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
