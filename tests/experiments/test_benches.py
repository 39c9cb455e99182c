"""Loaders on the shipped analogues, on every further source, and on every odd image cell."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments import benches
from experiments.benches import BenchInput
from experiments.compose import CONF, config_names
from experiments.errors import UserError
from experiments.freeze import settings_of
from experiments.plan import BenchSettings
from experiments.sources import sources_of
from tests.fixtures.benches.make import colour

FIXTURES = Path(__file__).parents[1] / "fixtures" / "benches"
REAL = [name for name in config_names("bench") if not name.startswith("tiny_")]
REAL = [name for name in REAL if settings_of(name).layout != "mixed"]
TABLES = [name for name in REAL if name != "mmspec"]


def unverified(bench: str, folder: Path | str, **changes: Any) -> BenchSettings:
    """A benchmark's settings on other data, in file order."""
    settings = settings_of(bench, f"bench.data_root={folder}", "bench.manifests=null")
    return replace(settings, sampled=None, **changes)


def fixture(name: str, **changes: Any) -> list[BenchInput]:
    bench = "chartqa" if name.startswith("odd__") else name.partition("__")[0]
    return benches.load(unverified(bench, FIXTURES / name, **changes)).inputs


def seen_colour(item: BenchInput) -> tuple[int, ...]:
    """The colour at (10, 10), which says which of the fixtures' pictures this is."""
    pixel = item.open_image().getpixel((10, 10))
    assert isinstance(pixel, tuple)
    return pixel


@pytest.mark.parametrize("bench", REAL)
def test_every_benchmark_has_an_analogue_that_its_own_loader_verifies(bench: str) -> None:
    loaded = benches.load(settings_of(f"tiny_{bench}"))
    assert len(loaded.inputs) == 48
    assert loaded.frozen is not None and loaded.frozen["hashes"]
    assert all(item.open_image().mode == "RGB" for item in loaded.inputs)
    ids = [item.input_id for item in loaded.inputs]
    assert len(set(ids)) == 48
    if bench != "mmspec":
        rows = np.random.default_rng(42).permutation(48)
        assert ids == [f"tiny_{bench}_{row:05d}" for row in rows]


@pytest.mark.parametrize("bench", TABLES)
@pytest.mark.parametrize("style", ["question_only", "options_explain", "lmms_eval"])
def test_prompt_styles(bench: str, style: str) -> None:
    plain = benches.load(settings_of(f"tiny_{bench}")).inputs
    styled = benches.load(settings_of(f"tiny_{bench}", f"bench.prompt_style={style}")).inputs
    questions = [item.turns[0] for item in plain]
    texts = [item.turns[0] for item in styled]
    if style == "question_only" or (bench, style) == ("ocrbench", "lmms_eval"):
        assert texts == questions
    elif style == "options_explain":
        assert all(text.startswith(q) for text, q in zip(texts, questions, strict=True))
        assert all(text.endswith("\nExplain your answer.") for text in texts)
    else:
        pairs = zip(texts, questions, strict=True)
        assert all(q.lower() in text.lower() and text != q for text, q in pairs)
    assert [item.text_sha256 for item in styled] == [item.text_sha256 for item in plain]


def test_prompts_of_multiple_choice_to_the_letter() -> None:
    tail = "Answer with the option's letter from the given choices directly."
    seed = fixture("seed_bench__huggingfacem4", prompt_style="lmms_eval")[0].turns[0]
    lines = seed.split("\n")
    assert [line[:3] for line in lines[1:5]] == ["A. ", "B. ", "C. ", "D. "]
    assert lines[5:] == [tail]
    mmt = fixture("mmt_bench__opengvlab", prompt_style="lmms_eval", num_inputs=1)[0].turns[0]
    assert mmt == (
        "Question: \nWhat colour is the rectangle?\nA: left\nB: right\n"
        "Answer the question using a single character from the given options."
    )
    explain = fixture("mmt_bench__opengvlab", prompt_style="options_explain", num_inputs=1)[0]
    assert explain.turns[0] == (
        "What colour is the rectangle?\nA: left\nB: right\nExplain your answer."
    )


def test_values_that_look_empty_are_kept_as_text() -> None:
    """A reader that guesses types would turn options such as NA, None and nan into nothing."""
    text = fixture("mmt_bench__opengvlab", prompt_style="lmms_eval")[1].turns[0]
    assert text.split("\n")[2:-1] == ["A: NA", "B: None", "C: null", "D: nan"]


def test_context_appears_only_where_there_is_one() -> None:
    items = benches.load(settings_of("tiny_scienceqa", "bench.prompt_style=lmms_eval")).inputs
    with_context = [item for item in items if item.turns[0].startswith("Context: ")]
    assert 0 < len(with_context) < len(items)
    assert not any("Context: \n" in item.turns[0] for item in items)


@pytest.mark.parametrize(
    ("precision", "kind", "answer_format"),
    [
        (None, "integer", "single integer number."),
        (1.0, "float", "floating-point number with one decimal place."),
        (2.0, "float", "floating-point number with two decimal places."),
        (None, "list", "a Python list."),
    ],
)
def test_mathvista_names_the_form_of_the_answer(
    precision: float | None, kind: str, answer_format: str
) -> None:
    from experiments.prompts import mathvista_fields

    row = {"unit": "$", "question_type": "free_form", "answer_type": kind, "precision": precision}
    fields = mathvista_fields(row)
    assert fields["unit"] == " (Unit: $)"
    assert fields["answer_format"].endswith(answer_format)
    with pytest.raises(UserError, match="asks for an answer of type 'matrix'"):
        mathvista_fields({**row, "answer_type": "matrix", "pid": "7"})


# Further sources


def test_rows_of_a_table_with_references() -> None:
    items = fixture("mmt_bench__opengvlab")
    assert [item.raw_index for item in items] == [0, 1, 2, 4, 5]  # row 3 has no picture
    assert [item.question_id for item in items] == ["400", "401", "402", "404", "405"]
    assert seen_colour(items[2]) == seen_colour(items[0])  # by reference
    assert items[2].image_digest == items[0].image_digest
    assert items[0].category == "shape_recognition"


def test_cells_longer_than_the_csv_module_reads_unasked(tmp_path: Path) -> None:
    from tests.fixtures.benches.make import long_cell_row, write_tsv

    path = tmp_path / "MMT-Bench_VAL.tsv"
    row = long_cell_row()
    write_tsv(path, list(row), [row])
    (item,) = benches.load(unverified("mmt_bench", tmp_path)).inputs
    assert item.open_image().size == (192, 192)


def test_a_table_of_several_pictures_a_row_is_refused_with_a_count() -> None:
    folder = FIXTURES / "mmt_bench__val_mi" / "MMT-Bench_VAL_MI.tsv"
    with pytest.raises(UserError, match=r"1 of 5 rows .* holds 2 pictures, one is needed"):
        benches.load(unverified("mmt_bench", folder))
    item = benches.load(unverified("mmt_bench", folder, num_inputs=1)).inputs[0]
    assert seen_colour(item)


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("seed_bench__huggingfacem4", [0, 1, 2, 3, 4]),
        ("seed_bench__vlmevalkit", [0, 1, 2, 3]),
        ("scienceqa__derek_thomas", [1, 2, 4, 5]),
        ("scienceqa__older_library", [0, 1, 2, 3]),
        ("chartqa__huggingfacem4", [0, 1, 2, 3, 4]),
        ("chartqa__ahmed_masry", [0, 1, 2, 3, 4]),
    ],
)
def test_every_further_source_loads(name: str, raw: list[int]) -> None:
    items = fixture(name)
    assert [item.raw_index for item in items] == raw
    assert [item.source_index for item in items] == list(range(len(raw)))
    assert all(item.turns[0] and seen_colour(item) for item in items)


def test_every_source_has_a_fixture_or_is_an_analogue() -> None:
    further = {name: len(sources_of(settings_of(name))) - 1 for name in TABLES}
    for name, count in further.items():
        folders = [p for p in FIXTURES.glob(f"{name}__*") if p.name != "scienceqa__older_library"]
        folders = [p for p in folders if p.name != "mmt_bench__val_mi"]
        assert len(folders) == count, name


def test_classes_come_as_names_and_shared_pictures_as_one_cluster() -> None:
    kinds = {item.category for item in fixture("chartqa__huggingfacem4")}
    assert kinds == {"human", "machine"}
    clusters = [item.cluster for item in fixture("chartqa__ahmed_masry")]
    assert clusters[0] == clusters[1] and clusters[3] == clusters[4]
    assert len(set(clusters)) == 3


def test_the_filter_leaves_videos_out_before_rows_are_counted() -> None:
    items = benches.load(settings_of("tiny_seed_bench")).inputs
    assert max(item.raw_index for item in items) > 47
    assert sorted(item.source_index for item in items) == list(range(48))


# Odd cells


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("odd__raw_bytes", "column 'image' holds raw bytes, expected image"),
        ("odd__base64_text", "column 'image' holds text, expected image"),
        ("odd__list_of_one", "column 'image' holds list of image, expected image"),
        ("odd__list_of_two", "column 'image' holds list of image, expected image"),
        ("odd__null", "1 of 3 rows have no single picture in column 'image': row 1 "),
        ("odd__path_only", "holds the file name '.*', which lies outside"),
    ],
)
def test_cells_that_are_no_picture_are_refused_by_name(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fixture(name)


def test_a_file_name_beside_the_table_is_read() -> None:
    assert seen_colour(fixture("odd__path_only", num_inputs=1)[0])
    with pytest.raises(UserError, match="and no such file below"):
        fixture("odd__path_only", num_inputs=2)


@pytest.mark.parametrize(
    "name", ["plain_struct", "grayscale", "palette_transparent", "cmyk_jpeg", "one_pixel"]
)
def test_every_kind_of_picture_becomes_rgb(name: str) -> None:
    items = fixture(f"odd__{name}")
    assert [item.open_image().mode for item in items] == ["RGB"] * 3
    assert seen_colour(items[0]) == colour(0)


def test_orientation_is_applied_and_16_bit_values_are_scaled() -> None:
    assert fixture("odd__exif_rotated")[1].open_image().size == (56, 64)
    ramp = np.asarray(fixture("odd__16_bit_png")[1].open_image())[20, :, 0].astype(int)
    assert ramp[0] < 16 and ramp[-1] > 240 and (np.diff(ramp) >= 0).all()


@pytest.mark.parametrize("name", ["odd__truncated_jpeg", "odd__no_picture"])
def test_a_broken_picture_costs_its_own_unit_only(name: str) -> None:
    items = fixture(name)
    with pytest.raises(OSError):
        items[1].open_image()
    assert items[0].open_image() and items[2].open_image()


# What a careless user may point at


@pytest.fixture
def chartqa_copy(tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(settings_of("tiny_chartqa").data_root or "", folder)
    return folder


def rewrite(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    path = next(folder.rglob("*.parquet"))
    pq.write_table(change(pq.read_table(path)), path)


def load_copy(folder: Path) -> benches.Benchmark:
    return benches.load(settings_of("tiny_chartqa", f"bench.data_root={folder}"))


def rename(table: pa.Table) -> pa.Table:
    names = {"question": "questions"}
    return table.rename_columns([names.get(name, name) for name in table.column_names])


CHANGES: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "renamed column": (rename, r"missing question \(closest: questions\)"),
    "unread column renamed": (
        lambda t: t.rename_columns(["type", "question", "answers", "image"]),
        r"missing answer \(closest: answers\)",
    ),
    "one row more": (
        lambda t: pa.concat_tables([t, t.slice(0, 1)]),
        "has 49 rows for benchmark tiny_chartqa .* expected 48",
    ),
    "one row less": (lambda t: t.slice(1), "has 47 rows"),
    "other order": (
        lambda t: t.take(list(range(47, -1, -1))),
        r"The data differs from the frozen inputs in .*tiny_chartqa.jsonl:\n  tiny_chartqa_0",
    ),
    "another text": (
        lambda t: t.set_column(1, "question", pa.array(["What?"] * 48)),
        "sha256 of its texts: frozen .* found .*\n(.*\n)+  ... and 38 more",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_tables_are_refused_with_the_cause(chartqa_copy: Path, change: str) -> None:
    alter, message = CHANGES[change]
    rewrite(chartqa_copy, alter)
    with pytest.raises(UserError, match=message):
        load_copy(chartqa_copy)


def test_an_equal_copy_loads_from_any_layout(chartqa_copy: Path) -> None:
    expected = benches.inputs_digest(load_copy(chartqa_copy).inputs)
    file = next(chartqa_copy.rglob("*.parquet"))
    for name in ("test-00000-of-00001.parquet", "test.parquet"):
        target = chartqa_copy / name
        shutil.move(file, target)
        file = target
        assert benches.inputs_digest(load_copy(chartqa_copy).inputs) == expected
    settings = settings_of("tiny_chartqa", f"bench.data_root={file}")
    assert benches.inputs_digest(benches.load(settings).inputs) == expected


def test_other_splits_in_the_folder_are_not_read(chartqa_copy: Path) -> None:
    file = next(chartqa_copy.rglob("*.parquet"))
    shutil.copy(file, file.with_name("train-00000-of-00001.parquet"))
    (file.parent / "validation-00000-of-00001.parquet").write_bytes(b"not even parquet")
    assert len(load_copy(chartqa_copy).inputs) == 48


def test_shards_of_two_data_sets_are_told_apart(chartqa_copy: Path) -> None:
    file = next(chartqa_copy.rglob("*.parquet"))
    table = pq.read_table(file).drop_columns(["answer"])
    pq.write_table(table, file.with_name("test-00001-of-00002.parquet"))
    with pytest.raises(UserError, match="do two data sets lie in one folder"):
        load_copy(chartqa_copy)
    (chartqa_copy / "more").mkdir()
    shutil.move(file.with_name("test-00001-of-00002.parquet"), chartqa_copy / "more")
    shutil.move(file, chartqa_copy / "test-00000-of-00001.parquet")
    with pytest.raises(UserError, match="more than one data set or configuration"):
        load_copy(chartqa_copy)


def test_no_table_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"No file below .* matches data/test-\*.parquet"):
        benches.load(settings_of("chartqa", f"bench.data_root={tmp_path}"))
    with pytest.raises(UserError, match="does not exist"):
        benches.load(settings_of("chartqa", f"bench.data_root={tmp_path / 'nowhere'}"))


def test_without_hub_and_cache_every_id_and_the_way_out_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as error:
        benches.load(settings_of("chartqa"))
    message = str(error.value)
    for hub_id in ("lmms-lab-encoder/ChartQA", "lmms-lab/ChartQA", "ahmed-masry/ChartQA"):
        assert hub_id in message
    assert "the hub is not asked, because HF_HUB_OFFLINE is set" in message
    assert "hf download lmms-lab-encoder/ChartQA --repo-type dataset --revision 9e63b7df" in message
    assert "bench.data_root=FOLDER" in message


def hub_cache(root: Path, hub_id: str, commit: str, folder: Path) -> None:
    """What `snapshot_download` leaves behind."""
    repository = root / f"datasets--{hub_id.replace('/', '--')}"
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)


def test_the_hubs_cache_is_read_offline_and_the_id_that_answered_is_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = replace(settings_of("tiny_chartqa"), data_root=None)
    commit = str(settings.sources[0]["revision"])
    folder = Path(settings_of("tiny_chartqa").data_root or "")
    hub_cache(tmp_path, "lmms-lab/ChartQA", commit, folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    loaded = benches.load(settings)
    assert len(loaded.inputs) == 48
    facts: Mapping[str, Any] = loaded.facts
    assert (facts["id"], facts["revision"]) == ("lmms-lab/ChartQA", commit)
    assert facts["source"] == "lmms-lab-encoder/ChartQA"


def test_a_ninth_benchmark_is_one_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README: one YAML file, and at most one small function for fields of its own."""
    folder = tmp_path / "data"
    folder.mkdir()
    source = pq.read_table(
        next(Path(settings_of("tiny_chartqa").data_root or "").rglob("*.parquet"))
    )
    table = pa.table({"prompt": source["question"], "photo": source["image"]})
    pq.write_table(table, folder / "dev-0.parquet")
    shutil.copytree(CONF, tmp_path / "conf")
    (tmp_path / "conf" / "bench" / "ninth.yaml").write_text(
        """defaults: [_base, _self_]
name: ninth
split: dev
splits: [dev]
sampled: 20
sources:
  - ids: [someone/Ninth]
    files: dev-*.parquet
    columns: {prompt: string, photo: image}
    fields: {question: prompt, image: photo}
"""
    )
    monkeypatch.setattr("experiments.compose.CONF", tmp_path / "conf")
    settings = settings_of("ninth", f"bench.data_root={folder}")
    loaded = benches.load(settings)
    assert loaded.frozen is None
    rows = np.random.default_rng(42).permutation(48)[:20]
    assert [item.input_id for item in loaded.inputs] == [f"ninth_{row:05d}" for row in rows]
