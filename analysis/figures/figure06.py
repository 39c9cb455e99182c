"""Figure 6: how long MMSpec inputs take, with AR and with RECAP."""

from __future__ import annotations

import numpy as np

from analysis import arms, main_results, style
from analysis.artefact import Figure, Missing
from analysis.data import Data
from analysis.estimators import Latencies
from analysis.main_results import MMSPEC
from analysis.tables import table15

ID = "figure06"
TITLE = "Figure 6: per-input generation latency on MMSpec"
STUDIES = (MMSPEC,)
CAPTION = (
    "Cumulative share of inputs by generation time, paired RECAP and AR runs; the turns of an "
    "input are summed. A curve further left is faster. Dotted: the 95th percentiles (Table 15)."
)


def build(data: Data) -> Figure:
    """One panel per model."""
    latencies: dict[str, Latencies] = {}
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models:
        found = arms.rows(data, MMSPEC, MMSPEC, model)
        measured = table15.recap_latencies(found)
        if measured is not None and measured.clusters:
            latencies[model] = measured
            notes += main_results.notes([{"recap": found["recap"]}], ["MMSpec"])
        missing += main_results.missing(data, MMSPEC, model, [MMSPEC], [found], ["recap"])
    if not latencies:
        return Figure(ID, TITLE, CAPTION, None, notes, missing)
    plot, axes = style.panels(len(latencies), 3.6, 2.6)
    for axis, (model, measured) in zip(axes, latencies.items(), strict=True):
        _panel(axis, model, measured)
    return Figure(ID, TITLE, CAPTION, plot, notes, missing)


def _panel(axis: style.Axes, model: str, latencies: Latencies) -> None:
    sides = (("reference", "AR", style.GREY, "--"), ("method", "RECAP", style.BLUE, "-"))
    for side, label, colour, dashes in sides:
        values = np.sort(latencies.of(side).values)
        shares = np.arange(len(values) + 1) / len(values)
        steps = np.concatenate([values[:1], values])  # the curve rises from 0 at the first of them
        axis.step(steps, shares, where="post", color=colour, linestyle=dashes, label=label)
        axis.axvline(float(np.percentile(values, 95)), color=colour, linestyle=":", linewidth=1)
    axis.set_xlim(left=0)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("Generation latency per input (s)")
    axis.set_ylabel("Share of inputs")
    axis.set_title(f"{model}, {len(latencies.clusters)} inputs")
    axis.legend(loc="lower right")
