"""What differs between model families, and the checks that a loaded model can be driven at all.

A family adapter knows how messages and pictures become a `Request`, which id stands for an image
token, and what shape positions take. Everything else (cache, mask, forwards, predictions) is shared
in `recap.targets.hf`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from PIL.Image import Image
    from torch import nn
    from transformers import PreTrainedModel

    from recap.targets.request import Message, Request


class Family(Protocol):
    """One model family's adapter around a loaded model."""

    @property
    def model(self) -> PreTrainedModel:
        """The whole model, with its head."""

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""

    @property
    def image_token_id(self) -> int | None:
        """The image placeholder in prompts; None for text-only models."""

    @property
    def language_model(self) -> nn.Module:
        """The decoder without its head: ids, positions, mask and cache to hidden states."""

    def encode(self, messages: Sequence[Message], images: Sequence[Image] = ()) -> Request:
        """Encode one generation turn. Raises ValueError when texts and pictures do not match."""

    def packed_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """int[m] sequence positions in the shape the decoder takes."""


def check_drivable(family: Family) -> None:
    """Refuse a model the engine would silently run wrong.

    Raises ValueError when the forward does not take ``cache`` by name (older releases would swallow
    it in ``**kwargs`` and attend to nothing but the packed rows), when attention is not sdpa, when
    or when a layer has a sliding window.
    """
    layers: Any = family.language_model.layers
    for forward in (family.model.base_model.forward, layers[0].forward):
        parameter = inspect.signature(forward).parameters.get("cache")
        if parameter is None or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            raise ValueError(
                f"{forward.__qualname__} takes no 'cache' argument: this engine needs a "
                "transformers release that names the KV cache so (5.24)"
            )
    config = family.model.config.get_text_config()
    attention = config._attn_implementation
    if attention != "sdpa":
        raise ValueError(
            f"the engine needs attn_implementation='sdpa', the model has {attention!r}"
        )
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None and getattr(config, "sliding_window", None) is not None:
        layer_types = ["sliding_attention"]
    others = sorted(set(layer_types or []) - {"full_attention"})
    if others:
        raise ValueError(
            f"the engine caches full-attention layers only, the model has {', '.join(others)}"
        )


def stop_ids(family: Family) -> frozenset[int]:
    """Ids that end a generation: the tokenizer's and the generation config's, together."""
    ids: set[int] = set()
    for eos in (family.tokenizer.eos_token_id, family.model.generation_config.eos_token_id):
        if eos is not None:
            ids.update([eos] if isinstance(eos, int) else eos)
    return frozenset(ids)
