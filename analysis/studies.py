"""Which runs a study consists of, read from ``conf/study``: benchmarks times swept settings.

What is there and what is missing follows from it, and so does the command for each gap.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CONF = Path(__file__).resolve().parent.parent / "conf"
_DEFAULTS: dict[str, Any] = {
    "repeat": 0,
    "reset": "stream",
    "max_new_tokens": 200,
    "timing": "generation",
}


@dataclass(frozen=True)
class Slot:
    """One run that a study asks for: a benchmark's name and the settings that tell it apart."""

    bench: str
    settings: tuple[tuple[str, Any], ...]

    def get(self, key: str) -> Any:
        """The setting's value; None where the study does not sweep it."""
        return dict(self.settings).get(key)


@dataclass(frozen=True)
class Study:
    """A study's slots. Benchmarks carry their plain names; the tiny ones are their analogues."""

    name: str
    benches: tuple[str, ...]
    slots: tuple[Slot, ...]


@functools.cache
def study(name: str) -> Study | None:
    """The study of that name; None where no file describes it."""
    content = _content(name)
    if content is None:
        return None
    described = content["study"]
    benches = tuple(described.get("benches") or ())
    combinations = _combinations(content)
    slots = (Slot(bench, settings) for bench in benches for settings in combinations)
    return Study(str(described.get("name", name)), benches, tuple(slots))


def _content(name: str) -> dict[str, Any] | None:
    """A study's file on top of the ones its ``defaults`` name before ``_self_``."""
    path = CONF / "study" / f"{name}.yaml"
    if not path.is_file():
        return None
    own: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    merged: dict[str, Any] = {}
    for base in own.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            merged |= _content(base) or {}
    study_keys = {**merged.get("study", {}), **own.get("study", {})}
    return {**merged, **own, "study": study_keys}


def _combinations(content: Mapping[str, Any]) -> list[tuple[tuple[str, Any], ...]]:
    """Every combination of swept values, and the further ones under ``also``."""
    described = content["study"]
    sweep: dict[str, list[Any]] = described.get("sweep") or {}
    also: list[dict[str, Any]] = described.get("also") or []
    keys = list(dict.fromkeys([*sweep, *itertools.chain.from_iterable(also)]))
    swept = [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]
    further = [{**swept[0], **extra} for extra in also]
    return [
        tuple((key, chosen.get(key, _default(content, key))) for key in keys)
        for chosen in (*swept, *further)
    ]


def _default(content: Mapping[str, Any], path: str) -> Any:
    """What a setting is where the study does not sweep it."""
    node: Any = content
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return _DEFAULTS.get(path)
        node = node[key]
    return node


def matches(run_value: Any, wanted: Any, key: str) -> bool:
    """Whether a run's setting is the wanted one; an absent setting is the default."""
    return bool((_DEFAULTS.get(key) if run_value is None else run_value) == wanted)


def overrides(slot: Slot) -> str:
    """The slot's settings as command-line options. All of them: what is named is not swept."""
    return " ".join(f"{key}={'null' if value is None else value}" for key, value in slot.settings)


_SIZES = ("bench.num_inputs", "bench.per_topic", "bench.max_turns", "max_new_tokens", "timing")


def sizes(name: str) -> dict[str, Any]:
    """How large a study's runs are, and how they are timed, beyond what it sweeps."""
    content = _content(name)
    if content is None:
        return {}
    described = content["study"]
    swept = {*(described.get("sweep") or {}), *itertools.chain(*(described.get("also") or []))}
    return {key: _default(content, key) for key in _SIZES if key not in swept}


def deviations(name: str, setting: Callable[[str], Any]) -> list[str]:
    """The sizes in which a run differs from what its study asks for, on tiny models too."""
    return [
        f"{key}={_shown(setting(key))} (the study: {_shown(expected)})"
        for key, expected in sizes(name).items()
        if not matches(setting(key), expected, key)
    ]


def _shown(size: Any) -> str:
    return "all" if size is None else str(size)
