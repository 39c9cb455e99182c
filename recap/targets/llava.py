"""Adapter for LLaVA-NeXT (LLaVA-1.6): any-resolution tiles, plain positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recap.targets.request import Request, check_placeholders, encode_chat, with_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from PIL.Image import Image
    from torch import nn
    from transformers import LlavaNextForConditionalGeneration

    from recap.targets.request import Message


class LlavaNext:
    """A `recap.targets.family.Family`.

    A picture becomes 576 tokens of the whole (with the 336/14 tower), the unpadded part of its tile
    grid and one token per row of that: up to 2,928.

    Raises ValueError when the processor would count otherwise than the model: its patch size and
    feature selection are settings of its own, and a folder that lacks them expands placeholders
    wrongly.
    """

    def __init__(self, model: LlavaNextForConditionalGeneration, processor: Any) -> None:
        self.model = model
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.image_token_id: int = model.config.image_token_id
        _check_same_geometry(model.config, processor)

    @property
    def language_model(self) -> nn.Module:
        """The decoder without its head."""
        return self.model.model.language_model

    def encode(self, messages: Sequence[Message], images: Sequence[Image] = ()) -> Request:
        """Encode; a picture's placeholder is repeated once per feature the model has for it."""
        inputs, prompt_text = encode_chat(self.processor, with_parts(messages, images))
        inputs.pop("mm_token_type_ids")
        prompt_ids = inputs["input_ids"][0].numpy().astype(np.int32)
        found = int((prompt_ids == self.image_token_id).sum())
        check_placeholders(found, self._image_tokens(inputs.get("image_sizes")), len(images))
        return Request(prompt_ids, inputs, found, prompt_text)

    def _image_tokens(self, sizes: torch.Tensor | None) -> int:
        """Tokens of pictures of ``sizes`` int64[images, 2] (height, width)."""
        if sizes is None:
            return 0
        counts = self.processor._get_num_multimodal_tokens(sizes.tolist())["num_image_tokens"]
        return sum(counts)

    def packed_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """int[1, m]."""
        return positions[None]


def _check_same_geometry(config: Any, processor: Any) -> None:
    pairs = {
        "patch_size": (processor.patch_size, config.vision_config.patch_size),
        "vision_feature_select_strategy": (
            processor.vision_feature_select_strategy,
            config.vision_feature_select_strategy,
        ),
        "image_grid_pinpoints": (
            [list(size) for size in processor.image_processor.image_grid_pinpoints],
            [list(size) for size in config.image_grid_pinpoints],
        ),
    }
    for name, (in_processor, in_model) in pairs.items():
        if in_processor != in_model:
            raise ValueError(
                f"processor and model disagree on {name}: {in_processor!r} and {in_model!r}; "
                "is processor_config.json missing from the model folder?"
            )
