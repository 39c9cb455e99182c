"""Adapter for Qwen2.5-VL: M-RoPE positions, and image tokens counted from the patch grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from recap.targets.request import Request, check_placeholders, encode_chat, with_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image
    from torch import nn
    from transformers import Qwen2_5_VLForConditionalGeneration

    from recap.targets.request import Message


class Qwen25VL:
    """A `recap.targets.family.Family`.

    Prompt positions are computed here, when a request is encoded, and handed to the model. The
    model would otherwise compute them itself and keep the rope delta as state of its own
    (``model.rope_deltas``), which the next request overwrites; with explicit positions it never
    does, so sessions cannot disturb each other.
    """

    def __init__(self, model: Qwen2_5_VLForConditionalGeneration, processor: Any) -> None:
        self.model = model
        self.processor = processor
        self.tokenizer = processor.tokenizer
        self.image_token_id: int = model.config.image_token_id

    @property
    def language_model(self) -> nn.Module:
        """The decoder without its head."""
        return self.model.model.language_model

    def encode(self, messages: Sequence[Message], images: Sequence[Image] = ()) -> Request:
        """Encode; every picture becomes one token per merged group of patches."""
        inputs, prompt_text = encode_chat(self.processor, with_parts(messages, images))
        prompt_ids = inputs["input_ids"][0].numpy().astype(np.int32)
        found = int((prompt_ids == self.image_token_id).sum())
        check_placeholders(found, self._image_tokens(inputs.get("image_grid_thw")), len(images))
        token_types = inputs.pop("mm_token_type_ids")
        inputs["position_ids"], offset = self._prompt_positions(inputs, token_types)
        return Request(prompt_ids, inputs, found, prompt_text, position_offset=offset)

    def packed_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """int[3, 1, m]: generated text advances alike on the three M-RoPE axes."""
        return positions.expand(3, 1, -1)

    def _image_tokens(self, grid: torch.Tensor | None) -> int:
        """Tokens of pictures with patch grids int64[images, 3] (time, height, width)."""
        merge = self.model.config.vision_config.spatial_merge_size
        return 0 if grid is None else int(grid.prod(dim=1).sum()) // merge**2

    def _prompt_positions(
        self, inputs: dict[str, torch.Tensor], token_types: torch.Tensor
    ) -> tuple[torch.Tensor, int]:
        """Positions int64[3, 1, p] of the prompt, and the rope delta of all later tokens."""
        ids = inputs["input_ids"]
        if "image_grid_thw" not in inputs:
            return torch.arange(ids.shape[1]).expand(3, 1, -1), 0
        positions, delta = self.model.model.get_rope_index(
            ids, mm_token_type_ids=token_types, image_grid_thw=inputs["image_grid_thw"]
        )
        return positions, int(delta)
