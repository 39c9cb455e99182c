"""What every method costs on the host, by the length of the history. Part of ``make bench-host``.

Each method reads a synthetic prompt and is then driven step by step: propose a tree, observe rows
like a text's. Medians; reading the prompt is timed apart, since it must grow with the prompt.

    python -m experiments.bench_methods --steps 100
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from experiments import compose
from experiments.bench_host import BLOCKED, VOCAB_SIZE, Language, Tokens
from recap.core.accept import longest_accepted
from recap.core.interfaces import Drafter, Predictions, RequestContext, VerifiedStep

Result = TypeVar("Result")
LENGTHS = (500, 2_000, 8_000)
OCCUPANCY = 10_000  # distinct tokens of the synthetic language


@dataclass
class Costs:
    """Nanoseconds by what was done."""

    begin: list[int] = field(default_factory=list)
    propose: list[int] = field(default_factory=list)
    observe: list[int] = field(default_factory=list)

    def microseconds(self, part: str) -> float:
        """Median of one part."""
        times: list[int] = getattr(self, part)
        return statistics.median(times) / 1e3


def measure(drafter: Drafter, language: Language, length: int, steps: int) -> Costs:
    """Two requests with prompts of ``length`` tokens; the first warms up and is not counted."""
    _request(drafter, language, length, steps)
    return _request(drafter, language, length, steps)


def _request(drafter: Drafter, language: Language, length: int, steps: int) -> Costs:
    costs = Costs()
    history = _text(language, length)
    context = _context(drafter, language, history)
    costs.begin.append(_elapsed(lambda: drafter.begin_request(context))[0])
    history = np.append(history, language.rows(history[-1:], history[-2:-1]).next_token)
    for _ in range(steps):
        history = _step(drafter, language, history, costs)
    return costs


def _text(language: Language, length: int) -> Tokens:
    """int32[length] of one topic, with repeats."""
    parts = [language.prompt() for _ in range(-(-length // 300))]
    first_topic = parts[0][0] // 250
    return np.concatenate([part % 250 + first_topic * 250 for part in parts])[:length]


def _context(drafter: Drafter, language: Language, prompt: Tokens) -> RequestContext:
    if not drafter.needs.prompt_rows:
        return RequestContext(prompt, BLOCKED)
    tokens = np.array(list(dict.fromkeys(prompt.tolist())), np.int32)
    rows = language.rows(tokens.astype(np.int64), np.zeros(len(tokens), np.int64))
    return RequestContext(prompt, BLOCKED, _kept(rows, drafter.needs.topk), tokens)


def _kept(rows: Predictions, topk: int) -> Predictions:
    return Predictions(
        rows.next_token,
        np.ascontiguousarray(rows.topk_ids[:, :topk]),
        np.ascontiguousarray(rows.topk_probs[:, :topk]),
    )


def _step(drafter: Drafter, language: Language, history: Tokens, costs: Costs) -> Tokens:
    elapsed, tree = _elapsed(lambda: drafter.propose(history))
    costs.propose.append(elapsed)
    predictions = _kept(language.predictions(tree, history), drafter.needs.topk)
    accepted = tree.path(longest_accepted(tree, predictions.next_token))
    committed = np.append(tree.tokens[accepted[1:]], predictions.next_token[accepted[-1]])
    step = VerifiedStep(tree, predictions, history, accepted[1:], committed, image_attention=0.0)
    costs.observe.append(_elapsed(lambda: drafter.observe(step))[0])
    return np.concatenate([history, committed])


def _elapsed(work: Callable[[], Result]) -> tuple[int, Result]:
    start = time.perf_counter_ns()
    result = work()
    return time.perf_counter_ns() - start, result


def main() -> None:
    """One row per method of ``conf/method``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="measured steps per length")
    steps = parser.parse_args().steps
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\nevery method: medians over {steps} steps in microseconds; {load}")
    lengths = "".join(f"{length:>26,}" for length in LENGTHS)
    print(f"{'history tokens':<22}{lengths}")
    print(f"{'':<22}" + f"{'prompt':>10}{'propose':>8}{'observe':>8}" * len(LENGTHS))
    for method in compose.config_names("method"):
        plan = compose.plan_from_cfg(compose.compose_cfg(f"method={method}"))
        drafter = plan.arms[-1].make(VOCAB_SIZE)
        cells = ""
        for length in LENGTHS:
            drafter.reset_stream()
            gc.collect()
            gc.disable()
            costs = measure(drafter, Language(OCCUPANCY), length, steps)
            gc.enable()
            cells += f"{costs.microseconds('begin'):>10.0f}{costs.microseconds('propose'):>8.1f}"
            cells += f"{costs.microseconds('observe'):>8.1f}"
        print(f"{method:<22}{cells}")


if __name__ == "__main__":
    main()
