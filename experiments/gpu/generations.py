"""Whole generations: AR in this engine against ``model.generate``, and against itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import torch

from baselines.autoregressive import AutoregressiveDrafter
from experiments.gpu.device import spread
from experiments.timing import WallClock
from recap.core.decode import decode
from recap.core.interfaces import Limits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from experiments.gpu.device import Results
    from experiments.gpu.models import RandomModel
    from experiments.gpu.sizes import Sizes
    from recap.core.interfaces import Generation
    from recap.targets.request import Request

BOOTSTRAP = 10_000


def against_generate(model: RandomModel, sizes: Sizes) -> Results:
    """Our AR and ``model.generate`` on one prompt, in turn.

    Decode time per token leaves the prompt out: ours is measured behind prefill, generate's is a
    generation of all tokens less one of a single token.
    """
    request, tokens = model.text(sizes.contexts[1]), sizes.tokens
    ids = request.inputs["input_ids"].to(model.device.place)
    runs: dict[str, Callable[[], tuple[float, int, list[int]]]] = {
        "ours": functools.partial(_ours, model, request, tokens),
        "generate": functools.partial(_theirs, model, ids, tokens),
    }
    decoding: dict[str, list[float]] = {who: [] for who in runs}
    whole: dict[str, list[int]] = {who: [] for who in runs}
    outputs = {}
    for number in range(1 + sizes.generate_rounds):
        for who in sorted(runs, reverse=number % 2 == 0):
            per_token, total, outputs[who] = runs[who]()
            if number:  # the first round warms up
                decoding[who].append(per_token)
                whole[who].append(total)
    ratio = float(np.median(decoding["generate"]) / np.median(decoding["ours"]))
    difference = first_difference(outputs["ours"], outputs["generate"])
    return {
        "prompt_tokens": sizes.contexts[1],
        "tokens": tokens,
        "decode_per_token": {who: spread(times, "ms") for who, times in decoding.items()},
        "with_prompt": {who: spread(times, "ms") for who, times in whole.items()},
        "generate_over_ours": round(ratio, 4),
        "tokens_equal": difference is None,
        "first_difference": difference,
    }


def _ours(model: RandomModel, request: Request, tokens: int) -> tuple[float, int, list[int]]:
    """Nanoseconds per decoded token, nanoseconds of everything, and the output."""
    run = _autoregressive(model, request, tokens)
    return run.decode_ns / (tokens - 1), run.prefill_ns + run.decode_ns, run.output_ids


def _theirs(model: RandomModel, ids: torch.Tensor, tokens: int) -> tuple[float, int, list[int]]:
    outputs: list[torch.Tensor] = []

    def generate(limit: int) -> None:
        mask = torch.ones_like(ids)
        outputs.append(
            model.target.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=limit
            )
        )

    _, one = model.device.timed(lambda: generate(1))
    _, total = model.device.timed(lambda: generate(tokens))
    return (total - one) / (tokens - 1), total, outputs[-1][0, ids.shape[1] :].tolist()


def _autoregressive(model: RandomModel, request: Request, tokens: int) -> Generation:
    """One generation in the engine's loop, synchronised at its boundaries only."""
    drafter = AutoregressiveDrafter(model.target.vocab_size)
    session = model.target.open(request, drafter.needs, tokens)
    clock = WallClock("generation", model.device.synchronize)
    try:
        return decode(session, drafter, Limits(tokens), clock)
    finally:
        session.close()


def first_difference(left: list[int], right: list[int]) -> int | None:
    """Index of the first token that differs, or that one output lacks; None when they are equal."""
    pairs = enumerate(zip_longest(left, right))
    return next((index for index, (a, b) in pairs if a != b), None)


def pair_with_itself(model: RandomModel, sizes: Sizes, out_of_time: Callable[[], bool]) -> Results:
    """AR against AR: units of different prompts, each decoded twice, in alternating order.

    The ratio's interval says which differences this machine can tell from none.
    """
    context, tokens = sizes.contexts[0], sizes.tokens
    _autoregressive(model, model.text(context), tokens)  # warm-up
    times: list[tuple[int, int]] = []
    equal = 0
    for unit in range(sizes.pair_units):
        if out_of_time():
            break
        request = model.text(context, seed=unit + 1)
        runs = [_autoregressive(model, request, tokens) for _ in range(2)]
        first, second = (run.prefill_ns + run.decode_ns for run in runs)
        times.append((second, first) if unit % 2 else (first, second))
        equal += runs[0].output_ids == runs[1].output_ids
    results: Results = {"units": len(times), "of": sizes.pair_units, "equal_outputs": equal}
    if not times:
        return results
    ratios = np.array([first / second for first, second in times])
    low, high = _interval(ratios)
    return results | {
        "context": context,
        "tokens": tokens,
        "mean_ratio": float(ratios.mean()),
        "low": low,
        "high": high,
        "contains_one": low <= 1 <= high,
        "unit": spread([time for pair in times for time in pair], "ms"),
    }


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of the mean."""
    rng = np.random.default_rng(42)
    means = values[rng.integers(0, len(values), (BOOTSTRAP, len(values)))].mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)
