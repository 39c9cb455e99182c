"""Figure 8: RECAP's speedup per input."""

from __future__ import annotations

from analysis import main_results, paper, style
from analysis.artefact import Figure, Missing
from analysis.bootstrap import Interval
from analysis.data import Data, paper_model
from analysis.estimators import Sample
from analysis.main_results import MAIN, speed
from analysis.tables import table01

ID = "figure08"
TITLE = "Figure 8: per-input throughput speedup on the single-turn benchmarks"
STUDIES = (MAIN,)
CAPTION = (
    "Median (point) and P10 to P90 (segment) of the paired ratios against AR: a spread over "
    "inputs, not an interval of uncertainty. Dashed: parity with AR. Percentages: inputs that are "
    "strictly faster than AR."
)


def build(data: Data) -> Figure:
    """One panel per model."""
    notes: list[str] = []
    missing: list[Missing] = []
    samples: dict[str, list[Sample]] = {}
    for model in data.models:
        found = table01.measured(data, model)
        of_model = [speed(rows.get("recap")) for rows in found]
        if any(len(sample) for sample in of_model):
            samples[model] = of_model
        recap = [{m: row for m, row in rows.items() if m == "recap"} for rows in found]
        notes += main_results.notes(recap, list(paper.SINGLE_TURN.values()))
        missing += main_results.missing(data, MAIN, model, table01.BENCHES, found, ["recap"])
    if not samples:
        return Figure(ID, TITLE, CAPTION, None, notes, missing)
    plot, axes = style.panels(len(samples), 4.4, 3.0)
    for axis, (model, of_model) in zip(axes, samples.items(), strict=True):
        _panel(axis, model, of_model, data)
    style.legend_below(axes[0])
    return Figure(ID, TITLE, CAPTION, plot, notes, missing)


def _panel(axis: style.Axes, model: str, samples: list[Sample], data: Data) -> None:
    names = list(paper.SINGLE_TURN.values())
    spreads = [
        Interval(*(sample.percentile(level).mean for level in (50, 10, 90))) for sample in samples
    ]
    style.points(axis, spreads, list(range(len(names))), style.BLUE, "o", "Median, P10-P90")
    if data.scope.comparable:
        keys = [{"model": paper_model(model), "bench": name} for name in names]
        medians = [paper.value("table18_ratio_distribution", "p50", **key) for key in keys]
        style.published(axis, medians, [row + 0.25 for row in range(len(names))], "Paper's median")
    axis.axvline(1, color=style.GREY, linestyle="--", linewidth=1)
    style.rows(axis, names)
    for row, sample in enumerate(samples):
        if len(sample):
            share = f"{sample.share_above(1.0).mean:.1f} %"
            axis.text(
                1.02, row, share, transform=axis.get_yaxis_transform(), va="center", fontsize=8
            )
    axis.text(1.02, -0.75, "> 1x", transform=axis.get_yaxis_transform(), va="center", fontsize=8)
    axis.set_xlabel("Throughput speedup per input (x)")
    axis.set_title(model)
