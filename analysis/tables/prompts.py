"""How much the prompt decides: RECAP's results by prompt style and token limit."""

from __future__ import annotations

from collections.abc import Sequence

from analysis import contrasts, estimators, paper
from analysis.artefact import Cell, Entry, Table
from analysis.data import Data
from analysis.estimators import Sample
from analysis.load import REFERENCE_ARM, Run
from analysis.studies import Slot
from experiments.records import RunRecord

ID = "prompts"
TITLE = "Prompt sensitivity: RECAP by prompt style and token limit"
STUDIES = ("prompts",)
CAPTION = (
    "The paper asks the bare question and stops at 200 new tokens. Longer answers leave more to "
    "decode, so the prompt moves S as much as a method does: no S means anything without it. S is "
    "shown again by the length of AR's output. State: how long U lives; all else of RECAP lives "
    "for a request."
)
# Units by the length of AR's output: label, shortest, longest.
BINS = (("S, 1-4 tokens", 1, 4), ("S, 5-32", 5, 32), ("S, 33-128", 33, 128), ("S, 129-", 129, None))
HEADINGS = (
    *("Model", "Benchmark", "Prompt", "Token limit", "State", "S", "S decode", "tau"),
    *("Output tokens", "At the limit %", "1-4 tokens %", "Prefill %", "AR prefill %"),
    *(label for label, _, _ in BINS),
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
            state = contrasts.lifetime([run], ARM)
            rows.append([model, *_settings(slot), state, *_cells(run)])
    missing = data.missing(STUDIES[0], data.models)
    notes = [contrasts.SPEED_NOTE, *contrasts.source_notes(used)]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _settings(slot: Slot) -> list[Entry]:
    bench = paper.SINGLE_TURN.get(slot.bench, slot.bench)
    return [bench, str(slot.get("bench.prompt_style")), str(slot.get("max_new_tokens"))]


def _cells(run: Run | None) -> list[Entry]:
    if run is None:
        return [Cell() for _ in HEADINGS[5:]]
    records = run.records
    own = estimators.ok(records, ARM)
    length = sum(len(r.output_ids) for r in own) / len(own) if own else None
    return [
        contrasts.speed_cell(run, ARM),
        Cell.of(estimators.decode_ratios(run.pairs(ARM)).mean),
        Cell.of(estimators.tau_units(records, ARM, run.max_new_tokens).mean),
        Cell(length, digits=1),
        Cell(_share(own, run.max_new_tokens, None), digits=1),
        Cell(_share(own, 1, BINS[0][2]), digits=1),
        Cell(estimators.prefill_share(records, ARM), digits=1),
        Cell(estimators.prefill_share(records, REFERENCE_ARM), digits=1),
        *(Cell.of(_of_length(run, low, high).mean) for _, low, high in BINS),
    ]


def _within(record: RunRecord, low: int, high: int | None) -> bool:
    return low <= len(record.output_ids) and (high is None or len(record.output_ids) <= high)


def _share(records: Sequence[RunRecord], low: int, high: int | None) -> float | None:
    """Per cent of units whose output has ``low`` to ``high`` tokens."""
    if not records:
        return None
    return 100 * sum(_within(r, low, high) for r in records) / len(records)


def _of_length(run: Run, low: int, high: int | None) -> Sample:
    """RECAP's ratios on the units whose AR output has ``low`` to ``high`` tokens."""
    return estimators.ratios(p for p in run.pairs(ARM) if _within(p.reference, low, high))
