"""Table 4: what each part of the design adds to throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis import paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import Interval
from analysis.contrasts import (
    changes,
    gain_cell,
    lifetime,
    noise,
    null_note,
    num_inputs,
    pooled,
    source_notes,
)
from analysis.data import Data, paper_model
from analysis.estimators import mean_of_means, sample_sd
from analysis.load import Run

ID = "table04"
TITLE = "Table 4: paired throughput effects of individual components"
STUDIES = ("components", "fusion", "suffix")
CAPTION = (
    "Gain: mean over inputs of the paired throughput change in per cent, turns of an input pooled "
    "(Equation 11), with 95 % intervals over image clusters. MMSpec rows: the 120-input subset "
    "(fixed priors, no suffix, 63 candidates). Four-set rows: plain mean over ChartQA, TextVQA, "
    "OCRBench and MMT-Bench. State: how long U lives in either arm; C and G live for a request. "
    "Inputs: distinct ones, however many orders they were run in."
)
HEADINGS = ("Group", "Comparison", "Model", "State", "Gain %", "Inputs")
_FILE = "table04_components"
ORDERS = (None, 17, 29, 43, 59)
# Null arms, each behind the reference arm that it repeats.
NULL = ("prior_again", "prior")
FUSION_NULL = ("fixed_prior_again", "fixed_prior")
SUFFIX_NULL = ("fusion_again", "fusion")
PERSISTENCE = ("prior_persistent", "prior")
SCOPES = {"request": "U reset per request", "stream": "one stream"}


@dataclass(frozen=True)
class Contrast:
    """A row of the MMSpec subset. ``published``: the paper's name of it; empty without one."""

    group: str
    name: str
    arm: str
    reference: str
    published: str = ""


CONTRASTS = (
    Contrast(
        "Candidate search",
        "Best-first vs. fixed expansion",
        "unigram",
        "fixed_expansion",
        "Best-first vs. fixed expansion",
    ),
    Contrast(
        "Candidate search", "Best-first vs. Token Recycling's static tree", "unigram", "static_tree"
    ),
    Contrast(
        "Memory design",
        "Context backoff vs. unigram",
        "backoff",
        "unigram",
        "Context backoff vs. unigram",
    ),
    Contrast(
        "Memory design",
        "Uniform fusion vs. backoff",
        "uniform",
        "backoff",
        "Uniform fusion vs. backoff",
    ),
    Contrast(
        "Memory design",
        "Specificity priors vs. uniform fusion",
        "prior",
        "uniform",
        "Specificity priors vs. uniform fusion",
    ),
)


def build(data: Data) -> Table:
    """The paper's rows, with the second reference and the repeat beside them."""
    rows: list[list[Entry]] = []
    notes: list[str] = [
        "Fixed expansion never reaches beyond depth 2 (8 + 55 candidates). Token Recycling's "
        "static tree, its first 63 candidates (prompt-seeded, reset per request), is the second "
        "reference.",
    ]
    missing: list[Missing] = []
    for model in data.models_with(("qwen25vl",), ("components",)):
        subset, subset_notes = _subset_rows(data, model)
        rows += subset
        notes += subset_notes
        missing += data.missing("components", [model])
    for model in data.models:
        row, row_notes = _confidence_row(data, model)
        rows.append(row)
        notes += row_notes
        missing += data.missing("fusion", [model])
    for model in data.models_with(("qwen25vl",), ("suffix",)):
        suffix, suffix_notes = _suffix_rows(data, model)
        rows += suffix
        notes += suffix_notes
        missing += data.missing("suffix", [model])
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


# MMSpec's subset


def _subset_rows(data: Data, model: str) -> tuple[list[list[Entry]], list[str]]:
    orders = [_run(data, model, seed) for seed in ORDERS]
    repeat = _run(data, model, None, repeat=1)
    runs = {"file order": orders[:1], "all orders": orders, "the repeat": [repeat]}
    nulls = {where: noise(found, *NULL) for where, found in runs.items()}
    rows = [_row(model, contrast, orders[0], nulls["file order"]) for contrast in CONTRASTS]
    rows.insert(3, _repeat_row(model, repeat, nulls["the repeat"]))
    rows.append(_persistence_row(model, orders, nulls["all orders"]))
    notes = [
        *null_note({f"{model}, {where}": null for where, null in nulls.items()}, *NULL),
        *_spreads(model, orders, repeat),
        *source_notes([*orders, repeat]),
    ]
    return rows, notes


def _run(data: Data, model: str, seed: int | None, repeat: int = 0) -> Run | None:
    return data.run("components", "mmspec", model, bench__input_seed=seed, repeat=repeat)


def _row(model: str, contrast: Contrast, run: Run | None, null: Interval) -> list[Entry]:
    gain = changes(run, contrast.arm, contrast.reference).mean
    cell = gain_cell(gain, null, _published(model, contrast.published))
    arms = (contrast.arm, contrast.reference)
    return [contrast.group, contrast.name, model, *_measured([run], arms, cell)]


def _measured(runs: Sequence[Run | None], arms: tuple[str, str], cell: Cell) -> list[Entry]:
    """State, gain and inputs of a comparison of two arms."""
    return [lifetime(runs, *arms), cell, str(num_inputs(runs, *arms) or "-")]


def _published(model: str, comparison: str, column: str = "gain_percent") -> float | None:
    """The paper's gain; its MMSpec subset was run with Qwen only."""
    return paper.value(_FILE, column, comparison=comparison) if _is_qwen(model) else None


def _is_qwen(model: str) -> bool:
    return paper_model(model) == "qwen25vl"


def _repeat_row(model: str, repeat: Run | None, null: Interval) -> list[Entry]:
    """The paper's independent repeat of the comparison above it."""
    arms = ("backoff", "unigram")
    published = paper.text_value("5.1", "backoff over unigram", paper_model(model), "MMSpec subset")
    cell = gain_cell(changes(repeat, *arms).mean, null, published)
    name = "Context backoff vs. unigram, independent repeat"
    return ["Memory design", name, model, *_measured([repeat], arms, cell)]


def _persistence_row(model: str, orders: Sequence[Run | None], null: Interval) -> list[Entry]:
    """Mean over the input orders."""
    name = "Persistent vs. reset U"
    gain = pooled(changes(run, *PERSISTENCE) for run in orders).mean
    cell = gain_cell(gain, null, _published(model, name))
    return ["Memory design", name, model, *_measured(orders, PERSISTENCE, cell)]


def persistence_means(data: Data, model: str) -> list[float]:
    """The mean gain of a persistent U in each input order that is measured."""
    samples = [changes(_run(data, model, seed), *PERSISTENCE) for seed in ORDERS]
    return [float(sample.values.mean()) for sample in samples if len(sample)]


def _spreads(model: str, orders: Sequence[Run | None], repeat: Run | None) -> list[str]:
    """Both spreads of the persistence row: between orders, and of the clock alone."""
    samples = [changes(run, *PERSISTENCE) for run in orders]
    means = [float(sample.values.mean()) for sample in samples if len(sample)]
    if not means:
        return []
    sd = sample_sd(means)
    text = (
        f"{model}: persistence over {len(means)} of {len(ORDERS)} input orders (file order, seeds "
        f"17, 29, 43, 59), {len(pooled(samples))} paired values: {min(means):.2f} to "
        f"{max(means):.2f} %{f', sample SD {sd:.2f}' if sd is not None else ''}"
        " (the paper's five runs: 4.36 to 7.18 %)"
    )
    again, first = changes(repeat, *PERSISTENCE), samples[0]
    if len(again) and len(first):
        text += (
            f"; file order a second time: {again.values.mean():.2f} % after "
            f"{first.values.mean():.2f} %, the clock alone"
        )
    return [text + "."]


# Four data sets

Sets = Sequence[Sequence[Run | None]]  # per data set its runs, one per input order


def _confidence_row(data: Data, model: str) -> tuple[list[Entry], list[str]]:
    """Entropy confidence: both input orders of the fusion study, pooled per data set."""
    sets = [
        [data.run("fusion", bench, model, bench__input_seed=seed) for seed in (17, 29)]
        for bench in paper.DIAGNOSTIC
    ]
    name = "Entropy confidence vs. fixed priors"
    columns = {"qwen25vl": "gain_percent", "llava16": "gain_percent_second_model"}
    column = columns.get(paper_model(model) or "")
    published = paper.value(_FILE, column, comparison=name) if column else None
    arms = ("entropy_confidence", "fixed_prior")
    null = _mean(sets, FUSION_NULL)
    cells = _measured(_flat(sets), arms, gain_cell(_mean(sets, arms), null, published))
    notes = [*null_note({model: null}, *FUSION_NULL), *source_notes(_flat(sets))]
    values = len(pooled(changes(run, *arms) for run in _flat(sets)))
    if values:
        notes.insert(0, f"{model}: entropy confidence, {values} paired values in both orders.")
    return ["Memory design", f"{name} (four sets)", model, *cells], notes


def _suffix_rows(data: Data, model: str) -> tuple[list[list[Entry]], list[str]]:
    """Suffix insertion under both scopes of U; the paper leaves it open."""
    rows: list[list[Entry]] = []
    nulls: dict[str, Interval] = {}
    used: list[Run | None] = []
    arms = ("fusion_suffix", "fusion")
    for scope, label in SCOPES.items():
        sets = [[data.run("suffix", bench, model, reset=scope)] for bench in paper.DIAGNOSTIC]
        published = _published(model, "Suffix insertion vs. none") if scope == "request" else None
        null = nulls[f"{model}, {label}"] = _mean(sets, SUFFIX_NULL)
        cells = _measured(_flat(sets), arms, gain_cell(_mean(sets, arms), null, published))
        name = f"Suffix insertion vs. none, {label} (four sets)"
        rows.append(["Sequence reuse", name, model, *cells])
        used += _flat(sets)
    return rows, [*null_note(nulls, *SUFFIX_NULL), *source_notes(used)]


def _mean(sets: Sets, arms: tuple[str, str]) -> Interval:
    """Plain mean over the data sets of one arm's changes against another."""
    return mean_of_means([pooled(changes(run, *arms) for run in runs) for runs in sets])


def _flat(sets: Sets) -> list[Run | None]:
    return [run for runs in sets for run in runs]
