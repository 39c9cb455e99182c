"""Figure 7: what fusing rows recalls more than choosing one, where sources disagree."""

from __future__ import annotations

from analysis import paper, replays, style
from analysis.artefact import Figure, Missing
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.replays import Replay

ID = "figure07"
TITLE = "Figure 7: fusion gains over confidence gating where sources disagree"
STUDIES = (replays.STUDY,)
CAPTION = (
    "Recall@8 of entropy-confidence fusion minus that of the confidence gate, on replay states in "
    "which at least two of the rows found have different first predictions (Table 16); points, "
    "with 95 % intervals over image clusters. n: such states. The effect of confidence itself is "
    "Table 13's question, not this one's."
)
_STATES = "seeded.disagreement.states"


def build(data: Data) -> Figure:
    """One panel per model."""
    models = data.models_with(("qwen25vl",), STUDIES)
    missing: list[Missing] = data.missing_files(replays.STUDY, models, replays.FILE)
    found: dict[str, dict[str, Replay]] = {}
    for model in models:
        of_model = {bench: replays.find(data, model, bench) for bench in paper.DIAGNOSTIC}
        present = {bench: replay for bench, replay in of_model.items() if replay is not None}
        if present:
            found[model] = present
    notes = source_notes([replay.run for present in found.values() for replay in present.values()])
    if not found:
        return Figure(ID, TITLE, CAPTION, None, notes, missing)
    plot, axes = style.panels(len(found), 4.2, 2.6)
    for axis, (model, present) in zip(axes, found.items(), strict=True):
        _panel(axis, model, present, data)
    style.legend_below(axes[0])
    return Figure(ID, TITLE, CAPTION, plot, notes, missing)


def _panel(axis: style.Axes, model: str, present: dict[str, Replay], data: Data) -> None:
    benches = list(paper.DIAGNOSTIC)
    intervals = [_gain(present.get(bench)) for bench in benches]
    style.points(axis, intervals, list(range(len(benches))), style.BLUE, "o", "Ours")
    if data.scope.comparable and paper_model(model) == "qwen25vl":
        file = "table16_disagreement"
        values = [
            paper.value(file, "difference", dataset=name) for name in paper.DIAGNOSTIC.values()
        ]
        style.published(axis, values, [row + 0.25 for row in range(len(benches))])
    names = [f"{paper.DIAGNOSTIC[b]}\nn = {_states(present.get(b))}" for b in benches]
    style.rows(axis, names)
    axis.axvline(0, color=style.GREY, linestyle="--", linewidth=1)
    axis.set_xlabel("Recall@8 gain over confidence gating (points)")
    axis.set_title(model)


def _gain(replay: Replay | None) -> Interval:
    if replay is None:
        return NOTHING
    group = "seeded.disagreement"
    return replay.difference(f"{group}.recap", f"{group}.confidence_gate", of=_STATES)


def _states(replay: Replay | None) -> str:
    return "-" if replay is None else f"{replay.total(_STATES):,}"
