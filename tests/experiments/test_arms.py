"""Divergence from AR, and running out of memory: what exact arithmetic never shows by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from experiments import runner
from experiments.arms import divergence
from experiments.errors import UserError
from experiments.records import read_records
from tests.experiments.conftest import MakePlan
from tests.experiments.fakes import SCRIPT, FakeTarget
from tests.experiments.test_runner import run_folder

QUESTION = "one two three"  # the script answers it at length


@pytest.mark.parametrize("index", [1, 2, 5])
def test_divergence_names_the_first_difference_and_ars_margin_there(index: int) -> None:
    target = FakeTarget()
    request = target.encode([{"content": [{"text": QUESTION}]}])
    prompt = request.prompt_ids.tolist()
    reference = SCRIPT.greedy(prompt, 8)
    assert len(reference) > index
    output = [*reference[:index], 99, *reference[index + 1 :]]
    logits = np.sort(SCRIPT.logits(prompt + reference[:index]))
    found = divergence(target, request, reference, output)  # type: ignore[arg-type]
    assert found is not None
    assert found["index"] == index
    assert found["ar_margin"] == pytest.approx(logits[-1] - logits[-2], abs=1e-5)


def test_no_divergence_an_early_end_and_the_prefills_token() -> None:
    target = FakeTarget()
    request = target.encode([{"content": [{"text": QUESTION}]}])
    reference = SCRIPT.greedy(request.prompt_ids.tolist(), 8)

    def found(output: list[int]) -> object:
        return divergence(target, request, reference, output)  # type: ignore[arg-type]

    assert found(list(reference)) is None
    assert found(reference[:4])["index"] == 4  # type: ignore[index]
    assert found([99, *reference[1:]]) == {"index": 0, "ar_margin": None}


def test_running_out_of_memory_costs_one_arm_of_one_unit(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust() -> None:
        if target.verified == 30:
            raise torch.OutOfMemoryError("no memory left")

    monkeypatch.setattr(target, "before_verify", exhaust)
    with pytest.raises(UserError, match="1 of 9 units are bad"):
        runner.run_plan(make_plan())
    records = read_records(run_folder(tmp_path) / "records.jsonl")
    (bad,) = [r for r in records if r.status == "error"]
    assert bad.error == "out of memory: no memory left"
    assert sum(r.status == "ok" for r in records) >= 16


def test_arms_may_see_their_own_answers(
    make_plan: MakePlan, target: FakeTarget, tmp_path: Path
) -> None:
    summary = runner.run_plan(make_plan("history=own"))
    assert summary["arms"]["recap"]["exact_match"] == {"equal": 9, "of": 9}
    records = read_records(run_folder(tmp_path) / "records.jsonl")
    later = [r for r in records if r.turn == 1]
    assert len(later) == 6
    assert all(r.status == "ok" and r.divergence is None for r in later)
