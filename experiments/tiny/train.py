"""Train the tiny models on generated pictures and write their checkpoint folders.

A curriculum is what makes this work: trained on long answers from scratch, a small decoder learns
the wording and never looks at the picture. So it starts on short answers in which every word needs
the picture, while linear probes teach the vision tower (see `probes`); then long answers and
conversations come in, with more weight on the words that need the picture.

Deterministic for one machine type: samples, order and weights follow from fixed seeds, one thread
per model. Example: `python -m experiments.tiny.train --model both`.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from experiments.tiny.batches import IGNORED, Encoded, Encoder
from experiments.tiny.models import CHECKPOINTS, MODELS, WIDTH, build, save
from experiments.tiny.probes import Probe, labels
from experiments.tiny.samples import SHORT_TASK, TRAIN_SEEDS, Sample, make_sample

# Qwen's merged 28-pixel tokens leave the decoder more to work out than LLaVA's tiles do.
STEPS = {"tiny_qwen25vl": 4000, "tiny_llava": 2600}
BUCKET = 8  # batches drawn together and sorted by length, so that little padding is computed
PEAK_RATE = 1.2e-3
MARKED_WEIGHT = 3.0
PROBED_SHARE = 0.4  # of the steps, from the start, in which the probes take part
# Questions that compare or look something up take longest to learn.
TASK_WEIGHTS = {"shapes": 2, "text": 1, "caption": 1, "chart": 2, "reasoning": 3, "multi_turn": 3}
REPORT_EVERY = 100
SAVE_EVERY = 500


@dataclass(frozen=True)
class Stage:
    """A stretch of the training, up to the share `until` of the steps."""

    until: float
    short: float  # share of short samples
    short_turns: int  # turns kept of a short sample
    system: float  # share of conversations with a system message
    batch: int


# First one question right after the picture, always at the same distance, which a decoder finds
# fastest; then questions at any distance; then long answers.
CURRICULUM = (
    Stage(until=0.20, short=1.0, short_turns=1, system=0.0, batch=32),
    Stage(until=0.30, short=0.9, short_turns=3, system=0.3, batch=16),
    Stage(until=0.40, short=0.5, short_turns=3, system=0.3, batch=16),
    Stage(until=1.00, short=0.1, short_turns=3, system=0.3, batch=16),
)

Row = tuple[Encoded, list[int]]  # a conversation and the probes' labels of its picture


def stage_at(progress: float) -> Stage:
    """The stage at `progress` in [0, 1) of the training."""
    return next(stage for stage in CURRICULUM if progress < stage.until)


def learning_rate(progress: float) -> float:
    """Warm-up over the first 2 %, then a cosine down to a fiftieth of the peak."""
    if progress < 0.02:
        return PEAK_RATE * max(progress, 1e-4) / 0.02
    cosine = 0.5 * (1 + math.cos(math.pi * (progress - 0.02) / 0.98))
    return PEAK_RATE * (0.02 + 0.98 * cosine)


def batches(encoder: Encoder, steps: int, seed: int) -> Iterator[list[Row]]:
    """`steps` batches of conversations, following the curriculum."""
    rng = random.Random(seed)
    numbers = itertools.count(TRAIN_SEEDS)
    for first in range(0, steps, BUCKET):
        stage = stage_at(first / steps)
        rows: list[Row] = []
        for _ in range(BUCKET * stage.batch):
            sample = _draw_sample(rng, stage, next(numbers))
            encoded = encoder.encode(sample, rng.random() < stage.system)
            rows.append((encoded, labels(sample.facts)))
        rows.sort(key=lambda row: len(row[0].ids))
        groups = [rows[i : i + stage.batch] for i in range(0, len(rows), stage.batch)]
        rng.shuffle(groups)
        yield from groups[: steps - first]


def _draw_sample(rng: random.Random, stage: Stage, number: int) -> Sample:
    if rng.random() < stage.short:
        sample = make_sample(SHORT_TASK, number)
        return replace(sample, turns=sample.turns[: stage.short_turns])
    (task,) = rng.choices(list(TASK_WEIGHTS), list(TASK_WEIGHTS.values()))
    return make_sample(task, number)


def loss_of(
    model: Any, inputs: dict[str, Any], targets: torch.Tensor, weights: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """Weighted cross entropy and the share of marked tokens chosen rightly.

    `targets` and `weights` are [b, t]; only positions with a target go through the output layer.
    """
    hidden = model.model(**inputs, use_cache=False).last_hidden_state  # [b, t, d]
    wanted = targets != IGNORED
    logits = model.lm_head(hidden[wanted]).float()  # [positions, vocabulary]
    target, weight = targets[wanted], weights[wanted]
    loss = (F.cross_entropy(logits, target, reduction="none") * weight).sum() / weight.sum()
    marked = weight > 1
    right = (logits[marked].argmax(-1) == target[marked]).float().mean().item()
    return loss, right


class Trainer:
    """One model with its optimiser and its probes."""

    def __init__(self, name: str, steps: int, seed: int) -> None:
        """Build the model `name` from `seed`, to be trained for `steps` batches."""
        self.name, self.steps = name, steps
        self.model, self.processor = build(name, seed)
        self.encoder = Encoder(self.processor, MARKED_WEIGHT)
        image_tokens = 16  # what the projector gives for one 112 x 112 picture in both families
        self.probe = Probe(self.model, image_tokens, WIDTH)
        self.parameters = [*self.model.parameters(), *self.probe.parameters()]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.01
        )

    def step(self, number: int, rows: Sequence[Row]) -> tuple[float, float, float]:
        """One update; loss, share of marked tokens right and of probed facts right (0 later on)."""
        progress = number / self.steps
        self.optimizer.param_groups[0]["lr"] = learning_rate(progress)
        inputs, targets, weights = self.encoder.collate([encoded for encoded, _ in rows])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, right = loss_of(self.model, inputs, targets, weights)
        total, seen = loss, 0.0
        if progress < PROBED_SHARE:
            probed, seen = self.probe.loss(torch.tensor([wanted for _, wanted in rows]))
            total = loss + probed
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return loss.item(), right, seen


def train(name: str, root: Path = CHECKPOINTS, steps: int | None = None, seed: int = 0) -> None:
    """Train one model for `steps` batches, by default its `STEPS`; write `root/name`."""
    steps = STEPS[name] if steps is None else steps
    torch.set_num_threads(1)
    trainer = Trainer(name, steps, seed)
    started, recent = time.time(), []
    for number, rows in enumerate(batches(trainer.encoder, steps, seed)):
        recent.append(trainer.step(number, rows))
        if (number + 1) % REPORT_EVERY == 0:
            loss, right, seen = (sum(column) / len(recent) for column in zip(*recent, strict=True))
            print(
                f"{name} {number + 1}/{steps}: loss {loss:.4f}, marked {right:.3f}, probed "
                f"{seen:.3f}, {(time.time() - started) / 60:.1f} min",
                flush=True,
            )
            recent = []
        if (number + 1) % SAVE_EVERY == 0 or number + 1 == steps:
            save(name, trainer.model, trainer.processor, root / name)


def train_both(arguments: Sequence[str]) -> int:
    """Train the models side by side, one single-threaded process each; the worse exit status."""
    command = [sys.executable, "-m", "experiments.tiny.train", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [subprocess.Popen([*command, "--model", name], env=environment) for name in MODELS]
    return max(process.wait() for process in running)


def main() -> None:
    """Train what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=[*MODELS, "both"], default="both")
    parser.add_argument("--steps", type=int, help=f"batches, by default {STEPS}")
    parser.add_argument("--root", type=Path, default=CHECKPOINTS, help="folder of the checkpoints")
    args = parser.parse_args()
    if args.model == "both":
        sys.exit(train_both(sys.argv[1:]))
    train(args.model, args.root, args.steps)


if __name__ == "__main__":
    main()
