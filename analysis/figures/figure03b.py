"""Figure 3b: what backoff to longer keys adds online."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import paper, style
from analysis.artefact import Figure, Missing
from analysis.contrasts import noise, null_note, source_notes
from analysis.data import Data, paper_model
from analysis.load import Run
from analysis.tables import backoff

ID = "figure03b"
TITLE = "Figure 3b: online throughput gain of U+C backoff against U"
STUDIES = backoff.STUDIES
CAPTION = (
    "Mean paired throughput change (per cent, Equation 11) with 95 % intervals over image "
    "clusters, memories empty at the start, no suffix. U is reset per request or kept over the "
    "stream, which the paper leaves open. Grey band: U against U in the same runs."
)


def build(data: Data) -> Figure:
    """One panel per model."""
    models = data.models_with(("qwen25vl",), STUDIES)
    runs = {m: {s: backoff.runs_of(data, m, s) for s in backoff.SCOPES} for m in models}
    missing: list[Missing] = data.missing(STUDIES[0], models)
    of_model = {m: [run for found in runs[m].values() for run in found] for m in models}
    nulls = {model: noise(found, *backoff.NULL) for model, found in of_model.items()}
    found = [run for found in of_model.values() for run in found if run is not None]
    notes = [*null_note(nulls, *backoff.NULL), *source_notes(found)]
    if not found:
        return Figure(ID, TITLE, CAPTION, None, notes, missing)
    plot, axes = style.panels(len(models), 4.2, 2.6)
    for axis, model in zip(axes, models, strict=True):
        for place, (scope, label) in enumerate(backoff.SCOPES.items()):
            _series(axis, runs[model][scope], place, label)
        style.noise_band(axis, nulls[model], "U against U")
        _frame(axis, model, data)
    style.legend_below(axes[0])
    return Figure(ID, TITLE, CAPTION, plot, notes, missing)


def _series(axis: style.Axes, runs: Sequence[Run | None], place: int, label: str) -> None:
    intervals = [backoff.gain(run) for run in runs]
    heights = [row + (place - 0.5) * 0.3 for row in range(len(runs))]
    colour, marker = (style.BLUE, "o") if place == 0 else (style.ORANGE, "s")
    style.points(axis, intervals, heights, colour, marker, label)


def _frame(axis: style.Axes, model: str, data: Data) -> None:
    names = list(paper.DIAGNOSTIC.values())
    if data.scope.comparable and paper_model(model) == "qwen25vl":
        published = [backoff.published_gain(name) for name in names]
        style.published(axis, published, list(range(len(names))))
    style.rows(axis, names)
    axis.axvline(0, color=style.GREY, linewidth=0.8)
    axis.set_xlabel("Throughput gain (%)")
    axis.set_title(model)
