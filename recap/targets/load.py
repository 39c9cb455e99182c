"""Loading a model: from a folder, from the hub at a pinned revision, or from a GGUF file in an
installed package.

What could differ silently between two machines is pinned here and reported: revision, dtype,
attention kernel family, image backend, and the generation settings a checkpoint brings along (a
repetition penalty, a temperature), which are made neutral. Weights are read from safetensors or
GGUF only, no code is loaded from a checkpoint.

Example: ``load("qwen25vl", path="experiments/tiny/checkpoints/tiny_qwen25vl")``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextProcessor,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.utils import logging as transformers_logging

from recap.targets.causal_lm import CausalLM
from recap.targets.hf import HFTarget
from recap.targets.llava import LlavaNext
from recap.targets.qwen25vl import Qwen25VL
from recap.targets.qwen_processor import ImageOnlyQwenProcessor
from recap.targets.source import Source, find_source, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PreTrainedModel

    from recap.targets.family import Family

# Entries of a generation config that change no token.
_NO_EFFECT = (
    *("transformers_version", "_from_model_config"),
    *("use_cache", "output_attentions", "output_hidden_states"),
)

DTYPES = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class LoadedModel:
    """A target, and the settings a run's manifest records."""

    target: HFTarget
    settings: dict[str, Any]


def load(
    family: str,
    *,
    path: str | None = None,
    repo: str | None = None,
    revision: str | None = None,
    package: str | None = None,
    gguf_file: str | None = None,
    hint: str = "",
    dtype: str = "float32",
    device: str = "cpu",
    attention: str = "sdpa",
    image_backend: str = "pil",
    min_pixels: int | None = None,
    max_pixels: int | None = None,
    pad_rows: bool | None = None,
    min_rows: int = 1,
) -> LoadedModel:
    """Load a model and wrap it as a target.

    family:     "qwen25vl", "llava" or "causal_lm".
    path:       local folder, or a GGUF file; wins over the other sources.
    repo:       hub id, with ``revision`` (a commit hash) pinned.
    package:    installed Python package that carries ``gguf_file``; found, never imported.
    hint:       how to get the model, told where it is missing.
    min_pixels, max_pixels: bounds of a Qwen picture's area, in pixels.
    pad_rows, min_rows: see `HFTarget`.

    Raises ValueError, in a sentence, for unknown names and for a model that is not there.
    """
    adapters = _adapters()
    _one_of("model family", family, tuple(adapters))
    _one_of("dtype", dtype, DTYPES)
    _one_of("image backend", image_backend, ("pil", "torchvision"))
    place = _device(device)
    source = find_source(path, repo, revision, package, gguf_file, hint)
    images = {"backend": image_backend, "min_pixels": min_pixels, "max_pixels": max_pixels}
    model_options = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
    transformers_logging.disable_progress_bar()
    try:
        adapter = adapters[family](source, model_options, images)
    except (OSError, ImportError, SafetensorError) as error:
        raise ValueError(unreadable(source, hint, error)) from error
    neutralised = neutralise(adapter.model)
    adapter.model.to(place)
    target = HFTarget(adapter, pad_rows=pad_rows, min_rows=min_rows)
    return LoadedModel(target, _settings(family, source, target, images, neutralised))


def neutralise(model: PreTrainedModel) -> dict[str, Any]:
    """Replace a checkpoint's generation settings by neutral ones; return the ones that were not.

    Only the special-token ids are kept. The engine never samples nor penalises, so this is for
    anything else that calls ``model.generate``, and for the record.
    """
    original = model.generation_config
    ids = {
        name: getattr(original, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    neutral = GenerationConfig(do_sample=False, **ids)
    defaults = neutral.to_dict()
    model.generation_config = neutral
    ignored = {*ids, *_NO_EFFECT}
    return {
        name: value
        for name, value in original.to_diff_dict().items()
        if name not in ignored and value != defaults.get(name)
    }


def _adapters() -> dict[str, Callable[[Source, dict[str, Any], dict[str, Any]], Family]]:
    return {"qwen25vl": _load_qwen25vl, "llava": _load_llava, "causal_lm": _load_causal_lm}


def _load_qwen25vl(source: Source, options: dict[str, Any], images: dict[str, Any]) -> Family:
    processor = ImageOnlyQwenProcessor.from_pretrained(
        source.location, backend=images["backend"], **source.arguments
    )
    _bound_area(processor.image_processor, images)
    return Qwen25VL(_weights(Qwen2_5_VLForConditionalGeneration, source, options), processor)


def _bound_area(image_processor: Any, images: dict[str, Any]) -> None:
    """Bound a picture's area in pixels where asked; write the bounds in force to ``images``."""
    size = image_processor.size
    shortest = images["min_pixels"] or size["shortest_edge"]
    longest = images["max_pixels"] or size["longest_edge"]
    # These "edges" are areas: what the Qwen processor keeps its pixel bounds in.
    image_processor.size = {"shortest_edge": shortest, "longest_edge": longest}
    images.update(min_pixels=shortest, max_pixels=longest)


def _load_llava(source: Source, options: dict[str, Any], images: dict[str, Any]) -> Family:
    processor = LlavaNextProcessor.from_pretrained(
        source.location, backend=images["backend"], **source.arguments
    )
    return LlavaNext(_weights(LlavaNextForConditionalGeneration, source, options), processor)


def _load_causal_lm(source: Source, options: dict[str, Any], images: dict[str, Any]) -> Family:
    tokenizer = AutoTokenizer.from_pretrained(source.location, **source.arguments)
    return CausalLM(_weights(AutoModelForCausalLM, source, options), tokenizer)


def _weights(model_class: Any, source: Source, options: dict[str, Any]) -> Any:
    """The model, every weight of it from the checkpoint.

    Raises ValueError where transformers would warn and go on with random weights: a folder of
    another family, or an incomplete one.
    """
    safetensors = {} if source.gguf_file else {"use_safetensors": True}
    model, report = model_class.from_pretrained(
        source.location, output_loading_info=True, **safetensors, **source.arguments, **options
    )
    lacking = sorted([*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])])
    if lacking:
        raise ValueError(
            f"{source.location} is no complete {type(model).__name__} checkpoint: "
            f"{len(lacking)} weights are missing or of another shape, first {lacking[0]}"
        )
    return model


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"unknown device {name!r}: cpu, cuda, cuda:1, ...") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r}: torch {torch.__version__} sees no CUDA device here")
    return device


def _one_of(what: str, name: str, valid: tuple[str, ...]) -> None:
    if name not in valid:
        raise ValueError(f"unknown {what} {name!r}: one of {', '.join(valid)}")


def _settings(
    family: str,
    source: Source,
    target: HFTarget,
    images: dict[str, Any],
    neutralised: dict[str, Any],
) -> dict[str, Any]:
    model = target.model
    settings = {
        "family": family,
        "source": source.location,
        "revision": source.revision,
        "gguf_file": source.gguf_file,
        "model_class": type(model).__name__,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
        "attention": model.config.get_text_config()._attn_implementation,
        "vocab_size": target.vocab_size,
        "context": target.context,
        "stop_ids": sorted(target.stop_ids),
        "pad_rows": target.pad_rows,
        "min_rows": target.min_rows,
        "neutralised": neutralised,
    }
    if target.family.image_token_id is not None:
        settings["images"] = images
    return settings
