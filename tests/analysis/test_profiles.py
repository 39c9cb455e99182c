"""Tables 9, 10 and 11 and the fusion page: from sums to milliseconds, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import paper, profiles
from analysis.artefact import Cell, Table
from analysis.data import PAPER_SCOPE, Data, Scope
from analysis.load import Run
from analysis.tables import fusion_cost, table09, table10, table11

TINY = Scope(("tiny_qwen25vl",), "CPU", tiny_inputs=True)
TABLES = (table09, table10, table11, fusion_cost)
# Microseconds of the two requests' phases, each with one lap per step; a lap costs 1 us.
STEPS = (10, 30)
WALL = {
    "suffix_lookup": (20, 120),
    "search": (510, 1530),
    "propose": (30, 90),
    "packing": (110, 330),
    "verify": (5010, 15030),
    "accept": (60, 180),
    "commit": (210, 630),
    "refresh": (410, 1230),
    "suffix_update": (30, 90),
    "observe": (20, 60),
}
OUTSIDE_EVERY_PHASE = (50, 150)


def arm(cap: int) -> dict[str, Any]:
    """Every time in nanoseconds; CPU time is 2 us more per lap."""
    columns = {
        name: {
            "laps": list(STEPS),
            "wall_ns": [1000 * us for us in times],
            "cpu_ns": [1000 * (us + 2 * n) for us, n in zip(times, STEPS, strict=True)],
        }
        for name, times in WALL.items()
    }
    totals = np.sum([*WALL.values(), OUTSIDE_EVERY_PHASE], axis=0) * 1000
    held = {"U": 1 << 20, "C+G": 1 << 19}
    return {
        "requests": {
            "unit_id": ["a:0", "b:0"],
            "cluster_id": ["p", "q"],
            "steps": list(STEPS),
            "step_ns": totals.tolist(),
            "candidates": [cap * n for n in STEPS],
            "phases": columns,
        },
        "host_bytes": {"occupied": held, "allocated": {name: 4 * b for name, b in held.items()}},
        "peak_device_bytes": None,
    }


def document(**changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "arms": {f"cap{cap}": arm(cap) for cap in table10.CAPS},
        "lap_cost": {"wall_ns": 1000.0, "cpu_ns": 2000.0},
        "overhead": {
            "arm": "cap63",
            "unit_ids": ["a:0", "b:0"],
            "plain": {"latency_ns": [100, 300]},
            "profiled": {"latency_ns": [102, 306]},
        },
        "device_time": None,
        "not_measured": ["no CUDA device"],
        **changes,
    }


def data(folder: Path, documents: list[dict[str, Any]]) -> Data:
    """Runs of study=profile in the order of its slots."""
    runs = []
    for seed, content in zip((17, 29), documents, strict=False):
        place = folder / str(seed)
        place.mkdir(parents=True)
        (place / "profile.json").write_text(json.dumps(content))
        (place / "summary.json").write_text('{"units": 2}')
        config = {
            "model": {"name": "tiny_qwen25vl", "device": "cpu"},
            "bench": {"name": "tiny_mixed4", "input_seed": seed},
            "study": {"name": "profile"},
            "max_new_tokens": 200,
        }
        runs.append(Run(config, [], place))
    return Data(TINY, runs, folder)


def values(table: Table, column: str) -> dict[str, float | None]:
    """A column's numbers by the text of the second heading."""
    place = list(table.headings).index(column)
    return {str(row[1]): entry.value for row in table.rows if isinstance(entry := row[place], Cell)}


def test_stages_by_hand_with_the_clocks_time_taken_off(tmp_path: Path) -> None:
    """Ten laps in each of 40 steps: 10 us per step are the clock's."""
    table = table09.build(data(tmp_path, [document(), document()]))
    wall = values(table, "Wall ms")
    expected = {
        "Suffix lookup": 2.5,
        "Lookup, fusion, search": 50,
        "Packing": 10,
        "Memory refresh": 40,
        "Suffix index update": 2,
        "Token commitment": 20,
        "Other decoding": 2 + 5 + 1 + 5,  # propose, accept, observe, outside every phase
        "Target verification": 500,
        "Preparation": 62.5,
        "Preparation, refresh, suffix index": 104.5,
        "All but verification": 137.5,
        "Whole step": 637.5,
        "Clock, taken off": 10,
    }
    assert wall == pytest.approx({name: us / 1000 for name, us in expected.items()})
    cpu = values(table, "CPU ms")
    assert cpu["Packing"] == pytest.approx(0.011) and cpu["Other decoding"] == pytest.approx(0.011)
    shares = values(table, "%")
    assert shares["Target verification"] == pytest.approx(100 * 500 / 637.5)
    assert sum(shares[stage] or 0 for stage in profiles.STAGES) == pytest.approx(100)
    assert shares["Profiling, % of median latency"] == pytest.approx(2)
    assert values(table, "Device us")["Packing"] is None
    assert not table.missing
    assert any("not measured: no CUDA device" in note for note in table.footnotes)


def test_preparation_is_the_same_in_both_tables(tmp_path: Path) -> None:
    found = data(tmp_path, [document(), document()])
    table = table10.build(found)
    prepared = values(table, "Preparation ms")
    assert prepared["63"] == pytest.approx(values(table09.build(found), "Wall ms")["Preparation"])
    assert values(table, "Candidates") == {"31": 31, "63": 63, "127": 127}
    # Requests' means are 61 and 63 us, two of each; numpy's 95th percentile is the larger.
    assert values(table, "P95 ms")["63"] == pytest.approx(0.063)
    assert values(table, "Host MiB")["31"] == 1.5
    assert values(table, "Host MiB set aside")["31"] == 6
    assert values(table, "Device GiB")["31"] is None


def test_device_time_per_step(tmp_path: Path) -> None:
    traced = {
        "traces": 4,
        "steps": 8,
        "phase_ns": {"search": 0, "packing": 40_000, "verify": 1_600_000, "commit": 8_000},
    }
    device = values(table09.build(data(tmp_path, [document(device_time=traced)])), "Device us")
    assert device["Packing"] == 5 and device["Lookup, fusion, search"] == 0
    assert device["Target verification"] == 200 and device["Token commitment"] == 1
    busy = values(table09.build(data(tmp_path / "b", [document(device_time=traced)])), "%")
    assert busy["Target verification, % of device time"] == pytest.approx(100 * 200 / 206)


def test_a_phase_that_one_order_lacks_counts_as_nothing(tmp_path: Path) -> None:
    short = document()
    for name in short["arms"]:
        del short["arms"][name]["requests"]["phases"]["packing"]
    whole = values(table09.build(data(tmp_path, [document(), short])), "Wall ms")
    assert whole["Packing"] == pytest.approx(0.005)


def published(column: str, *stages: str) -> float:
    found = [paper.value("table09_phases_ms", column, stage=stage) for stage in stages]
    return sum(value for value in found if value is not None)


@pytest.mark.parametrize(
    ("model", "column"), [("qwen25vl", "qwen_wall"), ("llava16", "llava_wall")]
)
def test_the_papers_own_sums_hold(model: str, column: str) -> None:
    """Preparation of Table 10 is three stages of Table 9; the text's sums and shares follow."""
    prepared = published(column, "Suffix lookup", "Lookup, fusion, search", "Packing")
    upkeep = published(column, "Memory refresh", "Suffix index update")
    rest = published(column, "Token commitment", "Other decoding")
    whole = prepared + upkeep + rest + published(column, "Target verification")
    assert prepared == pytest.approx(
        paper.value("table10_budget", "prep_ms", model=model, cap="63"), abs=5e-4
    )
    for text, ms in (
        (table09.WITH_UPKEEP, prepared + upkeep),
        (table09.OUTSIDE, prepared + upkeep + rest),
    ):
        assert ms == pytest.approx(paper.text_value("App. G", f"{text}, ms", model), abs=1.5e-3)
        percent = paper.text_value("App. G", f"{text}, % of decoding", model)
        assert 100 * ms / whole == pytest.approx(percent, abs=0.01)
    percent = paper.text_value("App. G", "preparation, % of decoding", model)
    assert 100 * prepared / whole == pytest.approx(percent, abs=0.01)


@pytest.mark.parametrize("module", TABLES)
@pytest.mark.parametrize("scope", [TINY, PAPER_SCOPE], ids=["tiny", "paper"])
def test_without_measurements_a_table_names_the_command(
    module: Any, scope: Scope, tmp_path: Path
) -> None:
    table = module.build(Data(scope, [], tmp_path))
    assert not table.measured and table.missing
    assert any(cell.paper for row in table.rows for cell in row if isinstance(cell, Cell)) or (
        scope is TINY
    )
    commands = " ".join(gap.command for gap in table.missing)
    assert "make study-profile" in commands or "python -m experiments." in commands


def test_occupancy_and_fusion_from_their_files(tmp_path: Path) -> None:
    filling = {
        "bytes_per_row": 73,
        "allocated_bytes": 2 << 20,
        "rss_growth_bytes": None,
        "lookup_ns": [9.0, 5.0, 6.0],
        "call_ns": [900.0],
        "tree_us": [20.0, 40.0, 30.0],
    }
    fillings = [{**filling, "rows": n, "occupied_bytes": 73 * n} for n in (1000, 10_000, 152_064)]
    machine = {"processor": "a processor", "load_1m": 0.5}
    host = tmp_path / "host"
    host.mkdir()
    content: dict[str, Any] = {"schema": 1, "environment": machine}
    occupancy = {**content, "vocabularies": {"152064": fillings}}
    (host / "occupancy.cpu.json").write_text(json.dumps(occupancy))
    timed = {"fixed_prior": [0.2, 0.4, 0.3], "entropy_confidence": [0.25]}
    fusions = {**content, "kernel": timed, "python": timed, "entropy": [0.05]}
    (host / "fusion_cost.cpu.json").write_text(json.dumps(fusions))
    empty = Data(TINY, [], tmp_path)

    table = table11.build(empty)
    assert [row[:2] for row in table.rows[:3]] == [
        ["qwen25vl", "1,000"],
        ["qwen25vl", "10,000"],
        ["qwen25vl", "152,064"],
    ]
    first = [entry for entry in table.rows[0] if isinstance(entry, Cell)]
    assert [entry.value for entry in first] == [73_000 / 2**20, 2, None, 6, 900, 0.03]
    assert (first[0].paper, first[3].paper) == (0.67, 109)
    assert table.rows[2][4] == Cell(None, paper=126.48)
    assert [gap.what for gap in table.missing] == ["occupancy for llava16"]

    page = fusion_cost.build(empty)
    assert page.rows[0][1:] == [Cell(0.3, digits=3), Cell(0.3, paper=7.3, digits=1)]
    assert page.rows[1][2] == Cell(0.25, paper=14.5, digits=1)
    assert not page.missing
