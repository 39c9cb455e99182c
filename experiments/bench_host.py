"""What drafting costs on the host: the kernels, the readable reference, and the paper's figures.

At three fillings of ``U`` (Table 11) both drafters go through the same synthetic requests, in turn,
step by step. The rows are correlated the way a text is: a request stays within a topic of a few
hundred tokens, contexts recur, and trees fill up. Medians over steps; a busy machine shows in them.

    python -m experiments.bench_host --steps 200
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from recap import fusion
from recap.best_first import build_tree, prefix_of, settings_of, workspace_of
from recap.config import RecapConfig
from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.memory import PredictionMemory
from recap.core.suffix_automaton import SuffixAutomaton
from recap.core.tree import TokenTree
from recap.drafter import RecapDrafter
from recap.targets.packing import Packer
from tests.reference.drafter import ReferenceDrafter, pack
from tests.reference.suffix import suffix_path

VOCAB_SIZE = 152_064  # Qwen2.5-VL
OCCUPANCIES = (1_000, 10_000, VOCAB_SIZE)
BUDGETS = (31, 63, 127)
ROW_LENGTH = 8
TOPIC = 250
STEPS_PER_REQUEST = 40
PROMPT_LENGTH = 300
WARM_UP = 8  # steps that are not measured

# Milliseconds of the paper's Python drafter on another CPU: Appendix G, Tables 9 to 11, Qwen2.5-VL.
PAPER_MS = {
    "tree, 63 candidates": "0.242-0.249",
    "propose + pack, 31 candidates": "0.591",
    "propose + pack, 63 candidates": "0.907",
    "propose + pack, 127 candidates": "2.202",
    "refresh of 64 rows": "0.461",
    "suffix lookup + update": "0.010 + 0.027",
    "packing": "0.391",
    "whole host step": "1.778",
}
PAPER_U = {1_000: ("0.67", "109"), 10_000: ("7.03", "141"), VOCAB_SIZE: ("109.14", "386")}

Times = dict[str, list[int]]


class Language:
    """A synthetic text over ``size`` tokens, in topics that do not share tokens."""

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self._num_topics = size // TOPIC
        self._rng = np.random.default_rng(seed)
        self._offsets = np.array([0, 1, 3, 8, 21, 55, 89, 144])

    def rows(self, tokens: np.ndarray, previous: np.ndarray) -> Predictions:
        """A row per token int[n]; what stands in front of it changes some of its successors."""
        topic = np.minimum(tokens // TOPIC, self._num_topics - 1)[:, None]
        shift = np.where(np.arange(ROW_LENGTH) % 3 == 1, previous[:, None] % 7, 0)
        local = (tokens[:, None] * 7919 + self._offsets + 2 * shift) % TOPIC
        ids = (topic * TOPIC + local).astype(np.int32)
        logits = -np.sort(-self._rng.normal(0, 2, ids.shape), axis=1)
        exponentials = np.exp(logits - logits[:, :1])
        probs = (exponentials / exponentials.sum(axis=1, keepdims=True)).astype(np.float32)
        choice = self._rng.choice(3, len(tokens), p=(0.6, 0.25, 0.15))
        return Predictions(ids[np.arange(len(tokens)), choice].copy(), ids, probs)

    def prompt(self) -> np.ndarray:
        """int32[PROMPT_LENGTH] of one topic, with repeats."""
        topic = int(self._rng.integers(0, self._num_topics))
        ranks = np.minimum(self._rng.zipf(1.3, PROMPT_LENGTH), TOPIC) - 1
        return (topic * TOPIC + ranks).astype(np.int32)

    def stream_state(self) -> dict[str, np.ndarray]:
        """A row for every token."""
        tokens = np.arange(self.size, dtype=np.int32)
        rows = self.rows(tokens.astype(np.int64), np.zeros(self.size, np.int64))
        return {"tokens": tokens, "ids": rows.topk_ids, "probs": rows.topk_probs}

    def verify(self, tree: TokenTree, history: np.ndarray) -> VerifiedStep:
        """What the target says about a tree."""
        before = np.where(tree.parents >= 0, tree.tokens[tree.parents], history[-2])
        predictions = self.rows(tree.tokens.astype(np.int64), before.astype(np.int64))
        node = longest_accepted(tree, predictions.next_token)
        accepted = tree.path(node)[1:]
        committed = np.append(tree.tokens[accepted], predictions.next_token[node])
        return VerifiedStep(tree, predictions, history, accepted, committed.astype(np.int32))


class Bench:
    """Both drafters over one filling of ``U``, and the medians of what they take."""

    def __init__(self, occupancy: int) -> None:
        self._language = Language(occupancy, seed=occupancy)
        self._ours = RecapDrafter(RecapConfig(), VOCAB_SIZE)
        self._memory = self._ours._memory
        self._suffix = SuffixAutomaton()
        self._reference = ReferenceDrafter(RecapConfig())
        state = self._language.stream_state()
        self._ours.load_stream_state(state)
        self._reference.unigrams = _dictionary(state)
        self._packer = Packer(torch.float32, torch.device("cpu"), 160, 2048)
        self._budgets = {
            budget: (config, settings_of(config), workspace_of(config))
            for budget in BUDGETS
            for config in (RecapConfig(max_candidates=budget),)
        }
        self.times: Times = defaultdict(list)
        self.num_candidates: dict[int, list[int]] = defaultdict(list)

    def run(self, num_steps: int) -> None:
        """Measure ``num_steps`` steps, in requests of `STEPS_PER_REQUEST`."""
        measured = 0
        while measured < num_steps:
            history = self._begin_request()
            for number in range(WARM_UP + STEPS_PER_REQUEST):
                times: Times = defaultdict(list)
                history = self._step(history, times)
                if number >= WARM_UP:
                    measured += 1
                    for key, values in times.items():
                        self.times[key] += values

    def _begin_request(self) -> Tokens:
        prompt = self._language.prompt()
        context = RequestContext(prompt[:-1], BLOCKED)
        self._ours.begin_request(context)
        self._reference.begin_request(context)
        self._suffix.reset(BLOCKED)
        self._suffix.extend(prompt)
        return prompt

    def _step(self, history: Tokens, times: Times) -> Tokens:
        """One step, stage by stage, ours and the reference in turn; the history behind it."""
        self._time_trees(history, times)
        step = self._time_whole_step(history, times)
        for name, ours, reference in self._other_stages(step):
            times[name, "ours"].append(_clocked(ours))
            if reference is not None:
                times[name, "reference"].append(_clocked(reference))
        return np.concatenate([history, step.committed])

    def _time_trees(self, history: Tokens, times: Times) -> None:
        text, path = history.tolist(), self._suffix.suffix_path(4)
        for budget, (config, _, _) in self._budgets.items():
            self._reference.config = config
            trees: list[TokenTree] = []
            for who, build in (
                ("ours", lambda b=budget: self._tree(history, path, b)),
                ("reference", lambda: self._reference_tree(text, path.tolist())),
            ):
                times[f"tree, {budget} candidates", who].append(
                    _clocked(lambda build=build: trees.append(build()))
                )
            assert trees[0].tokens.tolist() == trees[1].tokens.tolist()
            self.num_candidates[budget].append(trees[0].num_candidates)
            times[f"preparation, {budget} candidates", "ours"].append(
                _clocked(lambda b=budget: self._prepare(history, b))
            )
        self._reference.config = self._ours.config

    def _tree(self, history: Tokens, path: Tokens, budget: int) -> TokenTree:
        _, settings, work = self._budgets[budget]
        blocked = self._ours._blocked
        return build_tree(self._memory, prefix_of(history), path, blocked, settings, work)

    def _reference_tree(self, text: list[int], path: list[int]) -> TokenTree:
        return pack(text[-1], self._reference.search(tuple(text[-3:]), path), path)

    def _prepare(self, history: Tokens, budget: int) -> None:
        self._pack(self._tree(history, self._suffix.suffix_path(4), budget), history)

    def _pack(self, tree: TokenTree, history: Tokens) -> None:
        self._packer.pack(tree, len(tree), len(history) - 1, 0)

    def _time_whole_step(self, history: Tokens, times: Times) -> VerifiedStep:
        """Propose, pack, accept, observe: what a step costs besides forward and transfer."""
        trees: list[TokenTree] = []
        steps: list[VerifiedStep] = []
        before = _clocked(lambda: trees.append(self._propose(history)))
        predictions = self._language.predictions(trees[0], history)
        after = _clocked(lambda: steps.append(self._observe(trees[0], predictions, history)))
        times[WHOLE_STEP, "ours"].append(before + after)
        return steps[0]

    def _propose(self, history: Tokens) -> TokenTree:
        tree = self._ours.propose(history)
        self._pack(tree, history)
        return tree

    def _observe(self, tree: TokenTree, rows: Predictions, history: Tokens) -> VerifiedStep:
        node = longest_accepted(tree, rows.next_token)
        accepted = tree.path(node)[1:]
        committed = np.append(tree.tokens[accepted], rows.next_token[node])
        step = VerifiedStep(tree, rows, history, accepted, committed)
        self._ours.observe(step)
        return step

    def _other_stages(self, step: VerifiedStep) -> Iterator[Stage]:
        prefix = prefix_of(step.history)
        text = step.history.tolist()
        rows = step.predictions

        def refresh() -> None:
            self._memory.refresh(step.tree, prefix.earlier, prefix.previous, rows)

        def read_on() -> None:
            self._suffix.extend(step.committed)
            self._suffix.suffix_path(4)

        def reference_step() -> None:
            self._reference.propose(step.history)
            self._reference.observe(step)

        yield "refresh of 64 rows", refresh, lambda: self._reference.observe(step)
        yield "suffix update + lookup", read_on, lambda: suffix_path(text, BLOCKED, 4)
        yield "packing", lambda: self._pack(step.tree, step.history), None
        yield WHOLE_STEP_REFERENCE, lambda: None, reference_step


def _dictionary(state: dict[str, np.ndarray]) -> dict[int, list[tuple[int, float]]]:
    columns = (state[name].tolist() for name in ("tokens", "ids", "probs"))
    return {t: list(zip(i, p, strict=True)) for t, i, p in zip(*columns, strict=True)}
