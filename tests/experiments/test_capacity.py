"""The recorded prompt lengths: recomputed where MMSpec is at hand, and what is said of them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import Qwen2VLImageProcessorPil
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

from experiments import capacity, compose
from experiments.plan import REPOSITORY
from tests.targets.full_size_models import full_size_target
from tests.targets.models import picture, turn

ROOT = os.environ.get("MMSPEC_ROOT", "")
needs_mmspec = pytest.mark.skipif(not ROOT, reason="MMSPEC_ROOT is not set")
ROWS = capacity.read_table()
SIZES = sorted({(row.width, row.height) for row in ROWS})


def test_the_record_covers_the_benchmark() -> None:
    assert len(ROWS) == 723 and len({row.unit_id for row in ROWS}) == 723
    assert [row.id for row in ROWS if row.turn == 0] == [f"mmspec_{i:03d}" for i in range(1, 601)]
    assert Counter(row.turn for row in ROWS) == {0: 600, 1: 70, 2: 52, 3: 1}


def test_longest_prompts_are_the_prompts_with_answers_of_full_length() -> None:
    for row in ROWS:
        assert row.qwen25vl_longest == row.qwen25vl_prompt + 200 * row.turn
        assert row.llava16_longest == row.llava16_prompt + 200 * row.turn
        assert row.llava16_prompt > row.llava16_image > 0


# Means per topic, Qwen and LLaVA, found independently of this code.
MEANS = {
    "general vqa": (353, 2204),
    "text vqa": (987, 2354),
    "image captioning": (354, 2209),
    "chart understanding": (885, 2229),
    "complex reasoning pro": (486, 1907),
    "multi-turn conversation": (1012, 2245),
}


@pytest.mark.parametrize("topic", MEANS)
def test_means_agree_with_independent_ones(topic: str) -> None:
    first = [row for row in ROWS if row.topic == topic and row.turn == 0]
    qwen = sum(row.qwen25vl_image for row in first) / len(first)
    llava = sum(row.llava16_image for row in first) / len(first)
    assert (round(qwen), round(llava)) == MEANS[topic]


def test_extremes_agree_with_independent_ones() -> None:
    assert max(row.qwen25vl_image for row in ROWS) == 1271
    llava = [row.llava16_image for row in ROWS]
    assert (min(llava), max(llava)) == (1066, 2928)


def test_the_checkpoints_own_bounds_would_give_far_longer_prompts() -> None:
    own = Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=16384 * 28 * 28)
    tokens = [own.get_number_of_image_patches(row.height, row.width) // 4 for row in ROWS]
    assert max(tokens) == 8436


def test_every_unit_fits_llava_at_200_new_tokens() -> None:
    assert capacity.overlong(ROWS, "llava16", 200) == []
    assert capacity.overlong(ROWS, "llava16", 349) == []
    assert [row.unit_id for row in capacity.overlong(ROWS, "llava16", 350)] == ["mmspec_546:2"]
    assert len(capacity.overlong(ROWS, "llava16", 1024)) == 113


def test_a_conversation_fits_up_to_its_share_of_the_context() -> None:
    row = replace(ROWS[0], turn=2, llava16_prompt=3000)
    assert capacity.fits_up_to(row, "llava16") == 365  # (4096 - 3000) / (two answers + its own)
    assert capacity.overlong([row], "llava16", 365) == []
    assert capacity.overlong([row], "llava16", 366) == [row]


def test_the_documentation_shows_these_tables() -> None:
    text = (REPOSITORY / "docs" / "capacity.md").read_text(encoding="utf-8")
    for model in capacity.MODELS:
        assert capacity.topic_table(ROWS, model) in text
    assert capacity.unit_table(capacity.tightest(ROWS, "llava16"), "llava16") in text


def test_the_table_survives_reading_and_writing() -> None:
    assert capacity.table_text(ROWS) == capacity.TABLE.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [SIZES[0], SIZES[len(SIZES) // 2], SIZES[-1], (1024, 1024)])
@pytest.mark.parametrize("model", capacity.MODELS)
def test_counted_image_tokens_are_those_of_an_encoded_picture(
    model: str, size: tuple[int, int]
) -> None:
    counted = capacity.image_tokens(capacity.image_counters(), *size)[model]
    request = full_size_target(model).encode(turn("?"), [picture(*size, 1)])
    assert request.num_image_tokens == counted


def test_counted_image_tokens_are_the_features_llava_packs() -> None:
    """All sizes of the benchmark, by the model's own code, on shapes alone."""
    model, counters = full_size_target("llava16").model, capacity.image_counters()
    newline = torch.empty(8, device="meta")
    for width, height in SIZES:
        tiles = image_size_to_num_patches((height, width), model.config.image_grid_pinpoints, 336)
        features = [torch.empty(tiles, 576, 8, device="meta")]
        sizes = torch.tensor([[height, width]])
        packed, _ = model.model.pack_image_features(features, sizes, "default", newline)
        counted = capacity.image_tokens(counters, width, height)["llava16"]
        assert sum(len(each) for each in packed) == counted, (width, height)


@pytest.mark.mmspec
@needs_mmspec
def test_recorded_image_tokens_are_those_of_the_pictures() -> None:
    overrides = ("bench=mmspec", f"bench.data_root={ROOT}")
    bench = compose.plan_from_cfg(compose.compose_cfg(*overrides)).bench
    recorded = {row.unit_id: row for row in ROWS}
    assert capacity.count(bench, {}, recorded) == ROWS


@pytest.mark.mmspec
@needs_mmspec
def test_the_command_agrees_with_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.main(["--data-root", ROOT]) == 0
    out = capsys.readouterr().out
    assert "0 of 723 units may exceed the context at max_new_tokens=200" in out
    assert "All 723 units are as recorded" in out


def test_the_command_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert capacity.main(["--data-root", "/no/such"]) == 2
    assert "bench.data_root=/no/such does not exist" in capsys.readouterr().err
