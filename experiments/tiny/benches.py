"""The tiny benchmarks: held-out pictures in the exact storage of the eight real ones.

Seven are parquet files, with the columns that `conf/bench` gives for the real one's first source,
and a dataset card; `mmspec/` has MMSpec's folder layout (a JSON-lines file beside an image folder).
So the loaders of the real data sets run on them unchanged. Questions are worded as in training,
pictures come from seeds that neither training nor evaluation uses.

Example: `python -m experiments.tiny.benches --rows 48 --out data_manifests/tiny`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from datasets import DatasetInfo

from experiments.schema import features
from experiments.tiny import rows as text_rows
from experiments.tiny import rows_choice, rows_mathvista
from experiments.tiny.rows import Row, encode
from experiments.tiny.samples import BENCH_SEEDS, Sample, make_sample

CONF = Path(__file__).resolve().parents[2] / "conf" / "bench"
# MMSpec's topics in file order, the task that stands for each, and the category its rows carry.
TOPICS: tuple[tuple[str, str, str], ...] = (
    ("general vqa", "shapes", "default"),
    ("text vqa", "text", "text reading"),
    ("image captioning", "caption", "image captioning"),
    ("chart understanding", "chart", "chart reasoning"),
    ("complex reasoning pro", "reasoning", "Math"),
    ("multi-turn conversation", "multi_turn", ""),
)
_MULTI_TURN_CATEGORY = {"chart": "charts", "grid": "diagrams", "sign": "misc"}
# Repeated over the multi-turn rows: some have one turn, as in MMSpec.
_TURN_COUNTS = (2, 3, 1)


@dataclass(frozen=True)
class Table:
    """A benchmark that is a table.

    make: its first so many rows; title and pictures: for the card, with a remark that completes the
    card's second paragraph; row_group: rows per group of the parquet file (None: one group).
    """

    make: Callable[[int], list[Row]]
    title: str
    pictures: str
    remark: str
    row_group: int | None = 16


TABLES: dict[str, Table] = {
    "chartqa": Table(
        text_rows.chartqa,
        "ChartQA",
        "bar charts",
        "`answer` lists the words of the reference answer that need the picture.",
        row_group=None,
    ),
    "ocrbench": Table(
        text_rows.ocrbench,
        "OCRBench",
        "signs",
        "`dataset` is HME100k where `question_type` is mathematical.",
    ),
    "textvqa": Table(
        text_rows.textvqa,
        "TextVQA",
        "signs",
        "A third of the rows shares its picture, and `image_id`, with others.",
    ),
    "scienceqa": Table(
        rows_choice.scienceqa,
        "ScienceQA",
        "charts, shapes and signs",
        "Half of the rows have a hint.",
    ),
    "seed_bench": Table(
        rows_choice.seed_bench,
        "SEED-Bench",
        "grids of shapes",
        "Rows whose `data_type` is video are to be filtered out.",
    ),
    "mmt_bench": Table(
        rows_choice.mmt_bench,
        "MMT-Bench",
        "charts, shapes and signs",
        "Two to nine of the option columns are filled.",
    ),
    "mathvista": Table(
        rows_mathvista.mathvista,
        "MathVista",
        "charts, shapes and signs",
        "Some pictures have a palette, some a transparent background.",
    ),
}


def settings(bench: str) -> dict[str, Any]:
    """What `conf/bench` says about a real benchmark itself (not what it inherits)."""
    text = (CONF / f"{bench}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def file_name(source: dict[str, Any]) -> str:
    """The one file that stands for all those a source's pattern matches."""
    pattern: str = source["files"]
    return pattern.replace("-*.", "-00000-of-00001.")


def arrow_table(rows: list[Row], columns: dict[str, Any]) -> pa.Table:
    """The rows under the column types of `conf/bench`, as the `datasets` library stores them.

    Raises `ValueError` when a row has other columns.
    """
    for row in rows:
        if set(row) != set(columns):
            raise ValueError(f"expected the columns {sorted(columns)}, got {sorted(row)}")
    return pa.Table.from_pylist(rows, schema=features(columns).arrow_schema)


def card(bench: str, made: pa.Table, num_bytes: int) -> str:
    """Dataset card (README.md) in the form the `datasets` library reads.

    num_bytes: size of the parquet file.
    """
    table, conf = TABLES[bench], settings(bench)
    source, split = conf["sources"][0], conf.get("split", "test")
    kept = [{"name": split, "num_bytes": num_bytes, "num_examples": made.num_rows}]
    info = DatasetInfo(features=features(source["columns"]))._to_yaml_dict()
    path = source["files"].removesuffix(".parquet")
    header = {
        "dataset_info": {
            **({"config_name": source["config"]} if "config" in source else {}),
            "features": info["features"],
            "splits": kept,
        },
        "configs": [
            {
                "config_name": source.get("config", "default"),
                "data_files": [{"split": split, "path": path}],
            }
        ],
    }
    return f"""---
{yaml.safe_dump(header, sort_keys=False)}---

# Tiny {table.title}

{made.num_rows} generated {table.pictures} with questions, in the columns of `{source["ids"][-1]}` \
(split `{split}`).
Made by `python -m experiments.tiny.benches`; a stand-in for testing and demonstration, not the real
data. {table.remark}
"""


def write_table(bench: str, rows: int, folder: Path) -> None:
    """Write one of `TABLES` under `folder`: the parquet file and the dataset card."""
    source = settings(bench)["sources"][0]
    path = folder / file_name(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = arrow_table(TABLES[bench].make(rows), source["columns"])
    pq.write_table(made, path, row_group_size=TABLES[bench].row_group)
    text = card(bench, made, path.stat().st_size)
    (folder / "README.md").write_text(text, encoding="utf-8")


def mmspec_samples(rows: int) -> list[tuple[str, str, Sample]]:
    """`(topic, category, sample)` for `rows` inputs, equally many per topic, in MMSpec's order.

    Raises `ValueError` unless `rows` is a multiple of six.
    """
    if rows % len(TOPICS):
        raise ValueError(f"rows must be a multiple of {len(TOPICS)} (one per topic), got {rows}")
    result = []
    for block, (topic, task, category) in enumerate(TOPICS):
        for i in range(rows // len(TOPICS)):
            turns = _TURN_COUNTS[i % len(_TURN_COUNTS)]
            sample = make_sample(task, BENCH_SEEDS + 10_000 * (block + 1) + i, num_turns=turns)
            result.append((topic, category or _MULTI_TURN_CATEGORY[sample.kind], sample))
    return result


def write_mmspec(rows: int, folder: Path) -> None:
    """Write `test/mmspec.jsonl` and `test/images/` under `folder`."""
    images = folder / "test" / "images"
    images.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (topic, category, sample) in enumerate(mmspec_samples(rows), start=1):
        name = f"mmspec_{number:03d}"
        (images / f"{name}.jpg").write_bytes(encode(sample.picture, "JPEG"))
        row = {
            "id": name,
            "image": f"{name}.jpg",
            "turns": [turn.question for turn in sample.turns],
            "category": category,
            "topic": topic,
        }
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    (folder / "test" / "mmspec.jsonl").write_text("".join(lines), encoding="utf-8")


def write_all(rows: int, out: Path) -> None:
    """Write every benchmark into its own folder under `out`; `rows` must be a multiple of six."""
    for bench in TABLES:
        write_table(bench, rows, out / bench)
    write_mmspec(rows, out / "mmspec")


def main() -> None:
    """Write all benchmarks into the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=48, help="rows per benchmark, a multiple of 6")
    parser.add_argument("--out", type=Path, default=Path("data_manifests/tiny"))
    args = parser.parse_args()
    write_all(args.rows, args.out)
    print(args.out)


if __name__ == "__main__":
    main()
