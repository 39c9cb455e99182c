"""A run's units in order, and how one is encoded: a unit is one generation turn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.prompts import turn_messages

if TYPE_CHECKING:
    from experiments.benches import BenchInput
    from experiments.plan import BenchSettings
    from recap.targets.hf import HFTarget
    from recap.targets.request import Request


@dataclass(frozen=True)
class Unit:
    """One generation turn: ``index`` counts a run's units from 0, ``turn`` an input's turns."""

    index: int
    item: BenchInput
    turn: int

    @property
    def unit_id(self) -> str:
        """The input's id with its turn."""
        return f"{self.item.input_id}:{self.turn}"


class UnreadableImage(Exception):
    """A picture that cannot be decoded: the unit is bad, the run goes on."""


def list_units(inputs: Sequence[BenchInput]) -> list[Unit]:
    """All turns of all inputs, in file order."""
    turns = [(item, turn) for item in inputs for turn in range(len(item.turns))]
    return [Unit(index, item, turn) for index, (item, turn) in enumerate(turns)]


def encode_turn(
    target: HFTarget, bench: BenchSettings, item: BenchInput, answers: Sequence[str]
) -> Request:
    """Encode the turn that follows ``answers``. Raises UnreadableImage for a broken picture."""
    messages = turn_messages(bench.system, item.turns, answers)
    images = []
    if not target.text_only:
        try:
            images = [item.open_image()]
        except Exception as error:  # Pillow's decoders raise many kinds for a broken file
            raise UnreadableImage(f"unreadable image: {type(error).__name__}: {error}") from error
    return target.encode(messages, images)


def prompt_digest(request: Request) -> str:
    """sha256 of the rendered prompt."""
    return hashlib.sha256(request.prompt_text.encode()).hexdigest()


def first_prompt_digest(target: HFTarget, bench: BenchSettings, item: BenchInput) -> str:
    """sha256 of the first turn's prompt as a text-only model sees it."""
    request = target.encode(turn_messages(bench.system, item.turns[:1], []), ())
    return prompt_digest(request)


def drop_repeated(
    target: HFTarget, bench: BenchSettings, inputs: Sequence[BenchInput]
) -> tuple[list[BenchInput], list[str]]:
    """Inputs whose first request differs from every earlier one's, and the ids of those that were
    dropped.

    A request is the rendered prompt, with the picture's contents where the model sees it.
    """
    seen: set[tuple[str, str]] = set()
    kept, dropped = [], []
    for item in inputs:
        if target.text_only:
            key = ("", first_prompt_digest(target, bench, item))
        else:
            key = (item.image_digest, item.turns[0])
        if key in seen:
            dropped.append(item.input_id)
        else:
            seen.add(key)
            kept.append(item)
    return kept, dropped


def shortest_and_longest(target: HFTarget, units: Sequence[Unit]) -> list[Unit]:
    """Two first turns for warm-up, by a size that needs no encoding: pixels and characters."""
    first_turns = [unit for unit in units if unit.turn == 0]

    def size(unit: Unit) -> float:
        width, height = (0, 0) if target.text_only else unit.item.image_size()
        return width * height / 784 + len(unit.item.turns[0]) / 4

    ordered = sorted(first_turns, key=size)
    return [ordered[0], ordered[-1]]
