"""Estimators of Figure 1 and of the image-conditioned rows by hand, the figures from invented
files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import counterfactuals, data, paper
from analysis.artefact import Cell
from analysis.counterfactuals import Rows, equal_means, quintiles, recall_gain
from analysis.figures import figure01, figure_image_rows
from analysis.tables import image_recall
from tests.analysis.synthetic import plain_bench, run_config, write_run


def rows(values: list[float], groups: list[int], clusters: str) -> Rows:
    return Rows(np.array(values, float), np.array(groups, np.int64), tuple(clusters))


DOCUMENT: dict[str, Any] = {
    "clusters": ["a", "b", "a"],
    "drafts": {
        "unit": [0, 0, 1, 2],
        "accepted": [0, 7, 5, 1],
        "valid": [1, 1, 1, 0],
        "mean_changed": [1, 0, 0, 1],
        "wrong_changed": [0, 0, 1, 1],
        "mean_drop": [2.0, 0.5, -1.0, 9.0],
        "wrong_drop": [1.0, 0.75, 3.0, 9.0],
    },
    "states": {
        "unit": [0, 1, 2],
        "mean_U": [1.0, 0.0, 0.0],
        "wrong_U": [2.0, 0.0, 5.0],
        "mean_GC": [1.0, 2.0, 1.0],
        "wrong_GC": [1.0, 1.0, 2.0],
        "equal_U": [3, 0, 1],
        "equal_GC": [1, 2, 1],
        "sliced_U": [2, 0, 1],
        "sliced_GC": [1, 0, 1],
    },
}


def test_drafts_are_valid_ones_binned_to_five_and_more() -> None:
    changed = counterfactuals.changes(DOCUMENT)
    assert changed.values.tolist() == [100, 0, 100]
    assert changed.groups.tolist() == [0, 5, 5]
    assert changed.clusters == ("a", "a", "b")
    assert counterfactuals.dependence(DOCUMENT).values.tolist() == [1.0, 0.5, -1.0]


def test_states_lie_in_fifths_of_the_difference_in_support() -> None:
    """E_GC - E_U is 0, 1 and 1: percentiles 1/6 and, for both of the tie, 2/3."""
    shares = counterfactuals.support_share(DOCUMENT)
    assert shares.groups.tolist() == [0, 3, 3]
    assert shares.values == pytest.approx([50, 100 / (1 + np.e), 100 / (1 + np.e)])
    assert shares.clusters == ("a", "b", "a")
    assert counterfactuals.length_gain(DOCUMENT).values.tolist() == [-2, 2, 0]
    assert counterfactuals.length_gain(DOCUMENT, "sliced").values.tolist() == [-1, 0, 0]


def test_a_run_without_an_eligible_state_has_no_rows() -> None:
    assert len(counterfactuals.length_gain({**DOCUMENT, "states": {}}).values) == 0


def test_quintiles_are_five_equal_parts_and_ties_share_theirs() -> None:
    assert quintiles(np.arange(100.0)).tolist() == sorted(list(range(5)) * 20)
    assert quintiles(np.array([1.0, 1.0, 1.0, 1.0])).tolist() == [2] * 4
    assert quintiles(np.array([7.0])).tolist() == [2]
    assert quintiles(np.array([0.0, 5.0, 5.0])).tolist() == [0, 3, 3]


def test_benchmarks_count_alike_however_many_rows_they_have() -> None:
    large = rows([1, 1, 1, 5], [0, 0, 0, 1], "aabb")
    small = rows([3, 7], [0, 1], "cc")
    first, second = equal_means([large, small], 2, 1)
    assert (first.mean, second.mean) == (2, 6)


def test_intervals_resample_clusters_and_need_every_group() -> None:
    """One cluster holds a group alone: a third of the resamples of three clusters lack it, more
    than a tenth, so there is no interval. With each group in every cluster there is.
    """
    fragile = rows([1, 2, 3, 4], [0, 0, 0, 1], "abcc")
    assert all(np.isnan(interval.low) for interval in equal_means([fragile], 2, 1))
    sound = rows([1, 5, 3, 5], [0, 1, 0, 1], "aabb")
    first, second = equal_means([sound], 2, 1)
    assert (first.mean, first.low, first.high) == (2, 1, 3)
    assert (second.mean, second.low, second.high) == (5, 5, 5)


def test_the_spread_of_a_resample_is_that_of_cluster_means() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=100)
    names = tuple(str(i) for i in range(100))
    (interval,) = equal_means([Rows(values, np.zeros(100, np.int64), names)], 1, 1)
    half = 1.96 * values.std() / 10
    assert interval.low == pytest.approx(values.mean() - half, abs=0.03)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.03)


def test_a_benchmark_without_a_group_is_left_out_of_its_mean() -> None:
    parts = [rows([1, 9], [0, 1], "ab"), rows([3], [0], "c")]
    first, second = equal_means(parts, 2, 1)
    assert (first.mean, second.mean) == (2, 9)
    assert np.isnan(first.low)
    (nothing, _) = equal_means([rows([], [], "")], 2, 1)
    assert np.isnan(nothing.mean)


def recall_document(units: int) -> dict[str, Any]:
    counts = {"states": [4] * units, "matching": [3] * units, "swapped": [2] * units}
    sources = ("U", "C", "G", "backoff", "uniform", "fixed_prior", "fusion")
    return {
        "schema": 1,
        "units": [f"u{i}:0" for i in range(units)],
        "clusters": [f"c{i}" for i in range(units)],
        "same_category": [1] * units,
        "reused": [0] * units,
        "left_out": {},
        **{start: dict.fromkeys(sources, counts) for start in ("empty", "seeded")},
    }


def test_recall_gain_is_a_ratio_of_sums() -> None:
    document = recall_document(2)
    document["seeded"]["C"] = {"states": [4, 6], "matching": [3, 1], "swapped": [1, 2]}
    gain = recall_gain(document, "C", "seeded")
    assert gain.mean == pytest.approx(10)
    assert (gain.low, gain.high) == pytest.approx((-100 / 6, 50))
    document["seeded"]["G"] = {"states": [0, 0], "matching": [0, 0], "swapped": [0, 0]}
    assert np.isnan(recall_gain(document, "G", "seeded").mean)


# Figures

UNITS = 5


def counterfactual_document(bench: str) -> dict[str, Any]:
    rng = np.random.default_rng(list(bench.encode()))
    drafts = {
        "unit": [u for u in range(UNITS) for _ in range(12)],
        "accepted": [a % 6 for _ in range(UNITS) for a in range(12)],
        "valid": [1] * (12 * UNITS),
    }
    states: dict[str, Any] = {"unit": [u for u in range(UNITS) for _ in range(10)]}
    for control in ("mean", "wrong"):
        drafts[f"{control}_changed"] = rng.integers(0, 2, 12 * UNITS).tolist()
        drafts[f"{control}_drop"] = rng.normal(size=12 * UNITS).tolist()
        for source in ("U", "GC"):
            states[f"{control}_{source}"] = rng.normal(size=10 * UNITS).tolist()
    for trees in ("equal", "sliced"):
        for source in ("U", "GC"):
            states[f"{trees}_{source}"] = rng.integers(0, 5, 10 * UNITS).tolist()
    funnel = ("drafts", "both_sources", "budget", "overlap", "eligible")
    return {
        **{name: recall_document(UNITS)[name] for name in ("schema", "units", "clusters")},
        "same_category": [1] * UNITS,
        "reused": [0] * UNITS,
        "equal_outputs": UNITS,
        "left_out": {},
        "drafts": drafts,
        "funnel": dict.fromkeys(funnel, 50),
        "states": states,
    }


def write_documents(root: Path, model: str, device: str) -> None:
    for bench in paper.SINGLE_TURN:
        config = run_config(model, device, plain_bench(model, bench), "counterfactual")
        folder = write_run(root, config, [{"name": "recap", "method": "recap"}], UNITS)
        (folder / "counterfactual.json").write_text(json.dumps(counterfactual_document(bench)))
    for bench in paper.DIAGNOSTIC:
        config = run_config(model, device, plain_bench(model, bench), "replay")
        folder = write_run(root, config, [{"name": "capture", "method": "ar"}], UNITS)
        (folder / "image_rows.json").write_text(json.dumps(recall_document(UNITS)))


@pytest.mark.parametrize(
    ("model", "device"), [("tiny_qwen25vl", "cpu"), ("qwen25vl", "cuda"), ("tiny_llava", "cpu")]
)
def test_figures_are_drawn_from_whole_files(tmp_path: Path, model: str, device: str) -> None:
    write_documents(tmp_path, model, device)
    (found,), _ = data.load(tmp_path)
    for module in (figure01, figure_image_rows):
        figure = module.build(found)
        assert figure.measured and not figure.missing
        text = " ".join(figure.footnotes)
        assert "nan" not in text and model in text
        assert ("the paper" in text) == (model != "tiny_llava")
        assert figure.plot is not None
        figure.plot.savefig(tmp_path / "figure.png")
    assert figure01.CAPTION.startswith("Exploratory")


def test_the_table_holds_the_figures_numbers_beside_the_papers(tmp_path: Path) -> None:
    write_documents(tmp_path, "qwen25vl", "cuda")
    (found,), _ = data.load(tmp_path)
    table = image_recall.build(found)
    rows = {row[1]: dict(zip(table.headings, row, strict=True)) for row in table.rows}
    assert list(rows) == list(paper.DIAGNOSTIC.values())
    assert rows["ChartQA"]["Fixed priors"] == Cell(25.0, 25.0, 25.0, paper=5.55, signed=True)
    assert rows["ChartQA"]["Entropy confidence"] == Cell(25.0, 25.0, 25.0, signed=True)
    printed = {name: rows["OCRBench"][name] for name in ("C alone", "G alone", "U alone")}
    assert {name: cell.paper for name, cell in printed.items()} == {  # type: ignore[union-attr]
        "C alone": -2.96,
        "G alone": -2.50,
        "U alone": None,
    }
    assert rows["ChartQA"]["States"] == "20" and not table.missing


def test_without_files_the_gaps_are_named(tmp_path: Path) -> None:
    write_documents(tmp_path, "tiny_qwen25vl", "cpu")
    for path in [*tmp_path.rglob("counterfactual.json"), *tmp_path.rglob("image_rows.json")]:
        path.unlink()
    (found,), _ = data.load(tmp_path)
    for module, name in ((figure01, "counterfactual.json"), (figure_image_rows, "image_rows.json")):
        figure = module.build(found)
        assert not figure.measured
        assert all(name in gap.what for gap in figure.missing)
        assert "study=" in figure.missing[0].command
