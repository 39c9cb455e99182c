"""What an effect of nothing is: each effect against the null arm of its own kind."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from analysis import build, contrasts, main_results
from analysis.artefact import Cell, Table
from analysis.bootstrap import Interval
from analysis.data import Data
from analysis.estimators import Sample
from analysis.figures import figure03b, figure04, figure06
from analysis.load import Run
from analysis.tables import table01, table08, table12, table15
from tests.analysis.test_estimators import unit

# Tables with a column of effects between methods, and the null arms that these are judged by.
JUDGED = {
    "table04": ("Gain %", {"prior_again", "fixed_prior_again", "fusion_again"}),
    "table07": ("Gain %, one stream", {"fusion_again"}),
    "table08": ("Blocked gain %", {"request_reset_again"}),
    "table12": ("Change of S %", {"lexical_again"}),
    "equal_rows": ("RECAP against it %", {"recap_64_again"}),
    "backoff": ("Backoff gain %", {"unigram_again"}),
}


def run_of(times: dict[str, float]) -> Run:
    """Two inputs, every arm at its own speed on the one and ten per cent slower on the other."""
    records = [
        unit(arm, f"{name}:0", 10, seconds * slower)
        for name, slower in (("x", 1.0), ("y", 1.1))
        for arm, seconds in times.items()
    ]
    return Run({"max_new_tokens": 200}, records)


def without(data: Data, *names: str) -> Data:
    """The same runs without some arms."""
    runs = [
        Run(run.config, [r for r in run.records if r.arm not in names], run.folder)
        for run in data.found
    ]
    return Data(data.scope, runs, data.root, build.make)


def test_a_null_arm_is_compared_with_the_arm_that_it_repeats() -> None:
    run = run_of({"ar": 2.0, "null": 1.6, "prior": 1.0, "prior_again": 0.5})
    assert contrasts.noise([run, None], "prior_again", "prior").mean == pytest.approx(100)
    assert contrasts.noise([run], "null", "ar").mean == pytest.approx(25)


def test_without_a_null_arm_there_is_neither_mark_nor_note() -> None:
    null = contrasts.noise([run_of({"a": 1.0})], "a_again", "a")
    assert contrasts.gain_cell(Interval(0.0, -1.0, 1.0), null).mark == ""
    assert contrasts.null_note({"somewhere": null}, "a_again", "a") == []


def test_a_note_names_the_null_arm_and_where_it_was_measured() -> None:
    known, unknown = Interval(0.5, -1.0, 2.0), contrasts.noise([], "a_again", "a")
    (note,) = contrasts.null_note({"here": known, "there": unknown}, "a_again", "a")
    assert note.startswith("`a_again` against `a`, the same arm twice: here +0.50 % [-1.00, +2.00]")
    assert "there" not in note


@pytest.mark.parametrize("name", JUDGED)
def test_effects_between_methods_are_judged_by_the_same_arm_twice(
    tiny_data: Data, name: str
) -> None:
    column, nulls = JUDGED[name]
    table, blind = tiny_data.artefact(name), without(tiny_data, *nulls).artefact(name)
    assert isinstance(table, Table) and isinstance(blind, Table)
    place = table.headings.index(column)
    cells = [(r[place], b[place]) for r, b in zip(table.rows, blind.rows, strict=True)]
    assert any(isinstance(cell, Cell) and cell.mark == "noise" for cell, _ in cells)
    for cell, unmarked in cells:
        assert unmarked == (replace(cell, mark="") if isinstance(cell, Cell) else cell)
    said = {null for null in nulls for note in table.footnotes if f"`{null}` against" in note}
    assert said == nulls
    assert not any("again`" in note for note in blind.footnotes)


@pytest.mark.parametrize("module", [figure03b, figure04])
def test_the_grey_band_is_the_same_arm_twice(tiny_data: Data, module: ModuleType) -> None:
    figure = module.build(tiny_data)
    (band,) = figure.plot.axes[0].patches
    assert "against" in band.get_label()
    blind = module.build(without(tiny_data, "unigram_again", "request_reset_again"))
    assert not blind.plot.axes[0].patches


def test_s_stays_with_the_null_arm_of_ar() -> None:
    run = run_of({"ar": 1.0, "null": 0.8, "a": 0.9, "b": 0.5})
    assert contrasts.speed_cell(run, "a").mark == "noise"
    assert contrasts.speed_cell(run, "b").mark == ""
    assert contrasts.speed_cell(run, "null").mark == ""
    assert contrasts.speed_cell(None, "a", 1.5) == Cell(paper=1.5)


def test_the_change_of_s_is_judged_by_changes_of_s(tiny_data: Data) -> None:
    run = tiny_data.run("fallback", "mmspec", "tiny_qwen25vl")
    null = table12._change(run, *table12.NULL)
    table = tiny_data.artefact("table12")
    assert isinstance(table, Table)
    for row in table.rows[1:]:
        cell = row[table.headings.index("Change of S %")]
        assert isinstance(cell, Cell) and cell.value is not None
        inside = min(null.low, 0) <= cell.value <= max(null.high, 0)
        assert cell.mark == ("noise" if inside else "")


def test_inputs_are_counted_once_however_many_orders_they_run_in(tiny_data: Data) -> None:
    runs = table08.stream_runs(tiny_data, "tiny_qwen25vl", "blocked")
    arms = ("persistent", "request_reset")
    assert len(contrasts.pooled(contrasts.changes(run, *arms) for run in runs)) == 48
    assert contrasts.num_inputs([*runs, None], *arms) == 16


def test_states_are_the_records_own() -> None:
    records = [
        unit("a", "x:0", 10, 1.0, state_lifetime="persistent"),
        unit("b", "x:0", 10, 1.0, state_lifetime="task"),
    ]
    run = Run({"max_new_tokens": 200}, records)
    assert contrasts.lifetime([run, None], "a") == "persistent"
    assert contrasts.lifetime([run], "a", "b") == "persistent vs. task"
    assert contrasts.lifetime([run], "a", "a") == "persistent"
    assert contrasts.lifetime([None], "a") == contrasts.lifetime([run], "c") == "-"


def test_an_average_s_inside_the_null_arms_average_is_noise(
    tiny_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def marks() -> dict[str, str]:
        rows = table01.build(tiny_data).rows
        return {str(row[1]): cell.mark for row in rows if isinstance(cell := row[-2], Cell)}

    assert marks()["RECAP"] == ""
    wide = Sample(np.array([0.1, 9.0, 0.1, 9.0]), ("a", "b", "c", "d"))
    monkeypatch.setattr(main_results, "null_sample", lambda rows: wide)
    assert marks()["RECAP"] == "noise"
    assert marks()["AR again (null arm)"] == ""


def test_the_dotted_line_is_the_printed_percentile(tiny_data: Data) -> None:
    figure = figure06.build(tiny_data)
    assert figure.plot is not None
    lines = [line.get_xdata() for line in figure.plot.axes[0].lines if line.get_linestyle() == ":"]
    table = tiny_data.artefact("table15")
    assert isinstance(table, Table)
    printed = [row[table.headings.index("P95")] for row in table.rows[:2]]
    for (x, _), cell in zip(lines, printed, strict=True):
        assert isinstance(cell, Cell) and cell.value == pytest.approx(x)
        assert cell.mark == ("" if cell is printed[0] else table15.DERIVED)


def test_the_margin_is_the_median_of_an_even_number_too() -> None:
    records = [
        record
        for name, margin in (("x", 0.1), ("y", 0.3))
        for record in (
            unit("ar", f"{name}:0", 10, 2.0),
            unit("m", f"{name}:0", 9, 1.0, divergence={"index": 4, "ar_margin": margin}),
        )
    ]
    row = main_results.Row("m", Run({"max_new_tokens": 200}, records))
    entries = dict(zip(main_results.EXTENDED, main_results.extended(row), strict=True))
    margin = entries["Margin at difference"]
    assert isinstance(margin, Cell) and margin.value == pytest.approx(0.2)
