"""Captured trajectories: what AR said on each input, and the target's predictions along the way.

A run with an arm of ``method: ar, config: {capture: 8}`` (study=replay) leaves them in the traces
of its records. Torch-free: studies replay them without a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from experiments.errors import UserError
from experiments.records import RunRecord, read_records
from recap.core.interfaces import Predictions

if TYPE_CHECKING:
    from recap.core.interfaces import IntArray

ARM = "capture"
_ROWS = ("topk_ids", "topk_probs", "topk_mass")


class FinishedRun(Protocol):
    """What is needed here of `experiments.runner.FinishedRun`, which would bring torch along."""

    @property
    def folder(self) -> Path:
        """The run's folder."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One AR generation of n output tokens.

    unit_id, cluster_id: as in its record.
    vocab_size:          token ids are below it.
    blocked:             int32[b], ids that are never proposed.
    prompt_ids:          int32[p].
    prompt_row_tokens:   int32[m], distinct prompt tokens, blocked ones left out, in order of first
                         occurrence.
    prompt_rows:         the prediction after each of them, at that first occurrence.
    output_ids:          int32[n].
    rows:                n - 1 predictions, after every output token except the last.
    """

    unit_id: str
    cluster_id: str
    vocab_size: int
    blocked: IntArray
    prompt_ids: IntArray
    prompt_row_tokens: IntArray
    prompt_rows: Predictions
    output_ids: IntArray
    rows: Predictions

    def __post_init__(self) -> None:
        expected = (max(len(self.output_ids) - 1, 0), len(self.prompt_row_tokens))
        found = (len(self.rows), len(self.prompt_rows))
        if found != expected:
            raise UserError(
                f"The capture of {self.unit_id} holds {found[0]} rows of its output and {found[1]} "
                f"of its prompt, expected {expected[0]} and {expected[1]}."
            )


def read_trajectories(folder: Path) -> list[Trajectory]:
    """The trajectories of a run folder, in record order.

    Left out are units that failed, and those without a step whose trace is empty: a loop that asks
    for traces step by step never asks there.

    Raises UserError when the run has none, or an incomplete one.
    """
    records = read_records(folder / "records.jsonl")
    own = [r for r in records if r.arm == ARM and r.status == "ok"]
    captured = [r for r in own if r.trace or len(r.output_ids) > 1]
    if not captured:
        raise UserError(f"{folder} holds no captured generation: run study=replay.")
    return [trajectory(record) for record in captured]


def trajectory(record: RunRecord) -> Trajectory:
    """The trajectory of one record. Raises UserError where its trace is no whole capture."""
    parts: Sequence[dict[str, Any]] = record.trace or []
    prompt = next((part for part in parts if "prompt_ids" in part), None)
    if prompt is None:
        raise UserError(f"The record of {record.unit_id} holds no capture of its prompt.")
    if not all(f"prompt_{name}" in prompt for name in _ROWS):
        raise UserError(
            f"The capture of {record.unit_id} is of an earlier version of this code: remove the "
            "run's folder and capture again."
        )
    prompt_rows = [prompt[f"prompt_{name}"] for name in _ROWS]
    rows = [[row for part in parts for row in part[name]] for name in _ROWS]
    width = max((len(ids) for ids in (*prompt_rows[0], *rows[0])), default=1)
    return Trajectory(
        unit_id=record.unit_id,
        cluster_id=record.cluster_id,
        vocab_size=int(prompt["vocab_size"]),
        blocked=np.array(prompt["blocked_ids"], np.int32),
        prompt_ids=np.array(prompt["prompt_ids"], np.int32),
        prompt_row_tokens=np.array(prompt["prompt_row_tokens"], np.int32),
        prompt_rows=_predictions(prompt_rows, width),
        output_ids=np.array(record.output_ids, np.int32),
        rows=_predictions(rows, width),
    )


def _predictions(columns: Sequence[list[Any]], width: int) -> Predictions:
    """Captured rows of ``width`` predictions. The greedy choices are in the output already."""
    ids, probs, mass = columns
    return Predictions(
        np.full(len(ids), -1, np.int32),
        np.array(ids, np.int32).reshape(len(ids), width),
        np.array(probs, np.float32).reshape(len(ids), width),
        np.array(mass, np.float32),
    )
