"""How much the prompt decides: RECAP's results by prompt style and token limit."""

from __future__ import annotations

from analysis import contrasts, estimators, paper
from analysis.arms import NULL_ARM, noise_mark
from analysis.artefact import Cell, Entry, Table
from analysis.data import Data
from analysis.load import REFERENCE_ARM, Run
from analysis.studies import Slot

ID = "prompts"
TITLE = "Prompt sensitivity: RECAP by prompt style and token limit"
STUDIES = ("prompts",)
CAPTION = (
    "The paper asks the bare question and stops at 200 new tokens. Longer answers leave more to "
    "decode, so the prompt moves S as much as a method does: no S means anything without it."
)
HEADINGS = (
    *("Model", "Benchmark", "Prompt", "Token limit", "S", "S decode", "tau"),
    *("Output tokens", "Prefill %", "AR prefill %"),
)
ARM = "recap"


def build(data: Data) -> Table:
    """One row per model, benchmark, prompt style and limit."""
    rows: list[list[Entry]] = []
    used: list[Run | None] = []
    for model in data.models:
        for slot in data.slots(STUDIES[0]):
            run = data.at(STUDIES[0], model, slot)
            used.append(run)
            rows.append([model, *_settings(slot), *_cells(run)])
    missing = data.missing(STUDIES[0], data.models)
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, contrasts.source_notes(used), missing)


def _settings(slot: Slot) -> list[Entry]:
    bench = paper.SINGLE_TURN.get(slot.bench, slot.bench)
    return [bench, str(slot.get("bench.prompt_style")), str(slot.get("max_new_tokens"))]


def _cells(run: Run | None) -> list[Entry]:
    if run is None:
        return [Cell() for _ in HEADINGS[4:]]
    records = run.records
    s = estimators.paired_ratios(records, ARM).mean
    null = estimators.paired_ratios(records, NULL_ARM).mean
    own = estimators.ok(records, ARM)
    length = sum(len(r.output_ids) for r in own) / len(own) if own else None
    return [
        Cell.of(s, mark=noise_mark(s, null, 1.0)),
        Cell.of(estimators.paired_decode_ratios(records, ARM).mean),
        Cell.of(estimators.tau_units(records, ARM, run.max_new_tokens).mean),
        Cell(length, digits=1),
        Cell(estimators.prefill_share(records, ARM), digits=1),
        Cell(estimators.prefill_share(records, REFERENCE_ARM), digits=1),
    ]
