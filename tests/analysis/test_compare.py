from __future__ import annotations

from pathlib import Path

import pytest

from analysis.compare import comparison
from analysis.load import Run, load_run
from experiments.records import append_records
from tests.analysis.test_metrics import record


def a_run() -> Run:
    records = []
    for unit, factor in (("a", 1.0), ("b", 1.1), ("c", 0.9)):
        records += [
            record("ar", unit, 10, [0] * 9, 2.0),
            record("recap", unit, 10, [2, 2, 2], 1.0 * factor),
            record("pld", unit, 10, [1, 1, 1, 1, 0], 2.0 * factor),
        ]
    records += [
        record("ar", "d", 10, [0] * 9, 2.0),
        record("recap", "d", 10, [8], 0.1),
        record("pld", "d", 0, [], 1.0, status="error"),
    ]
    return Run({"max_new_tokens": 10}, records)


def test_only_units_where_every_arm_is_ok_are_compared() -> None:
    text = comparison(a_run(), "recap")
    assert "3 units on which every arm is ok, 3 distinct." in text
    (pld,) = [line for line in text.splitlines() if line.startswith("| pld")]
    assert "| 2.000 (2.000 .. 2.000) | 1.200 (1.200 .. 1.200) | faster |" in pld


def test_the_reference_is_not_compared_with_itself() -> None:
    (recap,) = [x for x in comparison(a_run(), "recap").splitlines() if x.startswith("| recap")]
    assert recap.endswith("| 3/3 | - | - | - |")


def test_a_run_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("max_new_tokens: 10\n")
    append_records(tmp_path / "records.jsonl", a_run().records)
    found = load_run(tmp_path)
    assert (found.config, found.records) == (a_run().config, a_run().records)
    with pytest.raises(FileNotFoundError, match="no run folder"):
        load_run(tmp_path / "elsewhere")
