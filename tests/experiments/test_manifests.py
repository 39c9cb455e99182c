"""Frozen inputs: row lists against independent figures, freezing, and readable differences."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from experiments import benches, freeze, manifests
from experiments.compose import config_names
from experiments.errors import UserError
from experiments.freeze import settings_of
from experiments.plan import REPOSITORY

ROOT = os.environ.get("MMSPEC_ROOT", "")
needs_mmspec = pytest.mark.skipif(not ROOT, reason="MMSPEC_ROOT is not set")

# First six rows, and the start of sha256 over the first thousand joined by commas: made with
# datasets.Dataset.shuffle(seed=42) on tables of these sizes.
KNOWN = {
    "ocrbench": (1000, [978, 933, 859, 916, 127, 608], "311f75f1b1ee2964"),
    "mathvista": (1000, [978, 933, 859, 916, 127, 608], "311f75f1b1ee2964"),
    "scienceqa": (2017, [1011, 1185, 448, 1521, 1350, 1178], "d27c30e75d10930b"),
    "chartqa": (2500, [557, 1681, 257, 1388, 1557, 1688], "e126b08522fe9c61"),
    "mmt_bench": (3127, [1437, 78, 2427, 404, 3121, 769], "ed6ea582f5362adc"),
    "textvqa": (5000, [1535, 1183, 3378, 3825, 643, 90], "dc7838158a3bf6c7"),
    "seed_bench": (14233, [14159, 9907, 10960, 13232, 9498, 3983], "54deefb18c4c5bd6"),
}


@pytest.mark.parametrize("bench", KNOWN)
def test_row_lists_are_the_papers_permutation(bench: str) -> None:
    rows, first, digest = KNOWN[bench]
    settings = settings_of(bench)
    assert settings.rows == rows
    manifest = manifests.read(settings)
    assert manifest is not None
    listed = [entry.source_index for entry in manifest.entries]
    assert listed[:6] == first
    assert hashlib.sha256(",".join(map(str, listed)).encode()).hexdigest()[:16] == digest
    assert listed == manifests.chosen_rows(rows, 1000)
    assert listed[:100] == manifests.chosen_rows(rows, 100)
    assert [entry.position for entry in manifest.entries] == list(range(1000))


FROZEN = [name for name in config_names("bench") if settings_of(name).layout != "mixed"]


@pytest.mark.parametrize("bench", FROZEN)
def test_every_benchmark_has_a_manifest_with_its_rule(bench: str) -> None:
    settings = settings_of(bench)
    manifest = manifests.read(settings)
    assert manifest is not None
    assert manifest.rule["bench"] == bench
    assert manifest.rule["split"] == settings.split
    assert manifest.rule["hashes"] == all(entry.picture is not None for entry in manifest.entries)
    known = manifest.rule.get("rows_after_filter", manifest.rule.get("rows"))
    assert known == settings.rows


def test_mmspec_is_whole() -> None:
    """Figures of the public data set's own description."""
    settings = settings_of("mmspec")
    manifest = manifests.read(settings)
    assert manifest is not None
    entries = manifest.entries
    assert len(entries) == 600 and sum(entry.num_turns or 0 for entry in entries) == 723
    assert set(Counter(entry.category for entry in entries).values()) == {100}
    assert [entry.question_id for entry in entries] == [f"mmspec_{n:03d}" for n in range(1, 601)]
    multi = [entry for entry in entries if entry.category == "multi-turn conversation"]
    assert sum(entry.num_turns or 0 for entry in multi) == 223
    assert Counter(entry.num_turns for entry in multi) == {1: 30, 2: 18, 3: 51, 4: 1}
    assert manifest.rule["table_sha256"].startswith("440028aaa95325919659675b1f7239a5")
    clusters = [entry.cluster_id for entry in entries]
    assert len(set(clusters)) == 599 and clusters[495] == clusters[496]
    mini = manifests.read(settings_of("mmspec", "bench.split=testmini"))
    assert mini is not None and len(mini.entries) == 60
    assert mini.rule["table_sha256"].startswith("346592beab5743c0f6008486692dd375")


@needs_mmspec
@pytest.mark.mmspec
def test_the_ablations_subset_of_mmspec() -> None:
    settings = settings_of("mmspec", f"bench.data_root={ROOT}", "bench.per_topic=20")
    inputs = benches.load(settings).inputs
    assert len(inputs) == 120 and sum(len(item.turns) for item in inputs) == 160
    assert len({item.image_digest for item in inputs}) == 120
    all_images = Path(ROOT) / "test" / "images"
    lines = "".join(
        f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in sorted(all_images.glob("*.jpg"))
    )
    digest = hashlib.sha256(lines.encode()).hexdigest()
    assert digest == "e0e85a3ac2c75671877966bfc6301f380a7fd33aaf5945a0f2b4c370adb0a682"


def test_freezing_again_gives_the_same_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = REPOSITORY / "data_manifests"
    for bench in ("tiny_seed_bench", "tiny_mmspec"):
        print(freeze.freeze(settings_of(bench, f"bench.manifests={tmp_path}")))
        assert (tmp_path / f"{bench}.jsonl").read_bytes() == (
            shipped / f"{bench}.jsonl"
        ).read_bytes()
    monkeypatch.setattr(sys, "argv", ["freeze", "chartqa", "--data-root", "nowhere"])
    assert freeze.main() == 2
    assert "Error: bench.data_root=nowhere does not exist" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["freeze", "chartqq"])
    assert freeze.main() == 2
    assert "Unknown bench 'chartqq'. Valid: chartqa" in capsys.readouterr().err


def test_row_lists_are_written_without_data_and_never_over_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(REPOSITORY / "data_manifests", tmp_path, dirs_exist_ok=True)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.*")}
    (tmp_path / "textvqa.jsonl").unlink()
    original = freeze.settings_of
    monkeypatch.setattr(
        freeze, "settings_of", lambda bench: replace(original(bench), manifests=str(tmp_path))
    )
    freeze.write_row_lists()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.*")} == before


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The tiny MMSpec, to be damaged."""
    folder = tmp_path / "mmspec"
    shutil.copytree(settings_of("tiny_mmspec").data_root or "", folder)
    return folder


def load(folder: Path, *overrides: str) -> list[benches.BenchInput]:
    settings = settings_of("tiny_mmspec", f"bench.data_root={folder}", *overrides)
    return benches.load(settings).inputs


def test_another_picture_and_a_missing_one_are_named(copy: Path) -> None:
    images = copy / "test" / "images"
    shutil.copy(images / "mmspec_002.jpg", images / "mmspec_001.jpg")
    (images / "mmspec_003.jpg").unlink()
    with pytest.raises(UserError) as error:
        load(copy)
    lines = str(error.value).split("\n")
    assert "The data differs from the frozen inputs in" in lines[0]
    assert lines[1].startswith("  mmspec_001: another picture: frozen ")
    assert lines[2] == "  mmspec_003: its picture cannot be read (FileNotFoundError)"
    assert "bench.manifests=null" in lines[-1]
    assert len(load(copy, "bench.manifests=null")) == 48


def test_a_picture_encoded_anew_is_told_from_another_one(copy: Path) -> None:
    path = copy / "test" / "images" / "mmspec_001.jpg"
    items = load(copy)
    items[0].open_image().save(path.with_suffix(".png"))
    path.with_suffix(".png").rename(path)
    with pytest.raises(UserError, match="mmspec_001: its picture has the same pixels in another"):
        load(copy)


def test_another_text_is_named_with_its_input(copy: Path) -> None:
    table = copy / "test" / "mmspec.jsonl"
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[40]["turns"][0] += "?"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError) as error:
        load(copy)
    assert "table_sha256: frozen " in str(error.value)
    assert "mmspec_041: sha256 of its texts: frozen" in str(error.value)


def test_a_row_list_belongs_to_one_source(tmp_path: Path) -> None:
    """The copies of a data set differ in their order, so another copy is another sample."""
    fixture = Path(__file__).parents[1] / "fixtures" / "benches" / "chartqa__huggingfacem4"
    settings = settings_of("chartqa", f"bench.data_root={fixture}", f"bench.manifests={tmp_path}")
    rule = {"source": "lmms-lab-encoder/ChartQA", "hashes": False}
    manifests.write(tmp_path / "chartqa.jsonl", rule, manifests.index_entries(5, 1000))
    with pytest.raises(UserError, match="source: frozen lmms-lab-encoder/ChartQA, found Hugging"):
        benches.load(replace(settings, rows=5))


@pytest.mark.parametrize("damage", ["{", '{"position": 0}\n', '{"position":0,"row":1}\n', ""])
def test_a_damaged_manifest_is_a_sentence(tmp_path: Path, damage: str) -> None:
    settings = settings_of("tiny_chartqa", f"bench.manifests={tmp_path}")
    path = tmp_path / "tiny_chartqa.jsonl"
    path.write_text(damage)
    path.with_suffix(".yaml").write_text(yaml.safe_dump({"source": "x", "hashes": True}))
    with pytest.raises(UserError, match="is damaged"):
        benches.load(settings)
