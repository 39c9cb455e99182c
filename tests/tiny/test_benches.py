"""The committed tiny benchmarks: storage of the real ones, content of the generator."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from experiments.tiny.benches import (
    CHARTQA_FILE,
    TOPICS,
    chartqa_samples,
    chartqa_table,
    mmspec_samples,
    write_chartqa,
    write_mmspec,
)

DATA = Path(__file__).parents[2] / "data_manifests" / "tiny"
ROWS = 48


def test_chartqa_has_the_real_schema() -> None:
    schema = pq.read_schema(DATA / "chartqa" / CHARTQA_FILE)
    assert schema.names == ["type", "question", "answer", "image"]
    assert [schema.field(name).type for name in schema.names[:3]] == [pa.string()] * 3
    assert schema.field("image").type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == {"_type": "Image"}
    assert list(features) == schema.names


def test_chartqa_rows_are_the_generator_s() -> None:
    table = pq.read_table(DATA / "chartqa" / CHARTQA_FILE)
    made = chartqa_table(ROWS)
    assert table.schema.equals(made.schema)
    for name in ("type", "question", "answer"):
        assert table[name].to_pylist() == made[name].to_pylist()
    assert Counter(table["type"].to_pylist()) == {"human_test": 24, "augmented_test": 24}
    for row, sample in zip(table["image"].to_pylist(), chartqa_samples(ROWS), strict=True):
        assert Image.open(io.BytesIO(row["bytes"])).tobytes() == sample.picture.tobytes()


def test_mmspec_has_the_real_layout() -> None:
    folder = DATA / "mmspec" / "test"
    lines = (folder / "mmspec.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == ROWS
    assert sorted(p.name for p in (folder / "images").iterdir()) == [r["image"] for r in rows]
    for number, row in enumerate(rows, start=1):
        assert list(row) == ["id", "image", "turns", "category", "topic"]
        assert row["id"] == f"mmspec_{number:03d}" and row["image"] == f"{row['id']}.jpg"
    assert [r["topic"] for r in rows] == [topic for topic, _, _ in TOPICS for _ in range(8)]
    turns = [len(r["turns"]) for r in rows if r["topic"] == "multi-turn conversation"]
    assert sorted(turns) == [1, 1, 2, 2, 2, 3, 3, 3]


def test_mmspec_rows_are_the_generator_s() -> None:
    folder = DATA / "mmspec" / "test"
    lines = (folder / "mmspec.jsonl").read_text(encoding="utf-8").splitlines()
    for line, (topic, category, sample) in zip(lines, mmspec_samples(ROWS), strict=True):
        row = json.loads(line)
        assert (row["topic"], row["category"]) == (topic, category)
        assert row["turns"] == [turn.question for turn in sample.turns]
        picture = Image.open(folder / "images" / row["image"])
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (112, 112))


def test_data_stay_small_and_hold_no_duplicates() -> None:
    assert sum(p.stat().st_size for p in DATA.rglob("*") if p.is_file()) < 2_000_000
    charts = [(s.picture.tobytes(), s.turns[0].question) for s in chartqa_samples(ROWS)]
    assert len(set(charts)) == ROWS


def test_the_number_of_rows_is_a_parameter(tmp_path: Path) -> None:
    write_chartqa(6, tmp_path / "chartqa")
    write_mmspec(6, tmp_path / "mmspec")
    assert pq.read_table(tmp_path / "chartqa" / CHARTQA_FILE).num_rows == 6
    assert len(list((tmp_path / "mmspec" / "test" / "images").iterdir())) == 6
    with pytest.raises(ValueError, match="multiple of 6"):
        write_mmspec(7, tmp_path / "mmspec")
