"""LLaVA-NeXT with the 7B model's tower geometry and pinpoints: 1,224 to 2,928 image tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs
from recap.targets.hf import HFTarget

from . import reference as ref
from .models import picture, real_geometry_llava, turn

# width, height, image tokens: 576 for the whole, then the unpadded rows of the tile grid, each with
# a newline
PICTURES = ((100, 900, 1224), (640, 360, 1948), (336, 1008, 2376), (672, 672, 2928))


@pytest.mark.parametrize(("width", "height", "tokens"), PICTURES)
def test_image_tokens(width: int, height: int, tokens: int) -> None:
    request = real_geometry_llava().encode(turn("What is it?"), [picture(width, height, 1)])
    assert request.num_image_tokens == tokens


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32))
@pytest.mark.parametrize(("width", "height", "tokens"), (PICTURES[0], PICTURES[-1]))
def test_packed_tree_equals_sequential_decoding(
    width: int, height: int, tokens: int, dtype: torch.dtype
) -> None:
    adapter, rng = real_geometry_llava(dtype), np.random.default_rng(tokens)
    messages, images = turn("What is it?"), [picture(width, height, 1)]
    target = HFTarget(adapter)
    session, inputs = (
        target.open(target.encode(messages, images), Needs(), 50),
        ref.processed(adapter, messages, images),
    )
    session.prefill()
    first, second = (ref.random_tree(rng, 24, token, 250) for token in (5, 9))
    session.verify(first)
    path = first.path(20)
    session.commit(path)
    logits = ref.packed_logits(session, second)
    committed = first.tokens[path].tolist()
    for node in (0, 11, 23):
        expected = ref.logits_after(
            adapter, inputs, committed + second.tokens[second.path(node)].tolist()
        )
        torch.testing.assert_close(logits[node], expected, atol=ref.TOLERANCE[dtype], rtol=0)


def test_autoregressive_equals_generate() -> None:
    adapter = real_geometry_llava()
    messages, images = turn("What is it?"), [picture(800, 600, 3)]
    target = HFTarget(adapter)
    session = target.open(target.encode(messages, images), Needs(), 30)
    output = decode(session, AutoregressiveDrafter(target.vocab_size), Limits(30)).output_ids
    assert output == ref.generated(adapter, ref.processed(adapter, messages, images), 30)
