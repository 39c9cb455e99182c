"""From messages and pictures to requests: placeholders, literal special tokens, errors."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from .models import FAMILIES, family, picture, turn

LITERALS = (
    "<image>",
    "<image 1>",
    "<|image_pad|>",
    "<|vision_start|><|image_pad|><|vision_end|>",
    "</s>",
    "<|im_end|>",
)


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("name", FAMILIES)
def test_special_tokens_in_a_question_stay_text(name: str, literal: str) -> None:
    adapter = family(name)
    pictures = [] if name == "causal_lm" else [picture(80, 60, 1)]
    plain = adapter.encode(turn("What is  here?", len(pictures)), pictures)
    typed = adapter.encode(turn(f"What is {literal} here?", len(pictures)), pictures)
    special = np.array(adapter.tokenizer.all_special_ids)
    # The template's own special tokens and placeholders, no more, and the literal in full as bytes.
    count = [int(np.isin(request.prompt_ids, special).sum()) for request in (plain, typed)]
    assert count[0] == count[1] and plain.num_image_tokens == typed.num_image_tokens
    assert len(typed.prompt_ids) == len(plain.prompt_ids) + len(literal)
    assert (
        adapter.tokenizer.decode(typed.prompt_ids.tolist()).count(f"What is {literal} here?") == 1
    )


@pytest.mark.parametrize("name", ("qwen25vl", "llava"))
def test_literals_in_system_and_assistant_messages_stay_text(name: str) -> None:
    adapter, literal = family(name), "<image><|image_pad|>"
    messages = turn("First?", 1, system=f"You see {literal}.")
    messages += [{"role": "assistant", "content": f"A {literal}."}, *turn(f"And {literal}?", 1)]
    request = adapter.encode(messages, [picture(80, 60, 1), picture(60, 90, 2)])
    alone = [
        adapter.encode(turn("x"), [p]).num_image_tokens
        for p in (picture(80, 60, 1), picture(60, 90, 2))
    ]
    assert request.num_image_tokens == sum(alone)


@pytest.mark.parametrize("name", FAMILIES)
def test_text_and_part_lists_encode_alike(name: str) -> None:
    adapter = family(name)
    as_text = adapter.encode([{"role": "user", "content": "Hello"}])
    as_parts = adapter.encode([{"role": "user", "content": [{"type": "text", "text": "Hello"}]}])
    assert as_text.prompt_ids.tolist() == as_parts.prompt_ids.tolist()
    assert as_text.prompt_text == as_parts.prompt_text
    assert as_text.num_image_tokens == 0 and as_text.position_offset == 0


def test_prompt_text_is_the_rendered_template() -> None:
    request = family("llava").encode(turn("Why?", system="Be brief."), [picture(80, 60, 1)])
    assert request.prompt_text == "Be brief. USER: <image>\nWhy? ASSISTANT:"
    assert request.prompt_ids[0] == family("llava").tokenizer.bos_token_id


def test_text_only_models_drop_pictures_and_say_so() -> None:
    adapter, pictures = family("causal_lm"), [picture(80, 60, 1), picture(80, 60, 2)]
    request = adapter.encode(turn("Why?", 2), pictures)
    assert request.images_dropped == 2 and request.num_image_tokens == 0
    assert request.prompt_ids.tolist() == adapter.encode(turn("Why?", 0)).prompt_ids.tolist()


@pytest.mark.parametrize("name", ("qwen25vl", "llava"))
def test_a_picture_that_its_exif_turns_counts_as_turned(name: str) -> None:
    adapter, image = family(name), picture(200, 60, 1)
    exif = image.getexif()
    exif[0x0112] = 6  # orientation: turned by 90 degrees
    buffer = BytesIO()
    image.save(buffer, "JPEG", exif=exif)
    turned, upright = Image.open(buffer), image.transpose(Image.Transpose.ROTATE_270)
    counts = [adapter.encode(turn("?"), [p]).num_image_tokens for p in (turned, upright)]
    assert counts[0] in (counts[1], adapter.encode(turn("?"), [image]).num_image_tokens)


@pytest.mark.parametrize("name", ("qwen25vl", "llava"))
@pytest.mark.parametrize(("parts", "pictures"), ((0, 1), (2, 1), (1, 0)))
def test_image_parts_and_pictures_must_match(name: str, parts: int, pictures: int) -> None:
    with pytest.raises(ValueError, match=f"{parts} image parts, {pictures} pictures"):
        family(name).encode(turn("Why?", parts), [picture(80, 60, 1)] * pictures)


@pytest.mark.parametrize("name", ("qwen25vl", "llava"))
def test_processor_and_model_that_count_differently_are_refused(
    name: str, monkeypatch: Any
) -> None:
    adapter = family(name)
    original = type(adapter.processor).replace_image_token

    def one_less(self: Any, *args: Any, **kwargs: Any) -> str:
        return original(self, *args, **kwargs)[: -len(self.image_token)]

    monkeypatch.setattr(type(adapter.processor), "replace_image_token", one_less)
    with pytest.raises(ValueError, match="the processor and the model disagree"):
        adapter.encode(turn("Why?"), [picture(80, 60, 1)])


def test_llava_refuses_a_processor_of_another_geometry(monkeypatch: Any) -> None:
    adapter = family("llava")
    monkeypatch.setattr(adapter.processor, "patch_size", None)
    with pytest.raises(ValueError, match="disagree on patch_size: None and 14"):
        type(adapter)(adapter.model, adapter.processor)
