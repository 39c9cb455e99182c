"""What entropy confidence costs a fusion (Appendix G.1, in the text)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from analysis import paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.data import Data

ID = "fusion_cost"
TITLE = "Fusion with and without entropy confidence"
STUDIES = ("profile",)
CAPTION = (
    "Microseconds per query, median over repeats of 512 synthetic queries that find two or three "
    "rows. Kernel: the production code within one compiled loop, as the search calls it. Python: "
    "its readable twin from the tests."
)
HEADINGS = ("Fusion", "Kernel us", "Python us")
RULES = {"fixed_prior": "Fixed priors", "entropy_confidence": "Entropy confidence"}
_TEXT = {"fixed_prior": "without", "entropy_confidence": "with"}
_NAME = "fusion_cost"


def build(data: Data) -> Table:
    """One row per rule, and the entropy by itself."""
    found = data.host(_NAME)
    rows: list[list[Entry]] = [
        [label, _cell(found, "kernel", rule), _cell(found, "python", rule, _published(rule))]
        for rule, label in RULES.items()
    ]
    entropy = None if found is None else statistics.median(found["entropy"])
    rows.append(["Entropy of one row, at its writing", Cell(entropy, digits=3), ""])
    notes = [
        "Python computes a row's entropy at every fusion, as the paper's reference did; the kernel "
        "finds it stored with the row.",
        "Paper: its own Python fusion on its own CPU.",
    ]
    if found is not None:
        machine = found["environment"]
        processor, load = machine.get("processor"), machine.get("load_1m")
        notes.append(f"Measured on {processor}, load average {load}.")
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, [] if found else [_missing(data)])


def _cell(
    found: Mapping[str, Any] | None, who: str, rule: str, published: float | None = None
) -> Cell:
    value = None if found is None else statistics.median(found[who][rule])
    return Cell(value, paper=published, digits=3 if who == "kernel" else 1)


def _published(rule: str) -> float | None:
    return paper.text_value("App. G", f"reference Python fusion {_TEXT[rule]} confidence")


def _missing(data: Data) -> Missing:
    device = "cpu" if data.scope.device == "CPU" else "cuda"
    return Missing("the microbenchmark", f"python -m experiments.fusion_cost --device {device}")
