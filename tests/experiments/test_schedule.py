from __future__ import annotations

from collections import Counter

import pytest

from experiments.schedule import arm_order


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_block_puts_every_arm_at_every_position_once(size: int) -> None:
    arms = [f"arm{i}" for i in range(size)]
    for block in range(40):
        orders = [arm_order(block * size + row, arms, seed=7) for row in range(size)]
        for position in range(size):
            assert sorted(order[position] for order in orders) == arms


def test_order_is_not_tied_to_parity() -> None:
    first = [arm_order(unit, ["ar", "recap"], seed=0)[0] for unit in range(200)]
    even = Counter(first[::2])
    assert 30 <= even["ar"] <= 70


def test_seed_decides() -> None:
    arms = ["a", "b", "c"]
    orders = {seed: [arm_order(u, arms, seed) for u in range(30)] for seed in (0, 1)}
    assert orders[0] == [arm_order(u, arms, 0) for u in range(30)]
    assert orders[0] != orders[1]
