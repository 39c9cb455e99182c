"""A packed step: the decoder's layers called one after the other.

The model's own forward would do the same work behind wrappers that resolve config defaults, collect
outputs, build masks that are already there and, around a multimodal model, look for pixels. On a
small model that is a fifth of an autoregressive step, time by which every speedup would be
flattered. Prompts still go through the model's forward.

`check_same_logits` makes sure, once per loaded model, that both ways agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from recap.core.tree import TokenTree
from recap.targets.cache import CacheShape, KVCache
from recap.targets.packing import Packer

if TYPE_CHECKING:
    from transformers import Cache

    from recap.targets.family import Family

# Largest difference that rounding explains, relative to the largest logit.
_RELATIVE = {torch.float64: 1e-9, torch.float32: 1e-3}
_RELATIVE_HALF = 0.05


def run_layers(
    decoder: Any,
    ids: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor | None,
    cache: Cache,
) -> torch.Tensor:
    """Last hidden states [m, d] of packed rows ``ids`` int[1, m].

    decoder:   a Llama-style decoder (``embed_tokens``, ``rotary_emb``, ``layers``, ``norm``).
    positions: in the shape the decoder's rotary embedding takes.
    mask:      additive [1, 1, m, cached + m], None for a single row.
    """
    hidden = decoder.embed_tokens(ids)
    rotary = decoder.rotary_emb(hidden, positions)
    for layer in decoder.layers:
        hidden = layer(
            hidden,
            attention_mask=mask,
            position_embeddings=rotary,
            cache=cache,
            use_cache=True,
        )
    normed: torch.Tensor = decoder.norm(hidden)[0]
    return normed


@torch.inference_mode()
def check_same_logits(family: Family) -> None:
    """Compare a packed step behind a short prompt with the model's own forward over the whole.

    Catches what no list of config fields could name: a model that scales or caps embeddings or
    logits, or ignores the cache. Raises ValueError when the two differ by more than rounding.
    A model without weights (on torch's "meta" device) has no logits to compare.
    """
    model = family.model
    if model.device.type == "meta":
        return
    # Ordinary text: a placeholder would make the model look for pixels.
    special = {*family.tokenizer.all_special_ids, family.image_token_id}
    text = [token for token in range(64) if token not in special][:8]
    ids = torch.tensor([text], device=model.device)
    expected = model(input_ids=ids, use_cache=False).logits[0, -2:].float()
    cache = KVCache(CacheShape.of(model.config.get_text_config(), model.dtype, model.device), 16)
    model.base_model(input_ids=ids[:, :-2], cache=cache, use_cache=True)
    prompt = ids.shape[1] - 2
    cache.advance(prompt)
    tree = TokenTree.chain(text[-2], text[-1:])
    packed = Packer(model.dtype, model.device, 2, 16).pack(tree, 2, prompt, 0)
    positions = family.packed_positions(packed.positions)
    hidden = run_layers(family.language_model, packed.ids, positions, packed.mask, cache)
    found = model.lm_head(hidden).float()
    error = float((found - expected).abs().max() / expected.abs().max())
    if not error <= _RELATIVE.get(model.dtype, _RELATIVE_HALF):
        raise ValueError(
            f"this engine cannot drive {type(model).__name__}: packed logits differ from the "
            f"model's own by {error:.1%} of the largest logit"
        )
