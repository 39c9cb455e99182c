"""The published numbers, as transcribed."""

from __future__ import annotations

import pytest

from analysis import arms, paper
from analysis.load import find_runs
from analysis.tables import table01, table13


def test_values_are_looked_up_as_printed() -> None:
    keys = {"model": "qwen25vl", "method": "recap", "bench": "MathVista"}
    assert paper.value("table01_single_turn", "speedup", **keys) == 2.19
    assert paper.value("table13_online_fusion", "mean", model="llava16", variant="recap") == 1.09
    assert (
        paper.value("table15_latency_percentiles_s", "p50", model="qwen25vl", method="recap")
        is None
    )
    assert paper.value("table06_matched_length", "ChartQA", policy="no such") is None
    assert paper.value("table06_matched_length", "ChartQA", policy=None) is None


def test_text_numbers_are_found_by_their_beginning() -> None:
    assert paper.text_value("App. J", "P95 latency change", "qwen25vl", "MMSpec") == -47.69
    assert paper.text_value("App. J", "P95 latency change", None, "MMSpec") is None
    assert paper.text_value("4.2", "AR throughput, maximum") == 39.4


def test_published_averages_are_not_means_of_rounded_rows() -> None:
    """Token Recycling on LLaVA: the printed 1.37 is the mean of unrounded values, 1.376."""
    names = [*paper.SINGLE_TURN.values()]
    rows = [table01.published("llava16", "token_recycling", name)[0] for name in names]
    assert None not in rows
    mean = sum(value for value in rows if value is not None) / len(rows)
    assert table01.published("llava16", "token_recycling", "Average")[0] == 1.37
    assert f"{mean:.2f}" == "1.38"


@pytest.mark.parametrize("model", paper.MODELS)
def test_every_cell_of_tables_1_and_13_has_its_number(model: str) -> None:
    for method in arms.PAPER_METHODS:
        for name in (*paper.SINGLE_TURN.values(), "Average"):
            assert None not in table01.published(model, method, name)
    for variant in list(table13.ARMS.values())[:5]:
        keys = {"model": model, "variant": variant}
        for column in (*paper.DIAGNOSTIC.values(), "mean", "tau"):
            assert paper.value("table13_online_fusion", column, **keys) is not None


def test_derived_percentiles_follow_from_the_text() -> None:
    for model, ar in (("qwen25vl", 11.63), ("llava16", 14.27)):
        change = paper.text_value("App. J", "P95 latency change", model, "MMSpec")
        derived = paper.value("table15_latency_percentiles_s", "p95", model=model, method="recap")
        assert change is not None
        assert derived == pytest.approx(ar * (1 + change / 100), abs=0.005)


def test_committed_results_hold_no_run_that_could_be_taken_for_the_papers() -> None:
    assert find_runs(paper.FOLDER) == ([], [])
