"""What transformers itself computes for a prompt and a continuation: the yardstick of the engine's
tests.

Prompts go through the processor directly and the model keeps its own positions and cache, so
nothing of `recap.targets` is part of the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from recap.core.tree import TokenTree

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def processed(
    family: Any, messages: list[dict[str, Any]], images: list[Any]
) -> dict[str, torch.Tensor]:
    """The processor's (or tokenizer's) own tensors for an ordinary prompt."""
    if family.image_token_id is None:
        text = [{"role": m["role"], "content": _joined(m["content"])} for m in messages]
        prompt = family.tokenizer.apply_chat_template(
            text, tokenize=False, add_generation_prompt=True
        )
        return dict(family.tokenizer(prompt, return_tensors="pt"))
    parts = [
        {"role": m["role"], "content": [{"type": "text", "text": c}] if isinstance(c, str) else c}
        for m in messages
        for c in [m["content"]]
    ]
    prompt = family.processor.apply_chat_template(parts, tokenize=False, add_generation_prompt=True)
    return dict(family.processor(text=[prompt], images=images or None, return_tensors="pt"))


def _joined(content: Any) -> str:
    return (
        content
        if isinstance(content, str)
        else "\n".join(p["text"] for p in content if p["type"] == "text")
    )


def continued(inputs: dict[str, torch.Tensor], tokens: list[int]) -> dict[str, torch.Tensor]:
    """``inputs`` with text ``tokens`` behind the prompt."""
    extended = dict(inputs)
    for name, value in (("input_ids", tokens), ("attention_mask", [1] * len(tokens))):
        extended[name] = torch.cat([inputs[name], torch.tensor([value], dtype=torch.long)], dim=1)
    if "mm_token_type_ids" in inputs:
        types = inputs["mm_token_type_ids"]
        extended["mm_token_type_ids"] = torch.cat([types, types.new_zeros(1, len(tokens))], dim=1)
    return extended


@torch.inference_mode()
def forward(family: Any, inputs: dict[str, torch.Tensor], **arguments: Any) -> Any:
    """The whole model on ``inputs``, without any state of an earlier request."""
    dtype = family.model.dtype
    moved = {n: t.to(dtype) if t.is_floating_point() else t for n, t in inputs.items()}
    if hasattr(family.model.model, "rope_deltas"):
        family.model.model.rope_deltas = None
    return family.model(**moved, use_cache=True, **arguments)


def logits_after(family: Any, inputs: dict[str, torch.Tensor], tokens: list[int]) -> torch.Tensor:
    """float[V]: next-token logits after the prompt and ``tokens``."""
    return forward(family, continued(inputs, tokens)).logits[0, -1]


@torch.inference_mode()
def generated(family: Any, inputs: dict[str, torch.Tensor], max_new_tokens: int) -> list[int]:
    """`model.generate`'s greedy output."""
    dtype = family.model.dtype
    moved = {n: t.to(dtype) if t.is_floating_point() else t for n, t in inputs.items()}
    output = family.model.generate(
        **moved, do_sample=False, repetition_penalty=1.0, max_new_tokens=max_new_tokens
    )
    return output[0, inputs["input_ids"].shape[1] :].tolist()


def random_tree(
    rng: np.random.Generator, nodes: int, root: int, vocab: int, bushy: float = 0.5
) -> TokenTree:
    """A random tree; ``bushy`` 0 gives a chain, 1 parents chosen uniformly."""
    parents = [-1]
    for i in range(1, nodes):
        parents.append(int(rng.integers(0, i)) if rng.random() < bushy else i - 1)
    depths = [0] * nodes
    for i in range(1, nodes):
        depths[i] = depths[parents[i]] + 1
    tokens = rng.integers(0, vocab, nodes)
    tokens[0] = root
    return TokenTree(tokens, parents, depths)


@torch.inference_mode()
def packed_logits(session: Any, tree: TokenTree) -> torch.Tensor:
    """float[n, V]: the engine's logits in the model's own dtype, which `verify` reduces to
    predictions.
    """
    return session._head(session._packed_forward(tree))[: len(tree)]
