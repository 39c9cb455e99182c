"""Table 11: U filled with synthetic rows, up to the whole vocabulary."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from analysis import paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.data import Data

ID = "table11"
TITLE = "Table 11: occupancy of U, its memory, and what a hit costs"
STUDIES = ("occupancy",)
CAPTION = (
    "Synthetic rows of eight predictions, each filling in a fresh process, on the host of this "
    "device; no model takes part. Host: rows times bytes per row. Set aside: the dense table for "
    "the whole vocabulary. RSS: growth of the resident set while the table was filled. A hit adds "
    "up ids and scores of one row: median over seven repeats of 100,000, within one compiled loop, "
    "as the search reads them, and with one Python call each. Tree: median of seven repeats of 128 "
    "queries, packing left out."
)
HEADINGS = (
    *("Vocabulary of", "Rows", "Host MiB", "Host MiB set aside", "RSS MiB", "Hit ns"),
    *("Hit ns, Python call", "Tree of 63, ms"),
)
VOCABULARIES = {"qwen25vl": 152_064, "llava16": 32_064}
FILLINGS = (1_000, 10_000)
_NAME = "occupancy"
_MIB = 1 << 20


def build(data: Data) -> Table:
    """One row per vocabulary and filling."""
    document = data.host(_NAME)
    vocabularies = document["vocabularies"] if document else {}
    rows: list[list[Entry]] = []
    absent = []
    for model, size in VOCABULARIES.items():
        measured = {found["rows"]: found for found in vocabularies.get(str(size), [])}
        wanted = (*FILLINGS, size)
        rows += [_row(model, size, filled, measured.get(filled)) for filled in wanted]
        absent += [] if all(filled in measured for filled in wanted) else [model]
    missing = [Missing(f"occupancy for {' and '.join(absent)}", _command(data))] if absent else []
    notes = (*_notes(), *(_machine(document["environment"]) if document else ()))
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, missing)


def _row(model: str, size: int, filled: int, found: Mapping[str, Any] | None) -> list[Entry]:
    host, hit = (
        paper.value("table11_occupancy", column, model=model, rows=str(filled))
        for column in ("host_mib", "lookup_ns")
    )
    full = model if filled == size else None
    rss = paper.text_value("App. G.2", "RSS growth at full vocabulary", full)
    return [
        *(model, f"{filled:,}"),
        Cell(_mib(found, "occupied_bytes"), paper=host),
        Cell(_mib(found, "allocated_bytes")),
        Cell(_mib(found, "rss_growth_bytes"), paper=rss),
        Cell(_median(found, "lookup_ns"), paper=hit, digits=0),
        Cell(_median(found, "call_ns"), digits=0),
        Cell(_median(found, "tree_us", 1e-3), digits=3),
    ]


def _mib(found: Mapping[str, Any] | None, key: str) -> float | None:
    return None if found is None or found[key] is None else found[key] / _MIB


def _median(found: Mapping[str, Any] | None, key: str, scale: float = 1.0) -> float | None:
    return None if found is None else scale * float(statistics.median(found[key]))


def _command(data: Data) -> str:
    device = "cpu" if data.scope.device == "CPU" else "cuda"
    return f"python -m experiments.occupancy --device {device}"


def _notes() -> list[str]:
    low, high = (
        paper.text_value("App. G.2", f"63-node tree construction, {end}")
        for end in ("minimum", "maximum")
    )
    return [
        "The paper counted Python objects; these are arrays. Rows lie under tokens spread over the "
        "vocabulary, and pages are resident as a whole: few rows already touch most of the table.",
        f"Paper: a tree takes {low} to {high} ms in all fillings.",
    ]


def _machine(environment: Mapping[str, Any]) -> list[str]:
    processor, load = environment.get("processor"), environment.get("load_1m")
    return [f"Measured on {processor}, load average {load}."]
