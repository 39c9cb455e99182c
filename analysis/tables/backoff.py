"""The online half of Appendix C: backoff to longer keys, and what priors add to fusion."""

from __future__ import annotations

from analysis import paper
from analysis.arms import noise_mark
from analysis.artefact import Cell, Entry, Table
from analysis.bootstrap import NOTHING, Interval
from analysis.contrasts import changes, gain_cell, lifetime, noise, null_note, source_notes
from analysis.data import Data, paper_model
from analysis.estimators import tau_units
from analysis.load import Run

ID = "backoff"
TITLE = "Backoff and priors online, memories empty at the start (Figure 3b, Appendix C)"
STUDIES = ("backoff",)
CAPTION = (
    "Backoff gain: mean paired throughput change (per cent, Equation 11) of U+C backoff against U. "
    "Prior / uniform: mean paired throughput ratio of fusion with fixed priors to uniform fusion, "
    "both of U, C and G. 95 % intervals over image clusters. No suffix, no rows from the prompt. "
    "U is reset per request, which the paper's numbers stand beside, or kept over the stream: the "
    "paper leaves it open. State: how long the four arms' U lives; C and G live for a request."
)
SCOPES = {"request": "U reset per request", "stream": "U kept over the stream"}
ARMS = ("unigram", "backoff", "uniform", "prior")
NULL = ("unigram_again", "unigram")
HEADINGS = (
    *("Model", "Scope", "State", "Dataset", "Backoff gain %", "Prior / uniform"),
    *(f"tau {arm}" for arm in ARMS),
)
_PRIMARY = "request"


def build(data: Data) -> Table:
    """One row per model, scope of U and data set."""
    rows: list[list[Entry]] = []
    used: list[Run | None] = []
    nulls: dict[str, Interval] = {}
    models = data.models_with(("qwen25vl",), STUDIES)
    for model in models:
        for scope, label in SCOPES.items():
            runs = runs_of(data, model, scope)
            used += runs
            for name, run in zip(paper.DIAGNOSTIC.values(), runs, strict=True):
                null = nulls[f"{model}, {label}, {name}"] = noise([run], *NULL)
                known = scope == _PRIMARY and paper_model(model) == "qwen25vl"
                cells = _cells(run, null, name if known else None)
                rows.append([model, label, lifetime([run], *ARMS), name, *cells])
    notes = [*null_note(nulls, *NULL), *source_notes(used)]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, data.missing(STUDIES[0], models))


def runs_of(data: Data, model: str, scope: str) -> list[Run | None]:
    """The runs of one scope of U, one per diagnostic set."""
    return [data.run(STUDIES[0], bench, model, reset=scope) for bench in paper.DIAGNOSTIC]


def gain(run: Run | None) -> Interval:
    """What U+C backoff gains over U, per cent."""
    return changes(run, "backoff", "unigram").mean


def published_gain(dataset: str | None) -> float | None:
    """The paper's number for it."""
    return paper.value("figure03_online_backoff_gain", "gain_percent", dataset=dataset)


def _cells(run: Run | None, null: Interval, dataset: str | None) -> list[Entry]:
    taus = [
        NOTHING if run is None else tau_units(run.of(arm), arm, run.max_new_tokens).mean
        for arm in ARMS
    ]
    return [
        gain_cell(gain(run), null, published_gain(dataset)),
        _prior_cell(run, null, dataset),
        *map(Cell.of, taus),
    ]


def _prior_cell(run: Run | None, null: Interval, dataset: str | None) -> Cell:
    """Fixed priors against uniform fusion, as the ratio that the paper prints."""
    found = changes(run, "prior", "uniform").mean
    quantity = "prior/uniform online throughput ratio"
    known = "qwen25vl" if dataset else None
    published = paper.text_value("App. C", quantity, known, dataset or "")
    ratio = Interval(*(1 + value / 100 for value in (found.mean, found.low, found.high)))
    return Cell.of(ratio, published, digits=4, mark=noise_mark(found, null, 0.0))
