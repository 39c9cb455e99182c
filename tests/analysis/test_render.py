"""Cells and tables as text."""

from __future__ import annotations

import csv
import io

import pytest

from analysis import render
from analysis.artefact import Cell, Missing, Table
from analysis.bootstrap import Interval
from analysis.data import PAPER_SCOPE, Scope

TINY = Scope(("tiny_qwen25vl",), "CPU", True)


@pytest.mark.parametrize(
    ("cell", "comparable", "text"),
    [
        (Cell(1.694, 1.66, 1.72, 1.69), True, "1.69 [1.66, 1.72] | paper 1.69 (+0.00)"),
        (Cell(1.694, 1.66, 1.72, 1.69), False, "1.69 [1.66, 1.72] | paper 1.69"),
        (Cell(paper=1.69), True, "- | paper 1.69"),
        (Cell(), True, "-"),
        (Cell(0.5, digits=1, signed=True, mark="noise"), True, "+0.5 (noise)"),
        (Cell(-0.001), True, "0.00"),
        (Cell(12345, digits=0), True, "12,345"),
        (Cell(float("nan")), True, "n/a"),
    ],
)
def test_a_cell_shows_ours_interval_paper_and_difference(
    cell: Cell, comparable: bool, text: str
) -> None:
    assert render.one_line(cell, comparable) == text


def test_nan_is_not_measured() -> None:
    nothing = Interval(float("nan"), float("nan"), float("nan"))
    assert not Cell.of(nothing, 1.0).measured
    assert not Cell.of(None).measured
    assert Cell.of(Interval(1.0, 0.9, 1.1)).measured


def a_table() -> Table:
    return Table(
        "table00",
        "Table 0: 100 % of A & B",
        "S by arm_name.",
        ["Arm_x", "tau"],
        [["a|b", Cell(1.5, 1.0, 2.0, 1.4)], ["c", Cell()]],
        ["`run_1` 3/3"],
        [Missing("c", "python run.py x=1")],
    )


def test_rows_must_fit_their_headings() -> None:
    with pytest.raises(ValueError, match="1 entries for 2 headings"):
        Table("t", "", "", ["a", "b"], [["x"]])


def test_markdown_escapes_and_names_gaps() -> None:
    text = render.markdown(a_table(), TINY)
    assert "| a\\|b | 1.50 [1.00, 2.00]<br>paper 1.40 |" in text
    assert "- c: `python run.py x=1`" in text
    assert "(tiny_qwen25vl, CPU)" in text
    assert "(tiny" not in render.markdown(a_table(), PAPER_SCOPE)


def test_latex_is_escaped() -> None:
    text = render.latex(a_table(), PAPER_SCOPE)
    assert r"Arm\_x & $\tau$ \\" in text
    assert r"\toprule" in text
    assert r"\texttt{run\_1}" in text
    assert "% missing: c: python run.py x=1" in text


def test_csv_has_every_number_in_a_column_of_its_own() -> None:
    rows = list(csv.DictReader(io.StringIO(render.csv_text(a_table(), PAPER_SCOPE))))
    assert rows[0]["tau"] == "1.5"
    assert rows[0]["tau low"] == "1"
    assert rows[0]["tau paper"] == "1.4"
    assert float(rows[0]["tau difference"]) == pytest.approx(0.1)
    assert rows[1]["tau"] == ""
    tiny = list(csv.DictReader(io.StringIO(render.csv_text(a_table(), TINY))))
    assert tiny[0]["tau difference"] == ""
