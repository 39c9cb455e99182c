"""The published numbers, as printed: CSV files in `analysis/paper_values/`.

They are looked up, never computed with: averages of rounded rows are not the paper's averages.
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path

FOLDER = Path(__file__).parent / "paper_values"

MODELS = {"qwen25vl": "Qwen2.5-VL-7B", "llava16": "LLaVA-1.6-7B"}
QWEN, LLAVA = MODELS
# Names of benchmarks in this repository and in the paper's tables.
SINGLE_TURN = {
    "mmt_bench": "MMT-Bench",
    "seed_bench": "SEED-Bench",
    "scienceqa": "ScienceQA",
    "ocrbench": "OCRBench",
    "chartqa": "ChartQA",
    "mathvista": "MathVista",
    "textvqa": "TextVQA",
}
DIAGNOSTIC = {
    "chartqa": "ChartQA",
    "textvqa": "TextVQA",
    "ocrbench": "OCRBench",
    "mmt_bench": "MMT-Bench",
}
TOPICS = {
    "general vqa": "General VQA",
    "text vqa": "Text VQA",
    "image captioning": "Captioning",
    "chart understanding": "Charts",
    "complex reasoning pro": "Reasoning",
    "multi-turn conversation": "Multi-turn",
}


@functools.cache
def rows(file: str) -> tuple[dict[str, str], ...]:
    """Rows of one file, named without its ending."""
    with (FOLDER / f"{file}.csv").open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))


def value(file: str, column: str, **keys: str | None) -> float | None:
    """The number in ``column`` of the row whose columns equal ``keys``; None where there is none.

    A key that is None finds nothing: models without a counterpart in the paper have no numbers.
    """
    if None in keys.values():
        return None
    for row in rows(file):
        if all(row[key] == wanted for key, wanted in keys.items()):
            return float(row[column]) if row[column] else None
    return None


def text_value(
    place: str, quantity: str, model: str | None = "", dataset: str = ""
) -> float | None:
    """A number that stands in the paper's text only; ``quantity`` may be its beginning."""
    for row in rows("text_numbers"):
        found = (row["place"], row["model"], row["dataset"])
        if found == (place, model, dataset) and row["quantity"].startswith(quantity):
            return float(row["value"])
    return None
