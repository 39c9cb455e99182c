"""The committed tiny benchmarks: storage of the real ones, content of the generator."""

from __future__ import annotations

import csv
import filecmp
import io
import json
import random
import re
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from experiments.schema import features
from experiments.tiny import rows_mathvista
from experiments.tiny.benches import (
    TABLES,
    TOPICS,
    arrow_table,
    file_name,
    mmspec_samples,
    settings,
    write_all,
    write_mmspec,
    write_table,
)
from experiments.tiny.choices import answers, options
from experiments.tiny.rows import LETTERS, OCR_TYPES, chartqa_samples, fitting_sample
from experiments.tiny.samples import BENCH_SEEDS, EVAL_SEEDS, TASKS, TRAIN_SEEDS, make_sample
from tests.fixtures.benches import make as fixtures

REPOSITORY = Path(__file__).parents[2]
DATA = REPOSITORY / "data_manifests" / "tiny"
FIXTURES = Path(fixtures.__file__).parent
ROWS = 48
VIDEO_ROWS = 6
every_table = pytest.mark.parametrize("bench", TABLES)


def first_source(bench: str) -> dict[str, Any]:
    source: dict[str, Any] = settings(bench)["sources"][0]
    return source


def parquet(bench: str, root: Path = DATA) -> Path:
    return root / bench / file_name(first_source(bench))


def read(bench: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(parquet(bench)).to_pylist()
    return rows


def images(row: dict[str, Any]) -> list[dict[str, Any]]:
    value = row.get("decoded_image") or row["image"]
    return value if isinstance(value, list) else [value]


def decoded(cell: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(cell["bytes"])).convert("RGB")


def files_below(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


def without_pictures(value: Any) -> Any:
    """The same value with the pixels of pictures in place of their files."""
    if isinstance(value, dict):
        if set(value) == {"bytes", "path"}:
            return (decoded(value).tobytes(), value["path"])
        return {name: without_pictures(inner) for name, inner in value.items()}
    return [without_pictures(inner) for inner in value] if isinstance(value, list) else value


def needs_pinned_encoders() -> None:
    pinned = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for package in ("pillow", "pyarrow"):
        if f"{package}=={version(package)}" not in pinned:
            pytest.skip(f"another {package} than the pinned one may encode otherwise")


# --- storage ------------------------------------------------------------------------------------


@every_table
def test_the_schema_is_that_of_the_real_first_source(bench: str) -> None:
    expected = features(first_source(bench)["columns"])
    schema = pq.read_schema(parquet(bench))
    assert schema.names == expected.arrow_schema.names
    assert schema.types == expected.arrow_schema.types
    # What the datasets library would have written beside the columns.
    assert schema.metadata == expected.arrow_schema.metadata
    assert datasets.Features.from_arrow_schema(schema) == expected


def test_nested_and_narrow_types_are_stored_as_such() -> None:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    stored = {bench: pq.read_schema(parquet(bench)) for bench in TABLES}
    assert stored["chartqa"].field("image").type == image
    assert stored["seed_bench"].field("image").type == pa.list_(image)
    assert stored["scienceqa"].field("answer").type == pa.int8()
    assert stored["mmt_bench"].field("index").type == pa.int32()
    assert stored["textvqa"].field("question_id").type == pa.int32()
    metadata = stored["mathvista"].field("metadata").type
    assert metadata.field("skills").type == pa.list_(pa.string())
    assert metadata.field("img_height").type == pa.int64()


@every_table
def test_the_datasets_library_reads_the_folder_by_its_card(bench: str, tmp_path: Path) -> None:
    source, split = first_source(bench), settings(bench).get("split", "test")
    loaded = datasets.load_dataset(
        str(DATA / bench), source.get("config"), split=split, cache_dir=str(tmp_path)
    )
    assert loaded.features == features(source["columns"])
    assert len(loaded) == ROWS + (VIDEO_ROWS if bench == "seed_bench" else 0)
    picture = loaded[0].get("decoded_image") or loaded[0]["image"]
    picture = picture[0] if isinstance(picture, list) else picture
    assert isinstance(picture, Image.Image) and picture.size == (112, 112)


def test_files_are_read_in_more_than_one_piece() -> None:
    groups = {bench: pq.ParquetFile(parquet(bench)).num_row_groups for bench in TABLES}
    assert groups.pop("chartqa") == 1  # as first committed
    assert set(groups.values()) <= {3, 4}


def test_a_row_with_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="expected the columns"):
        arrow_table([{"a": "1", "b": "2"}], {"a": "string"})


# --- content ------------------------------------------------------------------------------------


@every_table
def test_rows_are_the_generator_s(bench: str) -> None:
    made = TABLES[bench].make(ROWS)
    assert without_pictures(read(bench)) == without_pictures(made)


def test_drawing_anew_gives_the_same_files(tmp_path: Path) -> None:
    write_all(ROWS, tmp_path / "one")
    write_all(ROWS, tmp_path / "two")
    names = files_below(tmp_path / "one")
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "two", names, shallow=False)[1:] == (
        [],
        [],
    )
    assert names == files_below(DATA)
    needs_pinned_encoders()
    assert filecmp.cmpfiles(tmp_path / "one", DATA, names, shallow=False)[1:] == ([], [])


def test_data_stay_small() -> None:
    assert sum(path.stat().st_size for path in DATA.rglob("*") if path.is_file()) < 1_500_000


@every_table
def test_no_two_rows_are_alike(bench: str) -> None:
    rows = read(bench)
    asked = {(row["question"], *(cell["bytes"] for cell in images(row))) for row in rows}
    assert len(asked) == len(rows)
    pictures = {cell["bytes"] for row in rows for cell in images(row)[:1]}
    assert len(pictures) == (ROWS - 10 if bench == "textvqa" else len(rows))


def test_benchmarks_share_neither_seeds_nor_rows() -> None:
    assert TRAIN_SEEDS < EVAL_SEEDS < BENCH_SEEDS
    shown = Counter(
        (cell["bytes"], row["question"])
        for bench in TABLES
        for row in read(bench)
        for cell in images(row)[:1]
    )
    assert max(shown.values()) == 1


@pytest.mark.parametrize("task", TASKS)
def test_every_question_has_a_short_answer_that_is_in_the_long_one(task: str) -> None:
    for seed in range(80):
        sample = make_sample(task, seed)
        for turn in sample.turns:
            right, possible = answers(turn.question, sample.facts)
            assert right in possible and len(set(possible)) == len(possible) >= 2
            words = set(re.findall(r"\w+", right)) - {"and"}
            assert words <= set(turn.answer.marked_words) | {"yes", "no"}
            if right in ("yes", "no"):
                assert right in turn.answer.marked_words


def test_options_hold_the_right_answer_once() -> None:
    sample = make_sample("text", 4)
    question = sample.turns[0].question
    right = answers(question, sample.facts)[0]
    for seed in range(30):
        chosen, index = options(question, sample.facts, 9, random.Random(seed))
        assert chosen[index] == right and len(set(chosen)) == 9
    with pytest.raises(ValueError, match="larger than population"):
        options(question, sample.facts, 100, random.Random(0))
    with pytest.raises(ValueError, match="no short answer"):
        answers("Why?", sample.facts)
    with pytest.raises(ValueError, match="no text sample asks"):
        fitting_sample("ocrbench", 0, "text", asks="Why")


def check_options(choices: list[str], right: str) -> None:
    assert len(set(choices)) == len(choices) >= 2 and all(choices)
    assert right in choices


def test_chartqa_has_both_kinds_of_questions() -> None:
    rows = read("chartqa")
    assert [row["type"] for row in rows] == ["human_test"] * 24 + ["augmented_test"] * 24
    for row, sample in zip(rows, chartqa_samples(ROWS), strict=True):
        assert decoded(row["image"]).tobytes() == sample.picture.tobytes()


def test_ocrbench_has_the_ten_kinds_of_questions() -> None:
    rows = read("ocrbench")
    seen = Counter(row["question_type"] for row in rows)
    assert list(seen) == [name for name, _, _ in OCR_TYPES]
    for name, twentieths, _ in OCR_TYPES:
        assert abs(seen[name] - twentieths * ROWS / 20) < 1
    assert all(row["answer"] and len(set(row["answer"])) == len(row["answer"]) for row in rows)
    assert max(len(row["answer"]) for row in rows) == 2
    assert all((row["dataset"] == "HME100k") == ("Math" in row["question_type"]) for row in rows)
    assert {row["image"]["path"] for row in rows} == {""}


def test_textvqa_questions_that_share_an_id_share_the_picture() -> None:
    rows = read("textvqa")
    pictures: dict[str, set[bytes]] = defaultdict(set)
    questions: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        pictures[row["image_id"]].add(row["image"]["bytes"])
        questions[row["image_id"]].append(row["question"])
    assert all(len(same) == 1 for same in pictures.values())
    assert all(len(set(asked)) == len(asked) for asked in questions.values())
    sizes = Counter(len(asked) for asked in questions.values())
    assert sizes == {1: 32, 2: 2, 3: 4}
    assert [row["question_id"] for row in rows] == list(range(34_602, 34_602 + ROWS))
    assert {
        (len(row["answers"]), Counter(row["answers"]).most_common(1)[0][1]) for row in rows
    } <= {
        (10, 8),
        (10, 9),
    }
    assert {(row["image_width"], row["image_height"]) for row in rows} == {(112, 112)}


def test_scienceqa_answers_are_places_among_the_choices() -> None:
    rows = read("scienceqa")
    assert {len(row["choices"]) for row in rows} == {2, 3, 4}
    for row in rows:
        check_options(row["choices"], row["choices"][row["answer"]])
        words = re.findall(r"\w+", row["choices"][row["answer"]])
        assert set(words) - {"and"} <= set(re.findall(r"\w+", row["solution"]))
    assert {row["answer"] for row in rows} == {0, 1, 2, 3}
    assert sum(row["hint"] == "" for row in rows) == ROWS // 2
    assert len({row["category"] for row in rows}) == 4


def test_seed_bench_keeps_its_rows_when_films_are_filtered_out() -> None:
    rows = read("seed_bench")
    kept = [row for row in rows if row["data_type"].lower() == "image"]
    films = [row for row in rows if row["data_type"].lower() == "video"]
    assert len(kept) == ROWS and len(films) == VIDEO_ROWS == len(rows) - len(kept)
    assert {row["data_type"] for row in rows} == {"image", "Image", "video", "Video"}
    assert {len(row["image"]) for row in kept} == {1}
    assert {len(row["image"]) for row in films} == {2, 3, 8}
    assert len({row["question_id"] for row in rows}) == len(rows)
    # They lie between the others, the very first row included.
    assert [i for i, row in enumerate(rows) if row in films] == [0, 9, 18, 27, 36, 45]
    for row in rows:
        choices = [row[f"choice_{letter}"] for letter in "abcd"]
        check_options(choices, choices["ABCD".index(row["answer"])])


def test_mmt_bench_fills_two_to_nine_options() -> None:
    rows = read("mmt_bench")
    for row in rows:
        filled = [row[letter] for letter in LETTERS if row[letter]]
        assert filled == [row[letter] for letter in LETTERS[: len(filled)]]
        check_options(filled, row[row["answer"]])
    assert {sum(bool(row[letter]) for letter in LETTERS) for row in rows} == set(range(2, 10))
    assert len({row["index"] for row in rows}) == ROWS
    assert {row["split"] for row in rows} == {"VAL"}
    assert len({row["l2-category"] for row in rows}) == 4


def test_mathvista_has_both_kinds_of_questions_and_every_answer_type() -> None:
    rows = read("mathvista")
    assert [row["pid"] for row in rows] == [str(n) for n in range(1, ROWS + 1)]
    for row in rows:
        free = row["question_type"] == "free_form"
        assert (row["choices"] is None) == free
        if not free:
            assert row["question_type"] == "multi_choice"
            check_options(row["choices"], row["answer"])
        assert (row["precision"] is not None) == (row["answer_type"] == "float")
        assert row["metadata"].keys() == first_source("mathvista")["columns"]["metadata"].keys()
        assert None not in row["metadata"].values()
        assert row["image"] == f"images/{row['pid']}.png"
    kinds = Counter((row["question_type"], row["answer_type"]) for row in rows)
    assert set(kinds) == {
        *(("free_form", kind) for kind in ("integer", "float", "list")),
        *(("multi_choice", kind) for kind in ("integer", "text")),
    }
    assert {row["precision"] for row in rows} == {None, 1.0, 2.0}
    assert {row["unit"] for row in rows} == {None, "cm"}
    for row in rows:
        if row["answer_type"] == "float":
            assert len(row["answer"].partition(".")[2]) == row["precision"]


def test_mathvista_s_query_is_hint_question_and_choices() -> None:
    by_kind = {
        (row["question_type"], row["answer_type"]): row for row in reversed(read("mathvista"))
    }
    row = by_kind["multi_choice", "text"]
    a, b, c, d = row["choices"]
    assert row["query"] == (
        "Hint: Please answer the question and provide the correct option letter, e.g., A, B, C, D, "
        f"at the end.\nQuestion: {row['question']}\nChoices:\n(A) {a}\n(B) {b}\n(C) {c}\n(D) {d}"
    )
    row = by_kind["free_form", "float"]
    assert row["precision"] == 1.0 and row["query"] == (
        "Hint: Please answer the question requiring a floating-point number with one decimal place "
        "and provide the final value, e.g., 1.2, 1.3, 1.4, at the end.\n"
        f"Question: {row['question']} (Unit: cm)"
    )


def test_mathvista_s_pictures_come_in_several_modes_and_look_the_same() -> None:
    modes = Counter(
        Image.open(io.BytesIO(images(row)[0]["bytes"])).mode for row in read("mathvista")
    )
    assert set(modes) == {"RGB", "P", "RGBA"} and min(modes.values()) >= 9
    picture = make_sample("chart", BENCH_SEEDS, kind="chart").picture
    for mode in modes:
        stored = rows_mathvista.in_mode(picture, mode)
        assert stored.mode == mode and stored.convert("RGB").tobytes() == picture.tobytes()
    assert rows_mathvista.in_mode(picture, "RGBA").getextrema()[3] == (0, 255)


# --- mmspec -------------------------------------------------------------------------------------


def mmspec_rows() -> list[dict[str, Any]]:
    text = (DATA / "mmspec" / "test" / "mmspec.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_mmspec_has_the_real_layout() -> None:
    rows = mmspec_rows()
    assert len(rows) == ROWS
    shown = sorted(path.name for path in (DATA / "mmspec" / "test" / "images").iterdir())
    assert shown == [row["image"] for row in rows]
    for number, row in enumerate(rows, start=1):
        assert list(row) == ["id", "image", "turns", "category", "topic"]
        assert row["id"] == f"mmspec_{number:03d}" and row["image"] == f"{row['id']}.jpg"
    assert [row["topic"] for row in rows] == [topic for topic, _, _ in TOPICS for _ in range(8)]


def test_two_thirds_of_mmspec_s_multi_turn_rows_have_two_or_three_turns() -> None:
    talks = [row for row in mmspec_rows() if row["topic"] == "multi-turn conversation"]
    counts = [len(row["turns"]) for row in talks]
    assert counts == [2, 3, 1, 2, 3, 1, 2, 3]
    assert sum(count > 1 for count in counts) >= 2 / 3 * len(counts)
    assert all(len(row["turns"]) == 1 for row in mmspec_rows() if row not in talks)


def test_mmspec_rows_are_the_generator_s() -> None:
    for row, (topic, category, sample) in zip(mmspec_rows(), mmspec_samples(ROWS), strict=True):
        assert (row["topic"], row["category"]) == (topic, category)
        assert row["turns"] == [turn.question for turn in sample.turns]
        picture = Image.open(DATA / "mmspec" / "test" / "images" / row["image"])
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "RGB", (112, 112))


def test_the_number_of_rows_is_a_parameter(tmp_path: Path) -> None:
    for bench in TABLES:
        write_table(bench, 6, tmp_path / bench)
    write_mmspec(6, tmp_path / "mmspec")
    counts = {bench: pq.read_metadata(parquet(bench, tmp_path)).num_rows for bench in TABLES}
    assert counts == {bench: 7 if bench == "seed_bench" else 6 for bench in TABLES}
    assert len(list((tmp_path / "mmspec" / "test" / "images").iterdir())) == 6
    with pytest.raises(ValueError, match="multiple of 6"):
        write_mmspec(7, tmp_path / "mmspec")


# --- fixtures of further sources and odd cells ---------------------------------------------------


def test_fixtures_are_those_of_their_generator(tmp_path: Path) -> None:
    folders = {path.name for path in FIXTURES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == set(fixtures.FIXTURES)
    fixtures.write_all(tmp_path)
    names = files_below(tmp_path)
    assert sum((FIXTURES / name).stat().st_size for name in names) < 300_000
    needs_pinned_encoders()
    assert filecmp.cmpfiles(tmp_path, FIXTURES, names, shallow=False)[1:] == ([], [])


def test_every_fixture_is_described() -> None:
    text = (FIXTURES / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `(\w+)` \| (\d+) \|", text, re.MULTILINE)
    assert [name for name, _ in lines] == list(fixtures.FIXTURES)
    for name, rows in lines:
        for path in (FIXTURES / name).rglob("*.parquet"):
            assert pq.read_metadata(path).num_rows == int(rows)
        for path in (FIXTURES / name).rglob("*.tsv"):
            with path.open(encoding="utf-8", newline="") as file:
                assert len(list(csv.reader(file, delimiter="\t"))) == int(rows) + 1


@pytest.mark.parametrize(
    ("folder", "bench", "number"),
    [
        ("seed_bench__huggingfacem4", "seed_bench", 1),
        ("scienceqa__derek_thomas", "scienceqa", 1),
        ("chartqa__huggingfacem4", "chartqa", 1),
        ("chartqa__ahmed_masry", "chartqa", 2),
    ],
)
def test_further_parquet_sources_have_their_schema(folder: str, bench: str, number: int) -> None:
    source = settings(bench)["sources"][number]
    (path,) = (FIXTURES / folder).glob(source["files"])
    assert pq.read_schema(path).types == features(source["columns"]).arrow_schema.types


@pytest.mark.parametrize(
    ("path", "bench", "number"),
    [
        ("mmt_bench__opengvlab/MMT-Bench_VAL.tsv", "mmt_bench", 1),
        ("mmt_bench__val_mi/MMT-Bench_VAL_MI.tsv", "mmt_bench", 1),
        ("seed_bench__vlmevalkit/SEEDBench_IMG.tsv", "seed_bench", 2),
    ],
)
def test_further_tsv_sources_have_their_columns(path: str, bench: str, number: int) -> None:
    header = (FIXTURES / path).read_text(encoding="utf-8").partition("\n")[0]
    assert header.split("\t") == list(settings(bench)["sources"][number]["columns"])


@pytest.mark.parametrize("name", [name for name in fixtures.FIXTURES if name.startswith("odd")])
def test_odd_cells_differ_from_the_rest_in_the_image_alone(name: str) -> None:
    table = pq.read_table(FIXTURES / name / fixtures.PARQUET)
    assert table.schema.names == ["type", "question", "answer", "image"]
    assert table.schema.types[:3] == [pa.string()] * 3
    assert (table.schema.metadata is None) == (name == "odd__plain_struct")
    for n, row in enumerate(table.to_pylist()):
        assert (row["question"], row["answer"]) == (fixtures.QUESTIONS[n], f"answer {n}")


@pytest.mark.parametrize("name", [*fixtures.ROW_1_ONLY, "odd__null"])
def test_odd_pictures_lie_between_two_ordinary_ones(name: str) -> None:
    cells = pq.read_table(FIXTURES / name / fixtures.PARQUET)["image"].to_pylist()
    for n in (0, 2):
        assert decoded(cells[n]).tobytes() == fixtures.picture(n).tobytes()
    assert len(cells) == 3 and cells[1] != cells[0]


def test_long_cells_are_longer_than_the_csv_module_reads_unasked() -> None:
    assert len(fixtures.long_cell_row()["image"]) > 131_072
