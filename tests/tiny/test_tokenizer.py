"""The byte-level tokenizers and the encoding of conversations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.tiny.batches import IGNORED, Encoder, messages
from experiments.tiny.models import MODELS, build
from experiments.tiny.samples import make_sample
from experiments.tiny.tokenizer import EMBEDDINGS, llava_tokenizer, qwen_tokenizer

TOKENIZERS = {"tiny_qwen25vl": qwen_tokenizer(), "tiny_llava": llava_tokenizer()}


@pytest.fixture(scope="module", params=MODELS)
def processor(request: pytest.FixtureRequest) -> Any:
    return build(request.param)[1]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=40))
def test_any_text_comes_back(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    assert all(i < len(tokenizer) <= EMBEDDINGS for i in ids)


@pytest.mark.parametrize("name", MODELS)
def test_every_byte_has_a_token(name: str) -> None:
    """Latin-1 code points cover every continuation byte; the rest comes from the byte alphabet."""
    tokenizer = TOKENIZERS[name]
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = tokenizer.get_vocab()
    alphabet = ByteLevel.alphabet()
    assert len(alphabet) == 256
    assert all(symbol in vocabulary for symbol in alphabet)


@pytest.mark.parametrize("name", MODELS)
def test_special_tokens(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    eos = {"tiny_qwen25vl": "<|im_end|>", "tiny_llava": "</s>"}[name]
    assert tokenizer.eos_token == eos and tokenizer.pad_token_id != tokenizer.eos_token_id
    image = {"tiny_qwen25vl": "<|image_pad|>", "tiny_llava": "<image>"}[name]
    assert tokenizer(image, add_special_tokens=False)["input_ids"] == [
        tokenizer.convert_tokens_to_ids(image)
    ]


def test_prompts_are_rendered_like_the_7b_ones() -> None:
    sample = make_sample("text", 0)
    question = sample.turns[0].question
    chat = messages(sample, 1, False, [])
    qwen = TOKENIZERS["tiny_qwen25vl"].apply_chat_template(
        chat, tokenize=False, add_generation_prompt=True
    )
    assert qwen == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
        f"<|vision_start|><|image_pad|><|vision_end|>{question}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    llava = TOKENIZERS["tiny_llava"].apply_chat_template(
        messages(sample, 1, True, []), tokenize=False, add_generation_prompt=True
    )
    assert llava.startswith("A chat between a curious human and ")
    assert llava.endswith(f"questions. USER: <image>\n{question} ASSISTANT:")


@pytest.mark.parametrize("system", [False, True])
def test_training_rows_are_what_the_processor_gives(processor: Any, system: bool) -> None:
    """A training row starts with the very prompt of every turn; each answer ends with a stop."""
    sample = make_sample("multi_turn", 12, num_turns=3)
    encoder = Encoder(processor, 3.0)
    row = encoder.encode(sample, system)
    answers = [turn.answer.text for turn in sample.turns]
    for index, turn in enumerate(sample.turns):
        text = processor.apply_chat_template(
            messages(sample, index + 1, system, answers[:index]), add_generation_prompt=True
        )
        prompt = processor(images=[sample.picture], text=[text])["input_ids"][0]
        assert row.ids[: len(prompt)] == list(prompt)
        wanted = []
        for target in row.targets[len(prompt) - 1 :]:
            wanted.append(target)
            if target == processor.tokenizer.eos_token_id:
                break
        assert IGNORED not in wanted
        assert processor.tokenizer.decode(wanted[:-1]).strip() == turn.answer.text
    assert set(row.weights) == {0.0, 1.0, 3.0}
