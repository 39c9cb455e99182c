"""Invented results, written once per session: every study on one tiny model, and both 7B models."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis import build
from analysis import data as scopes
from analysis.data import Data
from tests.analysis import synthetic


@pytest.fixture(scope="session")
def tiny_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every online study and the replayed captures on a tiny model and a CPU."""
    root = tmp_path_factory.mktemp("tiny")
    synthetic.write_all(root, units=4)
    return root


@pytest.fixture(scope="session")
def paper_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The main studies on both 7B models and an A100."""
    root = tmp_path_factory.mktemp("paper")
    for model in ("qwen25vl", "llava16"):
        for study in ("main", "mmspec", "fusion"):
            synthetic.write_study(root, study, model, synthetic.CUDA, units=3)
    return root


@pytest.fixture(scope="session")
def tiny_data(tiny_results: Path) -> Data:
    """The one scope of `tiny_results`."""
    return only_scope(tiny_results)


@pytest.fixture(scope="session")
def paper_data(paper_results: Path) -> Data:
    """The one scope of `paper_results`."""
    return only_scope(paper_results)


def only_scope(root: Path) -> Data:
    found, problems = scopes.load(root, build.make)
    assert not problems
    (data,) = found
    return data
