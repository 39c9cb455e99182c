"""Both 7B targets without their weights: real configurations, real processor classes, and made-up
byte-level tokenizers whose special tokens have the real ids.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    GenerationConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessorPil,
    LlavaNextProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
)

from recap.targets.full_size import (
    LLAVA_STOP_IDS,
    QWEN_STOP_IDS,
    llava16_7b_config,
    qwen25vl_7b_config,
)
from recap.targets.hf import HFTarget
from recap.targets.llava import LlavaNext
from recap.targets.load import on_meta
from recap.targets.qwen25vl import Qwen25VL
from recap.targets.qwen_processor import ImageOnlyQwenProcessor

from .models import REAL_PINPOINTS, chatml_tokenizer, vicuna_tokenizer

QWEN_SPECIAL = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<|vision_start|>": 151652,
    "<|vision_end|>": 151653,
    "<|image_pad|>": 151655,
    "<|video_pad|>": 151656,
}
LLAVA_SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": 2, "<image>": 32000, "<pad>": 32001}
FIRST_BYTE = 3  # as in Llama's vocabulary


def _tokenizer(special: dict[str, int]) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: FIRST_BYTE + i for i, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocabulary | special, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    return tokenizer


def qwen_processor() -> ImageOnlyQwenProcessor:
    """With the pixel bounds of conf/model/qwen25vl.yaml."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(QWEN_SPECIAL),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chatml_tokenizer().chat_template,
    )
    images = Qwen2VLImageProcessorPil(min_pixels=256 * 28 * 28, max_pixels=1280 * 28 * 28)
    return ImageOnlyQwenProcessor(images, tokenizer, chat_template=tokenizer.chat_template)


def llava_processor() -> LlavaNextProcessor:
    """With 336-pixel tiles and the five pinpoints."""
    core = _tokenizer(LLAVA_SPECIAL)
    core.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        chat_template=vicuna_tokenizer().chat_template,
        extra_special_tokens={"image_token": "<image>"},
    )
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 336},
        crop_size={"height": 336, "width": 336},
        image_grid_pinpoints=REAL_PINPOINTS,
    )
    return LlavaNextProcessor(
        images,
        tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template,
    )


@cache
def full_size_target(name: str) -> HFTarget:
    """The target "qwen25vl" in bfloat16 or "llava16" in float16, on torch's "meta" device."""
    options: dict[str, Any] = {"attn_implementation": "sdpa"}
    if name == "qwen25vl":
        model = on_meta(
            Qwen2_5_VLForConditionalGeneration,
            qwen25vl_7b_config(),
            dtype=torch.bfloat16,
            **options,
        )
        # generation_config.json names both stops; the processor alone would know one.
        model.generation_config = GenerationConfig(eos_token_id=list(QWEN_STOP_IDS))
        return HFTarget(Qwen25VL(model, qwen_processor()))
    model = on_meta(
        LlavaNextForConditionalGeneration, llava16_7b_config(), dtype=torch.float16, **options
    )
    model.generation_config = GenerationConfig(eos_token_id=LLAVA_STOP_IDS[0])
    return HFTarget(LlavaNext(model, llava_processor()))
