"""What a family adapter encodes and a session runs: one generation turn as tensors.

Also the two text problems that all families share: placeholders that users type, and counting
placeholders against pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

Message = Mapping[str, Any]
"""One chat message: ``role`` (system, user, assistant) and ``content``, either text or a list of
parts ``{"type": "text", "text": ...}`` and ``{"type": "image"}``. Pictures come separately, in the
order of the parts.
"""


@dataclass(frozen=True, eq=False)
class Request:
    """One encoded generation turn.

    prompt_ids:       int32[p], image placeholders included, as often as the model replaces them.
    inputs:           keyword arguments of the prompt forward, on the CPU: ``input_ids`` int64[1, p]
                      and whatever the family adds (pixels, grids, positions).
    position_offset:  added to (cache length + depth) of later tokens: Qwen's rope delta, else 0.
    num_image_tokens: placeholders in ``prompt_ids``.
    prompt_text:      the rendered chat template, one placeholder per picture: identifies a prompt.
    images_dropped:   pictures the model cannot see (text-only models).
    """

    prompt_ids: NDArray[np.int32]
    inputs: dict[str, torch.Tensor]
    num_image_tokens: int
    prompt_text: str
    position_offset: int = 0
    images_dropped: int = 0


def with_parts(messages: Sequence[Message], images: Sequence[Image]) -> list[dict[str, Any]]:
    """Messages whose content is a list of parts throughout, the pictures in their parts.

    Raises ValueError when the number of image parts differs from the number of pictures.
    """
    pictures = iter(images)
    wanted = sum(part["type"] == "image" for message in messages for part in _parts(message))
    if wanted != len(images):
        raise ValueError(
            f"the messages have {wanted} image parts, {len(images)} pictures were given"
        )
    chat = []
    for message in messages:
        parts = [
            {"type": "image", "image": next(pictures)} if part["type"] == "image" else dict(part)
            for part in _parts(message)
        ]
        chat.append({"role": message["role"], "content": parts})
    return chat


def text_only(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as plain text: image parts left out, text parts joined by line breaks."""
    chat = []
    for message in messages:
        texts = [part["text"] for part in _parts(message) if part["type"] == "text"]
        chat.append({"role": message["role"], "content": "\n".join(texts)})
    return chat


def _parts(message: Message) -> list[Mapping[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def missing_prefix(tokenizer: Any, prompt_text: str) -> list[int]:
    """Ids the tokenizer puts before a prompt whose template does not write them (Vicuna's bos)."""
    if tokenizer.bos_token and prompt_text.startswith(tokenizer.bos_token):
        return []
    return list(tokenizer("", add_special_tokens=True)["input_ids"])


def encode_chat(processor: Any, chat: list[dict[str, Any]]) -> tuple[dict[str, torch.Tensor], str]:
    """A processor's tensors for ``chat`` (see `with_parts`), and the rendered prompt.

    Special tokens inside message texts (a literal ``<image>`` in a question, say) are encoded as
    the plain characters they are: only the template writes placeholders and turn markers.
    """
    prompt_text = processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    encoded = processor.apply_chat_template(
        chat,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        add_generation_prompt=True,
        sanitize_control_tokens=True,
        # Sanitising and a tokenizer's own bos exclude each other in transformers 5.24: the bos is
        # added below.
        processor_kwargs={"add_special_tokens": False, "return_mm_token_type_ids": True},
    )
    inputs = dict(encoded)
    prefix = missing_prefix(processor.tokenizer, prompt_text)
    for name, value in (("input_ids", prefix), ("mm_token_type_ids", [0] * len(prefix))):
        tensor = inputs[name]
        inputs[name] = torch.cat([tensor.new_tensor([value]), tensor], dim=1)
    inputs.pop("attention_mask", None)  # a single unpadded sequence: all ones
    return inputs, prompt_text


def check_placeholders(found: int, expected: int, images: int) -> None:
    """Raises ValueError unless the prompt holds one placeholder per image token."""
    if found != expected:
        raise ValueError(
            f"the prompt has {found} image placeholders, {images} picture(s) give {expected} image "
            "tokens: the processor and the model disagree, or a text contains placeholder tokens"
        )
