"""The preallocated cache: in place, no copies, lent out by a pool."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.targets.cache import CachePool, CacheShape, KVCache

SHAPE = CacheShape(layers=2, heads=3, head_dim=4, dtype=torch.float32, device=torch.device("cpu"))


def write(cache: KVCache, values: list[float]) -> list[torch.Tensor]:
    """Pack one row per value into every layer; returns the key views."""
    rows = torch.tensor(values)[None, None, :, None].expand(1, 3, -1, 4)
    return [cache.update(rows, rows + 0.5, layer)[0] for layer in range(2)]


def contents(cache: KVCache) -> list[float]:
    """The committed rows' values, after checking that keys, values and layers agree."""
    kept = cache.storage[..., : cache.length, :]
    torch.testing.assert_close(kept[:, 1], kept[:, 0] + 0.5)
    assert bool((kept == kept[:1, :, :, :1, :, :1]).all())
    return kept[0, 0, 0, 0, :, 0].tolist()


@settings(derandomize=True, max_examples=60)
@given(st.data())
def test_commits_keep_the_chosen_rows_in_order_and_in_place(data: st.DataObject) -> None:
    cache, expected, counter = KVCache(SHAPE, 64), [], 0
    address = cache.storage.data_ptr()
    for _ in range(data.draw(st.integers(1, 6))):
        size = data.draw(st.integers(1, 12))
        values = [float(counter + i) for i in range(size)]
        counter += size
        views = write(cache, values)
        assert views[0].shape[-2] == cache.length + size
        assert cache.get_seq_length() == len(expected)
        chosen = sorted(data.draw(st.sets(st.integers(0, size - 1), max_size=5)))
        cache.commit(np.array(chosen, np.int32))
        expected += [values[i] for i in chosen]
        assert contents(cache) == expected
    assert cache.storage.data_ptr() == address


def test_views_are_the_buffer_itself() -> None:
    cache = KVCache(SHAPE, 64)
    view = write(cache, [1.0, 2.0])[0]
    assert view.data_ptr() == cache.storage.data_ptr()


def test_crop_and_mask_sizes_follow_transformers() -> None:
    cache = KVCache(SHAPE, 64)
    write(cache, [1.0, 2.0, 3.0])
    cache.advance(3)
    assert cache.get_mask_sizes(5, 0) == (8, 0) and cache.is_croppable
    cache.crop(-2)
    assert contents(cache) == [1.0]
    with pytest.raises(ValueError, match="negative"):
        cache.crop(1)


def test_reserve_grows_and_keeps_the_committed_rows() -> None:
    cache = KVCache(SHAPE, 10)
    write(cache, [1.0, 2.0])
    cache.advance(2)
    capacity = cache.capacity
    cache.reserve(capacity)
    assert cache.capacity > capacity
    write(cache, [float(i) for i in range(capacity)])
    cache.commit(np.array([0, 3], np.int32))
    assert contents(cache) == [1.0, 2.0, 0.0, 3.0]


def test_pool_lends_a_cache_to_one_session_at_a_time() -> None:
    pool = CachePool(SHAPE, keep=2)
    first, second = pool.take(100), pool.take(100)
    assert first is not second
    write(first, [1.0])
    first.advance(1)
    pool.give_back(first)
    again = pool.take(200)
    assert again is first and again.length == 0
    assert pool.take(10_000).capacity >= 10_000


def test_pool_keeps_few_and_the_largest() -> None:
    pool = CachePool(SHAPE, keep=2)
    caches = [pool.take(rows) for rows in (300, 600, 900)]
    for cache in caches:
        pool.give_back(cache)
    assert pool.take(1) is caches[1] and pool.take(1) is caches[2]


def test_a_dropped_cache_frees_its_buffer_without_the_collector() -> None:
    """Which stands still while time is measured; a 7B cache takes gigabytes."""
    cache = KVCache(SHAPE, 16)
    dropped = weakref.ref(cache)
    gc.disable()
    try:
        del cache
        assert dropped() is None
    finally:
        gc.enable()
