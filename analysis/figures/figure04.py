"""Figure 4: token-level reuse across task schedules."""

from __future__ import annotations

from analysis import paper, style
from analysis.artefact import Figure, Missing
from analysis.contrasts import noise, null_note, pooled, source_notes
from analysis.data import Data, paper_model
from analysis.load import Run
from analysis.tables import table08

ID = "figure04"
TITLE = "Figure 4: gain of a persistent U over one reset per request"
STUDIES = ("streams",)
CAPTION = (
    "Mean paired throughput change (per cent) over three input orders with 95 % intervals over "
    "image clusters, under blocked and alternating schedules of the same inputs (Table 8); fixed "
    "priors, no suffix. Grey band: the memory reset per request against itself, in the same runs."
)


def build(data: Data) -> Figure:
    """One panel per model."""
    models = data.models_with(("qwen25vl",), STUDIES)
    runs = {m: {s: table08.stream_runs(data, m, s) for s in table08.SCHEDULES} for m in models}
    missing: list[Missing] = data.missing("streams", models)
    of_model = {m: [run for found in runs[m].values() for run in found] for m in models}
    nulls = {model: noise(found, *table08.NULL) for model, found in of_model.items()}
    found = [run for group in of_model.values() for run in group]
    notes = [*null_note(nulls, *table08.NULL), *source_notes(found)]
    if not found:
        return Figure(ID, TITLE, CAPTION, None, notes, missing)
    plot, axes = style.panels(len(models), 4.2, 2.6)
    for axis, model in zip(axes, models, strict=True):
        for place, schedule in enumerate(table08.SCHEDULES):
            _series(axis, data, runs[model][schedule], place, schedule, model)
        style.noise_band(axis, nulls[model], "Reset against reset")
        style.rows(axis, list(paper.DIAGNOSTIC.values()))
        axis.axvline(0, color=style.GREY, linewidth=0.8)
        axis.set_xlabel("Persistent-memory gain (%)")
        axis.set_title(model)
    style.legend_below(axes[0])
    return Figure(ID, TITLE, CAPTION, plot, notes, missing)


def _series(
    axis: style.Axes, data: Data, runs: list[Run], place: int, schedule: str, model: str
) -> None:
    intervals = [
        pooled(table08.gains(data, runs, "persistent", bench)).mean for bench in paper.DIAGNOSTIC
    ]
    heights = [row + (place - 0.5) * 0.3 for row in range(len(intervals))]
    colour, marker = (style.BLUE, "o") if place == 0 else (style.ORANGE, "s")
    style.points(axis, intervals, heights, colour, marker, schedule.capitalize())
    if data.scope.comparable and paper_model(model) == "qwen25vl":
        column = f"{schedule}_gain_percent"
        values = [
            paper.value("table08_request_streams", column, dataset=name)
            for name in paper.DIAGNOSTIC.values()
        ]
        style.published(axis, values, heights, "Paper" if place == 0 else None)
