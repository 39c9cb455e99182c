"""Packed rows, positions and masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.core.tree import TokenTree
from recap.targets.packing import BUCKETS, MaskBuffer, Packer, bucket

from .reference import random_tree

CPU = torch.device("cpu")


@given(st.integers(1, 300), st.booleans(), st.integers(1, 90))
@settings(derandomize=True)
def test_bucket_holds_the_tree_and_at_least_min_rows(rows: int, pad: bool, minimum: int) -> None:
    size = bucket(rows, pad, minimum)
    assert size >= max(rows, minimum)
    assert pad or size == max(rows, minimum)
    assert not pad or size in BUCKETS or (size > BUCKETS[-1] and size % 16 == 0)


@pytest.mark.parametrize("rows", BUCKETS)
def test_a_bucket_fits_itself(rows: int) -> None:
    assert bucket(rows, pad_rows=True) == rows


def test_root_only_needs_no_mask() -> None:
    packed = Packer(torch.float32, CPU, 8, 64).pack(TokenTree.root_only(5), 1, prefix=9, offset=-3)
    assert packed.mask is None and packed.rows == 1
    assert packed.ids.tolist() == [[5]] and packed.positions.tolist() == [6]


def test_worked_example_with_pad_rows() -> None:
    tree = TokenTree([9, 1, 2, 3], [-1, 0, 0, 2], [0, 1, 1, 2])
    packed = Packer(torch.float32, CPU, 8, 64).pack(tree, 6, prefix=2, offset=0)
    assert packed.ids.tolist() == [[9, 1, 2, 3, 9, 9]]
    assert packed.positions.tolist() == [2, 3, 3, 4, 2, 2]
    visible = packed.mask[0, 0] == 0
    assert visible[:, :2].all()  # the prefix
    block = ["100000", "110000", "101000", "101100", "000010", "000001"]
    assert visible[:, 2:].int().tolist() == [[int(c) for c in row] for row in block]


@settings(derandomize=True, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 40)), min_size=1, max_size=6),
    st.integers(0, 99),
)
def test_mask_buffer_leaves_nothing_behind(steps: list[tuple[int, int]], seed: int) -> None:
    """Whatever was written before, the mask is the prefix, then the block; growing included."""
    rng, dtype = np.random.default_rng(seed), torch.float32
    buffer = MaskBuffer(dtype, CPU, rows=4, columns=16)
    for rows, prefix in steps:
        visible = random_tree(rng, rows, 0, 9).ancestor_mask()
        mask = buffer.write(visible, prefix)
        assert mask.shape == (1, 1, rows, prefix + rows)
        expected = np.where(
            np.hstack([np.ones((rows, prefix), bool), visible]), 0, torch.finfo(dtype).min
        )
        np.testing.assert_array_equal(mask[0, 0].numpy(), expected.astype(np.float32))


def test_mask_rows_stay_aligned() -> None:
    mask = MaskBuffer(torch.float32, CPU, rows=8, columns=70).write(
        np.eye(5, dtype=bool), prefix=33
    )
    assert mask.stride(2) % 16 == 0 and mask.storage_offset() == 0
