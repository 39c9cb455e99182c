"""Figure 1, middle: accepted length, and the better source, against what the picture decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis import paper, style
from analysis.artefact import Figure, Missing
from analysis.contrasts import source_notes
from analysis.counterfactuals import (
    BINS,
    DRAFT_SEED,
    FILE,
    QUINTILES,
    STATE_SEED,
    STUDY,
    Derived,
    changes,
    dependence,
    equal_means,
    find_all,
    group_sizes,
    length_gain,
    pair_note,
    support_share,
)
from analysis.data import Data, paper_model

if TYPE_CHECKING:
    from analysis.bootstrap import Interval

ID = "figure01"
TITLE = "Figure 1: acceptance and the picture"
STUDIES = (STUDY,)
CAPTION = (
    "Exploratory: a description of drafts, found after the fact, and no test of a cause. The "
    "target reads RECAP's outputs again under the mean picture and under a wrong one. Left: drafts "
    "by accepted length; bars, how often the greedy choice at the root changes under either "
    "control; curve, the smaller drop of the root token's log probability. Right: states by fifths "
    "of E_GC - E_U within each benchmark; bars, softmax-normalised support of U's candidates and "
    "of those of C and G; curve, accepted length with C and G minus that with U, in trees of equal "
    "size, matched against the native continuation; dotted, in trees cut in packed order as the "
    "authors' code has it. Equal-benchmark means with 95 % intervals over image clusters."
)
_FILE = "figure01_motivation"


def build(data: Data) -> Figure:
    """Two panels per model."""
    found: dict[str, list[Derived]] = {}
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models_with(("qwen25vl",), STUDIES):
        benches = list(paper.SINGLE_TURN)
        present = list(find_all(data, STUDY, FILE, model, benches).values())
        missing += data.missing_files(STUDY, [model], FILE)
        if present:
            found[model] = present
            notes += _notes(model, present)
    runs = [one.run for present in found.values() for one in present]
    notes += source_notes(runs)
    if not found:
        return Figure(ID, TITLE, CAPTION, None, notes, missing)
    plot, axes = style.panels(2 * len(found), 4.0, 3.0)
    for place, (model, present) in enumerate(found.items()):
        published = data.scope.comparable and paper_model(model) == "qwen25vl"
        _left(axes[2 * place], model, present, published)
        _right(axes[2 * place + 1], model, present, published)
    style.legend_below(axes[0], columns=1)
    return Figure(ID, TITLE, CAPTION, plot, notes, missing)


def by_accepted(found: Sequence[Derived]) -> tuple[list[Interval], list[Interval]]:
    """Per bin of accepted length the change rate in per cent and the dependence."""
    rates, drops = (
        equal_means([rows(one.document) for one in found], len(BINS), DRAFT_SEED)
        for rows in (changes, dependence)
    )
    return rates, drops


def by_alignment(found: Sequence[Derived], trees: str = "equal") -> list[Interval]:
    """Per quintile the accepted length with C and G minus that with U."""
    parts = [length_gain(one.document, trees) for one in found]
    return equal_means(parts, len(QUINTILES), STATE_SEED)


def _shares(found: Sequence[Derived]) -> list[Interval]:
    parts = [support_share(one.document) for one in found]
    return equal_means(parts, len(QUINTILES), STATE_SEED)


# Panels


def _left(axis: style.Axes, model: str, found: Sequence[Derived], published: bool) -> None:
    rates, drops = by_accepted(found)
    places = list(range(len(BINS)))
    means = [rate.mean for rate in rates]
    axis.bar(places, means, color=style.SKY, width=0.7, label="Root choice changes (%)")
    _whiskers(axis, rates, style.GREY)
    curve = _second_axis(axis)
    _curve(curve, drops, style.ORANGE, "Drop of log probability")
    if published:
        ends = [_published(f"accepted {group}: root change rate") for group in ("0", "5+")]
        _diamonds(axis, [0, len(BINS) - 1], ends, "Paper, bars")
        ends = [_published(f"accepted {group}: visual dependence") for group in ("0", "5+")]
        _diamonds(curve, [0, len(BINS) - 1], ends, "Paper, curve", style.ORANGE)
    axis.set_xticks(places, BINS)
    axis.set_xlabel("Accepted candidates")
    axis.set_ylabel("Root choice changes (%)")
    curve.set_ylabel("Drop of log probability")
    axis.set_title(f"{model}: accepted length")


def _right(axis: style.Axes, model: str, found: Sequence[Derived], published: bool) -> None:
    places = list(range(len(QUINTILES)))
    shares = [share.mean for share in _shares(found)]
    rest = [100 - share for share in shares]
    axis.bar(places, shares, color=style.BLUE, alpha=0.5, width=0.7, label="Support of U (%)")
    axis.bar(
        places,
        rest,
        bottom=shares,
        color=style.GREEN,
        alpha=0.5,
        width=0.7,
        label="Support of C and G (%)",
    )
    curve = _second_axis(axis)
    _curve(curve, by_alignment(found), style.PURPLE, "C and G minus U (tokens)")
    sliced = [interval.mean for interval in by_alignment(found, "sliced")]
    curve.plot(places, sliced, ":", color=style.PURPLE, label="The same, cut in packed order")
    curve.axhline(0, color=style.GREY, linewidth=0.8)
    if published:
        names = ["Q1 contextual minus token-only accepted length", *QUINTILES[1:]]
        _diamonds(curve, places, [_published(n, "right") for n in names], "Paper, curve")
    axis.set_xticks(places, QUINTILES)
    axis.set_ylim(0, 100)
    axis.set_xlabel("Fifths of E_GC - E_U")
    axis.set_ylabel("Share of support (%)")
    curve.set_ylabel("Accepted length, C and G minus U")
    axis.set_title(f"{model}: which source")


def _second_axis(axis: style.Axes) -> style.Axes:
    twin = axis.twinx()
    twin.grid(visible=False)
    twin.spines["right"].set_visible(True)
    assert isinstance(twin, style.Axes)
    return twin


def _curve(axis: style.Axes, intervals: Sequence[Interval], colour: str, label: str) -> None:
    means = [interval.mean for interval in intervals]
    axis.plot(range(len(means)), means, "o-", color=colour, markersize=4, label=label)
    _whiskers(axis, intervals, colour)


def _whiskers(axis: style.Axes, intervals: Sequence[Interval], colour: str) -> None:
    """Vertical bars where there is an interval."""
    for place, interval in enumerate(intervals):
        if interval.low == interval.low:
            axis.vlines(place, interval.low, interval.high, color=colour, linewidth=1.2)


def _diamonds(
    axis: style.Axes,
    places: Sequence[int],
    values: Sequence[float | None],
    label: str,
    colour: str = "black",
) -> None:
    """The paper's numbers, hollow."""
    kept = [(x, y) for x, y in zip(places, values, strict=True) if y is not None]
    axis.plot(
        [x for x, _ in kept],
        [y for _, y in kept],
        "D",
        markersize=5,
        markerfacecolor="none",
        markeredgecolor=colour,
        label=label,
    )


def _published(group: str, panel: str = "left") -> float | None:
    return paper.value(_FILE, "value", panel=panel, group=group)


# Notes


def _notes(model: str, found: Sequence[Derived]) -> list[str]:
    rates, drops = by_accepted(found)
    is_paper = paper_model(model) == "qwen25vl"
    ends = ("accepted 0", "accepted 5+")
    left = "; ".join(
        f"{name} {_shown(rates[place], ' %')} change, drop {_shown(drops[place])}"
        + (_paper_left(name) if is_paper else "")
        for name, place in zip(ends, (0, -1), strict=True)
    )
    gains = [", ".join(_shown(i) for i in by_alignment(found, t)) for t in ("equal", "sliced")]
    published = [_published("Q1 contextual minus token-only accepted length", "right")]
    published += [_published(name, "right") for name in QUINTILES[1:]]
    equal = sum(one.document["equal_outputs"] for one in found)
    printed = f" (the paper: {', '.join(f'{v:+.2f}' for v in published if v)})" * is_paper
    return [
        f"{model}, left: {left}. {_counts(found, is_paper)}",
        f"{model}, right, Q1 to Q5: {gains[0]}{printed}; cut in packed order: {gains[1]}. "
        f"{_funnel(found, is_paper)}{_no_interval([*rates, *by_alignment(found)])}",
        f"{model}: {pair_note(found)}; decoding again gave {equal} recorded outputs.",
    ]


def _paper_left(name: str) -> str:
    rate, drop = (
        _published(f"{name}: {what}") for what in ("root change rate", "visual dependence")
    )
    return f" (the paper: {rate} %, {drop})"


def _shown(interval: Interval, unit: str = "") -> str:
    if interval.mean != interval.mean:
        return "nothing"
    text = f"{interval.mean:.2f}{unit}"
    if interval.low == interval.low:
        text += f" [{interval.low:.2f}, {interval.high:.2f}]"
    return text


def _no_interval(intervals: Sequence[Interval]) -> str:
    if all(interval.low == interval.low for interval in intervals):
        return ""
    return (
        " A panel has no intervals where more than one in ten resamples lack a group in some "
        "benchmark."
    )


def _counts(found: Sequence[Derived], is_paper: bool) -> str:
    parts = [changes(one.document) for one in found]
    drafts = sum(one.document["funnel"]["drafts"] for one in found)
    clusters = sum(len(set(part.clusters)) for part in parts)
    sizes = ", ".join(str(size) for size in group_sizes(parts, len(BINS)))
    return (
        f"{sum(len(part.values) for part in parts):,} of {drafts:,} drafts are valid anchors, of "
        f"{clusters} image clusters in {len(found)} benchmarks"
        f"{' (the paper: 15,677 of 695 in 7)' * is_paper}; by accepted length {sizes}."
    )


def _funnel(found: Sequence[Derived], is_paper: bool) -> str:
    names = ("drafts", "both_sources", "budget", "overlap", "eligible")
    words = ("drafts", "with both sources", "of budget 2 to 8", "of small overlap", "eligible")
    counts = [sum(one.document["funnel"][name] for one in found) for name in names]
    steps = ", ".join(f"{count:,} {word}" for count, word in zip(counts, words, strict=True))
    return f"{steps}{' (the paper: 1,125)' * is_paper}."
