"""The two tiny models: configurations, processors, saving and loading.

They are the real architectures, small: the folders written here load exactly as the 7B ones do. The
token layout imitates theirs (a padded embedding, grouped-query attention and M-RoPE for Qwen,
any-resolution tiles and newline embeddings for LLaVA-NeXT).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoProcessor,
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
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
from transformers.processing_utils import ProcessorMixin

from experiments.tiny.pictures import SIDE
from experiments.tiny.tokenizer import (
    CONTEXT,
    EMBEDDINGS,
    LLAVA_TEMPLATE,
    QWEN_TEMPLATE,
    llava_tokenizer,
    qwen_tokenizer,
)
from recap.targets.qwen_processor import ImageOnlyQwenProcessor

MODELS = ("tiny_qwen25vl", "tiny_llava")
CHECKPOINTS = Path(__file__).parent / "checkpoints"
MIN_PIXELS, MAX_PIXELS = 112 * 112, 1280 * 28 * 28
WIDTH = 192
# LLaVA-NeXT's five pinpoints scaled from 336 to 112, one tile for the small generated pictures, and
# two larger grids, so that photographs spread over as many tiles as they do in the 7B model.
PINPOINTS = [
    *([112, 112], [112, 224], [224, 112], [224, 224], [336, 112], [112, 336]),
    *([336, 336], [448, 448]),
]
_LLAVA_PATCH = 28


def _qwen_config(tokenizer: PreTrainedTokenizerFast) -> Qwen2_5_VLConfig:
    ids = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": EMBEDDINGS,
            "hidden_size": WIDTH,
            "intermediate_size": 512,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [4, 6, 6],
            },
            "bos_token_id": tokenizer.pad_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        },
        vision_config={
            "depth": 3,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_heads": 4,
            "out_hidden_size": WIDTH,
            "window_size": 112,
            "fullatt_block_indexes": [2],
        },
        tie_word_embeddings=False,
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in ids.items()},
    )


def _llava_config(tokenizer: PreTrainedTokenizerFast) -> LlavaNextConfig:
    vision = CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=SIDE,
        patch_size=_LLAVA_PATCH,
        projection_dim=128,
    )
    text = LlamaConfig(
        vocab_size=EMBEDDINGS,
        hidden_size=WIDTH,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    return LlavaNextConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=PINPOINTS,
        image_seq_length=(SIDE // _LLAVA_PATCH) ** 2,
        tie_word_embeddings=False,
    )


def _llava_processor(tokenizer: PreTrainedTokenizerFast) -> LlavaNextProcessor:
    return LlavaNextProcessor(
        LlavaNextImageProcessorPil(
            size={"shortest_edge": SIDE},
            crop_size={"height": SIDE, "width": SIDE},
            image_grid_pinpoints=PINPOINTS,
        ),
        tokenizer,
        patch_size=_LLAVA_PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=LLAVA_TEMPLATE,
    )


def build(name: str, seed: int = 0) -> tuple[PreTrainedModel, ProcessorMixin]:
    """A freshly initialised float32 model and its processor.

    `seed` fixes the weights. Raises `ValueError` for a name outside `MODELS`.
    """
    torch.manual_seed(seed)
    if name == "tiny_qwen25vl":
        tokenizer = qwen_tokenizer()
        images = Qwen2VLImageProcessorPil(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS)
        processor: ProcessorMixin = ImageOnlyQwenProcessor(
            images, tokenizer, chat_template=QWEN_TEMPLATE
        )
        model: PreTrainedModel = Qwen2_5_VLForConditionalGeneration(_qwen_config(tokenizer))
    elif name == "tiny_llava":
        tokenizer = llava_tokenizer()
        processor = _llava_processor(tokenizer)
        model = LlavaNextForConditionalGeneration(_llava_config(tokenizer))
    else:
        raise ValueError(f"unknown tiny model {name!r}, expected one of {', '.join(MODELS)}")
    _spread_weights(model)
    return model, processor


def _spread_weights(model: PreTrainedModel) -> None:
    """Widen the initial spread of matrices (threefold) and of CLIP's positions.

    The default of 0.02 suits wide models. At this width it leaves attention almost uniform, and a
    28-pixel patch drowns its position, so the decoder takes far longer to find its way in the
    picture. Token embeddings and the rest of CLIP, which scales its own, are left alone.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "position_embedding" in name:
                weight.mul_(25.0)
            elif weight.ndim >= 2 and "embed" not in name and "vision_tower" not in name:
                weight.mul_(3.0)


def save(name: str, model: PreTrainedModel, processor: ProcessorMixin, folder: Path) -> None:
    """Write weights (bfloat16 safetensors), configurations, tokenizer and processor to `folder`.

    The model itself keeps its float32 weights.
    """
    tokenizer = processor.tokenizer
    stops = [tokenizer.eos_token_id]
    if name == "tiny_qwen25vl":
        stops.append(tokenizer.pad_token_id)  # Qwen stops on <|im_end|> and <|endoftext|>
    half = type(model)(copy.deepcopy(model.config)).to(torch.bfloat16)
    half.load_state_dict(model.state_dict())
    for config in (half.config, half.config.text_config, half.config.vision_config):
        config.dtype = torch.bfloat16
    half.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id or tokenizer.pad_token_id,
        eos_token_id=stops if len(stops) > 1 else stops[0],
        pad_token_id=tokenizer.pad_token_id,
    )
    folder.mkdir(parents=True, exist_ok=True)
    half.save_pretrained(folder)
    processor.save_pretrained(folder)


def load(name: str, root: Path = CHECKPOINTS) -> tuple[Any, Any]:
    """Float32 model in evaluation mode and processor, from `root/name`, the way the 7B ones load.

    Raises `ValueError` for a name outside `MODELS` and `OSError` when the folder is missing.
    """
    if name not in MODELS:
        raise ValueError(f"unknown tiny model {name!r}, expected one of {', '.join(MODELS)}")
    folder = root / name
    if name == "tiny_qwen25vl":
        processor = ImageOnlyQwenProcessor.from_pretrained(folder)
        model_class: type[PreTrainedModel] = Qwen2_5_VLForConditionalGeneration
    else:
        processor = AutoProcessor.from_pretrained(folder)
        model_class = LlavaNextForConditionalGeneration
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return model.eval(), processor
