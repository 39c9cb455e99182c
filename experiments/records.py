"""What a run leaves behind: one JSON line per unit and arm. Standard library only.

Speedup, acceptance length and matches are never stored: `analysis.metrics` derives them from these
records.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
STATUSES = ("ok", "skipped", "error")


@dataclass(frozen=True)
class RunRecord:
    """One arm's generation of one unit. A unit is one generation turn of one input.

    study, model, bench:  names of the configuration; ``study`` is empty outside a study.
    unit_id, turn:        the input's id with its turn, and the turn's index from 0.
    category:             the benchmark's own grouping (the topic for MMSpec).
    cluster_id:           image digest; digest of the first rendered prompt where images are
                          dropped.
    prompt_sha256:        digest of the rendered prompt.
    arm, method:          the arm's name and the method behind it.
    repeat, session:      ``repeat=k`` of the run; start of the process that wrote the line (UTC,
                          ISO 8601).
    order_index:          position of the arm within the unit, from 0.
    num_prompt_tokens, num_image_tokens: counts of the encoded prompt; image tokens are part of the
    prompt.
    output_ids:           generated token ids.
    finish_reason:        "stop" or "length"; empty unless ``status`` is "ok".
    num_accepted:         per step, accepted candidates as verified.
    num_candidates:       per step, packed nodes besides the root.
    prefill_ns, decode_ns, step_ns, phase_ns: integer nanoseconds, see
    `recap.core.interfaces.Generation`.
    sync_policy:          "generation", "target_forward" or "phases".
    state_lifetime:       what of the arm's memory outlives a request: "persistent", "task" or
                          "request".
    telemetry:            load average, involuntary context switches, accelerator clocks where
                          present; phases and memory with ``timing=phases``.
    status, error:        "ok", "skipped" (does not fit the context, or no history) or "error", and
                          why.
    divergence:           index of the first token that differs from AR's and AR's top-2 logit
                          margin there.
    trace:                what the drafter traced, where a study asks for it.
    """

    study: str
    model: str
    bench: str
    unit_id: str
    turn: int
    category: str
    cluster_id: str
    prompt_sha256: str
    arm: str
    method: str
    repeat: int
    session: str
    order_index: int
    num_prompt_tokens: int = 0
    num_image_tokens: int = 0
    output_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    num_accepted: list[int] = field(default_factory=list)
    num_candidates: list[int] = field(default_factory=list)
    prefill_ns: int = 0
    decode_ns: int = 0
    step_ns: list[int] = field(default_factory=list)
    phase_ns: dict[str, int] = field(default_factory=dict)
    sync_policy: str = "generation"
    state_lifetime: str = "request"
    telemetry: dict[str, Any] = field(default_factory=dict)
    status: str = "ok"
    error: str | None = None
    divergence: dict[str, Any] | None = None
    trace: list[dict[str, Any]] | None = None
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status is one of {', '.join(STATUSES)}, got {self.status!r}")

    def to_line(self) -> str:
        """The record as one JSON line, newline included."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")) + "\n"

    @classmethod
    def from_line(cls, line: str) -> RunRecord:
        """Parse one line; raises ValueError when it is not a whole record of this schema."""
        try:
            fields = json.loads(line, parse_constant=_no_number)
            version = fields.get("schema_version")
            if version != SCHEMA_VERSION:
                raise ValueError(f"schema_version {version!r}, expected {SCHEMA_VERSION}")
            return cls(**fields)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"not a run record: {error}") from error


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is no number of a record")


def append_records(path: Path, records: Sequence[RunRecord]) -> None:
    """Append lines and wait until they are on disk."""
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(record.to_line())
            file.flush()
            os.fsync(file.fileno())


def read_records(path: Path) -> list[RunRecord]:
    """All records up to the first line that is not a whole one, as a killed process leaves."""
    records: list[RunRecord] = []
    if not path.exists():
        return records
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                if not line.endswith("\n"):
                    raise ValueError("half-written line")
                records.append(RunRecord.from_line(line))
            except ValueError:
                break
    return records


def write_records(path: Path, records: Iterable[RunRecord]) -> None:
    """Replace the file by these records, atomically."""
    write_atomically(path, "".join(record.to_line() for record in records).encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that readers and killed processes see the old or the new content only."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
