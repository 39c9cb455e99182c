"""A preallocated KV cache that is written and compacted in place.

transformers' own caches either concatenate at every step (`DynamicCache`) or are addressed through
device tensors (`StaticCache`), and neither can gather an accepted path out of a verified tree. Here
all layers share one buffer and one length. A forward writes its n packed rows behind the committed
ones and attends to a view of both; nothing is committed until `commit` says which of the rows to
keep. So a verification never moves the cache, and a rejected row needs no clean-up: the next
forward overwrites it.

Shapes: b = 1 sequence, g key/value heads, t token rows, e head width.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedConfig

# Capacities are rounded up to this many rows, so that requests of similar length share a buffer.
_GRANULE = 256


@dataclass(frozen=True)
class CacheShape:
    """Everything about a cache's buffer but its number of rows."""

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, config: PreTrainedConfig, dtype: torch.dtype, device: torch.device) -> CacheShape:
        """The shape a decoder's text config asks for."""
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        return cls(config.num_hidden_layers, kv_heads, head_dim, dtype, device)

    def allocate(self, rows: int) -> torch.Tensor:
        """[layers, 2, 1, g, rows, e].

        Zeroed to touch the pages here, where no time is measured; no row is read before it is
        written.
        """
        shape = (self.layers, 2, 1, self.heads, rows, self.head_dim)
        return torch.empty(shape, dtype=self.dtype, device=self.device).zero_()


class PreallocatedLayer(DynamicLayer):
    """One layer's window on the cache's shared buffer."""

    def __init__(self, owner: KVCache, index: int) -> None:
        super().__init__()
        self._owner = weakref.proxy(owner)  # no cycle: a dropped cache frees its buffer at once
        self._index = index
        self.bind()

    def bind(self) -> None:
        """Take this layer's slice of the owner's buffer, after it was allocated anew."""
        self.keys, self.values = self._owner.storage[self._index].unbind(0)
        self.device, self.dtype = self.keys.device, self.keys.dtype
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write [b, g, n, e] behind the committed rows; views of all, [b, g, length + n, e]."""
        start = self._owner.length
        rows = key_states.shape[-2]
        self.keys.narrow(2, start, rows).copy_(key_states)
        self.values.narrow(2, start, rows).copy_(value_states)
        return self.keys.narrow(2, 0, start + rows), self.values.narrow(2, 0, start + rows)

    def get_seq_length(self) -> int:
        """Committed rows."""
        return self._owner.length

    def get_max_length(self) -> int:
        """Rows allocated."""
        return self._owner.capacity

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: the length belongs to the whole cache, see `KVCache.crop`."""
        raise NotImplementedError("crop the cache, not one of its layers")

    def reset(self) -> None:
        """Nothing to do: the length belongs to the whole cache."""


class KVCache(Cache):
    """The keys and values of one sequence, in one buffer [layers, 2, 1, g, capacity, e].

    Invariant: rows 0 .. length - 1 are the committed tokens, in order; what lies behind is scratch.
    """

    def __init__(self, shape: CacheShape, capacity: int) -> None:
        self.shape = shape
        self.storage = shape.allocate(_rounded(capacity))
        self.length = 0
        super().__init__(layers=[PreallocatedLayer(self, i) for i in range(shape.layers)])

    @property
    def capacity(self) -> int:
        """Rows allocated."""
        return self.storage.shape[-2]

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` packed rows behind the committed ones.

        Sessions are opened with room for every usual tree, so this allocates (and copies) only for
        a tree larger than that.
        """
        if self.length + rows <= self.capacity:
            return
        old = self.storage
        self.storage = self.shape.allocate(_rounded(self.length + rows))
        self.storage[..., : self.length, :] = old[..., : self.length, :]
        for layer in self.layers:
            layer.bind()

    def commit(self, nodes: NDArray[np.int32]) -> None:
        """Keep the packed rows ``nodes`` (int[c], ascending) of the latest forward, in place.

        Rows that already lie where they belong (all of them, for a chain and for autoregressive
        decoding) are not touched; the others, a handful, are moved together for all layers, keys
        and values.
        """
        nodes = np.asarray(nodes)
        kept = len(nodes)
        in_place = _leading_in_place(nodes)
        if in_place < kept:
            source = torch.from_numpy(self.length + nodes[in_place:].astype(np.int64))
            moved = self.storage.index_select(-2, source.to(self.shape.device))
            self.storage.narrow(-2, self.length + in_place, kept - in_place).copy_(moved)
        self.length += kept

    def advance(self, rows: int) -> None:
        """Keep the latest forward's ``rows`` rows as they are (a prompt)."""
        self.length += rows

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; negative like transformers' own, -3 forgets three.

        Raises ValueError for a positive number, which used to mean a length.
        """
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes a negative number of tokens, got {tokens_to_remove}")
        self.length = max(0, self.length + tokens_to_remove)

    def reset(self) -> None:
        """Forget everything."""
        self.length = 0


class CachePool:
    """Lends out caches and keeps returned ones, so that an arm finds its pages warm and nothing is
    allocated while time is measured. Holds at most ``keep`` free caches.
    """

    def __init__(self, shape: CacheShape, keep: int = 2) -> None:
        self._shape = shape
        self._keep = keep
        self._free: list[KVCache] = []

    def take(self, capacity: int) -> KVCache:
        """An empty cache of at least ``capacity`` rows: the smallest free one, else a new one."""
        fitting = [cache for cache in self._free if cache.capacity >= capacity]
        if not fitting:
            return KVCache(self._shape, capacity)
        cache = min(fitting, key=lambda free: free.capacity)
        self._free.remove(cache)
        cache.reset()
        return cache

    def give_back(self, cache: KVCache) -> None:
        """Return a cache that its session no longer uses."""
        self._free.append(cache)
        if len(self._free) > self._keep:
            self._free.remove(min(self._free, key=lambda free: free.capacity))


def _rounded(rows: int) -> int:
    return -(-rows // _GRANULE) * _GRANULE


def _leading_in_place(nodes: NDArray[np.int32]) -> int:
    """How many of ``nodes`` equal their own index, counted from the front."""
    moved = np.flatnonzero(nodes != np.arange(len(nodes)))
    return int(moved[0]) if len(moved) else len(nodes)
