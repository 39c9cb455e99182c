from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from experiments import compose, runner
from experiments.plan import RunPlan
from tests.experiments.fakes import FakeTarget

TOPICS = ("general vqa", "multi-turn conversation")


@pytest.fixture
def mmspec_root(tmp_path: Path) -> Path:
    """Six small inputs in the upstream layout; the last three have two turns."""
    images = tmp_path / "data" / "test" / "images"
    images.mkdir(parents=True)
    rows = []
    for i in range(6):
        Image.new("RGB", (32 + i, 40), (i * 20, 0, 0)).save(images / f"m{i}.jpg")
        turns = [f"What is number {i} here ?"] + (["And what is next to it ?"] if i >= 3 else [])
        topic = TOPICS[i >= 3]
        row = {"id": f"m{i}", "image": f"m{i}.jpg", "turns": turns, "category": "c", "topic": topic}
        rows.append(json.dumps(row))
    (tmp_path / "data" / "test" / "mmspec.jsonl").write_text("\n".join(rows) + "\n")
    return tmp_path / "data"


MakePlan = Callable[..., RunPlan]


@pytest.fixture
def make_plan(mmspec_root: Path, tmp_path: Path) -> MakePlan:
    """Compose a plan over the small MMSpec folder; further overrides as arguments."""

    def make(*overrides: str) -> RunPlan:
        defaults = [
            "bench=mmspec",
            f"bench.data_root={mmspec_root}",
            "bench.manifests=null",
            "max_new_tokens=12",
            "warmup=false",
            f"results_root={tmp_path / 'runs'}",
        ]
        return compose.plan_from_cfg(compose.compose_cfg(*defaults, *overrides))

    return make


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> FakeTarget:
    """The scripted target in the place of a loaded model."""
    fake = FakeTarget()
    loaded: Any = SimpleNamespace(target=fake, settings={"family": "fake"})
    monkeypatch.setattr(runner, "load_target", lambda settings: loaded)
    monkeypatch.setattr(runner, "weights_fingerprint", lambda model: "fake")
    return fake
