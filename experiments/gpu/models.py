"""Both 7B architectures with random weights, and prompts for them.

No checkpoint is needed: what a step costs is decided by shapes and kernels, not by what the weights
say. The models are the real classes in the real dtypes, built in place on the device and driven by
the real engine; prompts are token ids and pixels made by hand, since there is no tokenizer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AutoModelForImageTextToText

from experiments.gpu.device import MIB
from recap.targets.cache import CacheShape
from recap.targets.full_size import llava16_7b_config, qwen25vl_7b_config
from recap.targets.hf import HFTarget
from recap.targets.llava import LlavaNext
from recap.targets.load import neutralise
from recap.targets.qwen25vl import Qwen25VL
from recap.targets.request import Request

if TYPE_CHECKING:
    from experiments.gpu.device import Device, Results
    from experiments.gpu.sizes import Sizes
    from recap.core.interfaces import IntArray


def _narrow_qwen(config: Any) -> None:
    """Two layers and few channels; heads keep their width of 128, which M-RoPE's sections fill."""
    narrow = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1}
    _replace(config, "text_config", **narrow, **_FEW, layer_types=None)
    vision = {"depth": 2, "hidden_size": 64, "num_heads": 2, "intermediate_size": 96}
    _replace(config, "vision_config", **vision, out_hidden_size=256, fullatt_block_indexes=[1])
    config.image_token_id, config.video_token_id = 1000, 1001


def _narrow_llava(config: Any) -> None:
    narrow = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4}
    _replace(config, "text_config", **narrow, **_FEW, head_dim=None)
    tower = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
    _replace(config, "vision_config", **tower, num_hidden_layers=2, image_size=28)
    config.image_grid_pinpoints = [[28, 56], [56, 28], [56, 56]]
    config.image_token_id = 1000


_FEW = {
    **{"vocab_size": 1024, "num_hidden_layers": 2, "intermediate_size": 512},
    **{"bos_token_id": None, "eos_token_id": None, "pad_token_id": None},
}


def _replace(config: Any, part: str, **changes: Any) -> None:
    """Build one part of ``config`` anew, so that everything derived from a value follows it."""
    old = getattr(config, part)
    setattr(config, part, type(old)(**(old.to_dict() | changes)))


@dataclass(frozen=True)
class Architecture:
    """What one of the two models is made of."""

    full_config: Callable[[], Any]
    narrow: Callable[[Any], None]
    adapter: Any
    dtype: torch.dtype

    def config(self, small: bool = False) -> Any:
        """Its configuration at 7B size, or a narrow one."""
        config = self.full_config()
        if small:
            self.narrow(config)
        return config


ARCHITECTURES = {
    "qwen25vl": Architecture(qwen25vl_7b_config, _narrow_qwen, Qwen25VL, torch.bfloat16),
    "llava": Architecture(llava16_7b_config, _narrow_llava, LlavaNext, torch.float16),
}


def build(name: str, place: torch.device, small: bool = False) -> Any:
    """The transformers model, randomly initialised on the device in its own dtype."""
    architecture = ARCHITECTURES[name]
    torch.manual_seed(0)
    # Weights of standard deviation 0.02 and unit norms, transformers' own: nothing overflows in
    # float16, and a matrix product of them costs what one of trained weights does (of zeros, less).
    with place:
        model = AutoModelForImageTextToText.from_config(
            architecture.config(small), dtype=architecture.dtype, attn_implementation="sdpa"
        )
    return model.requires_grad_(False)


def step_weight_bytes(model: Any) -> int:
    """Weights that an autoregressive step reads: decoder and head, of the embedding one row."""
    decoder = model.model.language_model
    read = [*decoder.parameters(), *model.lm_head.parameters()]
    return sum(int(weight.nbytes) for weight in read) - int(decoder.embed_tokens.weight.nbytes)


def kv_bytes_per_token(model: Any) -> int:
    """Keys and values of one token in all layers."""
    shape = CacheShape.of(model.config.get_text_config(), model.dtype, model.device)
    return shape.layers * 2 * shape.heads * shape.head_dim * shape.dtype.itemsize


class RandomModel:
    """One architecture as a target of the engine. Building it runs the engine's self check.

    Stop ids are removed, so that every generation has its full length in every engine.
    """

    def __init__(self, name: str, device: Device, small: bool) -> None:
        start = time.perf_counter()
        self.name = name
        model = build(name, device.place, small)
        neutralise(model)
        model.generation_config.eos_token_id = None
        self.target = HFTarget(ARCHITECTURES[name].adapter(model, _processor(model.config)))
        self.config = model.config
        self.step_weight_bytes = step_weight_bytes(model)
        self.kv_bytes_per_token = kv_bytes_per_token(model)
        self.device = device
        device.synchronize()
        self.build_seconds = time.perf_counter() - start

    def facts(self) -> Results:
        """What it is, and what it weighs."""
        parameters = list(self.target.model.parameters())
        return {
            "model_class": type(self.target.model).__name__,
            "dtype": str(self.target.dtype).removeprefix("torch."),
            "parameters": sum(weight.numel() for weight in parameters),
            "vocab_size": self.target.vocab_size,
            "pad_rows": self.target.pad_rows,
            "weights_mib": round(sum(weight.nbytes for weight in parameters) / MIB, 3),
            "weights_read_per_step_mib": round(self.step_weight_bytes / MIB, 3),
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "build_seconds": round(self.build_seconds, 2),
            "allocated_mib": self.device.allocated_mib(),
            "build_peak_mib": self.device.peak_mib(),
        }

    def text(self, length: int, seed: int = 0) -> Request:
        """A prompt of ``length`` random tokens, none of them special."""
        # Special ids lie from a few below the image placeholder upwards.
        limit = self.config.image_token_id - 20
        rng = np.random.default_rng(seed)
        return self._request(rng.integers(16, limit, length, dtype=np.int32))

    def picture(self, sizes: Sizes) -> Request:
        """A prompt with one picture of noise, at the size with most image tokens."""
        tokens, pixels = picture_inputs(self.config, sizes.patches)
        placeholders = np.full(tokens, self.config.image_token_id, np.int32)
        text = self.text(sizes.text_tokens).prompt_ids
        before, after = np.split(text, [len(text) // 3])
        return self._request(np.concatenate([before, placeholders, after]), **pixels)

    def _request(self, ids: IntArray, **pixels: torch.Tensor) -> Request:
        inputs = {"input_ids": torch.from_numpy(ids.astype(np.int64))[None], **pixels}
        placeholders = ids == self.config.image_token_id
        offset, family = 0, self.target.family
        if isinstance(family, Qwen25VL):
            types = torch.from_numpy(placeholders.astype(np.int64))[None]
            inputs["position_ids"], offset = family._prompt_positions(inputs, types)
        return Request(ids, inputs, int(placeholders.sum()), "", position_offset=offset)


def picture_inputs(config: Any, patches: tuple[int, int]) -> tuple[int, dict[str, torch.Tensor]]:
    """Image tokens of a picture of noise, and its tensors as the family's processor lays them out.

    Qwen's picture has ``patches``; LLaVA's is a square of 2 x 2 tiles, its largest grid.
    """
    vision = config.vision_config
    if config.model_type == "qwen2_5_vl":
        height, width = patches
        pixels = torch.randn(height * width, 3 * vision.temporal_patch_size * vision.patch_size**2)
        tokens = height * width // vision.spatial_merge_size**2
        return tokens, {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, *patches]])}
    side, along = vision.image_size, vision.image_size // vision.patch_size
    tiles = torch.randn(1, 5, 3, side, side)
    # Features of the whole and of each tile, and a newline behind every row of the grid.
    tokens = 5 * along**2 + 2 * along
    return tokens, {"pixel_values": tiles, "image_sizes": torch.tensor([[2 * side, 2 * side]])}


def _processor(config: Any) -> Any:
    """What the adapters ask of a processor besides encoding: that it agrees with the model."""
    return SimpleNamespace(
        tokenizer=SimpleNamespace(all_special_ids=[], eos_token_id=None),
        patch_size=config.vision_config.patch_size,
        vision_feature_select_strategy=getattr(config, "vision_feature_select_strategy", None),
        image_processor=SimpleNamespace(
            image_grid_pinpoints=getattr(config, "image_grid_pinpoints", [])
        ),
    )
