"""From overrides to arms."""

from __future__ import annotations

import pytest

from experiments import compose
from experiments.errors import UserError
from experiments.plan import RunPlan


def plan(*overrides: str) -> RunPlan:
    return compose.plan_from_cfg(compose.compose_cfg(*overrides))


def test_one_method_runs_against_ar_without_a_null_arm() -> None:
    assert [arm.name for arm in plan().arms] == ["ar", "recap"]
    assert [arm.name for arm in plan("null=true").arms] == ["ar", "recap", "null"]


def test_the_control_run_is_ar_against_ar() -> None:
    assert [arm.name for arm in plan("method=ar").arms] == ["ar", "null"]
    with pytest.raises(UserError, match="nothing to compare"):
        plan("method=ar", "null=false")


def test_two_methods_bring_the_null_arm_along() -> None:
    arms = plan("arms=[recap,{name: bare, config: {suffix_tokens: 0}}]").arms
    assert [arm.name for arm in arms] == ["ar", "recap", "bare", "null"]
    assert arms[2].config["config"]["suffix_tokens"] == 0
    assert arms[1].config["config"]["suffix_tokens"] == 4


def test_arms_of_the_selected_method_inherit_the_command_line() -> None:
    arms = plan("method.config.width=3", "arms=[recap,{name: deep, config: {depth: 12}}]").arms
    assert arms[1].config["config"]["width"] == 3
    assert (arms[2].config["config"]["width"], arms[2].config["config"]["depth"]) == (3, 12)


def test_flat_methods_take_their_options_directly() -> None:
    arms = plan("arms=[{name: last, method: token_recycling, config: {duplicates: last}}]").arms
    assert arms[1].config["duplicates"] == "last"
    with pytest.raises(UserError, match=r"Unknown option of method .*duplicate.*: duplicates"):
        plan("arms=[{method: token_recycling, config: {duplicate: last}}]")


def test_all_arms_are_all_methods() -> None:
    everything = plan("arms=all")
    assert everything.label == "all"
    methods = [arm.name for arm in everything.arms[1:-1]]
    assert methods == [name for name in compose.config_names("method") if name != "ar"]


def test_resets_belong_to_arms() -> None:
    arms = plan("reset=task", "arms=[recap,{name: fresh, reset: request}]").arms
    assert [arm.reset for arm in arms] == ["stream", "task", "request", "stream"]
    with pytest.raises(UserError, match="Valid: request"):
        plan("arms=[{method: recap, reset: requests}]")


def test_dtype_and_device_reach_the_model() -> None:
    model = plan("dtype=bfloat16", "device=cuda").model
    assert (model["dtype"], model["device"]) == ("bfloat16", "cuda")
