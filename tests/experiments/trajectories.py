"""Captured trajectories without a model: random ones, and run folders that hold scripted ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baselines.autoregressive import AutoregressiveDrafter
from experiments.capture import Trajectory
from experiments.records import RunRecord, write_records
from recap.core.decode import decode
from recap.core.interfaces import Limits, Predictions
from tests.fakes import ScriptedTarget

VOCABULARY, PLACEHOLDER, TOP_K = 10, 9, 3


def predictions(ids: Sequence[Sequence[int]], probs: Any) -> Predictions:
    """Rows of `TOP_K` predictions; one list of ``probs`` for all, or one per row."""
    shape = (len(ids), TOP_K)
    return Predictions(
        np.full(len(ids), -1, np.int32),
        np.array(ids, np.int32).reshape(shape),
        np.broadcast_to(np.array(probs, np.float32), shape).copy(),
    )


def make_trajectory(
    prompt: Sequence[int],
    prompt_rows: Predictions,
    outputs: Sequence[int],
    rows: Predictions,
    unit_id: str = "a:0",
) -> Trajectory:
    """A trajectory whose placeholder is `PLACEHOLDER`."""
    distinct = [token for token in dict.fromkeys(prompt) if token != PLACEHOLDER]
    return Trajectory(
        unit_id=unit_id,
        cluster_id="c",
        vocab_size=VOCABULARY,
        blocked=np.array([PLACEHOLDER], np.int32),
        prompt_ids=np.array(prompt, np.int32),
        prompt_row_tokens=np.array(distinct, np.int32),
        prompt_rows=prompt_rows,
        output_ids=np.array(outputs, np.int32),
        rows=rows,
    )


def random_trajectory(rng: np.random.Generator, num_outputs: int) -> Trajectory:
    """Few tokens and rows that know what comes next half the time, so that all memories hit."""
    alphabet = int(rng.integers(2, VOCABULARY + 1))
    prompt = rng.integers(0, alphabet, int(rng.integers(1, 8))).tolist()
    outputs = rng.integers(0, alphabet, num_outputs).tolist()
    distinct = [token for token in dict.fromkeys(prompt) if token != PLACEHOLDER]
    return make_trajectory(
        prompt, _random_rows(rng, len(distinct), []), outputs, _random_rows(rng, 0, outputs[1:])
    )


def _random_rows(rng: np.random.Generator, count: int, nexts: Sequence[int]) -> Predictions:
    ids, probs = [], []
    for index in range(max(count, len(nexts))):
        row = rng.permutation(VOCABULARY)[:TOP_K].tolist()
        if index < len(nexts) and rng.random() < 0.5 and nexts[index] not in row:
            row[int(rng.integers(TOP_K))] = nexts[index]
        ids.append(row)
        probs.append(np.sort(rng.dirichlet(np.ones(TOP_K)))[::-1])
    return predictions(ids, np.array(probs).reshape(-1, TOP_K))


def captured(prompt: Sequence[int], seed: int = 2, tokens: int = 30, **fields: Any) -> RunRecord:
    """The record of a scripted target's generation under the capturing arm."""
    target = ScriptedTarget(seed, VOCABULARY, 4, frozenset(), PLACEHOLDER)
    drafter = AutoregressiveDrafter(VOCABULARY, capture=TOP_K)
    generation = decode(target.open(prompt, drafter.needs), drafter, Limits(tokens))
    common = dict.fromkeys(("study", "model", "bench", "category", "prompt_sha256", "session"), "")
    values: dict[str, Any] = {
        **common,
        "unit_id": "a:0",
        "cluster_id": "c",
        "arm": "capture",
        "method": "ar",
        "turn": 0,
        "repeat": 0,
        "order_index": 0,
        "output_ids": generation.output_ids,
        "trace": generation.trace,
        **fields,
    }
    return RunRecord(**values)


PROMPTS = ([1, 2, 3], [4, PLACEHOLDER, PLACEHOLDER, 4, 5], [7])


def captured_folder(folder: Path) -> Path:
    """A run folder with three captures, the last of one output token, and what is no capture."""
    folder.mkdir(parents=True)
    records = [
        captured(prompt, unit_id=f"u{i}:0", cluster_id=f"c{i // 2}", tokens=(30, 30, 1)[i])
        for i, prompt in enumerate(PROMPTS)
    ]
    others = [
        captured([1], arm="ar", trace=None),
        captured([1], status="error", output_ids=[], trace=None),
        captured([1], tokens=1, trace=None),
    ]
    write_records(folder / "records.jsonl", [*others, *records])
    return folder
