"""Adapter for plain causal language models (Llama, Qwen2, Mistral). Pictures are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from recap.targets.request import Request, missing_prefix, text_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image
    from torch import nn
    from transformers import PreTrainedModel

    from recap.targets.request import Message


class CausalLM:
    """A text-only `recap.targets.family.Family`."""

    image_token_id = None

    def __init__(self, model: PreTrainedModel, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer

    @property
    def language_model(self) -> nn.Module:
        """The decoder without its head."""
        return self.model.model

    def encode(self, messages: Sequence[Message], images: Sequence[Image] = ()) -> Request:
        """Encode the text of ``messages``; ``images`` are dropped, their number is recorded."""
        chat = text_only(messages)
        render = self.tokenizer.apply_chat_template
        prompt_text = render(chat, tokenize=False, add_generation_prompt=True)
        encoded = render(
            chat,
            tokenize=True,
            return_dict=True,
            add_generation_prompt=True,
            sanitize_control_tokens=True,
        )
        ids = missing_prefix(self.tokenizer, prompt_text) + list(encoded["input_ids"])
        return Request(
            prompt_ids=np.array(ids, np.int32),
            inputs={"input_ids": torch.tensor([ids])},
            num_image_tokens=0,
            prompt_text=prompt_text,
            images_dropped=len(images),
        )

    def packed_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """int[1, m]."""
        return positions[None]
