"""The occupancy stress test in miniature: what it fills, adds up and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import occupancy
from recap.core.memory import PredictionMemory

VOCABULARY, ROWS = 512, 96
SMALL = {"hits": 200, "repeats": 3, "queries": 4}


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return occupancy.measure(VOCABULARY, ROWS, **SMALL)


def test_sizes_are_rows_times_bytes_beside_what_is_set_aside(measured: dict[str, Any]) -> None:
    assert measured["rows"] == ROWS
    assert measured["bytes_per_row"] == 8 * 4 + 8 * 4 + 8 + 1
    assert measured["occupied_bytes"] == ROWS * 73
    assert measured["allocated_bytes"] == VOCABULARY * 73


def test_repeats_and_full_trees(measured: dict[str, Any]) -> None:
    for name in ("lookup_ns", "call_ns", "tree_us"):
        assert len(measured[name]) == 3
        assert all(value > 0 for value in measured[name])
    assert measured["candidates"] == 63


def test_every_row_predicts_tokens_that_have_rows() -> None:
    memory = PredictionMemory(VOCABULARY, 8)
    tokens = occupancy.fill(memory, ROWS)
    assert len(set(tokens.tolist())) == ROWS == memory.num_unigram_rows
    for token in tokens.tolist():
        row = memory.lookup(token)
        assert row is not None
        ids, probs = row
        assert len(set(ids.tolist())) == 8 and set(ids.tolist()) <= set(tokens.tolist())
        assert np.isclose(probs.sum(), 1) and (np.diff(probs) <= 0).all()
    with pytest.raises(ValueError, match="rows must be from 8 to 512"):
        occupancy.fill(memory, VOCABULARY + 1)


def test_the_checksum_is_the_sum_of_ids_and_probabilities(measured: dict[str, Any]) -> None:
    memory = PredictionMemory(VOCABULARY, 8)
    tokens = occupancy.fill(memory, ROWS)
    order = np.random.default_rng(SMALL["hits"]).choice(tokens, SMALL["hits"])
    state = memory.stream_state()
    places = np.searchsorted(state["tokens"], order)
    expected = state["ids"][places].sum() + state["probs"][places].sum(dtype=np.float64)
    assert measured["checksum"] == pytest.approx(expected)
    assert occupancy._sum_rows(memory.arrays, np.arange(VOCABULARY)) > 0  # absent ones add nothing


def test_a_fresh_process_and_a_file_that_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(occupancy, "FILLINGS", (16, 10_000))
    path = tmp_path / "occupancy.cpu.json"
    sizes = [f"--{key}={value}" for key, value in SMALL.items()]
    occupancy.main(["--vocab-size", "64", "--out", str(path), *sizes])
    assert capsys.readouterr().out.strip() == str(path)
    occupancy.write(path, {"32": []})
    document = json.loads(path.read_text())
    assert document["schema"] == 1 and document["environment"]["processor"]
    assert document["vocabularies"].keys() == {"64", "32"}
    found = document["vocabularies"]["64"]
    assert [filling["rows"] for filling in found] == [16, 64]
    assert all(isinstance(filling["rss_growth_bytes"], int) for filling in found)
    with pytest.raises(RuntimeError, match="measuring 9 rows failed"):
        occupancy.fresh(8, 9)


def test_one_filling_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"--{key}={value}" for key, value in SMALL.items()]
    occupancy.main(["--vocab-size", "64", "--rows", "64", *sizes])
    assert json.loads(capsys.readouterr().out)["rows"] == 64
