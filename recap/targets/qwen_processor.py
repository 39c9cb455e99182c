"""Qwen2.5-VL's processor without its video half.

transformers 5 builds `Qwen2_5_VLProcessor` only together with a video processor, and that one needs
torchvision. Here every input is one still picture, so the video processor is left out: the class
loads a folder laid out like Qwen2.5-VL-7B's, encodes pictures through the PIL backend and returns
`mm_token_type_ids`, without which the model would fall back to plain 1-D positions.

Example: `ImageOnlyQwenProcessor.from_pretrained(folder, backend="pil")`.
"""

from __future__ import annotations

from typing import Any

from transformers import Qwen2_5_VLProcessor
from transformers.processing_utils import ProcessorMixin


class ImageOnlyQwenProcessor(Qwen2_5_VLProcessor):
    """Text and still pictures to model inputs, for the Qwen2.5-VL family.

    Calling it with `images=[...]` and `text=[...]` gives `input_ids`, `attention_mask` and
    `mm_token_type_ids` (all [batch, tokens]), `pixel_values` [patches, 3*2*14*14] and
    `image_grid_thw` [images, 3]; each image placeholder in the text is repeated once per merged
    2x2 group of patches. Passing `videos` raises `ValueError`.
    """

    def __init__(
        self,
        image_processor: Any = None,
        tokenizer: Any = None,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the parts; `kwargs` (a saved video processor among them) are ignored.

        The signature names the parts: `ProcessorMixin` loads and saves what it finds here, which is
        why the parent's `__init__`, with its third part, is passed over.
        """
        self.image_token = getattr(tokenizer, "image_token", None) or "<|image_pad|>"
        self.video_token = getattr(tokenizer, "video_token", None) or "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

    def __call__(
        self, images: Any = None, text: Any = None, videos: Any = None, **kwargs: Any
    ) -> Any:
        """Encode; see the class. Raises `ValueError` when a video is passed."""
        if videos is not None:
            raise ValueError("ImageOnlyQwenProcessor takes still pictures only, got videos")
        return super().__call__(images=images, text=text, **kwargs)

    @property
    def model_input_names(self) -> list[str]:
        """Names of the arrays a call returns, the video ones left out."""
        names = ProcessorMixin.model_input_names.fget(self)
        return [*names, "mm_token_type_ids"]
