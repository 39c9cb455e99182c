from __future__ import annotations

from experiments.warmup import MAX_ROUNDS, warm_up


def test_stops_when_two_rounds_agree() -> None:
    times = iter([[100], [60], [50], [50], [50]])
    report = warm_up(["ar"], lambda arm: next(times))
    assert report == {"rounds": 4, "agreed": True, "median_step_ns": {"ar": 50.0}}


def test_gives_up_after_five_rounds_and_says_so() -> None:
    times = iter([[100], [50], [100], [50], [100], [50]])
    report = warm_up(["ar"], lambda arm: next(times))
    assert (report["rounds"], report["agreed"]) == (MAX_ROUNDS, False)


def test_every_arm_has_to_agree() -> None:
    values = {"ar": iter([10, 10, 10, 10, 10]), "m": iter([9, 5, 4, 4, 4])}
    report = warm_up(["ar", "m"], lambda arm: [next(values[arm])])
    assert report["rounds"] == 4
