"""How much the GPU check measures, in full and in miniature."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    small:           whether the models are narrow ones instead of 7B.
    contexts:        cached tokens a step is timed behind, ascending.
    rows:            tree nodes of a timed verification, the root included.
    warm_up, rounds: of every interleaved measurement; the first are thrown away.
    tokens:          output tokens of a generation.
    generate_rounds: generations beside ``model.generate`` and prefills, after one of warm-up.
    pair_units:      units of the AR-against-AR pair.
    patches:         height and width of Qwen's picture in patches of 14 x 14 pixels.
    text_tokens:     a picture prompt's tokens besides the picture.
    copy_mib:        buffer of the bandwidth measurement.
    history:         prompt tokens of the host measurements.
    requests, steps: of each method there; two more requests warm up.
    pictures:        of the identity check.
    """

    small: bool = False
    contexts: tuple[int, ...] = (512, 1500, 3000)
    rows: tuple[int, ...] = (1, 8, 16, 32, 64, 68, 81)
    warm_up: int = 5
    rounds: int = 30
    tokens: int = 64
    generate_rounds: int = 5
    pair_units: int = 40
    patches: tuple[int, int] = (64, 80)  # 1,280 tokens, the author's upper bound
    text_tokens: int = 60
    copy_mib: int = 4096
    history: int = 1500
    requests: int = 3
    steps: int = 20
    pictures: int = 3


FULL = Sizes()
SMALL = Sizes(
    small=True,
    contexts=(32, 64, 96),
    warm_up=1,
    rounds=3,
    tokens=12,
    generate_rounds=2,
    pair_units=3,
    patches=(8, 8),
    text_tokens=8,
    copy_mib=8,
    history=60,
    requests=1,
    steps=6,
    pictures=1,
)
