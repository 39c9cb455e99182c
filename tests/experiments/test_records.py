from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from experiments.records import RunRecord, append_records, read_records, write_records
from tests.analysis.test_metrics import record

# The public schema: growing it is a deliberate change of SCHEMA_VERSION and of this list.
FIELDS = (
    "schema_version study model bench unit_id turn category cluster_id prompt_sha256 arm method "
    "repeat session order_index num_prompt_tokens num_image_tokens output_ids finish_reason "
    "num_accepted num_candidates prefill_ns decode_ns step_ns phase_ns sync_policy state_lifetime "
    "telemetry status error divergence trace"
)


def test_schema_is_frozen() -> None:
    assert sorted(f.name for f in dataclasses.fields(RunRecord)) == sorted(FIELDS.split())
    assert sorted(json.loads(record("ar", "a", 1, [], 1.0).to_line())) == sorted(FIELDS.split())


def test_records_survive_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records = [record("ar", "ä", 3, [0, 0], 1.0), record("m", "ä", 3, [1], 0.5)]
    append_records(path, records[:1])
    append_records(path, records[1:])
    assert read_records(path) == records
    write_records(path, records[1:])
    assert read_records(path) == records[1:]


@pytest.mark.parametrize("tail", ['{"study": "x"', '{"study": "x"}\n', "\x00\x00\n", "[]\n", "7\n"])
def test_reading_stops_at_what_is_not_a_whole_record(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "records.jsonl"
    whole = record("ar", "a", 3, [0, 0], 1.0)
    path.write_text(whole.to_line() + tail)
    assert read_records(path) == [whole]


def test_reading_stops_at_a_nan(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    whole = record("ar", "a", 3, [0, 0], 1.0)
    poisoned = dataclasses.replace(whole, arm="m", decode_ns=float("nan"))
    path.write_text(whole.to_line() + poisoned.to_line() + whole.to_line())
    assert read_records(path) == [whole]


def test_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="status is one of"):
        record("ar", "a", 1, [], 1.0, status="fine")
