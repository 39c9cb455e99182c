"""Reading an output under other pictures, on both tiny models: against decoding it step by step."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from baselines.autoregressive import AutoregressiveDrafter
from experiments import benches, views
from experiments.benches import BenchInput
from experiments.compose import compose_cfg, plan_from_cfg
from experiments.plan import BenchSettings
from experiments.targets import load_target
from experiments.units import UnreadableImage, encode_turn
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs
from recap.core.tree import TokenTree
from recap.targets.hf import HFTarget, first_occurrences
from recap.targets.request import Request

TOKENS = 24


@dataclass(frozen=True)
class Setting:
    target: HFTarget
    bench: BenchSettings
    items: list[BenchInput]
    request: Request
    output: list[int]


@pytest.fixture(scope="module", params=["tiny_qwen25vl", "tiny_llava"])
def setting(request: pytest.FixtureRequest) -> Setting:
    plan = plan_from_cfg(compose_cfg(f"model={request.param}", "bench.num_inputs=3"))
    target = load_target(plan.model).target
    items = benches.load(plan.bench).inputs
    encoded = encode_turn(target, plan.bench, items[0], [])
    drafter = AutoregressiveDrafter(target.vocab_size)
    session = target.open(encoded, drafter.needs, TOKENS)
    output = decode(session, drafter, Limits(TOKENS)).output_ids
    session.close()
    return Setting(target, plan.bench, items, encoded, output)


def step_by_step(setting: Setting, view: Request) -> np.ndarray:
    """Log probabilities of the output tokens but the first, one decoding step each."""
    target, output = setting.target, setting.output
    session = target.open(view, Needs(topk=target.vocab_size), len(output))
    session.prefill()
    found = []
    for token, following in itertools.pairwise(output):
        rows = session.verify(TokenTree.root_only(token)).predictions
        place = rows.topk_ids[0].tolist().index(following)
        found.append(np.log(rows.topk_probs[0, place]))
        session.commit(np.zeros(1, np.int32))
    session.close()
    return np.array(found)


def read(setting: Setting, view: Request, tokens: Sequence[Sequence[int]]) -> Any:
    places = len(view.prompt_ids) + np.arange(len(tokens))
    hidden = views.read_along(setting.target, view, setting.output)
    assert len(hidden) == len(view.prompt_ids) + len(setting.output) - 1
    return views.log_probs(setting.target, hidden, places, np.array(tokens, np.int64))


def all_views(setting: Setting) -> dict[str, Request]:
    items = setting.items
    wrong = views.wrong_view(setting.target, setting.bench, items[0], items[1], setting.request)
    return {"own": setting.request, "mean": views.mean_view(setting.request), "wrong": wrong}


def test_log_probabilities_equal_those_of_decoding_under_every_view(setting: Setting) -> None:
    following = [[token] for token in setting.output[1:]]
    scores = {}
    for name, view in all_views(setting).items():
        choices, found = read(setting, view, following)
        assert choices.dtype == np.int32 and found.dtype == np.float64
        assert np.abs(found[:, 0] - step_by_step(setting, view)).max() < 1e-4
        scores[name] = found[:, 0]
        if name == "own":
            assert choices.tolist() == setting.output[1:]
    for name in ("mean", "wrong"):
        assert np.abs(scores[name] - scores["own"]).max() > 0.1, "the picture decides something"


def test_probabilities_are_over_the_whole_vocabulary(setting: Setting) -> None:
    everything = [list(range(setting.target.vocab_size))]
    choices, found = read(setting, setting.request, everything)
    assert views.log_mass(found[0]) == pytest.approx(0, abs=1e-5)
    assert choices[0] == found[0].argmax()


def test_chunks_do_not_change_the_scores(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    following = [[token, 5] for token in setting.output[1:]]
    whole = read(setting, setting.request, following)
    monkeypatch.setattr(views, "HEAD_CHUNK", 4)
    parts = read(setting, setting.request, following)
    assert np.array_equal(whole[0], parts[0])
    assert np.abs(whole[1] - parts[1]).max() < 1e-5


def test_rows_equal_those_of_the_engine(setting: Setting) -> None:
    target, request = setting.target, setting.request
    places = first_occurrences(request.prompt_ids, target.blocked_ids)
    hidden = views.read_along(target, request, setting.output)
    rows = views.prediction_rows(target, hidden, places, 8)
    session = target.open(request, Needs(topk=8, prompt_rows=True), TOKENS)
    expected = session.prefill().prompt_rows
    session.close()
    assert expected is not None
    assert np.array_equal(rows.next_token, expected.next_token)
    assert np.array_equal(rows.topk_ids, expected.topk_ids)
    assert np.abs(rows.topk_probs - expected.topk_probs).max() < 1e-5


def test_views_differ_in_pixels_only(setting: Setting) -> None:
    found = all_views(setting)
    own = found.pop("own")
    assert not found["mean"].inputs["pixel_values"].any()
    for view in found.values():
        assert np.array_equal(view.prompt_ids, own.prompt_ids)
        assert view.position_offset == own.position_offset
        for name, tensor in view.inputs.items():
            assert tensor.shape == own.inputs[name].shape
            assert torch.equal(tensor, own.inputs[name]) == (name != "pixel_values")


def test_a_donor_of_any_size_fits_the_targets_grid(setting: Setting) -> None:
    item, donor = setting.items[:2]
    for size in ((37, 301), (900, 60), item.open_image().size):
        content = io.BytesIO()
        donor.open_image().resize(size).save(content, "PNG")
        other = replace(donor, image_bytes=content.getvalue())
        view = views.wrong_view(setting.target, setting.bench, item, other, setting.request)
        assert np.array_equal(view.prompt_ids, setting.request.prompt_ids)


def test_a_broken_donor_is_an_unreadable_image(setting: Setting) -> None:
    item, donor = setting.items[:2]
    broken = replace(donor, image_bytes=b"no picture")
    with pytest.raises(UnreadableImage, match="unreadable image"):
        views.wrong_view(setting.target, setting.bench, item, broken, setting.request)


def test_an_output_that_names_a_placeholder_is_refused(setting: Setting) -> None:
    (placeholder,) = setting.target.blocked_ids
    with pytest.raises(ValueError, match="names an image placeholder"):
        views.read_along(setting.target, setting.request, [5, placeholder, 6])


def test_an_output_of_one_token_is_read_from_the_prompt_alone(setting: Setting) -> None:
    hidden = views.read_along(setting.target, setting.request, setting.output[:1])
    assert len(hidden) == len(setting.request.prompt_ids)
    nothing = np.empty(0, np.int64)
    assert len(views.prediction_rows(setting.target, hidden, nothing, 8)) == 0
