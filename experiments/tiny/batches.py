"""Samples to tensors: conversations with targets and loss weights, and prompts to answer.

Legend: b samples, t tokens (padded on the right; causal attention needs no mask for that).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from experiments.tiny.pictures import COLOURS
from experiments.tiny.samples import Sample
from experiments.tiny.tokenizer import SYSTEM_MESSAGE

IGNORED = -100  # target of a position that carries no loss
Message = dict[str, Any]
_COLOUR = re.compile(rf"\b({'|'.join(COLOURS)})\b")


@dataclass(frozen=True)
class Encoded:
    """One conversation: `ids`, the token wanted after each, and the weight of that choice."""

    ids: list[int]
    targets: list[int]
    weights: list[float]
    picture: Image.Image


def messages(sample: Sample, num_turns: int, system: bool, answers: list[str]) -> list[Message]:
    """The conversation up to question number `num_turns`, with `answers` for the ones before it.

    The picture comes first, in the first user message; `system` adds MMSpec's system message.
    """
    chat: list[Message] = []
    if system:
        chat.append({"role": "system", "content": [_text(SYSTEM_MESSAGE)]})
    for index in range(num_turns):
        picture = [{"type": "image"}] if index == 0 else []
        question = sample.turns[index].question
        chat.append({"role": "user", "content": [*picture, _text(question)]})
        if index < len(answers):
            chat.append({"role": "assistant", "content": [_text(answers[index])]})
    return chat


def _text(text: str) -> Message:
    return {"type": "text", "text": text}


class Encoder:
    """Turns samples into training tensors for one family, whose processor it is given.

    Works on generated pictures only: their number of image tokens is constant, so the processor's
    expansion of the placeholder is done here once and checked by the tests against the processor.
    """

    def __init__(self, processor: Any, marked_weight: float) -> None:
        """`marked_weight` is the loss weight of marked words and colours; all others weigh 1.

        A colour that only repeats the question needs no picture, but everything after it does.
        """
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.marked_weight = marked_weight
        self.is_qwen = hasattr(processor, "video_token")
        # A LLaVA answer starts with the space that its template puts after "ASSISTANT:".
        self.lead = "" if self.is_qwen else " "
        probe = Image.new("RGB", (112, 112))
        token = processor.image_token
        ids = processor(images=[probe], text=[token])["input_ids"][0]
        self.num_image_tokens = sum(i == processor.image_token_id for i in ids)

    def encode(self, sample: Sample, system: bool) -> Encoded:
        """The whole conversation of a sample; after every answer the stop token is wanted."""
        answers = [turn.answer.text for turn in sample.turns]
        rows = [
            self._render(messages(sample, index + 1, system, answers[:index]), True)
            for index in range(len(answers))
        ]
        full = self._render(messages(sample, len(answers), system, answers), False)
        coded = self.tokenizer(full, return_offsets_mapping=True)
        ids, offsets = coded["input_ids"], coded["offset_mapping"]
        targets, weights = [IGNORED] * len(ids), [0.0] * len(ids)
        for prefix, turn in zip(rows, sample.turns, strict=True):
            start = len(prefix)
            stop = start + len(self.lead + turn.answer.text)
            shift = start + len(self.lead)
            heavy = [*turn.answer.spans, *(m.span() for m in _COLOUR.finditer(turn.answer.text))]
            spans = [(a + shift, b + shift) for a, b in heavy]
            inside = [i for i, (a, b) in enumerate(offsets) if start <= a < stop and b > a]
            for i in inside:
                a, b = offsets[i]
                marked = any(a < high and low < b for low, high in spans)
                targets[i - 1], weights[i - 1] = (
                    ids[i],
                    self.marked_weight if marked else 1.0,
                )
            targets[inside[-1]], weights[inside[-1]] = self.tokenizer.eos_token_id, 1.0
        return Encoded(ids, targets, weights, sample.picture)

    def _render(self, chat: list[Message], prompt: bool) -> str:
        text = self.processor.apply_chat_template(chat, add_generation_prompt=prompt)
        token = self.processor.image_token
        return text.replace(token, token * self.num_image_tokens)

    def collate(self, rows: list[Encoded]) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
        """Model inputs, targets [b, t] and weights [b, t]."""
        longest = max(len(row.ids) for row in rows)
        pad = self.tokenizer.pad_token_id

        def padded(values: list[list[Any]], fill: float, dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor([v + [fill] * (longest - len(v)) for v in values], dtype=dtype)

        ids = padded([row.ids for row in rows], pad, torch.long)
        inputs: dict[str, Any] = {"input_ids": ids}
        inputs.update(
            self.processor.image_processor([r.picture for r in rows], return_tensors="pt")
        )
        if self.is_qwen:
            inputs["mm_token_type_ids"] = (ids == self.processor.image_token_id).long()
        targets = padded([row.targets for row in rows], IGNORED, torch.long)
        weights = padded([row.weights for row in rows], 0.0, torch.float32)
        return inputs, targets, weights


def prompts(
    processor: Any,
    samples: list[Sample],
    turn: int,
    system: bool,
    answers: list[list[str]],
) -> dict[str, torch.Tensor]:
    """Left-padded model inputs asking question `turn` (from 0) of each sample.

    `answers[i]` are the model's own answers to the questions before it. Everything goes through the
    processor, as in the harness.
    """
    texts = [
        processor.apply_chat_template(
            messages(sample, turn + 1, system, given), add_generation_prompt=True
        )
        for sample, given in zip(samples, answers, strict=True)
    ]
    pictures = [sample.picture for sample in samples]
    return dict(
        processor(
            images=pictures,
            text=texts,
            return_tensors="pt",
            padding=True,
            padding_side="left",
        )
    )
