"""How figures look: one style, colour-blind-safe, readable in print and in grey."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.bootstrap import Interval
    from analysis.data import Scope

__all__ = ["Axes"]

# Okabe and Ito's palette, without its yellow, which is pale on white.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, SKY, AMBER, GREY = "#CC79A7", "#56B4E9", "#E69F00", "#666666"
COLOURS = {
    "chartqa": BLUE,
    "textvqa": ORANGE,
    "ocrbench": GREEN,
    "mmt_bench": PURPLE,
    "seed_bench": SKY,
    "scienceqa": AMBER,
    "mathvista": GREY,
}
OURS, PAPER = BLUE, "#999999"

SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "svg.hashsalt": "recap",
}


def panels(columns: int, width: float = 3.4, height: float = 2.6) -> tuple[Plot, list[Axes]]:
    """A figure with panels side by side, in this module's style like everything drawn later."""
    matplotlib.rcParams.update(SETTINGS)
    plot = Plot(figsize=(width * columns, height))  # no window, and nothing keeps it open
    return plot, list(plot.subplots(1, columns, squeeze=False)[0])


def points(
    axis: Axes,
    intervals: Sequence[Interval],
    heights: Sequence[float],
    colour: str,
    marker: str,
    label: str,
) -> None:
    """Points with horizontal bars from low to high; nan leaves its row empty."""
    kept = [(i, y) for i, y in zip(intervals, heights, strict=True) if i.mean == i.mean]
    if not kept:
        return
    means = [interval.mean for interval, _ in kept]
    below = [max(interval.mean - interval.low, 0.0) for interval, _ in kept]
    above = [max(interval.high - interval.mean, 0.0) for interval, _ in kept]
    axis.errorbar(
        means,
        [height for _, height in kept],
        xerr=[below, above],
        fmt=marker,
        color=colour,
        markersize=5,
        linewidth=1.6,
        capsize=2,
        label=label,
    )


def published(
    axis: Axes,
    values: Sequence[float | None],
    heights: Sequence[float],
    label: str | None = "Paper",
) -> None:
    """The paper's numbers as hollow diamonds."""
    kept = [(value, y) for value, y in zip(values, heights, strict=True) if value is not None]
    axis.plot(
        [value for value, _ in kept],
        [height for _, height in kept],
        linestyle="none",
        marker="D",
        markersize=5,
        markerfacecolor="none",
        markeredgecolor="black",
        label=label,
    )


def noise_band(axis: Axes, null: Interval, label: str) -> None:
    """The interval of a reference arm a second time as a grey band; nothing without one."""
    if null.low == null.low:
        axis.axvspan(null.low, null.high, color="#DDDDDD", zorder=0, label=label)


def rows(axis: Axes, names: Sequence[str]) -> None:
    """Names down the vertical axis, the first on top."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")


def legend_below(axis: Axes, columns: int = 2) -> None:
    """One legend for all panels of the axis's figure, under them. Calling it again replaces it."""
    plot = axis.get_figure(root=True)
    assert plot is not None
    while plot.legends:
        plot.legends[0].remove()
    entries: dict[str, Any] = {}
    for panel in plot.axes:
        handles, labels = panel.get_legend_handles_labels()
        entries |= {label: handle for handle, label in zip(handles, labels, strict=True)}
    plot.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=columns * len(plot.axes),
    )


def save(plot: Plot, scope: Scope, stem: Path) -> list[Path]:
    """Write PDF and PNG, the scope's label on figures that are not in the paper's setting."""
    if not scope.is_paper:
        plot.suptitle(f"{scope.label} (not the paper's setting)", fontsize=8, color=GREY)
    pdf, png = stem.parent / f"{stem.name}.pdf", stem.parent / f"{stem.name}.png"
    plot.savefig(pdf, metadata={"CreationDate": None})
    plot.savefig(png, dpi=200, metadata={"Software": None})
    return [pdf, png]
