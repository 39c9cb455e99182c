"""The tiny benchmarks: held-out pictures in the exact storage of two real ones.

`chartqa/` has the columns of lmms-lab/ChartQA's test split (a parquet file with an Image feature),
`mmspec/` the folder layout of MMSpec (a JSON-lines file beside an image folder), so the loaders of
the real data sets run on them unchanged. Questions are worded as in training, pictures come from
seeds that neither training nor evaluation uses.

Example: `python -m experiments.tiny.benches --rows 48 --out data_manifests/tiny`.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from experiments.tiny.samples import BENCH_SEEDS, Sample, make_sample

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
_TURN_COUNTS = (
    2,
    3,
    1,
)  # repeated over the multi-turn rows: some have one turn, as in MMSpec
CHARTQA_FILE = "data/test-00000-of-00001.parquet"
_FEATURES: dict[str, dict[str, str]] = {
    "type": {"dtype": "string", "_type": "Value"},
    "question": {"dtype": "string", "_type": "Value"},
    "answer": {"dtype": "string", "_type": "Value"},
    "image": {"_type": "Image"},
}


def chartqa_samples(rows: int) -> list[Sample]:
    """`rows` one-turn chart samples: the first half reasoning, the second half plain reading."""
    tasks = ["reasoning"] * (rows // 2) + ["chart"] * (rows - rows // 2)
    return [make_sample(task, BENCH_SEEDS + i, kind="chart") for i, task in enumerate(tasks)]


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


def encode_image(picture: Image.Image, fmt: str) -> bytes:
    """The picture as a PNG or (best quality) JPEG file."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {"quality": 95, "subsampling": 0} if fmt == "JPEG" else {}
    picture.save(buffer, fmt, **options)
    return buffer.getvalue()


def chartqa_table(rows: int) -> pa.Table:
    """Table with ChartQA's columns: `type`, `question`, `answer`, `image`.

    `answer` lists the picture-dependent words of the reference answer.
    """
    samples = chartqa_samples(rows)
    image_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema(
        [
            ("type", pa.string()),
            ("question", pa.string()),
            ("answer", pa.string()),
            ("image", image_type),
        ],
        metadata={"huggingface": json.dumps({"info": {"features": _FEATURES}})},
    )
    columns = {
        "type": ["human_test" if s.task == "reasoning" else "augmented_test" for s in samples],
        "question": [s.turns[0].question for s in samples],
        "answer": [", ".join(s.turns[0].answer.marked_words) for s in samples],
        "image": [{"bytes": encode_image(s.picture, "PNG"), "path": None} for s in samples],
    }
    return pa.table(columns, schema=schema)


def chartqa_card(rows: int, num_bytes: int) -> str:
    """Dataset card (README.md) in the form the `datasets` library reads."""
    features = "\n".join(
        f"  - name: {name}\n    dtype: {kind.get('dtype', 'image')}"
        for name, kind in _FEATURES.items()
    )
    return f"""---
dataset_info:
  features:
{features}
  splits:
  - name: test
    num_bytes: {num_bytes}
    num_examples: {rows}
configs:
- config_name: default
  data_files:
  - split: test
    path: data/test-*
---

# Tiny ChartQA

{rows} generated bar charts with questions, in the columns of `lmms-lab/ChartQA` (split `test`).
Made by `python -m experiments.tiny.benches`; a stand-in for testing and demonstration, not the real
data. `answer` lists the words of the reference answer that need the picture.
"""


def write_chartqa(rows: int, folder: Path) -> None:
    """Write the parquet file and the dataset card under `folder`."""
    path = folder / CHARTQA_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(chartqa_table(rows), path)
    card = chartqa_card(rows, path.stat().st_size)
    (folder / "README.md").write_text(card, encoding="utf-8")


def write_mmspec(rows: int, folder: Path) -> None:
    """Write `test/mmspec.jsonl` and `test/images/` under `folder`."""
    images = folder / "test" / "images"
    images.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (topic, category, sample) in enumerate(mmspec_samples(rows), start=1):
        name = f"mmspec_{number:03d}"
        (images / f"{name}.jpg").write_bytes(encode_image(sample.picture, "JPEG"))
        row = {
            "id": name,
            "image": f"{name}.jpg",
            "turns": [turn.question for turn in sample.turns],
            "category": category,
            "topic": topic,
        }
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    (folder / "test" / "mmspec.jsonl").write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Write both benchmarks into the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=48, help="rows per benchmark, a multiple of 6")
    parser.add_argument("--out", type=Path, default=Path("data_manifests/tiny"))
    args = parser.parse_args()
    write_chartqa(args.rows, args.out / "chartqa")
    write_mmspec(args.rows, args.out / "mmspec")
    print(args.out)


if __name__ == "__main__":
    main()
