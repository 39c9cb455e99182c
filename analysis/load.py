"""Runs read back from their folders, whole or unfinished.

Records that cannot be trusted are reported and left out, never averaged: lines that are no record
of this schema or hold a nan, times or counts that are no whole numbers, arms that stand twice, and
units that have lost the arm they would be compared with.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from analysis.metrics import Pair, pairs
from experiments.records import SCHEMA_VERSION, RunRecord

REFERENCE_ARM = "ar"
_COUNTS = ("num_accepted", "num_candidates", "output_ids")
_SHARED_TEXT = ("study", "model", "bench", "unit_id", "category", "cluster_id", "prompt_sha256")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Run:
    """Records of one run, the configuration they were made under, and what else lies beside them.

    ``records`` and ``problems`` are read on first use. Records carry no ``step_ns``: a full run has
    millions of them, and no estimator here asks for one.
    """

    def __init__(
        self,
        config: dict[str, Any],
        records: Sequence[RunRecord] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.config = config
        self.folder = folder
        self._given = records
        self._pairs: dict[tuple[str, str], list[Pair]] = {}

    @cached_property
    def _contents(self) -> tuple[list[RunRecord], list[str]]:
        if self._given is not None:
            return list(self._given), []
        assert self.folder is not None
        return read_valid(self.folder / "records.jsonl")

    @property
    def records(self) -> list[RunRecord]:
        """Every trustworthy record, in the order of the file."""
        return self._contents[0]

    @property
    def problems(self) -> list[str]:
        """What was left out, in sentences."""
        return self._contents[1]

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """``manifest.json``; empty where it is missing or unreadable."""
        return self._file("manifest.json")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """``summary.json``, which a run writes at its end; empty where there is none."""
        return self._file("summary.json")

    def _file(self, name: str) -> dict[str, Any]:
        content = None if self.folder is None else read_json(self.folder / name)
        return content if isinstance(content, dict) else {}

    def setting(self, path: str) -> Any:
        """A value of the configuration by its dotted path; None where there is none."""
        node: Any = self.config
        for key in path.split("."):
            if not isinstance(node, Mapping) or key not in node:
                return None
            node = node[key]
        return node

    @cached_property
    def study(self) -> str:
        """The study's name, empty for an ordinary run."""
        return str(self.setting("study.name") or "")

    @cached_property
    def model(self) -> str:
        """The model's name."""
        return str(self.setting("model.name") or "")

    @cached_property
    def bench(self) -> str:
        """The benchmark's name, as configured."""
        return str(self.setting("bench.name") or "")

    @property
    def max_new_tokens(self) -> int:
        """The run's token limit, which caps `analysis.metrics.tau`."""
        return int(self.config["max_new_tokens"])

    @cached_property
    def device(self) -> str:
        """Short name of the device, such as "A100" or "CPU"."""
        if not self.manifest and str(self.setting("model.device")) == "cpu":
            return "CPU"
        return device_name(self.manifest)

    @property
    def name(self) -> str:
        """The folder below the results' root, which identifies the run."""
        return "/".join(self.folder.parts[-4:]) if self.folder is not None else "run"

    @cached_property
    def arms(self) -> list[str]:
        """Arm names, sorted for stability."""
        return sorted(self._by_arm)

    @cached_property
    def _by_arm(self) -> dict[str, list[RunRecord]]:
        groups: dict[str, list[RunRecord]] = {}
        for record in self.records:
            groups.setdefault(record.arm, []).append(record)
        return groups

    def of(self, *arms: str) -> list[RunRecord]:
        """The records of some arms, arm by arm, without looking through all the others."""
        return [record for arm in arms for record in self._by_arm.get(arm, [])]

    def pairs(self, arm: str, reference: str = REFERENCE_ARM) -> list[Pair]:
        """The units on which both arms are ok, in the order of the file; made once."""
        key = (arm, reference)
        if key not in self._pairs:
            self._pairs[key] = pairs(self.of(arm, reference), arm, reference)
        return self._pairs[key]

    @property
    def arm_settings(self) -> dict[str, dict[str, Any]]:
        """Method, reset and configuration of each arm, as the manifest has them."""
        return {arm["name"]: arm for arm in self.manifest.get("arms", [])}

    @cached_property
    def num_units(self) -> int:
        """Units with at least one trustworthy record."""
        return len({record.unit_id for record in self.records})

    @cached_property
    def size(self) -> int:
        """About how many records lie in the folder, without reading them."""
        if self.folder is None or not (self.folder / "records.jsonl").is_file():
            return 0
        with (self.folder / "records.jsonl").open("rb") as file:
            return sum(1 for _ in file)

    @property
    def finished(self) -> bool:
        """Whether the run wrote its summary; one that was killed, or still works, has none."""
        return bool(self.summary)

    def common(self, arms: Sequence[str]) -> list[RunRecord]:
        """Records of ``arms`` on the units where all of them are "ok"."""
        wanted = [r for r in self.records if r.arm in arms and r.status == "ok"]
        counts = Counter(record.unit_id for record in wanted)
        return [r for r in wanted if counts[r.unit_id] == len(arms)]


def load_run(folder: Path) -> Run:
    """Read a run folder. Raises FileNotFoundError, in a sentence, when it is none."""
    config = folder / "config.yaml"
    if not config.is_file():
        raise FileNotFoundError(f"{folder} is no run folder: it has no config.yaml.")
    return Run(yaml.load(config.read_text(encoding="utf-8"), _Loader), folder=folder)


def find_runs(root: Path) -> tuple[list[Run], list[str]]:
    """Every run ``<root>/<model>/<bench>/<study or method>/<hash>``, and folders that are none."""
    runs, problems = [], []
    for config in sorted(root.glob("*/*/*/*/config.yaml")):
        try:
            run = load_run(config.parent)
        except (OSError, ValueError, yaml.YAMLError) as error:
            problems.append(f"{config.parent}: config.yaml cannot be read ({error}).")
            continue
        if isinstance(run.config, dict) and run.model and run.bench:
            if run.manifest or run.size:  # else it has just started
                runs.append(run)
        else:
            problems.append(f"{config.parent}: config.yaml names no model or no benchmark.")
    return runs, problems


def read_json(path: Path) -> Any:
    """A JSON file's content; None where it is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def device_name(manifest: Mapping[str, Any]) -> str:
    """Short name of what a run's sessions worked on; several are joined with a plus sign."""
    if (manifest.get("target") or {}).get("device") == "cpu":
        return "CPU"
    found = {
        short_device((session.get("environment") or {}).get("accelerator"))
        for session in manifest.get("sessions", [])
    }
    return "+".join(sorted(found)) or "unknown"


def short_device(accelerator: Mapping[str, Any] | None) -> str:
    """An accelerator's model: "NVIDIA A100-SXM4-80GB" is "A100"; none is the CPU."""
    if not accelerator:
        return "CPU"
    words = str(accelerator.get("name", "unknown")).replace("-", " ").split()
    kept = [word for word in words if word not in ("NVIDIA", "GeForce", "Tesla", "AMD")]
    return next((w for w in kept if w[0].isalpha() and w[-1].isdigit()), " ".join(kept[:2]))


def read_valid(path: Path) -> tuple[list[RunRecord], list[str]]:
    """The trustworthy records of a file, and sentences about the others."""
    if not path.is_file():
        return [], []
    faults: Counter[str] = Counter()
    records = list(_parsed(path, faults))
    records = _without_duplicates(records, faults)
    records = _with_reference(records, faults)
    return records, [f"{count} left out: {fault}" for fault, count in sorted(faults.items())]


def _parsed(path: Path, faults: Counter[str]) -> Iterator[RunRecord]:
    pool: dict[int, int] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield _record(line, pool)
            except _Fault as fault:
                faults[str(fault)] += 1


class _Fault(ValueError):
    """Why a line is no record to count."""


def _record(line: str, pool: dict[int, int]) -> RunRecord:
    """One line as a record that shares its texts and numbers with the others."""
    try:
        fields = json.loads(line, parse_constant=_no_number)
    except _Fault:
        raise
    except ValueError as error:
        raise _Fault("a line that is not whole, as a killed process leaves") from error
    if not isinstance(fields, dict):
        raise _Fault("a line that is no record")
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION:
        raise _Fault(f"a record of schema version {version!r}, this code reads {SCHEMA_VERSION}")
    _share(fields, pool)
    try:
        record = RunRecord(**fields)
    except (TypeError, ValueError) as error:
        raise _Fault("a record with other fields than this schema's") from error
    if record.status == "ok" and not _trustworthy(record):
        raise _Fault("an ok record whose times or counts are no whole numbers, or that is empty")
    return record


def _no_number(constant: str) -> None:
    raise _Fault(f"a record that holds {constant}")


def _share(fields: dict[str, Any], pool: dict[int, int]) -> None:
    """Let equal texts and token ids be one object: a full table has 200,000 records."""
    fields["step_ns"] = []
    for key in _SHARED_TEXT:
        if isinstance(fields.get(key), str):
            fields[key] = sys.intern(fields[key])
    ids = fields.get("output_ids")
    if isinstance(ids, list) and all(type(value) is int for value in ids):
        fields["output_ids"] = [pool.setdefault(value, value) for value in ids]


def _trustworthy(record: RunRecord) -> bool:
    """Whether times and counts are whole, there is an output, and time has passed."""
    times = (record.prefill_ns, record.decode_ns)
    if not all(type(value) is int and value >= 0 for value in times) or sum(times) == 0:
        return False
    for name in _COUNTS:
        values = getattr(record, name)
        if not isinstance(values, list):
            return False
        if not all(type(value) is int and value >= 0 for value in values):
            return False
    return len(record.output_ids) > 0 and (len(record.output_ids) == 1 or record.decode_ns > 0)


def _without_duplicates(records: list[RunRecord], faults: Counter[str]) -> list[RunRecord]:
    counts = Counter((r.unit_id, r.arm) for r in records)
    kept = [r for r in records if counts[r.unit_id, r.arm] == 1]
    if len(kept) < len(records):
        faults["a record whose unit and arm stand there twice"] = len(records) - len(kept)
    return kept


def _with_reference(records: list[RunRecord], faults: Counter[str]) -> list[RunRecord]:
    """Only units that have AR and something to compare with it."""
    arms: dict[str, set[str]] = {}
    for record in records:
        arms.setdefault(record.unit_id, set()).add(record.arm)
    if not any(len(names) > 1 for names in arms.values()):
        alone = set(arms)
    else:
        alone = {
            unit for unit, names in arms.items() if len(names) < 2 or REFERENCE_ARM not in names
        }
    if alone:
        faults["a unit that has lost AR or every arm beside it"] = len(alone)
    return [r for r in records if r.unit_id not in alone]
