"""What a run is: plain values that `compose` makes from the configuration and `runner` carries out.

Every class refuses what it does not know, so a mistyped option stops the run with the valid names
instead of being ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from experiments.errors import UserError, closest_first, unknown_name
from experiments.timing import SYNC_POLICIES, SyncPolicy
from recap.core.interfaces import Drafter

REPOSITORY = Path(__file__).resolve().parent.parent
REFERENCE_ARM = "ar"
NULL_ARM = "null"
RESETS = ("stream", "task", "request")
HISTORIES = ("ar", "own")
LAYOUTS = ("table", "mmspec", "mixed")
SCHEDULES = ("blocked", "alternating")

Settings = TypeVar("Settings")


def settings_from(cls: type[Settings], kind: str, values: Mapping[str, Any]) -> Settings:
    """Build a settings dataclass; raises UserError naming an unknown or missing option."""
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise unknown_name(f"option of {kind}", key, known)
    try:
        return cls(**values)
    except TypeError as error:
        raise UserError(f"The {kind} configuration is incomplete: {error}.") from error


def check_choice(option: str, value: Any, valid: tuple[str, ...]) -> None:
    """Raise UserError unless ``value`` is one of ``valid``."""
    if value not in valid:
        names = ", ".join(closest_first(str(value), valid))
        raise UserError(f"{option}={value} is not valid. Valid: {names}.")


def check_positive(option: str, value: Any) -> None:
    """Raise UserError unless ``value`` is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{option} must be a whole number of at least 1, got {value!r}.")


def check_count(option: str, value: Any) -> None:
    """Raise UserError unless ``value`` is a whole number of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{option} must be a whole number of at least 0, got {value!r}.")


def check_flag(option: str, value: Any) -> None:
    """Raise UserError unless ``value`` is true, false or null, which leaves the choice open."""
    if not isinstance(value, bool | NoneType):
        raise UserError(f"{option} must be true, false or null, got {value!r}.")


@dataclass(frozen=True)
class BenchSettings:
    """One benchmark's configuration; ``conf/bench/_base.yaml`` explains every option.

    sources: entries as `experiments.sources.Source` takes them.
    prompts: lines of the user's turn by prompt style, see `experiments.prompts`.
    parts:   settings of the benchmarks that a "mixed" one is made of.
    """

    name: str
    layout: str
    data_root: str | None = None
    hub_id: str | None = None
    manifests: str | None = None
    split: str = "test"
    splits: list[str] = field(default_factory=lambda: ["test"])
    rows: int | None = None
    sampled: int | None = None
    sources: list[dict[str, Any]] = field(default_factory=list)
    parts: list[BenchSettings] = field(default_factory=list)
    schedule: str = "blocked"
    option_line: str = "{letter}. {text}"
    template_fields: str | None = None
    prompts: dict[str, list[str]] = field(default_factory=dict)
    prompt_style: str = "question_only"
    system: str | None = None
    num_inputs: int | None = None
    per_topic: int | None = None
    max_turns: int | None = None
    input_seed: int | None = None
    distinct_prompts: bool | None = None
    licence: str = ""
    how_to_get: str = ""

    def __post_init__(self) -> None:
        check_choice("bench.layout", self.layout, LAYOUTS)
        check_choice("bench.split", self.split, tuple(self.splits))
        check_choice("bench.schedule", self.schedule, SCHEDULES)
        check_choice("bench.prompt_style", self.prompt_style, tuple(self.prompts))
        for option in ("rows", "sampled", "num_inputs", "per_topic", "max_turns"):
            if getattr(self, option) is not None:
                check_positive(f"bench.{option}", getattr(self, option))
        if self.input_seed is not None:
            check_count("bench.input_seed", self.input_seed)
        check_flag("bench.distinct_prompts", self.distinct_prompts)


@dataclass(frozen=True)
class Protocol:
    """How arms are run and timed. Everything here joins the run's identity except ``study``."""

    max_new_tokens: int = 200
    timing: SyncPolicy = "generation"
    reset: str = "stream"
    history: str = "ar"
    null: bool | None = None
    order_seed: int = 0
    repeat: int = 0
    warmup: bool = True
    study: str = ""

    def __post_init__(self) -> None:
        check_positive("max_new_tokens", self.max_new_tokens)
        check_choice("timing", self.timing, SYNC_POLICIES)
        check_choice("reset", self.reset, RESETS)
        check_choice("history", self.history, HISTORIES)
        check_flag("null", self.null)
        check_flag("warmup", self.warmup)
        for option in ("repeat", "order_seed"):
            check_count(option, getattr(self, option))


@dataclass(frozen=True)
class Study:
    """One experiment of the paper: which runs it is made of (``conf/study/*.yaml``).

    benches: benchmarks it runs on; a tiny model runs on their shipped analogues.
    sweep:   options with the values each is given: every combination is a run.
    also:    further runs, as options of their own beside the sweep's first combination.
    tiny:    options on a tiny model, by default 16 inputs per benchmark.
    after:   modules of ``experiments`` whose ``after_run`` reads a finished run's records.
    alone:   a module of ``experiments`` that is the whole of a study without benchmarks, by its
             ``run_alone(device, results_root)``.
    """

    name: str
    benches: list[str]
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    also: list[dict[str, Any]] = field(default_factory=list)
    tiny: dict[str, Any] = field(default_factory=lambda: {"bench.num_inputs": 16})
    after: list[str] = field(default_factory=list)
    alone: str | None = None


@dataclass(frozen=True)
class Arm:
    """One method inside a run, with a drafter and memory of its own.

    config: the method's configuration as it was composed, for the record.
    make:   builds the drafter for a vocabulary size.
    """

    name: str
    method: str
    reset: str
    config: Mapping[str, Any]
    make: Callable[[int], Drafter]


@dataclass(frozen=True)
class RunPlan:
    """A whole run. ``arms`` begins with the AR reference; ``model`` are the target's settings.

    after: modules of ``experiments`` that read the finished run, see `Study`.
    """

    model: Mapping[str, Any]
    bench: BenchSettings
    arms: tuple[Arm, ...]
    protocol: Protocol
    results_root: Path
    label: str
    resolved: Mapping[str, Any]
    after: tuple[str, ...] = ()

    def arm(self, name: str) -> Arm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)
