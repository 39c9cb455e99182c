"""Every page as committed. After an intended change: UPDATE_GOLDENS=1 pytest tests/analysis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from analysis import render
from analysis.artefact import Table
from analysis.data import Data

FOLDER = Path(__file__).parent / "goldens"
ONLINE = (
    *("table01", "table01x", "table02", "table02x", "table03", "table04", "table07", "table08"),
    *("table12", "table13", "table15", "table17", "table18", "prompts", "null_control", "timing"),
    *("equal_rows", "backoff", "order"),
)


def check(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDENS"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def table_of(data: Data, name: str) -> Table:
    table = data.artefact(name)
    assert isinstance(table, Table)
    return table


@pytest.mark.parametrize("name", ONLINE)
def test_pages_of_a_tiny_model(tiny_data: Data, name: str) -> None:
    check(f"{name}.tiny.md", render.markdown(table_of(tiny_data, name), tiny_data.scope))


@pytest.mark.parametrize("name", ["table01", "table13"])
def test_pages_of_the_papers_setting(paper_data: Data, name: str) -> None:
    check(f"{name}.md", render.markdown(table_of(paper_data, name), paper_data.scope))


def test_latex_and_csv(paper_data: Data) -> None:
    table = table_of(paper_data, "table15")
    check("table15.tex", render.latex(table, paper_data.scope))
    check("table15.csv", render.csv_text(table, paper_data.scope))
