"""Figure 3b: what backoff to longer keys adds online."""

from __future__ import annotations

from analysis import paper, style
from analysis.artefact import Figure, Missing
from analysis.contrasts import changes, null_note, source_notes
from analysis.contrasts import noise as null_of
from analysis.data import Data, paper_model
from analysis.load import Run

ID = "figure03b"
TITLE = "Figure 3b: online throughput gain of U+C backoff against U"
STUDIES = ("backoff",)
CAPTION = (
    "Mean paired throughput change (per cent, Equation 11) with 95 % intervals over image "
    "clusters, memories empty at the start, no suffix. U is reset per request or kept over the "
    "stream, which the paper leaves open. Grey band: AR against AR in the same runs."
)
SCOPES = {"request": "U reset per request", "stream": "U kept over the stream"}


def build(data: Data) -> Figure:
    """One panel per model."""
    models = data.models_with(("qwen25vl",), STUDIES)
    runs = {
        (model, scope): [data.run("backoff", b, model, reset=scope) for b in paper.DIAGNOSTIC]
        for model in models
        for scope in SCOPES
    }
    missing: list[Missing] = data.missing("backoff", models)
    found = [run for group in runs.values() for run in group if run is not None]
    notes = [*null_note(null_of(found)), *source_notes(found)]
    if not found:
        return Figure(ID, TITLE, CAPTION, None, notes, missing)
    plot, axes = style.panels(len(models), 4.2, 2.6)
    for axis, model in zip(axes, models, strict=True):
        for place, (scope, label) in enumerate(SCOPES.items()):
            _series(axis, runs[model, scope], place, label)
        _frame(axis, model, data, [run for scope in SCOPES for run in runs[model, scope]])
    style.legend_below(axes[0])
    return Figure(ID, TITLE, CAPTION, plot, notes, missing)


def _series(axis: style.Axes, runs: list[Run | None], place: int, label: str) -> None:
    intervals = [changes(run, "backoff", "unigram").mean for run in runs]
    heights = [row + (place - 0.5) * 0.3 for row in range(len(runs))]
    colour, marker = (style.BLUE, "o") if place == 0 else (style.ORANGE, "s")
    style.points(axis, intervals, heights, colour, marker, label)


def _frame(axis: style.Axes, model: str, data: Data, runs: list[Run | None]) -> None:
    names = list(paper.DIAGNOSTIC.values())
    style.noise_band(axis, null_of(runs))
    if data.scope.comparable and paper_model(model) == "qwen25vl":
        file = "figure03_online_backoff_gain"
        published = [paper.value(file, "gain_percent", dataset=name) for name in names]
        style.published(axis, published, list(range(len(names))))
    style.rows(axis, names)
    axis.axvline(0, color=style.GREY, linewidth=0.8)
    axis.set_xlabel("Throughput gain (%)")
    axis.set_title(model)
