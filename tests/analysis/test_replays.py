"""Tables 5, 6, 14 and 16, Figures 3(a) and 5: from counts per input to what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis import replays
from analysis.artefact import Cell, Table
from analysis.data import PAPER_SCOPE, Data, Scope
from analysis.figures import figure03a, figure05
from analysis.load import Run
from analysis.tables import table05, table06, table14, table16
from experiments import replay

BENCHES = ("chartqa", "textvqa", "ocrbench", "mmt_bench")
TABLES = (table05, table06, table14, table16)
TINY = Scope(("tiny_qwen25vl",), "CPU", tiny_inputs=True)


def document(**counts: list[int]) -> dict[str, Any]:
    """A replay of three inputs, two of them of one picture; ``start__group__name=[...]``."""
    made: dict[str, Any] = {
        "schema": 1,
        "units": ["a:0", "b:0", "c:0"],
        "clusters": ["p", "p", "q"],
        "states": [10, 20, 10],
    }
    for start in replay.STARTS:
        made[start] = {g: {n: [0, 0, 0] for n in names} for g, names in replay.NAMES.items()}
    for path, values in counts.items():
        start, group, name = path.split("__")
        made[start][group][name] = values
    return made


def scope_with(folder: Path, found: dict[str, Any], growth: Any = None) -> Data:
    """A tiny scope with a finished run of study=replay per benchmark in ``found``."""
    runs = []
    for bench, content in found.items():
        place = folder / bench
        place.mkdir(parents=True)
        (place / "replay.json").write_text(json.dumps(content))
        (place / "summary.json").write_text('{"units": 3}')
        if growth is not None and bench == "chartqa":
            (place / "growth.json").write_text(json.dumps(growth))
        config = {
            "model": {"name": "tiny_qwen25vl", "device": "cpu"},
            "bench": {"name": f"tiny_{bench}"},
            "study": {"name": "replay"},
            "max_new_tokens": 200,
        }
        runs.append(Run(config, [], place))
    return Data(TINY, runs, folder)


def cells(table: Table, row: int) -> list[float | None]:
    return [entry.value for entry in table.rows[row] if isinstance(entry, Cell)]


def test_table05_shares_of_states_and_of_covered_states(tmp_path: Path) -> None:
    counts = document(
        empty__covered__U=[6, 10, 4],
        empty__hits__U=[3, 5, 4],
        empty__covered__C=[2, 0, 2],
        empty__hits__C=[2, 0, 1],
        seeded__joint__states=[4, 4, 2],
        seeded__joint__G=[4, 4, 1],
        seeded__joint__U=[2, 4, 1],
    )
    table = table05.build(scope_with(tmp_path, {"chartqa": counts}))
    coverage_u, coverage_c, coverage_g, *recalls, joint = cells(table, 0)
    assert (coverage_u, coverage_c, coverage_g) == (50.0, 10.0, 0.0)
    assert recalls == [60.0, 75.0, None]  # G covers nothing: no recall, not a recall of 0
    assert joint == 20.0
    assert table.rows[0][2] == "40"
    first = table.rows[0][3]
    assert isinstance(first, Cell) and first.paper == 44.5
    # Two pictures: resamples hold the one, the other or both, so the ends are theirs.
    assert (first.low, first.high) == (40.0, pytest.approx(100 * 16 / 30))
    assert [gap.what for gap in table.missing if "textvqa" in gap.what]


def test_table06_means_over_states_and_shared_node_counts(tmp_path: Path) -> None:
    counts = document(empty__matched__UC_backoff=[10, 20, 0], empty__matched__nodes=[400, 0, 20])
    table = table06.build(scope_with(tmp_path, {"ocrbench": counts}))
    assert [row[1] for row in table.rows] == [*table06.POLICIES.values(), "Candidates per tree"]
    assert cells(table, 1) == [None, None, 0.75, None]
    assert table.rows[5][4] == "10.5"
    assert list(table06.POLICIES) == list(replay.POLICIES)


def test_table14_differences_are_paired_and_in_points_of_all_states(tmp_path: Path) -> None:
    counts = document(seeded__rules__without_confidence=[5, 10, 5], seeded__rules__recap=[5, 11, 5])
    table = table14.build(scope_with(tmp_path, {"mmt_bench": counts}))
    assert list(table14.RULES) == list(replay.RULES)
    assert cells(table, 0)[3] == 50.0
    recap = table.rows[1][5]
    assert isinstance(recap, Cell)
    assert (recap.value, recap.paper) == (2.5, -0.01)
    assert (recap.low, recap.high) == (0.0, pytest.approx(100 / 30))


def test_table16_compares_rules_on_the_states_where_rows_differ(tmp_path: Path) -> None:
    counts = document(
        seeded__disagreement__states=[2, 2, 1],
        seeded__disagreement__recap=[2, 1, 1],
        seeded__disagreement__confidence_gate=[1, 0, 1],
        seeded__disagreement__without_confidence=[2, 2, 1],
    )
    table = table16.build(scope_with(tmp_path, {"textvqa": counts}))
    states, *found = cells(table, 1)
    assert states == 5
    assert found == pytest.approx([80.0, 40.0, 40.0, 100.0])
    assert table.rows[1][6] == "[-2.33, +18.42]"


@pytest.mark.parametrize("scope", [TINY, PAPER_SCOPE])
@pytest.mark.parametrize("module", [*TABLES, figure03a, figure05])
def test_without_a_replay_the_papers_numbers_stand_and_the_gap_is_named(
    module: Any, scope: Scope, tmp_path: Path
) -> None:
    artefact = module.build(Data(scope, [], tmp_path))
    assert not artefact.measured
    assert [gap.command for gap in artefact.missing] == [
        f"make study-{module.STUDIES[0]} MODEL={'qwen25vl' if scope.is_paper else scope.models[0]}"
    ]
    if isinstance(artefact, Table):
        published = [e.paper for row in artefact.rows for e in row if isinstance(e, Cell)]
        assert any(value is not None for value in published)


def test_a_finished_capture_without_its_replay_is_a_gap(tmp_path: Path) -> None:
    data = scope_with(tmp_path, {bench: document() for bench in BENCHES})
    (tmp_path / "chartqa" / "replay.json").unlink()
    for module in (*TABLES, figure03a):
        assert len(module.build(data).missing) == 1


def test_a_replay_of_another_schema_is_not_read(tmp_path: Path) -> None:
    found = {bench: document() for bench in BENCHES} | {"chartqa": document() | {"schema": 2}}
    data = scope_with(tmp_path, found)
    assert replays.find(data, "tiny_qwen25vl", "chartqa") is None
    for module in (*TABLES, figure03a):
        assert len(module.build(data).missing) == 1


def test_shares_of_different_states_are_subtracted(tmp_path: Path) -> None:
    content = document(
        empty__covered__U=[5, 10, 5],
        empty__hits__U=[1, 3, 1],
        empty__covered__C=[2, 4, 2],
        empty__hits__C=[1, 2, 1],
    )
    replay_ = replays.find(scope_with(tmp_path, {"chartqa": content}), "tiny_qwen25vl", "chartqa")
    assert replay_ is not None
    u, c, g = ((f"empty.hits.{source}", f"empty.covered.{source}") for source in "UCG")
    gain = replay_.difference_of_shares(c, u)
    assert gain.mean == pytest.approx(50 - 25)
    # Only three resamples of the two pictures exist: both p, both q, one of each.
    assert (gain.low, gain.high) == pytest.approx((50 - 100 * 4 / 15, 50 - 100 * 1 / 5))
    assert replay_.difference_of_shares(g, u).mean != replay_.difference_of_shares(g, u).mean


def test_figure03a_draws_what_is_there(tmp_path: Path) -> None:
    counts = document(empty__covered__U=[6, 10, 4], empty__hits__U=[3, 5, 4])
    figure = figure03a.build(scope_with(tmp_path, {bench: counts for bench in BENCHES}))
    assert figure.measured and not figure.missing


def test_figure05_says_how_many_keys_and_bytes(tmp_path: Path) -> None:
    growth = {
        "schema": 1,
        "runs": ["m/b/replay/abc"],
        "trajectories": 4,
        "bytes_per_row": 73,
        "allocated_bytes": 1 << 20,
        "seeds": [17, 29, 43],
        "requests": [1, 4, 10_000],
        "keys": {
            "with_prompt": [[5, 30, 30], [7, 30, 30], [6, 30, 30]],
            "outputs_only": [[2, 20, 20]] * 3,
        },
    }
    data = scope_with(tmp_path, {bench: document() for bench in BENCHES}, growth)
    figure = figure05.build(data)
    assert figure.measured and not figure.missing
    assert figure05.keys_after(growth, 1) == 6.0
    assert "30 and 30 keys (prompt and output tokens); 20 and 20 keys" in figure.footnotes[0]
    (tmp_path / "chartqa" / "growth.json").unlink()
    figure = figure05.build(data)
    assert not figure.measured
    assert [gap.command for gap in figure.missing] == ["make study-growth MODEL=tiny_qwen25vl"]
