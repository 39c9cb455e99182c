"""Every table and figure from the committed records of a real run of the whole pipeline.

After an intended change: UPDATE_GOLDENS=1 pytest tests/analysis.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analysis import build, render
from analysis.artefact import Figure
from analysis.data import Data
from tests.analysis.conftest import only_scope
from tests.analysis.test_goldens import check, table_of

ROOT = Path(__file__).parents[2] / "results" / "reference" / "tiny"
TABLES = [module.ID for module in build.modules("tables")]
FIGURES = [module.ID for module in build.modules("figures")]


@pytest.fixture(scope="module")
def reference() -> Data:
    return only_scope(ROOT)


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_complete_and_as_committed(reference: Data, name: str) -> None:
    table = table_of(reference, name)
    assert build.state(table) == "complete", table.missing
    text = render.markdown(table, reference.scope)
    check(f"reference.{name}.md", text.replace(f"{ROOT}", "results/reference/tiny"))


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_complete(reference: Data, name: str) -> None:
    figure = reference.artefact(name)
    assert isinstance(figure, Figure)
    assert build.state(figure) == "complete", figure.missing


def test_every_output_of_every_arm_equals_the_reference() -> None:
    compared = 0
    for path in ROOT.rglob("records.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        expected = {r["unit_id"]: r["output_ids"] for r in records if r["arm"] == "ar"}
        for record in records:
            assert record["status"] == "ok"
            assert record["output_ids"] == expected[record["unit_id"]]
            compared += record["arm"] != "ar"
    assert compared > 1000


def test_the_records_name_no_machines_folders() -> None:
    absolute = re.compile(r'["\s](/[a-z]+/[^"\s]+)')
    for path in (*ROOT.rglob("*.json"), *ROOT.rglob("*.yaml")):
        assert not absolute.search(path.read_text(encoding="utf-8")), path
