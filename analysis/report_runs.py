"""What the report says of a run: where its records lie, what made them, and what was left out."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from analysis.data import faults
from analysis.load import REFERENCE_ARM, Run
from analysis.metrics import num_distinct

RECORDS = "records.jsonl"
NOT_RECORDED = "not recorded"
# Facts that stand at the top of a run, by their place in its manifest; the manifest follows whole.
_FACTS = {
    "Weights": (
        *("target.source", "target.revision", "target.gguf_file", "weights"),
        *("target.model_class", "target.parameters"),
    ),
    "Device": ("target.device",),
    "dtype": ("target.dtype",),
    "Attention": ("target.attention",),
    "Packed rows": ("target.pad_rows", "target.min_rows"),
    "Neutralised settings": ("target.neutralised",),
    "Images": ("target.images",),
    "Data": ("data",),
    "Frozen inputs": ("inputs_sha256", "frozen_inputs"),
    "Dropped inputs": ("dropped_inputs",),
    "Protocol": ("protocol",),
}
_SESSION_FACTS = {
    "Commit": "environment.git",
    "Warm-up": "warmup",
    "Versions": "environment.packages",
    "Accelerator": "environment.accelerator",
}
_SHOWN_APART = ("git", "packages", "accelerator")


@dataclass(frozen=True)
class FileLink:
    """A file of a run's folder, by its path from the report."""

    name: str
    href: str
    size: int


@dataclass(frozen=True)
class Lost:
    """Units that ended in the same way, other than well."""

    what: str
    units: Sequence[str]


@dataclass(frozen=True)
class Arm:
    """An arm as the manifest has it."""

    name: str
    method: str
    reset: str
    config: str


@dataclass(frozen=True)
class Measured:
    """One quantity of the records' telemetry."""

    name: str
    records: int
    values: Sequence[str]  # least, median, most; or how often each value occurs


@dataclass(frozen=True)
class Described:
    """A run as the report shows it."""

    anchor: str
    name: str
    state: str
    digest: str
    files: Sequence[FileLink]
    facts: Sequence[tuple[str, Sequence[str]]]
    arms: Sequence[Arm]
    faults: Sequence[str]
    lost: Sequence[Lost]
    telemetry: Sequence[Measured]
    manifest: str
    config: str


def describe(run: Run, anchor: str, page: Path) -> Described:
    """Everything there is to say of a run. ``page``: the folder that the report lies in."""
    assert run.folder is not None
    return Described(
        anchor=anchor,
        name=run.name,
        state="finished" if run.finished else "unfinished",
        digest=_digest(run.folder / RECORDS),
        files=[_link(path, page) for path in _files(run.folder)],
        facts=[*_own_facts(run), *_manifest_facts(run.manifest), *_sessions(run.manifest)],
        arms=_arms(run.manifest),
        faults=faults(run),
        lost=_lost(run),
        telemetry=_telemetry(record.telemetry for record in run.records if record.status == "ok"),
        manifest=_text(run.folder / "manifest.json"),
        config=_text(run.folder / "config.yaml"),
    )


def relative(path: Path, page: Path) -> str:
    """A path as an address seen from the report's folder."""
    return quote(Path(os.path.relpath(path.resolve(), page.resolve())).as_posix())


def _link(path: Path, page: Path) -> FileLink:
    return FileLink(path.name, relative(path, page), path.stat().st_size)


def _files(folder: Path) -> list[Path]:
    """Records first; hidden files are locks."""
    found = [p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")]
    return sorted(found, key=lambda path: (path.name != RECORDS, path.name))


def _digest(path: Path) -> str:
    if not path.is_file():
        return "no records"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(path: Path) -> str:
    """The file as it is: what cannot be read as text is shown as replacement characters."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else NOT_RECORDED


def _own_facts(run: Run) -> Iterator[tuple[str, list[str]]]:
    assert run.folder is not None
    yield "Study", [run.study or "none: an ordinary run"]
    yield "Model", [run.model]
    yield "Benchmark", [run.bench]
    yield "Config hash", [run.folder.name]
    yield "Repeat", [say(run.setting("repeat"))]
    yield "Units", [_unit_counts(run)]


def _unit_counts(run: Run) -> str:
    """Units by how they ended: a unit counts as bad, or skipped, when any of its arms is."""
    ends: dict[str, set[str]] = {"skipped": set(), "error": set()}
    for record in run.records:
        if record.status in ends:
            ends[record.status].add(record.unit_id)
    reference = run.of(REFERENCE_ARM)
    return (
        f"{run.num_units} units, {num_distinct(reference)} distinct requests, "
        f"{len(ends['skipped'])} skipped, {len(ends['error'])} bad"
    )


def _manifest_facts(manifest: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    for label, paths in _FACTS.items():
        found = [(path, at(manifest, path)) for path in paths]
        lines = [line for path, value in found for line in _lines(path.rpartition(".")[2], value)]
        if len(paths) == 1 and not isinstance(found[0][1], Mapping | list):
            lines = [lines[0].partition(": ")[2]]
        yield label, lines


def _sessions(manifest: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    sessions = manifest.get("sessions")
    if not isinstance(sessions, list) or not sessions:
        yield "Session", [NOT_RECORDED]
        return
    for number, session in enumerate(sessions, 1):
        name = "Session" if len(sessions) == 1 else f"Session {number}"
        yield (
            name,
            [
                f"started: {say(at(session, 'started'))}",
                f"resumed after units: {say(at(session, 'resumed_after'))}",
            ],
        )
        for label, path in _SESSION_FACTS.items():
            yield label, [inline(at(session, path))]
        environment = at(session, "environment")
        if isinstance(environment, Mapping):
            rest = {key: v for key, v in environment.items() if key not in _SHOWN_APART}
            yield "Environment", [inline(rest)]


class _Absent:
    """Stands for what a manifest does not have, as opposed to null."""


def at(node: Any, path: str) -> Any:
    """A value of nested mappings by its dotted path; `_Absent` where there is none."""
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return _Absent
        node = node[key]
    return node


def say(value: Any) -> str:
    """A plain value in words."""
    if value is _Absent:
        return NOT_RECORDED
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def inline(value: Any) -> str:
    """A mapping on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{path} {text}" for path, text in flat(value)) or "none"
    return say(value)


def _lines(name: str, value: Any) -> list[str]:
    """A mapping or list on several lines, anything else on one."""
    if isinstance(value, Mapping):
        return [f"{path}: {text}" for path, text in flat(value)] or ["none"]
    if isinstance(value, list):
        return [say(entry) for entry in value] or ["none"]
    return [f"{name}: {say(value)}"]


def flat(value: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested mappings with their dotted paths."""
    for key, entry in value.items():
        path = f"{start}.{key}" if start else str(key)
        if isinstance(entry, Mapping) and entry:
            yield from flat(entry, path)
        else:
            yield path, "none" if entry == {} else say(entry)


def _arms(manifest: Mapping[str, Any]) -> list[Arm]:
    entries = manifest.get("arms")
    return [
        Arm(
            say(entry.get("name")),
            say(entry.get("method")),
            say(entry.get("reset")),
            inline({k: v for k, v in _options(entry).items() if k != "name"}),
        )
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping)
    ]


def _options(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    options = entry.get("config")
    return options if isinstance(options, Mapping) else {}


def _lost(run: Run) -> list[Lost]:
    """Skipped and bad units with their arms, those with the same reason together."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for record in run.records:
        if record.status != "ok":
            what = f"{record.status}: {record.error or 'no reason recorded'}"
            name = f"{record.unit_id} ({record.category})" if record.category else record.unit_id
            reasons.setdefault(what, {}).setdefault(name, []).append(record.arm)
    return [
        Lost(what, [f"{unit}: {', '.join(arms)}" for unit, arms in units.items()])
        for what, units in sorted(reasons.items())
    ]


def _telemetry(states: Iterable[Any]) -> list[Measured]:
    """How each quantity spread over the records; flags are counted instead."""
    found: dict[str, list[Any]] = {}
    for state in states:
        for path, value in _leaves(state):
            found.setdefault(path, []).append(value)
    return [Measured(path, len(values), _spread(path, values)) for path, values in found.items()]


def _leaves(state: Any, start: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _leaves(value, f"{start}.{key}" if start else str(key))
    elif state is not None:
        yield start, state


def _spread(path: str, values: Sequence[Any]) -> list[str]:
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if numeric and not path.endswith("_reasons"):
        return [f"{v:,.6g}" for v in (min(values), statistics.median(values), max(values))]
    counts = Counter(say(value) for value in values)
    return [", ".join(f"{value} ({count} times)" for value, count in sorted(counts.items()))]
