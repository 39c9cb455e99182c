"""Loading a model: from a folder, from the hub at a pinned revision, or from a GGUF file in an
installed package; or all of it but the weights, for a look at what a run would meet.

What could differ silently between two machines is pinned here and reported: revision, dtype,
attention kernel family, image backend, and the generation settings a checkpoint brings along (a
repetition penalty, a temperature), which are made neutral. Weights are read from safetensors or
GGUF only, no code is loaded from a checkpoint.

Example: ``load("qwen25vl", path="experiments/tiny/checkpoints/tiny_qwen25vl")``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
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
class Parts:
    """What a family is loaded with: its model class, its processor, its adapter around both."""

    model_class: Any
    processor: Callable[[Source, dict[str, Any]], Any]
    adapter: Callable[[Any, Any], Family]


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
    weights: bool = True,
) -> LoadedModel:
    """Load a model and wrap it as a target.

    family:     "qwen25vl", "llava" or "causal_lm".
    path:       local folder, or a GGUF file; wins over the other sources.
    repo:       hub id; ``revision`` pins a commit of it (None: the hub's head, after a warning).
    package:    installed Python package that carries ``gguf_file``; found, never imported.
    hint:       how to get the model, told where it is missing.
    min_pixels, max_pixels: bounds of a Qwen picture's area, in pixels.
    pad_rows, min_rows: see `HFTarget`.
    weights:    False leaves the weights out: the target encodes prompts and knows every shape, on
                torch's "meta" device, whatever ``device`` will be.

    Raises ValueError, in a sentence, for unknown names and for a model that is not there.
    """
    parts = _families()
    _one_of("model family", family, tuple(parts))
    _one_of("dtype", dtype, DTYPES)
    _one_of("image backend", image_backend, ("pil", "torchvision"))
    place = _device(device, here=weights)
    source = find_source(path, repo, revision, package, gguf_file, hint, weights=weights)
    images = {"backend": image_backend, "min_pixels": min_pixels, "max_pixels": max_pixels}
    options = {"dtype": getattr(torch, dtype), "attn_implementation": attention}
    transformers_logging.disable_progress_bar()
    try:
        processor = parts[family].processor(source, images)
        build = _weights if weights else _outline
        model = build(parts[family].model_class, source, options)
        adapter = parts[family].adapter(model, processor)
    except (OSError, ImportError, SafetensorError) as error:
        raise ValueError(unreadable(source, hint, error)) from error
    neutralised = neutralise(model)
    if weights:
        model.to(place)
    padded = place.type == "cuda" if pad_rows is None else pad_rows
    target = HFTarget(adapter, pad_rows=padded, min_rows=min_rows)
    settings = _settings(family, source, target, images, neutralised)
    settings["device"] = str(target.device if weights else place)
    return LoadedModel(target, settings)


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


def _families() -> dict[str, Parts]:
    return {
        "qwen25vl": Parts(Qwen2_5_VLForConditionalGeneration, _qwen_processor, Qwen25VL),
        "llava": Parts(LlavaNextForConditionalGeneration, _llava_processor, LlavaNext),
        "causal_lm": Parts(AutoModelForCausalLM, _tokenizer, CausalLM),
    }


def _qwen_processor(source: Source, images: dict[str, Any]) -> Any:
    processor = ImageOnlyQwenProcessor.from_pretrained(
        source.folder, backend=images["backend"], **source.arguments
    )
    _bound_area(processor.image_processor, images)
    return processor


def _bound_area(image_processor: Any, images: dict[str, Any]) -> None:
    """Bound a picture's area in pixels where asked; write the bounds in force to ``images``."""
    size = image_processor.size
    shortest = images["min_pixels"] or size["shortest_edge"]
    longest = images["max_pixels"] or size["longest_edge"]
    # These "edges" are areas: what the Qwen processor keeps its pixel bounds in.
    image_processor.size = {"shortest_edge": shortest, "longest_edge": longest}
    images.update(min_pixels=shortest, max_pixels=longest)


def _llava_processor(source: Source, images: dict[str, Any]) -> Any:
    return LlavaNextProcessor.from_pretrained(
        source.folder, backend=images["backend"], **source.arguments
    )


def _tokenizer(source: Source, images: dict[str, Any]) -> Any:
    return AutoTokenizer.from_pretrained(source.folder, **source.arguments)


def _weights(model_class: Any, source: Source, options: dict[str, Any]) -> Any:
    """The model, every weight of it from the checkpoint.

    Raises ValueError where transformers would warn and go on with random weights: a folder of
    another family, or an incomplete one.
    """
    safetensors = {} if source.gguf_file else {"use_safetensors": True}
    model, report = model_class.from_pretrained(
        source.folder, output_loading_info=True, **safetensors, **source.arguments, **options
    )
    lacking = sorted([*report["missing_keys"], *(str(key) for key in report["mismatched_keys"])])
    if lacking:
        raise ValueError(
            f"{source.name} is no complete {type(model).__name__} checkpoint: "
            f"{len(lacking)} weights are missing or of another shape, first {lacking[0]}"
        )
    return model


def _outline(model_class: Any, source: Source, options: dict[str, Any]) -> Any:
    """The model on torch's "meta" device: every shape of it, no weights read or allocated."""
    config = AutoConfig.from_pretrained(source.folder, **source.arguments)
    expected = getattr(model_class, "config_class", None)
    if expected is not None and not isinstance(config, expected):
        raise ValueError(
            f"{source.name} is no {model_class.__name__} checkpoint: its config.json is a "
            f"{config.model_type} model's"
        )
    model = on_meta(model_class, config, **options)
    with suppress(OSError):  # a checkpoint may leave it to config.json
        model.generation_config = GenerationConfig.from_pretrained(source.folder)
    return model


def on_meta(model_class: Any, config: Any, **options: Any) -> Any:
    """A model of ``config`` on torch's "meta" device, with ``dtype`` and ``attn_implementation``.

    model_class: a model class or one of transformers' Auto classes.
    """
    build = getattr(model_class, "from_config", None) or model_class._from_config
    with torch.device("meta"):
        return build(config, **options).eval()


def _device(name: str, here: bool) -> torch.device:
    """The device of that name; ``here``: it must be one of this machine's."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"unknown device {name!r}: cpu, cuda, cuda:1, ...") from error
    if here and device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device {name!r}: torch {torch.__version__} sees no CUDA device here; install a CUDA "
            "build of torch, run on a machine with a GPU, or choose device=cpu"
        )
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
        "source": source.name,
        "revision": source.revision,
        "gguf_file": source.gguf_file,
        "model_class": type(model).__name__,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "dtype": str(target.dtype).removeprefix("torch."),
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
