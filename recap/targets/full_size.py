"""The two 7B targets' configurations, written down: their sizes are known where no checkpoint is.

For tests, for checks on random weights at full size, and for a dry run without a network. A real
load reads the checkpoint's own config.json and never comes here.

Every value that decides a shape is the published one; what is left to transformers' class defaults
is named in each function. Needs nothing but transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

QWEN25VL_7B = "Qwen/Qwen2.5-VL-7B-Instruct"
LLAVA16_7B = "llava-hf/llava-v1.6-vicuna-7b-hf"

QWEN_STOP_IDS = (151645, 151643)
"""``<|im_end|>`` and ``<|endoftext|>``: Qwen ends a generation at either."""
LLAVA_STOP_IDS = (2,)
"""``</s>``."""


def qwen25vl_7b_config() -> Qwen2_5_VLConfig:
    """Qwen2.5-VL-7B-Instruct: 28 decoder layers, 4 key/value heads of width 128.

    Values are those of the published config.json and of its finetunes' copies. Left to the class:
    activations (silu), biases (query, key, value: yes; rest of the decoder: no), head width (hidden
    / heads), the vision tower's 3 channels.
    """
    return Qwen2_5_VLConfig(
        text_config=_qwen_text(),
        vision_config={
            "depth": 32,
            "hidden_size": 1280,
            "num_heads": 16,
            "intermediate_size": 3420,
            "patch_size": 14,
            "temporal_patch_size": 2,  # a still picture is doubled to fill it
            "spatial_merge_size": 2,  # one token per 2 x 2 patches, 28 x 28 pixels
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "tokens_per_second": 2,  # video only
            "out_hidden_size": 3584,  # the decoder's width
        },
        image_token_id=151655,  # <|image_pad|>
        video_token_id=151656,  # <|video_pad|>
        vision_start_token_id=151652,
        vision_end_token_id=151653,
        tie_word_embeddings=False,
    )


def _qwen_text() -> dict[str, Any]:
    return {
        "vocab_size": 152_064,  # rows of the embedding: padded beyond the tokenizer's 151,665
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18_944,
        "max_position_embeddings": 128_000,
        "rms_norm_eps": 1e-6,
        # Three position axes (time, height, width) share the 64 rotary frequencies.
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1_000_000.0,
            "mrope_section": [16, 24, 24],
        },
        "use_sliding_window": False,
        "max_window_layers": 28,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "pad_token_id": 151643,
    }


def llava16_7b_config() -> LlavaNextConfig:
    """LLaVA-1.6-Vicuna-7B: 32 decoder layers, 32 key/value heads of width 128, 4,096 tokens.

    Values are those of the published config.json; it leaves the decoder's widths to the class, and
    Vicuna-7B-v1.5 has the class's. Left to the class: activations (silu; gelu in the projector,
    quick_gelu in the tower), biases (decoder: none; projector and tower: yes), rope theta (10,000).
    """
    return LlavaNextConfig(
        text_config=LlamaConfig(
            vocab_size=32_064,  # 32,000 of Llama, <image>, <pad>, padded to a multiple of 64
            hidden_size=4096,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=32,  # every head has its own: nine times Qwen's cache per token
            intermediate_size=11_008,
            max_position_embeddings=4096,
            rms_norm_eps=1e-5,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
            tie_word_embeddings=False,
        ),
        vision_config=CLIPVisionConfig(
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            image_size=336,  # one tile, 24 x 24 patches
            patch_size=14,
            projection_dim=768,  # of CLIP's own head, which is not part of the model
        ),
        image_token_index=32_000,  # <image>
        # Height, width of the grids a picture may be spread over, beside the picture as a whole.
        image_grid_pinpoints=[[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]],
        image_seq_length=576,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",  # the class token's feature is dropped
        tie_word_embeddings=False,
    )


@dataclass(frozen=True)
class FullSize:
    """What is known of a published checkpoint without having it."""

    config: Callable[[], Any]
    model_class: Any
    stop_ids: tuple[int, ...]


KNOWN = {
    QWEN25VL_7B: FullSize(qwen25vl_7b_config, Qwen2_5_VLForConditionalGeneration, QWEN_STOP_IDS),
    LLAVA16_7B: FullSize(llava16_7b_config, LlavaNextForConditionalGeneration, LLAVA_STOP_IDS),
}
"""By hub id."""
