"""Random-weight models of every family, built in code from seeds: no hub, no files.

Tokenizers are byte-level without merges, so any text encodes; templates and special tokens are
those of the real families where it matters (a default system message and turn markers for Qwen, a
bos that the template does not write for LLaVA).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessorPil,
    LlavaNextProcessor,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
)

from recap.targets.causal_lm import CausalLM
from recap.targets.llava import LlavaNext
from recap.targets.qwen25vl import Qwen25VL
from recap.targets.qwen_processor import ImageOnlyQwenProcessor

FAMILIES = ("qwen25vl", "llava", "causal_lm")
VOCAB = 320
CONTEXT = 512
REAL_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]

_CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nHelp.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_VICUNA = (
    "{% for message in messages %}"
    "{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ part['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
_CHATML_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
)


def _byte_level(special: tuple[str, ...]) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    return tokenizer


def chatml_tokenizer() -> PreTrainedTokenizerFast:
    """Qwen's special tokens and turn markers over bytes."""
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_level((*_CHATML_SPECIAL, "<|image_pad|>", "<|video_pad|>")),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=_CHATML,
    )


def vicuna_tokenizer() -> PreTrainedTokenizerFast:
    """Vicuna's special tokens over bytes; the bos comes from the tokenizer, not the template."""
    tokenizer = _byte_level(("<unk>", "<s>", "</s>", "<image>", "<pad>"))
    bos = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        chat_template=_VICUNA,
        extra_special_tokens={"image_token": "<image>"},
    )


def _decoder(**changes: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    } | changes


def _qwen_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}
    return Qwen2_5_VLConfig(
        text_config=_decoder(rope_parameters=rope),
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 64,
            "out_hidden_size": 48,
            "fullatt_block_indexes": [1],
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    )


def _llava_config(
    tokenizer: PreTrainedTokenizerFast, side: int, pinpoints: Any, **text: Any
) -> LlavaNextConfig:
    tower = CLIPVisionConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=side,
        patch_size=14,
        projection_dim=16,
    )
    return LlavaNextConfig(
        vision_config=tower,
        text_config=LlamaConfig(**_decoder(**text)),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=pinpoints,
    )


def _llava_processor(
    tokenizer: PreTrainedTokenizerFast, side: int, pinpoints: Any
) -> LlavaNextProcessor:
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": side},
        crop_size={"height": side, "width": side},
        image_grid_pinpoints=pinpoints,
    )
    return LlavaNextProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )


def _finish(model: PreTrainedModel, dtype: torch.dtype, seed: int) -> Any:
    """Weights large enough that greedy text wanders and every position matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                scale = 0.7 if "lm_head" in name or "embed_tokens" in name else 0.25
                weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
    return model.to(dtype).eval()


def _qwen(dtype: torch.dtype, attention: str) -> Qwen25VL:
    tokenizer = chatml_tokenizer()
    images = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=224 * 224)
    processor = ImageOnlyQwenProcessor(images, tokenizer, chat_template=tokenizer.chat_template)
    config = _qwen_config(tokenizer)
    config._attn_implementation = attention
    return Qwen25VL(_finish(Qwen2_5_VLForConditionalGeneration(config), dtype, 1), processor)


def _llava(dtype: torch.dtype, attention: str) -> LlavaNext:
    tokenizer = vicuna_tokenizer()
    pinpoints = [[28, 56], [56, 28], [56, 56]]
    config = _llava_config(tokenizer, 28, pinpoints)
    config._attn_implementation = attention
    model = _finish(LlavaNextForConditionalGeneration(config), dtype, 2)
    return LlavaNext(model, _llava_processor(tokenizer, 28, pinpoints))


def _causal_lm(dtype: torch.dtype, attention: str) -> CausalLM:
    config = LlamaConfig(**_decoder(), attn_implementation=attention)
    return CausalLM(_finish(LlamaForCausalLM(config), dtype, 3), chatml_tokenizer())


@cache
def family(name: str, dtype: torch.dtype = torch.float32, attention: str = "sdpa") -> Any:
    """The adapter of one family around its tiny model."""
    adapter = {"qwen25vl": _qwen, "llava": _llava, "causal_lm": _causal_lm}[name](dtype, attention)
    adapter.model.generation_config.eos_token_id = adapter.tokenizer.eos_token_id
    return adapter


@cache
def real_geometry_llava(dtype: torch.dtype = torch.float32) -> LlavaNext:
    """LLaVA-NeXT with the tower geometry and pinpoints of the 7B model, and tiny widths."""
    tokenizer = vicuna_tokenizer()
    narrow = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
    }
    config = _llava_config(tokenizer, 336, REAL_PINPOINTS, max_position_embeddings=4096, **narrow)
    model = _finish(LlavaNextForConditionalGeneration(config), dtype, 4)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return LlavaNext(model, _llava_processor(tokenizer, 336, REAL_PINPOINTS))


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Coloured noise, coarse enough to survive resizing."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height))


def turn(question: str, images: int = 1, system: str | None = None) -> list[dict[str, Any]]:
    """A conversation of one user turn, pictures first."""
    parts: list[dict[str, Any]] = [{"type": "image"}] * images
    messages: list[dict[str, Any]] = (
        [] if system is None else [{"role": "system", "content": system}]
    )
    return [*messages, {"role": "user", "content": [*parts, {"type": "text", "text": question}]}]
