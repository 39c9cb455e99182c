"""One run's folder: configuration, manifest, records, snapshot; reopening it resumes the run."""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from experiments.errors import UserError
from experiments.records import (
    RunRecord,
    append_records,
    read_records,
    write_atomically,
    write_records,
)
from experiments.snapshot import StreamStates, load_snapshot, save_snapshot


@dataclass(frozen=True)
class Resumed:
    """What an earlier process left: whole units, and the arms' stream states after them.

    ``states`` is None where the snapshot does not belong to exactly these units; the runner then
    rebuilds the states by running the units again.
    """

    records: list[RunRecord]
    num_units: int
    states: StreamStates | None


class RunDirectory:
    """The files of one run. Holds a lock, so that two processes never write the same run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = (path / ".lock").open("w")
        except OSError as error:
            raise UserError(
                f"Cannot write to {path}: {error.strerror}. Set results_root=FOLDER."
            ) from error
        self._lock = _lock(lock, path)
        self.records_path = path / "records.jsonl"
        self.snapshot_path = path / "stream.npz"
        self.manifest_path = path / "manifest.json"
        self.summary_path = path / "summary.json"

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def write_config(self, resolved: Mapping[str, Any]) -> None:
        """Write the resolved configuration."""
        text = yaml.safe_dump(_plain(resolved), sort_keys=False, allow_unicode=True)
        write_atomically(self.path / "config.yaml", text.encode())

    def write_manifest(self, facts: Mapping[str, Any], session: Mapping[str, Any]) -> None:
        """Write the run's facts, with this process appended to the sessions that worked on it."""
        sessions: list[Any] = []
        if self.manifest_path.exists():
            try:
                sessions = json.loads(self.manifest_path.read_text())["sessions"]
            except (ValueError, KeyError):
                sessions = []
        manifest = {**facts, "sessions": [*sessions, session]}
        content = json.dumps(manifest, indent=2, default=str) + "\n"
        write_atomically(self.manifest_path, content.encode())

    def resume(self, unit_ids: Sequence[str], arms: Sequence[str]) -> Resumed:
        """Read what is there and cut records that do not belong to complete units."""
        found = read_records(self.records_path)
        num_units = _complete_units(found, unit_ids, arms)
        snapshot = load_snapshot(self.snapshot_path)
        if snapshot is not None:
            num_units = min(num_units, snapshot[0])
        kept = found[: num_units * len(arms)]
        self._keep_unusual_rest(len(kept), len(arms))
        write_records(self.records_path, kept)
        matches = snapshot is not None and snapshot[0] == num_units
        states = snapshot[1] if snapshot is not None and matches else None
        if num_units == 0:
            states = {}
        return Resumed(kept, num_units, states)

    def _keep_unusual_rest(self, num_kept: int, num_arms: int) -> None:
        """Copy the records aside when more would be cut than the unit a killed process was at."""
        if not self.records_path.exists():
            return
        content = self.records_path.read_bytes()
        if content.count(b"\n") - num_kept <= num_arms:
            return
        aside = self.records_path.with_suffix(f".{time.strftime('%Y%m%d-%H%M%S')}.damaged")
        write_atomically(aside, content)
        print(
            f"records.jsonl is damaged or does not fit stream.npz: {num_kept} records are used, "
            f"the rest runs again. The file as it was: {aside.name}",
            file=sys.stderr,
        )

    def append_unit(
        self, records: Sequence[RunRecord], num_units: int, states: StreamStates
    ) -> None:
        """Put one finished unit on disk: its records, then the snapshot that makes them count."""
        append_records(self.records_path, records)
        save_snapshot(self.snapshot_path, num_units, states)


def _complete_units(
    records: Sequence[RunRecord], unit_ids: Sequence[str], arms: Sequence[str]
) -> int:
    """How many leading units have exactly one record of every arm."""
    size = len(arms)
    for index, unit_id in enumerate(unit_ids):
        group = records[index * size : (index + 1) * size]
        names = sorted(r.arm for r in group if r.unit_id == unit_id)
        if names != sorted(arms):
            return index
    return len(unit_ids)


def _lock(file: TextIO, folder: Path) -> TextIO:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(
            f"Another process is working on {folder}. Wait for it, or use repeat=1 for a "
            "second run."
        ) from error
    return file


def _plain(value: Any) -> Any:
    """Mappings and sequences as dicts and lists, which safe YAML can write."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
