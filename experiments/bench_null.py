"""Does the harness see what is there, and nothing else? ``make bench-null``.

Runs AR against AR on 200 generated inputs: the interval of S should hold 1. Then the same with 2 %
of every step slept away in one arm: the interval should not hold 1. Printed, never asserted:
machines are noisy.
"""

from __future__ import annotations

import argparse
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from baselines.autoregressive import AutoregressiveDrafter
from experiments import compose, runner
from experiments.plan import NULL_ARM, REPOSITORY, Arm, RunPlan
from experiments.tiny import benches
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from recap.core.interfaces import IntArray

RESULTS = REPOSITORY / "results" / "runs" / "bench-null"
RUNS = RESULTS / "runs"  # emptied every time: a benchmark measures, it does not resume


class SleepingDrafter(AutoregressiveDrafter):
    """Autoregressive decoding that idles for a fraction of the time its previous step took."""

    def __init__(self, fraction: float, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self._fraction = fraction
        self._previous: int | None = None

    def begin_request(self, ctx: Any) -> None:
        """Forget the previous request's clock reading."""
        super().begin_request(ctx)
        self._previous = None

    def propose(self, history: IntArray) -> TokenTree:
        """The root, late by a fraction of the previous step."""
        now = time.perf_counter_ns()
        if self._previous is not None:
            # A spin: a real sleep of some microseconds would last many times as long.
            until = now + int(self._fraction * (now - self._previous))
            while time.perf_counter_ns() < until:
                pass
        self._previous = now
        return super().propose(history)


def null_plan(inputs: int) -> RunPlan:
    """AR against AR on ``inputs`` generated charts, which are drawn if they are not there yet."""
    data = RESULTS / f"data-{inputs}"
    if not data.exists():
        benches.write_table("chartqa", inputs, data)
    cfg = compose.compose_cfg(
        "method=ar",
        "bench=tiny_chartqa",
        f"bench.data_root={data}",
        "bench.manifests=null",
        f"results_root={RUNS}",
    )
    return compose.plan_from_cfg(cfg)


def with_sleep(plan: RunPlan, fraction: float) -> RunPlan:
    """The same plan with a sleep planted in the null arm."""

    def sleepy(arm: Arm) -> Arm:
        config = {**arm.config, "planted_sleep": fraction}
        return replace(arm, config=config, make=lambda vocab: SleepingDrafter(fraction, vocab))

    arms = tuple(sleepy(arm) if arm.name == NULL_ARM else arm for arm in plan.arms)
    return replace(plan, arms=arms)


def main() -> None:
    """Run both and say what the intervals hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--sleep", type=float, default=0.02)
    options = parser.parse_args()
    shutil.rmtree(RUNS, ignore_errors=True)
    plan = null_plan(options.inputs)
    plain = runner.run_plan(plan)
    planted = runner.run_plan(with_sleep(plan, options.sleep))
    for name, summary in (("A/A", plain), (f"{options.sleep:.0%} sleep", planted)):
        speedup = summary["arms"][NULL_ARM]["speedup"]
        holds = speedup["low"] <= 1 <= speedup["high"]
        print(
            f"{name:>10}: S {speedup['mean']:.4f}, interval {speedup['low']:.4f} .. "
            f"{speedup['high']:.4f}, 1 lies {'inside' if holds else 'outside'}"
        )


if __name__ == "__main__":
    main()
