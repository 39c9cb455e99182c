"""Figure 3(a): finer keys are right more often and there less often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis import paper, replays, style
from analysis.artefact import Figure, Missing
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.replays import Replay
from analysis.tables.table05 import SOURCES, coverage, recall

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

ID = "figure03a"
TITLE = "Figure 3(a): the coverage-recall trade-off"
STUDIES = (replays.STUDY,)
CAPTION = (
    "Query coverage and conditional Recall@8 of U (circle), C (square) and G (diamond), memories "
    "empty at the start of every input; values and intervals are in Table 5."
)
_FILE = "table05_coverage_recall"
_MARKERS = dict(zip(SOURCES, "osD", strict=True))


def build(data: Data) -> Figure:
    """One panel per model that has a replay."""
    found: dict[str, dict[str, Replay]] = {}
    missing: list[Missing] = []
    for model in data.models_with(("qwen25vl",), STUDIES):
        replayed = {bench: replays.find(data, model, bench) for bench in paper.DIAGNOSTIC}
        present = {bench: replay for bench, replay in replayed.items() if replay is not None}
        if present:
            found[model] = present
        missing += data.missing_files(replays.STUDY, [model], replays.FILE)
    runs = [replay.run for present in found.values() for replay in present.values()]
    plot = _plot(data, found) if found else None
    return Figure(ID, TITLE, CAPTION, plot, tuple(dict.fromkeys(source_notes(runs))), missing)


def _plot(data: Data, found: dict[str, dict[str, Replay]]) -> Plot:
    plot, axes = style.panels(len(found))
    for panel, (model, present) in zip(axes, found.items(), strict=True):
        if data.scope.comparable and paper_model(model) == "qwen25vl":
            _draw_paper(panel)
        for bench, replay in present.items():
            _draw(panel, bench, replay)
        panel.set_title(model)
        panel.set_xlabel("Query coverage (%)")
        panel.set_ylabel("Conditional Recall@8 (%)")
    for source, marker in _MARKERS.items():  # the markers' legend, drawn nowhere
        axes[0].plot([], [], marker, color=style.GREY, markersize=5, label=source)
    handles, labels = axes[0].get_legend_handles_labels()
    plot.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return plot


def _draw(panel: style.Axes, bench: str, replay: Replay) -> None:
    points = [(coverage(replay, s).mean, recall(replay, s).mean) for s in SOURCES]
    colour = style.COLOURS[bench]
    panel.plot(*zip(*points, strict=True), color=colour, label=paper.DIAGNOSTIC[bench])
    for (x, y), marker in zip(points, _MARKERS.values(), strict=True):
        panel.plot(x, y, marker, color=colour, markersize=5)


def _draw_paper(panel: style.Axes) -> None:
    """The published points, pale behind ours."""
    for row in paper.rows(_FILE):
        x = [float(row[f"coverage_{source.lower()}"]) for source in SOURCES]
        y = [float(row[f"recall8_{source.lower()}"]) for source in SOURCES]
        label = "paper" if row is paper.rows(_FILE)[0] else None
        panel.plot(x, y, ":", color=style.PAPER, label=label)
        for point, marker in zip(zip(x, y, strict=True), _MARKERS.values(), strict=True):
            panel.plot(*point, marker, color=style.PAPER, fillstyle="none", markersize=4)
