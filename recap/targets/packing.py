"""From a token tree to the arrays of one packed forward.

A tree of n nodes becomes n rows of token ids, positions (cache length + depth) and an additive
attention mask in which a node sees the whole prefix, its ancestors and itself. A root alone needs
no mask. Rows can be padded to a bucket, so that kernels are chosen for few shapes: a pad row sees,
of the packed rows, only itself, and is never read.

Shapes: n tree nodes, m >= n packed rows, L cached tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from recap.core.tree import TokenTree

BUCKETS = (1, 8, 16, 32, 64, 72, 88)
"""Rows of padded forwards: 64 = root + 63 candidates, 72 and 88 leave room for suffix nodes."""

# Mask rows are multiples of this many columns: CUDA's memory-efficient attention needs it.
_ALIGN = 64


@dataclass(frozen=True, eq=False, slots=True)
class Packed:
    """One packed forward's inputs, on the model's device.

    ids:       int32[1, m], token ids; pad rows hold the root's.
    positions: int32[m], cache length + depth + offset.
    mask:      float[1, 1, m, L + m] additive, or None for a single row.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor | None

    @property
    def rows(self) -> int:
        """m, pad rows included."""
        return self.ids.shape[1]


def bucket(rows: int, pad_rows: bool, min_rows: int = 1) -> int:
    """Rows of the packed forward for a tree of ``rows`` nodes.

    With ``pad_rows`` the smallest bucket that holds them (multiples of 16 beyond the largest);
    ``min_rows`` forces at least that many, with or without padding, which is how autoregressive
    decoding runs in any bucket.

    >>> bucket(5, pad_rows=True), bucket(5, pad_rows=False), bucket(1, pad_rows=True, min_rows=64)
    (8, 5, 64)
    """
    wanted = max(rows, min_rows)
    if not pad_rows:
        return wanted
    for size in BUCKETS:
        if size >= wanted:
            return size
    return -(-wanted // 16) * 16


class MaskBuffer:
    """A buffer of zeros in which only the block of the packed rows is rewritten.

    The view [1, 1, m, L + m] of it is the mask: its first L columns (the prefix) are zero and stay
    zero, the block behind them says which packed row sees which. The previous block is zeroed again
    before the next is written, since the next prefix covers part of it. Rows and columns grow on
    demand.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, rows: int, columns: int) -> None:
        self._dtype = dtype
        self._device = device
        self._blocked = torch.finfo(dtype).min
        self._allocate(rows, columns)

    def _allocate(self, rows: int, columns: int) -> None:
        columns = -(-columns // _ALIGN) * _ALIGN
        # empty and zero_, not zeros: the pages are touched now, before time is measured.
        self._buffer = torch.empty((rows, columns), dtype=self._dtype, device=self._device).zero_()
        self._block = self._buffer[:0, :0]

    def write(self, visible: np.ndarray, prefix: int) -> torch.Tensor:
        """float[1, 1, m, prefix + m] from bool[m, m], true where row i sees row j.

        A view that the next call overwrites.
        """
        rows = len(visible)
        height, width = self._buffer.shape
        if rows > height or prefix + rows > width:
            self._allocate(max(rows, height), max(prefix + rows, width))
        else:
            self._block.zero_()
        self._block = self._buffer[:rows, prefix : prefix + rows]
        hidden = torch.from_numpy(~visible).to(self._device)
        self._block.masked_fill_(hidden, self._blocked)
        return self._buffer[None, None, :rows, : prefix + rows]


class Packer:
    """Packs the trees of one session. Owns the session's mask buffer."""

    def __init__(self, dtype: torch.dtype, device: torch.device, rows: int, columns: int) -> None:
        self._device = device
        self._mask = MaskBuffer(dtype, device, rows, columns)

    def pack(self, tree: TokenTree, rows: int, prefix: int, offset: int) -> Packed:
        """Pack ``tree`` into ``rows`` >= n rows behind ``prefix`` cached tokens.

        offset: what the family adds to every position (Qwen's rope delta).
        """
        # One array for ids and positions: one copy to the device instead of two.
        staged = np.empty((2, rows), np.int32)
        nodes = len(tree)
        staged[0, :nodes] = tree.tokens
        staged[0, nodes:] = tree.tokens[0]
        staged[1, :nodes] = tree.depths
        staged[1, nodes:] = 0
        staged[1] += prefix + offset
        moved = torch.from_numpy(staged).to(self._device)
        mask = None if rows == 1 else self._mask.write(_visible(tree, rows), prefix)
        return Packed(moved[:1], moved[1], mask)


def _visible(tree: TokenTree, rows: int) -> np.ndarray:
    """bool[rows, rows]: ancestors and self for nodes, self alone for the pad rows behind them."""
    ancestors = tree.ancestor_mask()
    nodes = len(ancestors)
    if rows == nodes:
        return ancestors
    visible = np.eye(rows, dtype=np.bool_)
    visible[:nodes, :nodes] = ancestors
    return visible
