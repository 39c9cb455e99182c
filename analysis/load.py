"""A finished or unfinished run, read back from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.records import RunRecord, read_records


@dataclass(frozen=True)
class Run:
    """Records of one run and the configuration they were made under."""

    config: dict[str, Any]
    records: list[RunRecord]

    @property
    def max_new_tokens(self) -> int:
        """The run's token limit, which caps `analysis.metrics.tau`."""
        return int(self.config["max_new_tokens"])

    @property
    def arms(self) -> list[str]:
        """Arm names in the order of their first record, sorted for stability."""
        return sorted({record.arm for record in self.records})

    def common(self, arms: Sequence[str]) -> list[RunRecord]:
        """Records of ``arms`` on the units where all of them are "ok"."""
        wanted = [r for r in self.records if r.arm in arms and r.status == "ok"]
        counts: dict[str, int] = {}
        for record in wanted:
            counts[record.unit_id] = counts.get(record.unit_id, 0) + 1
        return [r for r in wanted if counts[r.unit_id] == len(arms)]


def load_run(folder: Path) -> Run:
    """Read a run folder. Raises FileNotFoundError, in a sentence, when it is none."""
    config = folder / "config.yaml"
    if not config.is_file():
        raise FileNotFoundError(f"{folder} is no run folder: it has no config.yaml.")
    return Run(yaml.safe_load(config.read_text()), read_records(folder / "records.jsonl"))
