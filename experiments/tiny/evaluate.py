"""Accuracy of the tiny models on pictures they never saw.

Answers are decoded greedily through the processor and chat template, like in the harness; what is
counted are the words that need the picture (see `markup.words_right`). Asking the same questions
with the wrong picture shows how much of that could be guessed from the text alone.

Example: `python -m experiments.tiny.evaluate --samples 48`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from experiments.tiny.batches import prompts
from experiments.tiny.markup import words_right
from experiments.tiny.models import CHECKPOINTS, MODELS, load
from experiments.tiny.samples import EVAL_SEEDS, TASKS, Sample, make_sample

MAX_NEW_TOKENS = 200
BATCH = 16
BARS = {"tiny_qwen25vl": 0.90, "tiny_llava": 0.85}


@dataclass(frozen=True)
class Score:
    """Counts over the answers of one task; `exact` answers equal the reference word for word."""

    right: int = 0
    marked: int = 0
    exact: int = 0
    answers: int = 0
    tokens: int = 0

    @property
    def accuracy(self) -> float:
        """Share of picture-dependent words that are right."""
        return self.right / max(self.marked, 1)

    def __add__(self, other: Score) -> Score:
        """Counts of both."""
        return Score(
            self.right + other.right,
            self.marked + other.marked,
            self.exact + other.exact,
            self.answers + other.answers,
            self.tokens + other.tokens,
        )


def swap_pictures(samples: Sequence[Sample]) -> list[Sample]:
    """The same conversations, each with the picture of the next sample of its kind.

    A sample that is the only one of its kind keeps its picture and is left out.
    """
    swapped = []
    for index, sample in enumerate(samples):
        order = [*samples[index + 1 :], *samples[:index]]
        other = next((o for o in order if o.kind == sample.kind), None)
        if other is not None:
            swapped.append(replace(sample, picture=other.picture))
    return swapped


@torch.no_grad()
def answer(
    model: Any, processor: Any, samples: Sequence[Sample], system: bool
) -> list[list[tuple[str, int]]]:
    """Greedy answers: per sample and turn the text and its number of tokens.

    Later turns see the model's own earlier answers. Samples must have equally many turns.
    """
    given: list[list[str]] = [[] for _ in samples]
    result: list[list[tuple[str, int]]] = [[] for _ in samples]
    for turn in range(len(samples[0].turns)):
        inputs = prompts(processor, list(samples), turn, system, given)
        out = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        for row, ids in enumerate(out[:, inputs["input_ids"].shape[1] :]):
            kept = ids[ids != processor.tokenizer.pad_token_id]
            text = processor.tokenizer.decode(kept, skip_special_tokens=True).strip()
            given[row].append(text)
            result[row].append((text, len(kept)))
    return result


def score(model: Any, processor: Any, samples: Sequence[Sample], system: bool) -> Score:
    """Score of the model on samples of one task, batched by number of turns."""
    total = Score()
    for count in sorted({len(sample.turns) for sample in samples}):
        group = [sample for sample in samples if len(sample.turns) == count]
        for first in range(0, len(group), BATCH):
            part = group[first : first + BATCH]
            for sample, texts in zip(part, answer(model, processor, part, system), strict=True):
                for turn, (text, tokens) in zip(sample.turns, texts, strict=True):
                    right, marked = words_right(turn.answer, text)
                    total += Score(right, marked, int(text == turn.answer.text), 1, tokens)
    return total


def evaluate(name: str, num_samples: int, root: Path = CHECKPOINTS) -> dict[str, Score]:
    """Score per task, on `num_samples` held-out samples each, plus `swapped` over all tasks.

    Half of the samples carry MMSpec's system message.
    """
    model, processor = load(name, root)
    scores: dict[str, Score] = {}
    swapped = Score()
    for task in TASKS:
        samples = [make_sample(task, EVAL_SEEDS + i) for i in range(num_samples)]
        half = num_samples // 2
        scores[task] = score(model, processor, samples[:half], True) + score(
            model, processor, samples[half:], False
        )
        swapped += score(model, processor, swap_pictures(samples[: max(half, 4)]), False)
    return {**scores, "swapped": swapped}


def report(name: str, scores: dict[str, Score]) -> None:
    """Print one line per task, then the total against its bar and the wrong-picture control."""
    tasks = {task: value for task, value in scores.items() if task != "swapped"}
    total = sum(tasks.values(), Score())
    print(f"{name}: picture-dependent words right, exact answers, tokens per answer")
    for task, value in {
        **tasks,
        "all tasks": total,
        "wrong picture": scores["swapped"],
    }.items():
        print(
            f"  {task:14s} {100 * value.accuracy:6.1f} %  "
            f"{100 * value.exact / max(value.answers, 1):6.1f} %  "
            f"{value.tokens / max(value.answers, 1):6.1f}   ({value.answers} answers)"
        )
    verdict = "met" if total.accuracy >= BARS[name] else "MISSED"
    print(f"  bar {100 * BARS[name]:.0f} %: {verdict}", flush=True)


def main() -> None:
    """Evaluate the checkpoints named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=[*MODELS, "both"], default="both")
    parser.add_argument("--samples", type=int, default=48, help="held-out samples per task")
    parser.add_argument("--root", type=Path, default=CHECKPOINTS, help="folder of the checkpoints")
    args = parser.parse_args()
    torch.set_num_threads(1)  # models this small only lose time to more
    for name in MODELS if args.model == "both" else [args.model]:
        report(name, evaluate(name, args.samples, args.root))


if __name__ == "__main__":
    main()
