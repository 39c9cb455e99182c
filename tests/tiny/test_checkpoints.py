"""The committed checkpoints: how they load, how large they are, what they can see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import (
    AutoProcessor,
    LlavaNextForConditionalGeneration,
    Qwen2_5_VLForConditionalGeneration,
)

from experiments.tiny.evaluate import BARS, Score, evaluate
from experiments.tiny.models import CHECKPOINTS, MODELS, load
from experiments.tiny.tokenizer import CONTEXT
from recap.targets.qwen_processor import ImageOnlyQwenProcessor

SAMPLES_PER_TASK = 32


@pytest.fixture(scope="module", params=MODELS)
def loaded(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield (request.param, *load(request.param))
    torch.set_num_threads(threads)


def test_they_load_as_the_7b_ones_do() -> None:
    qwen = CHECKPOINTS / "tiny_qwen25vl"
    processor = ImageOnlyQwenProcessor.from_pretrained(qwen)
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(qwen)
    assert processor.image_token_id == model.config.image_token_id
    assert processor.image_processor.size["shortest_edge"] == 112 * 112
    assert processor.image_processor.size["longest_edge"] == 1280 * 28 * 28
    llava = CHECKPOINTS / "tiny_llava"
    processor = AutoProcessor.from_pretrained(llava)
    model = LlavaNextForConditionalGeneration.from_pretrained(llava)
    assert processor.image_token_id == model.config.image_token_id
    assert processor.image_processor.image_grid_pinpoints == model.config.image_grid_pinpoints


@pytest.mark.parametrize("name", MODELS)
def test_they_are_small_and_safe(name: str) -> None:
    files = {path.name: path for path in (CHECKPOINTS / name).iterdir()}
    assert {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json"} <= set(
        files
    )
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl", ".py"))]
    assert sum(path.stat().st_size for path in files.values()) <= 10_000_000
    config = json.loads(files["config.json"].read_text())
    assert config["dtype"] == "bfloat16"
    assert config["text_config"]["max_position_embeddings"] == CONTEXT
    assert not any(str(key).startswith("auto_map") for key in config)


def test_parameters_and_stop_tokens(loaded: tuple[str, Any, Any]) -> None:
    name, model, processor = loaded
    assert sum(p.numel() for p in model.parameters()) <= 5_000_000
    assert model.dtype == torch.float32
    stops = model.generation_config.eos_token_id
    stops = stops if isinstance(stops, list) else [stops]
    assert processor.tokenizer.eos_token_id in stops
    assert len(stops) == (2 if name == "tiny_qwen25vl" else 1)
    assert len(processor.tokenizer) <= model.config.text_config.vocab_size


@pytest.mark.parametrize("size", [(112, 112), (640, 427), (333, 1000)])
def test_photographs_go_through(loaded: tuple[str, Any, Any], size: tuple[int, int]) -> None:
    """Any picture size encodes, and the number of image tokens is what the model expects."""
    name, model, processor = loaded
    picture = Image.effect_noise(size, 60).convert("RGB")
    inputs = processor(images=[picture], text=[processor.image_token], return_tensors="pt")
    count = int((inputs["input_ids"] == processor.image_token_id).sum())
    with torch.no_grad():
        model(**inputs)  # raises when features and placeholders do not match
    if name == "tiny_qwen25vl":
        assert count == int(inputs["image_grid_thw"].prod()) // 4 <= 1280
        assert "mm_token_type_ids" in inputs
    else:
        tiles = inputs["pixel_values"].shape[1]
        assert 16 < count < 340 and tiles == {112: 2, 640: 17, 333: 17}[size[0]]


def test_newline_embeddings_separate_the_rows() -> None:
    """LLaVA-NeXT's packing: 4 x 4 base tokens, then 4 rows of 4 with a newline after each."""
    model, processor = load("tiny_llava")
    inputs = processor(images=[Image.new("RGB", (112, 112))], text=["<image>"], return_tensors="pt")
    with torch.no_grad():
        packed = model.get_image_features(
            inputs["pixel_values"], inputs["image_sizes"]
        ).pooler_output[0]
    newline = (packed == model.model.image_newline).all(-1).nonzero().flatten().tolist()
    assert len(packed) == 36 and newline == [20, 25, 30, 35]


@pytest.mark.parametrize("name", MODELS)
def test_answers_depend_on_the_picture(name: str) -> None:
    """The bar holds on the first held-out samples of every task; a wrong picture ruins it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    scores = evaluate(name, SAMPLES_PER_TASK)
    torch.set_num_threads(threads)
    wrong = scores.pop("swapped")
    right = sum(scores.values(), Score())
    assert right.accuracy >= BARS[name], scores
    assert 40 <= right.tokens / right.answers <= 150
    assert wrong.accuracy < 0.35, wrong
