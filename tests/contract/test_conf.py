"""Contracts over ``conf/``: entries are found by folder, so a new YAML needs no new test."""

from __future__ import annotations

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
import yaml

from experiments import compose
from experiments.compose import config_names
from experiments.plan import REPOSITORY
from experiments.targets import _OPTIONS
from recap.config import RecapConfig


@pytest.mark.parametrize("group", ["model", "bench", "method"])
def test_every_entry_composes_under_its_own_name(group: str) -> None:
    assert config_names(group)
    for name in config_names(group):
        cfg = compose.compose_cfg(f"{group}={name}")
        assert cfg[group].name == name
        compose.plan_from_cfg(cfg)


@pytest.mark.parametrize("model", config_names("model"))
def test_model_options_exist(model: str) -> None:
    options = set(compose.compose_cfg(f"model={model}").model) - {"name"}
    assert options <= set(_OPTIONS)


def test_recap_yaml_states_every_setting_with_its_default() -> None:
    node = yaml.safe_load((REPOSITORY / "conf/method/recap.yaml").read_text())["config"]
    node.pop("_target_")
    fields = {f.name: f.default for f in dataclasses.fields(RecapConfig)}
    assert {k: tuple(v) if isinstance(v, list) else v for k, v in node.items()} == fields


def test_public_options_are_frozen() -> None:
    """Growing the command line is a deliberate change of this list."""
    expected = """model bench method max_new_tokens dtype device arms timing reset history null
    order_seed repeat warmup dry_run results_root"""
    assert sorted(compose.compose_cfg()) == sorted(expected.split())


def test_readme_commands_compose() -> None:
    text = (REPOSITORY / "README.md").read_text()
    commands = re.findall(r"^python run\.py ([^#\n]*)", text, flags=re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        overrides = [part.strip("'") for part in re.findall(r"'[^']*'|\S+", command)]
        if "-m" not in overrides:
            compose.plan_from_cfg(compose.compose_cfg(*overrides))


def test_every_module_imports() -> None:
    for package in ("recap", "baselines", "experiments", "analysis"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            parts = path.relative_to(REPOSITORY).with_suffix("").parts
            importlib.import_module(".".join(parts).removesuffix(".__init__"))


def test_makefile_describes_every_target() -> None:
    text = (REPOSITORY / "Makefile").read_text()
    targets = re.findall(r"^([a-z0-9-]+):", text, flags=re.MULTILINE)
    described = re.findall(r"^([a-z0-9-]+):.*## ", text, flags=re.MULTILINE)
    assert sorted(targets) == sorted(described)
    assert Path(REPOSITORY / ".ci" / "run").stat().st_mode & 0o100
