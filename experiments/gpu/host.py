"""The host's part: drafting by every method, and the engine's own work around a forward."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from experiments.gpu.device import spread
from experiments.gpu.methods import METHODS, make_drafter
from experiments.gpu.models import ARCHITECTURES
from experiments.gpu.steps import TOPK, accepted_path, random_tree
from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from recap.drafter import RecapDrafter
from recap.targets.cache import CacheShape, KVCache
from recap.targets.packing import MaskBuffer, Packer
from recap.targets.predict import predictions

if TYPE_CHECKING:
    from experiments.gpu.device import Device, Results
    from experiments.gpu.models import Architecture
    from experiments.gpu.sizes import Sizes
    from recap.core.interfaces import Drafter, IntArray, Needs


class Phases:
    """Host times by name; also the clock on which a drafter names phases of its own."""

    def __init__(self) -> None:
        self.times_ns: dict[str, list[int]] = defaultdict(list)
        self._last = 0

    def time(self, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """What ``work`` returns; its time is kept."""
        start = self._last = time.perf_counter_ns()
        result = work(*arguments)
        self.times_ns[name].append(time.perf_counter_ns() - start)
        return result

    def lap(self, phase: str) -> None:
        """Keep the time since the previous lap."""
        now = time.perf_counter_ns()
        self.times_ns[phase].append(now - self._last)
        self._last = now


class SyntheticText:
    """Rows and choices correlated like a text's: one topic of a few hundred tokens."""

    TOPIC = 250
    OFFSETS = np.array([0, 150, 3, 8, 170, 55, 89, 200])
    PROBS = np.array([0.42, 0.2, 0.12, 0.09, 0.07, 0.05, 0.03, 0.02], np.float32)

    def __init__(self, vocab_size: int) -> None:
        self._first = vocab_size // 2
        self._rng = np.random.default_rng(vocab_size)

    def prompt(self, length: int) -> IntArray:
        """int32[length], with repeats."""
        ranks = np.minimum(self._rng.zipf(1.3, length), self.TOPIC) - 1
        return (self._first + ranks).astype(np.int32)

    def rows(self, tokens: IntArray, previous: IntArray, topk: int) -> Predictions:
        """A row per token; the token in front of it changes some of the successors."""
        shift = np.where(np.arange(8) % 3 == 1, previous[:, None] % 7, 0)
        places = (tokens[:, None].astype(np.int64) * 7919 + self.OFFSETS + 2 * shift) % self.TOPIC
        ids = (self._first + places).astype(np.int32)
        choice = self._rng.choice(3, len(tokens), p=(0.6, 0.25, 0.15))
        probs = np.tile(self.PROBS[:topk], (len(tokens), 1))
        chosen = ids[np.arange(len(tokens)), choice]
        return Predictions(chosen, np.ascontiguousarray(ids[:, :topk]), probs)

    def after(self, tree: TokenTree, history: IntArray, topk: int) -> Predictions:
        """What the target says about every node of ``tree``."""
        previous = np.where(tree.parents >= 0, tree.tokens[tree.parents], history[-2])
        return self.rows(tree.tokens, previous, topk)

    def context(self, prompt: IntArray, needs: Needs) -> RequestContext:
        """The prompt as a drafter meets it, with rows where it needs them."""
        if not needs.prompt_rows:
            return RequestContext(prompt, frozenset())
        tokens = np.array(list(dict.fromkeys(prompt.tolist())), np.int32)
        rows = self.rows(tokens, np.zeros_like(tokens), needs.topk)
        return RequestContext(prompt, frozenset(), rows, tokens)


def host_times(device: Device, sizes: Sizes) -> Results:
    """Drafting by every method and the engine's host work, at both vocabularies."""
    results: Results = {"history_tokens": sizes.history}
    for name, architecture in ARCHITECTURES.items():
        vocab_size = architecture.config().get_text_config().vocab_size
        times = {method: drafting_times(method, vocab_size, sizes) for method in METHODS}
        named = times["recap"].keys() - times["ar"].keys()
        results[name] = {
            "vocab_size": vocab_size,
            "methods": {
                method: {phase: spread(row[phase], "us") for phase in times["ar"]}
                for method, row in times.items()
            },
            "recap_phases": {p: {"time": spread(times["recap"][p], "us")} for p in sorted(named)},
            "engine_64_rows": engine_times(architecture, vocab_size, device, sizes),
        }
    return results


def drafting_times(method: str, vocab_size: int, sizes: Sizes) -> dict[str, list[int]]:
    """Nanoseconds by phase of a method driven through a few requests."""
    drafter, text, phases = make_drafter(method, vocab_size), SyntheticText(vocab_size), Phases()
    if isinstance(drafter, RecapDrafter):
        drafter.clock = phases
    for number in range(2 + sizes.requests):
        if number == 2:  # two requests compile everything: some methods tidy up between two
            phases.times_ns.clear()
        _drive(drafter, text, sizes, phases)
    return phases.times_ns


def _drive(drafter: Drafter, text: SyntheticText, sizes: Sizes, phases: Phases) -> None:
    prompt, topk = text.prompt(sizes.history), drafter.needs.topk
    phases.time("begin_request", drafter.begin_request, text.context(prompt, drafter.needs))
    history = np.append(prompt, text.rows(prompt[-1:], prompt[-2:-1], 0).next_token)
    for _ in range(sizes.steps):
        tree = phases.time("propose", drafter.propose, history)
        rows = text.after(tree, history, topk)
        path = tree.path(longest_accepted(tree, rows.next_token))
        committed = np.append(tree.tokens[path[1:]], rows.next_token[path[-1]])
        step = VerifiedStep(tree, rows, history, path[1:], committed, image_attention=0.0)
        phases.time("observe", drafter.observe, step)
        history = np.concatenate([history, committed])


def engine_times(
    architecture: Architecture, vocab_size: int, device: Device, sizes: Sizes
) -> Results:
    """The engine's own work around a forward of 64 rows, by itself.

    "returned" is the host's part; "finished" ends when the device is idle again.
    """
    dtype, place = architecture.dtype, device.place
    tree, rows, prefix = random_tree(64), 64, sizes.history
    path = accepted_path(tree)
    choices = np.zeros(rows, np.int32)
    choices[path[:-1]] = tree.tokens[path[1:]]
    config = architecture.config(sizes.small).get_text_config()
    cache = KVCache(CacheShape.of(config, dtype, place), prefix + rows)
    cache.advance(prefix)
    packer = Packer(dtype, place, rows, prefix + rows)
    mask = MaskBuffer(dtype, place, rows, prefix + rows)
    visible, root = tree.ancestor_mask(), TokenTree.root_only(16)
    logits = torch.empty(rows, vocab_size, dtype=dtype, device=place).normal_()

    def commit() -> None:
        cache.commit(path)
        cache.crop(-len(path))

    work: dict[str, Callable[[], Any]] = {
        "ancestor_matrix": tree.ancestor_mask,
        "mask": functools.partial(mask.write, visible, prefix),
        "ids_and_positions": functools.partial(packer.pack, root, 1, prefix, 0),
        "packing": functools.partial(packer.pack, tree, rows, prefix, 0),
        "greedy_choices": functools.partial(predictions, logits, 0),
        "top8_predictions": functools.partial(predictions, logits, TOPK),
        "accept": lambda: tree.path(longest_accepted(tree, choices)),
        "commit": commit,
    }
    times = device.timed_in_turn(work, sizes.rounds, sizes.warm_up)
    return {
        phase: {
            "returned": spread([returned for returned, _ in values], "us"),
            "finished": spread([finished for _, finished in values], "us"),
        }
        for phase, values in times.items()
    }
