"""Both 7B models at full size, on torch's "meta" device: every shape the engine derives from them.

Nothing of this size is ever allocated; the layers run on shapes alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from recap.core.interfaces import ContextExceeded, Needs
from recap.targets.cache import CacheShape, KVCache
from recap.targets.full_size import KNOWN
from recap.targets.hf import HEADROOM, HFTarget
from recap.targets.load import on_meta
from recap.targets.packing import bucket

from .full_size_models import full_size_target
from .models import REAL_PINPOINTS, picture, turn
from .reference import random_tree

BOTH = ("qwen25vl", "llava16")
META = torch.device("meta")


def linear(rows: int, columns: int, bias: bool = True) -> int:
    return rows * columns + rows * bias


def qwen_parameters() -> dict[str, int]:
    """Counted from the published widths, one matrix at a time."""
    width, wide, kv = 3584, 18944, 4 * 128
    attention = linear(width, width) + 2 * linear(kv, width) + linear(width, width, bias=False)
    mlp = 3 * linear(wide, width, bias=False)
    decoder = 28 * (attention + mlp + 2 * width) + width
    tower, tower_wide = 1280, 3420
    patches = linear(tower, 3 * 2 * 14 * 14, bias=False)
    block = (
        linear(3 * tower, tower)
        + linear(tower, tower)
        + 2 * linear(tower_wide, tower)
        + linear(tower, tower_wide)
        + 2 * tower
    )
    merged = 4 * tower
    merger = tower + linear(merged, merged) + linear(width, merged)
    return {
        "visual": patches + 32 * block + merger,
        "language_model": 152064 * width + decoder,
        "lm_head": 152064 * width,
    }


def llava_parameters() -> dict[str, int]:
    """As `qwen_parameters`."""
    width, wide = 4096, 11008
    decoder = 32 * (4 * width * width + 3 * wide * width + 2 * width) + width
    tower, tower_wide = 1024, 4096
    block = (
        4 * linear(tower, tower)
        + linear(tower_wide, tower)
        + linear(tower, tower_wide)
        + 2 * 2 * tower
    )
    # class token, patches without bias, 24 x 24 + 1 positions, norms before and after the blocks
    frame = tower + linear(tower, 3 * 14 * 14, bias=False) + 577 * tower + 2 * 2 * tower
    return {
        "vision_tower": frame + 24 * block,
        "multi_modal_projector": linear(width, tower) + linear(width, width),
        "image_newline": width,
        "language_model": 32064 * width + decoder,
        "lm_head": 32064 * width,
    }


def found_parameters(target: HFTarget) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, weight in target.model.named_parameters():
        part = name.removeprefix("model.").split(".")[0]
        counts[part] = counts.get(part, 0) + weight.numel()
    return counts


@pytest.mark.parametrize(
    ("name", "parts", "total"),
    [
        ("qwen25vl", qwen_parameters(), 8_292_166_656),
        ("llava16", llava_parameters(), 7_063_431_168),
    ],
)
def test_parameters_are_those_of_the_published_widths(
    name: str, parts: dict[str, int], total: int
) -> None:
    assert found_parameters(full_size_target(name)) == parts
    assert sum(parts.values()) == total


FACTS = {
    "qwen25vl": {
        "layers": 28,
        "kv_heads": 4,
        "row_bytes": 28 * 2 * 4 * 128 * 2,
        "vocab": 152_064,
        "context": 128_000,
        "blocked": {151655},
        "stop": {151643, 151645},
        "dtype": torch.bfloat16,
    },
    "llava16": {
        "layers": 32,
        "kv_heads": 32,
        "row_bytes": 32 * 2 * 32 * 128 * 2,
        "vocab": 32_064,
        "context": 4_096,
        "blocked": {32000},
        "stop": {2},
        "dtype": torch.float16,
    },
}


@pytest.mark.parametrize("name", BOTH)
def test_what_the_engine_derives_from_the_configuration(name: str) -> None:
    target, facts = full_size_target(name), FACTS[name]
    shape = CacheShape.of(target.model.config.get_text_config(), target.dtype, META)
    assert (shape.layers, shape.heads, shape.head_dim) == (facts["layers"], facts["kv_heads"], 128)
    assert shape.allocate(1).nbytes == facts["row_bytes"]
    assert (target.vocab_size, target.context) == (facts["vocab"], facts["context"])
    assert (target.blocked_ids, target.stop_ids) == (facts["blocked"], facts["stop"])
    assert target.dtype == facts["dtype"] and not target.text_only
    assert len(target.family.language_model.layers) == facts["layers"]


def test_bytes_of_a_cached_token() -> None:
    """57,344 and 524,288: nine times as many for the model whose heads all have their own."""
    assert [FACTS[name]["row_bytes"] for name in BOTH] == [57_344, 524_288]


@pytest.mark.parametrize("name", BOTH)
def test_known_configurations_are_these(name: str) -> None:
    target = full_size_target(name)
    known = [each for each in KNOWN.values() if each.model_class is type(target.model)]
    assert [set(each.stop_ids) for each in known] == [target.stop_ids]


# config.json as the hub has it: Qwen's decoder fields at the top, LLaVA's left to the classes.
PUBLISHED: dict[str, dict[str, Any]] = {
    "qwen25vl": {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "vision_token_id": 151654,
        "image_token_id": 151655,
        "video_token_id": 151656,
        "hidden_act": "silu",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "max_position_embeddings": 128000,
        "max_window_layers": 28,
        "model_type": "qwen2_5_vl",
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_sliding_window": False,
        "vision_config": {
            "depth": 32,
            "hidden_act": "silu",
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "in_chans": 3,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "spatial_patch_size": 14,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "tokens_per_second": 2,
            "temporal_patch_size": 2,
        },
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "vocab_size": 152064,
    },
    "llava16": {
        "architectures": ["LlavaNextForConditionalGeneration"],
        "image_grid_pinpoints": REAL_PINPOINTS,
        "image_token_index": 32000,
        "model_type": "llava_next",
        "projector_hidden_act": "gelu",
        "text_config": {
            "max_position_embeddings": 4096,
            "model_type": "llama",
            "pad_token_id": 0,
            "rms_norm_eps": 1e-05,
            "torch_dtype": "float16",
            "vocab_size": 32064,
        },
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
        "use_image_newline_parameter": True,
        "vision_config": {
            "hidden_size": 1024,
            "image_size": 336,
            "intermediate_size": 4096,
            "model_type": "clip_vision_model",
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
            "patch_size": 14,
            "projection_dim": 768,
            "vocab_size": 32000,
        },
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
    },
}


@pytest.mark.parametrize("name", BOTH)
def test_a_published_config_file_gives_the_same_model(name: str, tmp_path: Path) -> None:
    """In the layout of the hub's file: same tensors, same positions, same ids."""
    known = full_size_target(name)
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]))
    config = AutoConfig.from_pretrained(tmp_path)
    model = on_meta(type(known.model), config, dtype=known.dtype, attn_implementation="sdpa")
    shapes = {key: tensor.shape for key, tensor in model.state_dict().items()}
    assert shapes == {key: tensor.shape for key, tensor in known.model.state_dict().items()}
    found, expected = config.get_text_config(), known.model.config.get_text_config()
    fields = ("rms_norm_eps", "max_position_embeddings", "hidden_act", "num_key_value_heads")
    for field in (*fields, "vocab_size", "eos_token_id"):
        assert getattr(found, field) == getattr(expected, field), field
    for key, value in expected.rope_parameters.items():
        assert found.rope_parameters[key] == value, key
    assert config.image_token_id == known.model.config.image_token_id
    adapter = type(known.family)(model, known.family.processor)
    assert HFTarget(adapter).context == known.context


# Width, height of a picture; image tokens. Qwen: one per 28 x 28 pixels of the resized picture.
# LLaVA: 576 of the whole, then the unpadded rows of the tile grid with a newline each.
QWEN_PICTURES = (
    (100, 100, 16 * 16),  # enlarged to the lower bound
    (360, 480, 14 * 19),  # likewise
    (640, 480, 17 * 23),
    (1024, 768, 27 * 37),
    (4000, 3000, 30 * 41),  # reduced to the upper bound
    (10, 1900, 221 * 2),
)
LLAVA_PICTURES = (
    (100, 100, 576 + 24 * 24 + 24),
    (360, 480, 576 + 48 * 36 + 48),
    (640, 480, 576 + 36 * 48 + 36),
    (1024, 768, 576 + 36 * 48 + 36),
    (1600, 400, 576 + 18 * 72 + 18),
    (100, 900, 576 + 8 * 72 + 72),
)


@pytest.mark.parametrize(("width", "height", "tokens"), QWEN_PICTURES)
def test_qwen_prompts(width: int, height: int, tokens: int) -> None:
    target = full_size_target("qwen25vl")
    request = target.encode(turn("What is it?"), [picture(width, height, 1)])
    prompt = len(request.prompt_ids)
    assert request.num_image_tokens == tokens
    assert (request.prompt_ids == 151655).sum() == tokens
    assert request.inputs["input_ids"].shape == (1, prompt)
    assert request.inputs["pixel_values"].shape == (4 * tokens, 3 * 2 * 14 * 14)
    assert request.inputs["position_ids"].shape == (3, 1, prompt)
    # A picture takes as many positions as its longer side has tokens, not one per token.
    grid = request.inputs["image_grid_thw"][0, 1:] // 2
    assert request.position_offset == int(grid.max()) - tokens
    assert int(request.inputs["position_ids"].max()) + 1 == prompt + request.position_offset


@pytest.mark.parametrize(("width", "height", "tokens"), LLAVA_PICTURES)
def test_llava_prompts(width: int, height: int, tokens: int) -> None:
    target = full_size_target("llava16")
    request = target.encode(turn("What is it?"), [picture(width, height, 1)])
    assert request.num_image_tokens == tokens
    assert (request.prompt_ids == 32000).sum() == tokens
    tiles, channels, *tile = request.inputs["pixel_values"].shape[1:]
    assert (channels, *tile) == (3, 336, 336) and tiles in (3, 4, 5)
    assert request.inputs["image_sizes"].tolist() == [[height, width]]
    assert request.position_offset == 0 and request.prompt_ids[0] == 1


@pytest.mark.parametrize("rows", (1, 64, 88))
@pytest.mark.parametrize("name", BOTH)
def test_a_packed_step(name: str, rows: int) -> None:
    """Shapes of mask, positions, cache and logits of one step behind a whole prompt."""
    target = full_size_target(name)
    request = target.encode(turn("What is it?"), [picture(640, 480, 1)])
    prompt = len(request.prompt_ids)
    text = target.model.config.get_text_config()
    tree = random_tree(np.random.default_rng(rows), rows, 5, 250)
    with torch.inference_mode():
        session = target.open(request, Needs(topk=8), 200)
        cache = session._cache
        assert isinstance(cache, KVCache) and cache.capacity >= prompt + 200 + HEADROOM
        cache.advance(prompt)
        hidden = session._packed_forward(tree)
        packed = session._packer.pack(tree, rows, prompt, request.position_offset)
        logits = target.model.lm_head(hidden)
        session.commit(tree.path(rows - 1))
        session.close()
    assert hidden.shape == (rows, text.hidden_size)
    assert logits.shape == (rows, target.vocab_size)
    shape = (text.num_hidden_layers, 2, 1, text.num_key_value_heads, cache.capacity, 128)
    assert cache.storage.shape == shape and cache.storage.dtype == target.dtype
    assert cache.length == prompt + len(tree.path(rows - 1))
    axes = (3, 1) if name == "qwen25vl" else (1,)
    assert target.family.packed_positions(packed.positions).shape == (*axes, rows)
    if rows == 1:
        assert packed.mask is None
    else:
        assert packed.mask is not None
        assert packed.mask.shape == (1, 1, rows, prompt + rows)
        assert packed.mask.dtype == target.dtype


@pytest.mark.parametrize("name", BOTH)
def test_buckets_hold_the_widest_tree_that_a_session_has_room_for(name: str) -> None:
    assert bucket(1 + 127, pad_rows=True) <= HEADROOM
    assert full_size_target(name).pad_rows is False  # "meta" is no CUDA device


def test_a_prompt_beyond_llavas_context_is_refused() -> None:
    target = full_size_target("llava16")
    request = target.encode(turn("a " * 500), [picture(672, 672, 1)])
    assert len(request.prompt_ids) + 200 > target.context
    with pytest.raises(ContextExceeded, match="the model's context is 4096"):
        target.open(request, Needs(), 200)
