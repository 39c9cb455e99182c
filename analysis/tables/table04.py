"""Table 4: what each part of the design adds to throughput."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis import paper
from analysis.artefact import Entry, Missing, Table
from analysis.bootstrap import Interval
from analysis.contrasts import (
    changes,
    gain_cell,
    noise,
    null_note,
    over_diagnostics,
    pooled,
    source_notes,
)
from analysis.data import Data, paper_model
from analysis.estimators import Sample, mean_of_means, sample_sd
from analysis.load import Run

ID = "table04"
TITLE = "Table 4: paired throughput effects of individual components"
STUDIES = ("components", "fusion", "suffix")
CAPTION = (
    "Gain: mean over inputs of the paired throughput change in per cent, turns of an input pooled "
    "(Equation 11), with 95 % intervals over image clusters. MMSpec rows: the 120-input subset "
    "(fixed priors, no suffix, 63 candidates). Four-set rows: plain mean over ChartQA, TextVQA, "
    "OCRBench and MMT-Bench."
)
HEADINGS = ("Group", "Comparison", "Model", "Gain %", "Inputs")
_FILE = "table04_components"
ORDERS = (None, 17, 29, 43, 59)


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
        "static tree (80 candidates, prompt-seeded, reset per request) is the second reference.",
    ]
    missing: list[Missing] = []
    for model in data.models_with(("qwen25vl",), ("components",)):
        subset, subset_notes = _subset_rows(data, model)
        rows += subset
        notes += subset_notes
        missing += data.missing("components", [model])
    for model in data.models:
        row, runs = _confidence_row(data, model)
        rows.append(row)
        notes += source_notes(runs)
        missing += data.missing("fusion", [model])
    for model in data.models_with(("qwen25vl",), ("suffix",)):
        for row, runs in (_suffix_row(data, model, scope) for scope in ("request", "stream")):
            rows.append(row)
            notes += source_notes(runs)
        missing += data.missing("suffix", [model])
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _subset_rows(data: Data, model: str) -> tuple[list[list[Entry]], list[str]]:
    orders = [_run(data, model, seed) for seed in ORDERS]
    repeat = _run(data, model, None, repeat=1)
    first = orders[0]
    null = noise([first])
    rows = [_row(model, contrast, first, null) for contrast in CONTRASTS]
    backoff = changes(repeat, "backoff", "unigram")
    published = paper.text_value("5.1", "backoff over unigram", paper_model(model), "MMSpec subset")
    rows.insert(
        3,
        [
            "Memory design",
            "Context backoff vs. unigram, independent repeat",
            model,
            gain_cell(backoff.mean, noise([repeat]), published),
            _size(backoff),
        ],
    )
    persistence, spread = _persistence(model, orders, repeat)
    notes = [*null_note(null), *spread, *source_notes([*orders, repeat])]
    return [*rows, persistence], notes


def _run(data: Data, model: str, seed: int | None, repeat: int = 0) -> Run | None:
    return data.run("components", "mmspec", model, bench__input_seed=seed, repeat=repeat)


def _row(model: str, contrast: Contrast, run: Run | None, null: Interval) -> list[Entry]:
    sample = changes(run, contrast.arm, contrast.reference)
    cell = gain_cell(sample.mean, null, _published(model, contrast.published))
    return [contrast.group, contrast.name, model, cell, _size(sample)]


def _published(model: str, comparison: str, column: str = "gain_percent") -> float | None:
    """The paper's gain; its MMSpec subset was run with Qwen only."""
    return paper.value(_FILE, column, comparison=comparison) if _is_qwen(model) else None


def _is_qwen(model: str) -> bool:
    return paper_model(model) == "qwen25vl"


def _size(sample: Sample) -> str:
    return str(len(sample)) if len(sample) else "-"


def _persistence(
    model: str, orders: Sequence[Run | None], repeat: Run | None
) -> tuple[list[Entry], list[str]]:
    """Mean over five input orders, and both spreads: between orders, and of the clock alone."""
    samples = [changes(run, "prior_persistent", "prior") for run in orders]
    found = [sample for sample in samples if len(sample)]
    interval = pooled(found).mean
    cell = gain_cell(interval, noise(orders), _published(model, "Persistent vs. reset U"))
    label = f"Persistent vs. reset U, {len(found)} of {len(ORDERS)} orders"
    row: list[Entry] = ["Memory design", label, model, cell, _size(pooled(found))]
    return row, _spreads(found, changes(repeat, "prior_persistent", "prior"))


def persistence_means(data: Data, model: str) -> list[float]:
    """The mean gain of a persistent U in each input order that is measured."""
    samples = [changes(_run(data, model, seed), "prior_persistent", "prior") for seed in ORDERS]
    return [float(sample.values.mean()) for sample in samples if len(sample)]


def _spreads(found: Sequence[Sample], repeat: Sample) -> list[str]:
    means = [float(sample.values.mean()) for sample in found]
    if not means:
        return []
    sd = sample_sd(means)
    text = (
        f"Persistence over {len(means)} input orders (file order, seeds 17, 29, 43, 59): "
        f"{min(means):.2f} to {max(means):.2f} %{f', sample SD {sd:.2f}' if sd is not None else ''}"
        " (the paper's five runs: 4.36 to 7.18 %)"
    )
    if len(repeat):
        again = float(repeat.values.mean())
        text += f"; file order a second time: {again:.2f} % after {means[0]:.2f} %, the clock alone"
    return [text + "."]


def _confidence_row(data: Data, model: str) -> tuple[list[Entry], list[Run]]:
    """Entropy confidence: both input orders of the fusion study, pooled per data set."""
    samples, nulls, runs = [], [], []
    for bench in paper.DIAGNOSTIC:
        found = [data.run("fusion", bench, model, bench__input_seed=seed) for seed in (17, 29)]
        samples.append(pooled(changes(run, "entropy_confidence", "fixed_prior") for run in found))
        nulls.append(pooled(changes(run, "fixed_prior_again", "fixed_prior") for run in found))
        runs += [run for run in found if run is not None]
    comparison = "Entropy confidence vs. fixed priors"
    columns = {"qwen25vl": "gain_percent", "llava16": "gain_percent_second_model"}
    column = columns.get(paper_model(model) or "")
    published = paper.value(_FILE, column, comparison=comparison) if column else None
    cell = gain_cell(mean_of_means(samples), mean_of_means(nulls), published)
    return ["Memory design", f"{comparison} (four sets)", model, cell, _size(pooled(samples))], runs


def _suffix_row(data: Data, model: str, scope: str) -> tuple[list[Entry], list[Run]]:
    """Suffix insertion under one scope of U; the paper leaves it open."""
    samples, nulls, runs = over_diagnostics(
        data, "suffix", model, "fusion_suffix", "fusion", reset=scope
    )
    primary = scope == "request"
    published = _published(model, "Suffix insertion vs. none") if primary else None
    where = "U reset per request" if primary else "one stream"
    cell = gain_cell(mean_of_means(samples), mean_of_means(nulls), published)
    name = f"Suffix insertion vs. none, {where} (four sets)"
    return ["Sequence reuse", name, model, cell, _size(pooled(samples))], runs
