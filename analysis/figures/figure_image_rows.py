"""Image-conditioned rows (Appendix C): computed under the own picture against another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis import paper, style
from analysis.artefact import Figure, Missing
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import source_notes
from analysis.counterfactuals import RECALL_FILE as FILE
from analysis.counterfactuals import RECALL_STUDY, Derived, find_all, pair_note, recall_gain
from analysis.data import Data, paper_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure as Plot

ID = "figure_image_rows"
TITLE = "Image-conditioned rows (Appendix C)"
STUDIES = (RECALL_STUDY,)
CAPTION = (
    "Recall@8 at the root with rows of the input's own picture minus that with rows of a swapped "
    "one: same keys, source positions, queries and targets, candidate lists of equal length, "
    "states where both have candidates; points, with 95 % intervals over image clusters. Rows are "
    "fused by fixed priors, as in the paper's analyses (Appendix B), and by entropy confidence. "
    "Memories start anew at each input, U with the prompt's rows, as in the authors' code, or "
    "empty, as in the paper's replay; C alone and G alone are the same either way."
)
_FILE = "image_conditioned_recall"
# What is drawn: label, source, how U starts, colour and marker.
SERIES = (
    ("Fixed priors, U from the prompt", "fixed_prior", "seeded", style.BLUE, "o"),
    ("Fixed priors, U empty", "fixed_prior", "empty", style.SKY, "s"),
    ("Entropy confidence, U from the prompt", "fusion", "seeded", style.PURPLE, "P"),
    ("C alone", "C", "seeded", style.ORANGE, "^"),
    ("G alone", "G", "seeded", style.GREEN, "v"),
)


def build(data: Data) -> Figure:
    """One panel per model."""
    found: dict[str, dict[str, Derived]] = {}
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models_with(("qwen25vl",), STUDIES):
        present = find_all(data, STUDIES[0], FILE, model, list(paper.DIAGNOSTIC))
        missing += data.missing_files(STUDIES[0], [model], FILE)
        if present:
            found[model] = present
            notes += _notes(model, present)
    notes += source_notes([one.run for present in found.values() for one in present.values()])
    plot = _plot(data, found) if found else None
    return Figure(ID, TITLE, CAPTION, plot, tuple(dict.fromkeys(notes)), missing)


def _plot(data: Data, found: Mapping[str, Mapping[str, Derived]]) -> Plot:
    plot, axes = style.panels(len(found), 4.4, 3.6)
    for axis, (model, present) in zip(axes, found.items(), strict=True):
        for place, (label, source, start, colour, marker) in enumerate(SERIES):
            heights = [row + (place - 2) * 0.16 for row in range(len(paper.DIAGNOSTIC))]
            intervals = [_gain(present, bench, source, start) for bench in paper.DIAGNOSTIC]
            style.points(axis, intervals, heights, colour, marker, label)
        if data.scope.comparable and paper_model(model) == "qwen25vl":
            _published(axis)
        style.rows(axis, list(paper.DIAGNOSTIC.values()))
        axis.axvline(0, color=style.GREY, linewidth=0.8)
        axis.set_xlabel("Matching minus swapped, Recall@8 (points)")
        axis.set_title(model)
    style.legend_below(axes[0])
    return plot


def _gain(present: Mapping[str, Derived], bench: str, source: str, start: str) -> Interval:
    return recall_gain(present[bench].document, source, start) if bench in present else NOTHING


def _published(axis: style.Axes) -> None:
    names = list(paper.DIAGNOSTIC.values())
    fused = [paper.value(_FILE, "matching_minus_swapped_points", dataset=n) for n in names]
    style.published(axis, fused, [row - 0.4 for row in range(len(names))], "Paper, fusion")


def _notes(model: str, present: Mapping[str, Derived]) -> list[str]:
    """Numbers of the picture, and how the pairs came about."""
    is_paper = paper_model(model) == "qwen25vl"
    notes = [_numbers(model, bench, one, is_paper) for bench, one in present.items()]
    return [*notes, f"{model}: {pair_note(list(present.values()))}."]


def _numbers(model: str, bench: str, derived: Derived, is_paper: bool) -> str:
    name = paper.DIAGNOSTIC[bench]
    document = derived.document
    parts = []
    for label, source, start, *_ in SERIES:
        gain = recall_gain(document, source, start)
        states = sum(document[start][source]["states"])
        if gain.mean == gain.mean:
            shown = f"{gain.mean:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]"
            parts.append(f"{label} {shown} of {states:,} states")
    published = paper.value(_FILE, "matching_minus_swapped_points", dataset=name)
    printed = f" (the paper, fused: {published:+.2f})" if is_paper and published else ""
    return f"{model}, {name}: {'; '.join(parts)}{printed}."
