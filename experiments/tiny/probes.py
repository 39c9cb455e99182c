"""Linear probes on the image embeddings: what the picture shows, read without the decoder.

A training aid. For a tower this small, learning to see only through a decoder that does not yet
attend to it takes most of the budget; probing its output for the drawn facts teaches it within
minutes. The probes are thrown away and are no part of a checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from experiments.tiny.pictures import COLOURS, MAX_HEIGHT, SHAPES, WORDS, Chart, Facts, Grid

_COLOUR = list(COLOURS)
# One classifier per fact: 4 bar colours, 4 heights, 4 shape colours, 4 shapes, word, two digits,
# two text colours.
SIZES = (6, 6, 6, 6, *[MAX_HEIGHT] * 4, 6, 6, 6, 6, *[len(SHAPES)] * 4, len(WORDS), 10, 10, 6, 6)
ABSENT = -100


def labels(facts: Facts) -> list[int]:
    """The class of every fact in the order of `SIZES`; `ABSENT` where the picture has none."""
    if isinstance(facts, Chart):
        mine = [_COLOUR.index(bar.colour) for bar in facts.bars]
        mine += [bar.height - 1 for bar in facts.bars]
        start = 0
    elif isinstance(facts, Grid):
        mine = [_COLOUR.index(shape.colour) for shape in facts.shapes]
        mine += [SHAPES.index(shape.name) for shape in facts.shapes]
        start = 8
    else:
        mine = [WORDS.index(facts.word), *map(int, facts.number)]
        mine += [_COLOUR.index(facts.word_colour), _COLOUR.index(facts.number_colour)]
        start = 16
    row = [ABSENT] * len(SIZES)
    row[start : start + len(mine)] = mine
    return row


class Probe(nn.Module):
    """Listens to a model's image projector and classifies what it says."""

    def __init__(self, model: Any, num_tokens: int, width: int) -> None:
        """Hook the projector of either family: `num_tokens` embeddings of `width` per picture."""
        super().__init__()
        self.num_tokens = num_tokens
        self.heads = nn.Linear(num_tokens * width, sum(SIZES))
        self._seen: torch.Tensor | None = None
        inner = model.model
        projector = getattr(inner, "multi_modal_projector", None) or inner.visual.merger
        self._handle = projector.register_forward_hook(self._listen)

    def _listen(self, module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self._seen = output

    def close(self) -> None:
        """Stop listening."""
        self._handle.remove()

    def loss(self, wanted: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Mean cross entropy and accuracy over the facts `wanted` [b, facts] of the last forward.

        LLaVA's projector sees each small picture twice (whole and as a tile); the first counts.
        """
        assert self._seen is not None, "run the model before asking the probe"
        seen = self._seen.float().reshape(len(wanted), -1)[:, : self.heads.in_features]
        losses, right, count = [], 0.0, 0
        for column, logits in enumerate(self.heads(seen).split(SIZES, dim=-1)):
            keep = wanted[:, column] != ABSENT
            if keep.any():
                target = wanted[keep, column]
                losses.append(F.cross_entropy(logits[keep], target, reduction="sum"))
                right += float((logits[keep].argmax(-1) == target).sum())
                count += int(keep.sum())
        return torch.stack(losses).sum() / count, right / count
