"""In which order the arms of a unit run. Pure and seeded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def arm_order(unit_index: int, arms: Sequence[str], seed: int) -> list[str]:
    """The arms of one unit in their order: a seeded permutation, balanced over blocks of
    ``len(arms)`` units.

    Within a block every arm stands at every position once (the rotations of one random permutation,
    themselves in random order). Rotating by the unit's index instead would tie the order to the
    turn number wherever inputs have as many turns as there are arms.

    >>> orders = [arm_order(i, ["ar", "recap"], seed=0) for i in range(2)]
    >>> sorted(order[0] for order in orders)
    ['ar', 'recap']
    """
    size = len(arms)
    block, row = divmod(unit_index, size)
    rng = np.random.default_rng([seed, block])
    permutation = rng.permutation(size)
    shift = int(rng.permutation(size)[row])
    return [arms[i] for i in np.roll(permutation, shift)]
