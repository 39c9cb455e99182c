"""What drafting costs on the host: the kernels, the readable reference, and the paper's figures.

At three fillings of ``U`` (Table 11) both drafters go through the same synthetic requests, in turn,
step by step. The rows are correlated the way a text is: a request stays within a topic of a few
hundred tokens, contexts recur, and trees fill up. Stages are run a few times in a row; the whole
step runs once, its caches cold, as behind a forward. Medians; a busy machine shows in them.

    python -m experiments.bench_host --steps 200
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from recap.best_first import build_tree, prefix_of, settings_of, workspace_of
from recap.config import RecapConfig
from recap.core import kernels
from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.suffix_automaton import SuffixAutomaton
from recap.core.tree import TokenTree
from recap.drafter import RecapDrafter
from recap.targets.packing import Packer
from tests.reference.drafter import ReferenceDrafter, pack
from tests.reference.suffix import suffix_path

VOCAB_SIZE = 152_064  # Qwen2.5-VL
BLOCKED = frozenset({VOCAB_SIZE - 1})
OCCUPANCIES = (1_000, 10_000, VOCAB_SIZE)
BUDGETS = (31, 63, 127)
ROW_LENGTH = 8
TOPIC = 250  # tokens that a request stays among
PROMPT_LENGTH = 300
STEPS_PER_REQUEST = 40
REFRESH = "refresh of 64 rows"
REPEATS = 3  # of a stage in a row
WARM_UP = 8  # steps of a request that are not measured: C and G are still empty

# Milliseconds of the paper's Python drafter, on another CPU (Appendix G, Tables 9 and 10, Qwen).
PAPER_MS = {
    "tree, 63 candidates": "0.242-0.249",
    "lookup to packing, 31 candidates": "0.591",
    "lookup to packing, 63 candidates": "0.907",
    "lookup to packing, 127 candidates": "2.202",
    "packing": "0.391",
    "refresh of 64 rows": "0.461",
    "suffix update + lookup": "0.027 + 0.010",
    "whole host step": "1.778",
}
# Table 11: MiB of U, nanoseconds per lookup.
PAPER_U = {1_000: (0.67, 109), 10_000: (7.03, 141), VOCAB_SIZE: (109.14, 386)}

Tokens = NDArray[np.int32]
Integers = NDArray[np.signedinteger[Any]]
Result = TypeVar("Result")


class Language:
    """A synthetic text over ``size`` tokens, in topics that share none."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._num_topics = size // TOPIC
        self._rng = np.random.default_rng(size)
        self._offsets = np.array([0, 150, 3, 8, 170, 55, 89, 200])

    def rows(self, tokens: Integers, previous: Integers) -> Predictions:
        """A row per token, int32[n] each; what stands in front changes some of the successors."""
        topics = np.minimum(tokens // TOPIC, self._num_topics - 1)[:, None]
        shift = np.where(np.arange(ROW_LENGTH) % 3 == 1, previous[:, None] % 7, 0)
        ids = topics * TOPIC + (tokens[:, None] * 7919 + self._offsets + 2 * shift) % TOPIC
        logits = -np.sort(-self._rng.normal(0, 2, ids.shape), axis=1)
        exponentials = np.exp(logits - logits[:, :1])
        probs = exponentials / exponentials.sum(axis=1, keepdims=True)
        choice = self._rng.choice(3, len(tokens), p=(0.6, 0.25, 0.15))
        next_token = ids[np.arange(len(tokens)), choice]
        return Predictions(
            next_token.astype(np.int32), ids.astype(np.int32), probs.astype(np.float32)
        )

    def predictions(self, tree: TokenTree, history: Tokens) -> Predictions:
        """What the target says about every node of ``tree``."""
        previous = np.where(tree.parents >= 0, tree.tokens[tree.parents], history[-2])
        return self.rows(tree.tokens.astype(np.int64), previous.astype(np.int64))

    def prompt(self) -> Tokens:
        """int32[PROMPT_LENGTH] of one topic, with repeats."""
        topic = int(self._rng.integers(0, self._num_topics))
        ranks = np.minimum(self._rng.zipf(1.3, PROMPT_LENGTH), TOPIC) - 1
        return (topic * TOPIC + ranks).astype(np.int32)

    def stream_state(self) -> dict[str, np.ndarray]:
        """A row for every token, as `RecapDrafter.stream_state` names them."""
        tokens = np.arange(self.size)
        rows = self.rows(tokens, np.zeros_like(tokens))
        return {"tokens": tokens.astype(np.int32), "ids": rows.topk_ids, "probs": rows.topk_probs}


class Bench:
    """Both drafters over one filling of ``U``, and the nanoseconds they take."""

    def __init__(self, occupancy: int) -> None:
        self._language = Language(occupancy)
        self.ours = RecapDrafter(RecapConfig(), VOCAB_SIZE)
        self._reference = ReferenceDrafter(RecapConfig())
        state = self._language.stream_state()
        self.ours.load_stream_state(state)
        self._reference.unigrams = _dictionary(state)
        self._suffix = SuffixAutomaton()
        self._packer = Packer(torch.float32, torch.device("cpu"), 160, 2048)
        self._measuring = False
        self.times: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.num_candidates: dict[int, list[int]] = defaultdict(list)

    def run(self, num_steps: int) -> None:
        """Measure ``num_steps`` steps, in requests of `STEPS_PER_REQUEST`."""
        for _ in range(-(-num_steps // STEPS_PER_REQUEST)):
            history = self._language.prompt()
            context = RequestContext(history[:-1], BLOCKED)
            self.ours.begin_request(context)
            self._reference.begin_request(context)
            self._suffix.reset(BLOCKED)
            self._suffix.extend(history)
            for number in range(WARM_UP + STEPS_PER_REQUEST):
                self._measuring = number >= WARM_UP
                for budget in BUDGETS:
                    self._time_trees(history, budget)
                step = self._time_step(history)
                self._time_stages(step)
                history = np.concatenate([history, step.committed])

    def _timed(
        self, stage: str, who: str, work: Callable[[], Result], repeats: int = REPEATS
    ) -> Result:
        for _ in range(repeats):
            start = time.perf_counter_ns()
            result = work()
            elapsed = time.perf_counter_ns() - start
            if self._measuring:
                self.times[stage, who].append(elapsed)
        return result

    def _time_trees(self, history: Tokens, budget: int) -> None:
        """Ours and the reference's tree of one budget, and ours with what is around it."""
        config = RecapConfig(max_candidates=budget)
        settings, work = settings_of(config), workspace_of(config)
        path = self._suffix.suffix_path(4)
        text, suffix = history.tolist(), path.tolist()
        self._reference.config = config

        def ours() -> TokenTree:
            prefix = prefix_of(history)
            return build_tree(self.ours._memory, prefix, path, self.ours._blocked, settings, work)

        def reference() -> TokenTree:
            tree: TokenTree = pack(
                text[-1], self._reference.search(tuple(text[-3:]), suffix), suffix
            )
            return tree

        def prepare() -> None:
            self._suffix.suffix_path(4)
            self._pack(ours(), history)

        tree = self._timed(f"tree, {budget} candidates", "ours", ours)
        other = self._timed(f"tree, {budget} candidates", "reference", reference)
        assert tree.tokens.tolist() == other.tokens.tolist()
        self._timed(f"lookup to packing, {budget} candidates", "ours", prepare)
        self.num_candidates[budget].append(tree.num_candidates)
        self._reference.config = self.ours.config

    def _pack(self, tree: TokenTree, history: Tokens) -> None:
        self._packer.pack(tree, len(tree), len(history) - 1, 0)

    def _time_step(self, history: Tokens) -> VerifiedStep:
        """Propose, pack, accept, observe: a step without the forward and the transfers."""

        def before_forward() -> TokenTree:
            tree = self.ours.propose(history)
            self._pack(tree, history)
            return tree

        def after_forward() -> VerifiedStep:
            node = longest_accepted(tree, predictions.next_token)
            accepted = tree.path(node)[1:]
            committed = np.append(tree.tokens[accepted], predictions.next_token[node])
            step = VerifiedStep(tree, predictions, history, accepted, committed)
            self.ours.observe(step)
            return step

        tree = self._timed("before the forward", "ours", before_forward, 1)
        predictions = self._language.predictions(tree, history)
        step = self._timed("after the forward", "ours", after_forward, 1)
        self._timed("before the forward", "reference", lambda: self._reference.propose(history), 1)
        self._timed("after the forward", "reference", lambda: self._reference.observe(step), 1)
        return step

    def _time_stages(self, step: VerifiedStep) -> None:
        """Refresh, suffix and packing by themselves; writing rows again changes nothing."""
        earlier, previous, _ = prefix_of(step.history)
        text = step.history.tolist() + step.committed.tolist()
        tree, rows, memory = step.tree, step.predictions, self.ours._memory

        def read_on() -> None:
            self._suffix.extend(step.committed)
            self._suffix.suffix_path(4)

        self._timed(REFRESH, "ours", lambda: memory.refresh(tree, earlier, previous, rows))
        self._timed(REFRESH, "reference", lambda: self._reference.observe(step))
        self._timed("suffix update + lookup", "ours", read_on, 1)
        self._timed("suffix update + lookup", "reference", lambda: suffix_path(text, BLOCKED, 4))
        self._timed("packing", "ours", lambda: self._pack(tree, step.history))

    def microseconds(self, stage: str, who: str) -> float | None:
        """The median of a stage; of the two halves of the whole step, the median of their sum."""
        if stage == "whole host step":
            before, after = (self.times[f"{half} the forward", who] for half in ("before", "after"))
            values = [a + b for a, b in zip(before, after, strict=True)]
        else:
            values = self.times.get((stage, who), [])
        return statistics.median(values) / 1e3 if values else None

    def nanoseconds_per_lookup(self, num_lookups: int = 20_000) -> tuple[float, float]:
        """A hit in ``U``, in random order: ours within compiled code, and the reference's."""
        tokens = np.random.default_rng(0).integers(0, self._language.size, num_lookups)
        work = workspace_of(self.ours.config).fusion
        rows, in_order = self._reference.unigrams, tokens.tolist()
        self._measuring = True
        arrays = self.ours._memory.arrays
        for _ in range(5):
            self._timed("U lookup", "ours", lambda: _look_up_all(arrays, work, tokens))
            self._timed("U lookup", "reference", lambda: [rows[token] for token in in_order])
        ours, reference = (
            statistics.median(self.times["U lookup", who]) for who in ("ours", "reference")
        )
        return ours / num_lookups, reference / num_lookups


@njit(cache=True)
def _look_up_all(memory, work, tokens):  # type: ignore[no-untyped-def]
    found = 0
    for token in tokens:
        found += kernels.gather(memory, work, -1, -1, token, 1)
    return found


def _dictionary(state: dict[str, np.ndarray]) -> dict[int, list[tuple[int, float]]]:
    columns = (state[name].tolist() for name in ("tokens", "ids", "probs"))
    return {t: list(zip(i, p, strict=True)) for t, i, p in zip(*columns, strict=True)}


def _print_table(bench: Bench, occupancy: int) -> None:
    reserved = bench.ours.num_bytes()["U"] / 2**20
    filled = reserved * occupancy / VOCAB_SIZE
    paper_mib, paper_ns = PAPER_U[occupancy]
    ours_ns, reference_ns = bench.nanoseconds_per_lookup()
    print(
        f"\n{occupancy:,} rows in U: {filled:.2f} MiB of the {reserved:.2f} MiB set aside "
        f"(paper: {paper_mib} MiB)"
    )
    print(
        f"a lookup in U: {ours_ns:.0f} ns, reference {reference_ns:.0f} ns (paper: {paper_ns} ns)"
    )
    means = ", ".join(f"{statistics.mean(bench.num_candidates[b]):.1f} of {b}" for b in BUDGETS)
    print(f"mean candidates with suffix: {means}")
    print(f"{'stage':<36}{'ours us':>10}{'reference us':>14}{'ratio':>8}{'paper ms':>16}")
    for stage in (
        *(f"tree, {budget} candidates" for budget in BUDGETS),
        *(f"lookup to packing, {budget} candidates" for budget in BUDGETS),
        "packing",
        "refresh of 64 rows",
        "suffix update + lookup",
        "whole host step",
    ):
        ours, reference = (bench.microseconds(stage, who) for who in ("ours", "reference"))
        assert ours is not None
        beside = "-" if reference is None else f"{reference:.1f}"
        ratio = "-" if reference is None else f"{reference / ours:.1f}"
        print(f"{stage:<36}{ours:>10.1f}{beside:>14}{ratio:>8}{PAPER_MS.get(stage, '-'):>16}")


def main() -> None:
    """Print one table per filling of ``U``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200, help="measured steps per filling")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    Bench(OCCUPANCIES[0]).run(1)  # compiles
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"medians over {steps} steps, one thread; {load}")
    for occupancy in OCCUPANCIES:
        bench = Bench(occupancy)
        gc.collect()
        gc.disable()
        bench.run(steps)
        gc.enable()
        _print_table(bench, occupancy)
    print("\nrefresh and packing: of a step's own tree, the root and about 63 candidates")
    print("paper: its Python drafter on its own CPU; 'whole' is all stages but verification")


if __name__ == "__main__":
    main()
