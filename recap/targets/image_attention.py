"""The last layer's attention on image tokens, without leaving sdpa.

sdpa does not return attention weights, and eager attention would slow every layer of every step. So
a hook remembers what went into the last layer's attention, and the one row that is asked for is
computed from it and from the cached keys: softmax(q k / sqrt(e)) of one node, averaged over heads,
summed over the image tokens.

Shapes: m packed rows, t = cached + packed rows, g key/value heads, r queries per key head,
e head width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn


class ImageAttention:
    """Reads one session's image attention off a decoder's last attention module.

    attention: a Llama-style attention module (``q_proj``, rotary halves, ``scaling``).
    positions: int64[i], where the prompt's image tokens lie in the cache.
    """

    def __init__(self, attention: nn.Module, positions: NDArray[np.int64]) -> None:
        self._attention = attention
        self._positions = torch.from_numpy(positions)
        self._handle: Any = None
        self._mask: torch.Tensor | None = None
        self._total = 0
        self._hidden: torch.Tensor | None = None
        self._rotary: tuple[torch.Tensor, torch.Tensor] | None = None

    def watch(self, mask: torch.Tensor | None, total: int) -> None:
        """Remember the inputs of the next forward, and of that one only.

        mask: its additive mask [1, 1, m, t], None when it has a single row; total: t.
        The hook removes itself when it fires: the model is shared with other sessions.
        """
        self._mask, self._total = mask, total
        self._handle = self._attention.register_forward_pre_hook(self._remember, with_kwargs=True)

    def _remember(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._handle.remove()
        self._hidden = kwargs["hidden_states"]  # [1, m, d]
        self._rotary = kwargs["position_embeddings"]  # cos and sin, [1, m, e]

    def share(self, node: int, keys: torch.Tensor) -> float:
        """Image attention of packed row ``node``, in [0, 1].

        keys: [1, g, capacity, e], the last layer's key buffer, in which the packed rows still lie
              behind the committed ones. Raises RuntimeError before the first verification.
        """
        if self._hidden is None or self._rotary is None:
            raise RuntimeError("image attention is known after a verification only")
        if len(self._positions) == 0:
            return 0.0
        weights = self._weights(node, keys)
        on_image = weights.index_select(-1, self._positions.to(weights.device))
        return float(on_image.sum(-1).mean())

    def _weights(self, node: int, keys: torch.Tensor) -> torch.Tensor:
        """float32[g, r, t]: the attention row of ``node`` per head."""
        assert self._hidden is not None
        assert self._rotary is not None
        module: Any = self._attention
        cos, sin = (part[0, node] for part in self._rotary)  # [e]
        query = module.q_proj(self._hidden[0, node]).view(
            keys.shape[1], -1, module.head_dim
        )  # [g, r, e]
        first, second = query.chunk(2, dim=-1)
        query = query * cos + torch.cat((-second, first), dim=-1) * sin
        scores = query @ keys[0, :, : self._total].transpose(1, 2) * module.scaling
        if self._mask is not None:
            scores = scores + self._mask[0, 0, node]
        return scores.softmax(dim=-1, dtype=torch.float32)
