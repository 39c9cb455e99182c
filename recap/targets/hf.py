"""The engine: a `Target` and its `Session`s over a transformers model, the same for every family.

A session prefills its prompt, then verifies one packed tree per step and keeps the accepted path.
Autoregressive decoding is the tree that holds the root alone. A step has one synchronisation: when
its predictions come back.

Prompts run through the whole model, vision tower included; packed steps through the decoder's
layers and the head only, see `recap.targets.decoder`.

Knows nothing about drafting methods. Shapes: p prompt tokens, n tree nodes, m >= n packed rows,
d hidden width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from recap.core.interfaces import ContextExceeded, Needs, Predictions, Prefill, Verification
from recap.targets.cache import CachePool, CacheShape
from recap.targets.decoder import check_same_logits, run_layers
from recap.targets.family import check_drivable, stop_ids
from recap.targets.image_attention import ImageAttention
from recap.targets.packing import Packer, bucket
from recap.targets.predict import greedy, joined, predictions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from PIL.Image import Image

    from recap.core.tree import TokenTree
    from recap.targets.family import Family
    from recap.targets.request import Message, Request

# Packed rows a session has room for from the start: 127 candidates, a suffix and the root, in their
# bucket. Larger trees grow it.
HEADROOM = 144

# Prompt rows per pass through the head: all at once would be [p, 152,064] logits.
HEAD_CHUNK = 256


class HFTarget:
    """A loaded transformers model as a target.

    family:   the model with its family adapter.
    pad_rows: pad packed rows to buckets (None: on CUDA only), see `recap.targets.packing.bucket`.
    min_rows: run every packed forward with at least this many rows (autoregressive decoding in a
              verification's bucket, a numerics control).

    Raises ValueError when the engine cannot drive the model, see `check_drivable` and
    `check_same_logits`.
    """

    def __init__(self, family: Family, *, pad_rows: bool | None = None, min_rows: int = 1) -> None:
        check_drivable(family)
        self.family = family
        self.model = family.model.eval()
        check_same_logits(family)
        self.device: torch.device = self.model.device
        self.dtype: torch.dtype = self.model.dtype
        self.pad_rows = self.device.type == "cuda" if pad_rows is None else pad_rows
        self.min_rows = min_rows
        config = self.model.config.get_text_config()
        self.vocab_size: int = config.vocab_size
        self.context: int = config.max_position_embeddings
        self.stop_ids = stop_ids(family)
        image_token = family.image_token_id
        self.blocked_ids = frozenset() if image_token is None else frozenset({image_token})
        self.pool = CachePool(CacheShape.of(config, self.dtype, self.device))

    @property
    def text_only(self) -> bool:
        """Whether the model drops pictures."""
        return self.family.image_token_id is None

    def encode(self, messages: Sequence[Message], images: Sequence[Image] = ()) -> Request:
        """Encode one generation turn. Raises ValueError when texts and pictures do not match."""
        return self.family.encode(messages, images)

    def decode_text(self, ids: Sequence[int]) -> str:
        """The text of generated ids, special tokens left out: what a later turn's history shows."""
        text: str = self.family.tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def open(
        self,
        request: Request,
        needs: Needs,
        max_new_tokens: int,
        *,
        min_rows: int | None = None,
    ) -> HFSession:
        """Allocate a session; prompt inputs are copied to the device here, untimed.

        min_rows: this session's own, instead of the target's.

        Raises ContextExceeded when prompt and token limit do not fit the model's context.
        """
        prompt = len(request.prompt_ids)
        if prompt + max_new_tokens > self.context:
            raise ContextExceeded(
                f"{prompt} prompt tokens and {max_new_tokens} new ones make "
                f"{prompt + max_new_tokens}, the model's context is {self.context}"
            )
        rows = self.min_rows if min_rows is None else min_rows
        return HFSession(self, request, needs, max_new_tokens, rows)


class HFSession:
    """One request on an `HFTarget`, with a KV cache of its own."""

    def __init__(
        self,
        target: HFTarget,
        request: Request,
        needs: Needs,
        max_new_tokens: int,
        min_rows: int,
    ) -> None:
        self.prompt_ids = request.prompt_ids
        self.blocked_ids = target.blocked_ids
        self.stop_ids = target.stop_ids
        self._target = target
        self._needs = needs
        self._min_rows = min_rows
        self._offset = request.position_offset
        self._base = target.model.base_model
        self._decoder = target.family.language_model
        self._head = target.model.lm_head
        self._packed_positions = target.family.packed_positions
        self._inputs = {name: self._to_device(tensor) for name, tensor in request.inputs.items()}
        headroom = max(HEADROOM, bucket(1, target.pad_rows, min_rows))
        capacity = len(request.prompt_ids) + max_new_tokens + headroom
        self._cache = target.pool.take(capacity)
        self._closed = False
        self._packer = Packer(target.dtype, target.device, headroom, capacity)
        self._attention = None if needs.image_attention is None else self._image_attention()

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        dtype = self._target.dtype if tensor.is_floating_point() else None
        return tensor.to(self._target.device, dtype)

    def _image_attention(self) -> ImageAttention:
        positions = np.flatnonzero(np.isin(self.prompt_ids, list(self.blocked_ids)))
        layers: Any = self._decoder.layers
        return ImageAttention(layers[-1].self_attn, positions)

    @property
    def cache_length(self) -> int:
        """Committed tokens whose keys and values are cached."""
        return self._cache.length

    @torch.inference_mode()
    def prefill(self) -> Prefill:
        """Run the prompt, vision tower included.

        Logits are computed for the last position, and for the first occurrence of each distinct
        prompt token where `Needs.prompt_rows` asks for them.
        """
        self._cache.reset()
        output = self._base(**self._inputs, cache=self._cache, use_cache=True)
        hidden = output.last_hidden_state[0]  # [p, d]
        self._cache.advance(len(self.prompt_ids))
        first_token = int(greedy(self._head(hidden[-1:])))
        if not self._needs.prompt_rows:
            return Prefill(first_token)
        positions = first_occurrences(self.prompt_ids, self.blocked_ids)
        return Prefill(
            first_token, self._prompt_rows(hidden, positions), self.prompt_ids[positions]
        )

    def _prompt_rows(self, hidden: torch.Tensor, positions: NDArray[np.int64]) -> Predictions:
        """Predictions after the prompt tokens at ``positions`` int64[r]."""
        chosen = hidden.index_select(0, torch.from_numpy(positions).to(hidden.device))
        chunks = chosen.split(HEAD_CHUNK)
        return joined([self._predictions(self._head(chunk)) for chunk in chunks])

    def _predictions(self, logits: torch.Tensor) -> Predictions:
        return predictions(logits, self._needs.topk, self._needs.topk_mass)

    @torch.inference_mode()
    def verify(self, tree: TokenTree) -> Verification:
        """Predict after every node of ``tree`` in one packed forward. Does not move the cache."""
        nodes = len(tree)
        hidden = self._packed_forward(tree)
        # Pad rows go through the head too, so that its kernel depends on the bucket alone; they are
        # cut off here.
        result = self._predictions(self._head(hidden)[:nodes])
        if not self._needs.hidden_states:
            return Verification(result)
        return Verification(result, hidden[:nodes].float().cpu().numpy())

    def _packed_forward(self, tree: TokenTree) -> torch.Tensor:
        """Last hidden states [m, d] of the packed rows."""
        rows = bucket(len(tree), self._target.pad_rows, self._min_rows)
        self._cache.reserve(rows)
        packed = self._packer.pack(tree, rows, self._cache.length, self._offset)
        if self._attention is not None:
            self._attention.watch(packed.mask, self._cache.length + rows)
        positions = self._packed_positions(packed.positions)
        return run_layers(self._decoder, packed.ids, positions, packed.mask, self._cache)

    @torch.inference_mode()
    def image_attention(self, node: int) -> float:
        """The last verification's image attention of ``node``, see `Needs.image_attention`.

        Costs a synchronisation of its own. Raises ValueError when the session's needs name none.
        """
        if self._attention is None:
            raise ValueError("image attention was not among the needs this session was opened with")
        return self._attention.share(node, self._cache.layers[-1].keys)

    @torch.inference_mode()
    def commit(self, nodes: NDArray[np.int32]) -> None:
        """Keep the rows of ``nodes``: the root and the accepted path of the last tree."""
        self._cache.commit(nodes)

    def close(self) -> None:
        """Give the cache back to the target's pool; closing twice is harmless.

        The session is of no use afterwards.
        """
        if not self._closed:
            self._closed = True
            self._target.pool.give_back(self._cache)


def first_occurrences(ids: NDArray[np.int32], blocked: frozenset[int]) -> NDArray[np.int64]:
    """Ascending positions int64[r] of each distinct id's first occurrence, blocked ids left out.

    >>> first_occurrences(np.array([5, 9, 5, 7], np.int32), frozenset({9})).tolist()
    [0, 3]
    """
    _, first = np.unique(ids, return_index=True)
    first.sort()
    return first[~np.isin(ids[first], list(blocked))]
