"""Rows of the own picture against a swapped one's: by hand, against the replay, and a tiny run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import benches, image_rows, runner
from experiments.compose import compose_cfg, plan_from_cfg
from experiments.image_rows import SOURCES, Comparison, Rows, Text
from experiments.replay import Replay
from experiments.runner import FinishedRun
from experiments.swaps import Swap
from tests.experiments.fakes import FakeTarget
from tests.experiments.trajectories import (
    PLACEHOLDER,
    VOCABULARY,
    predictions,
    random_trajectory,
)

PROBS = [0.5, 0.3, 0.2]
COMPARISON = Comparison(VOCABULARY)  # shared: an input must not see what another one left


def compared(
    outputs: list[int],
    matching: list[list[int]],
    swapped: list[list[int]],
    seeds: tuple[list[int], list[int]] | None = None,
) -> dict[str, int]:
    """Counts over an output behind the prompt 1 2, whose rows under both pictures are given."""
    text = Text(*(np.array(ids, np.int32) for ids in ([1, 2], outputs, [PLACEHOLDER], [1, 2])))
    prompts = [[[0, 0, 0], list(ids)] for ids in seeds or ([7, 8, 6], [7, 8, 6])]
    rows = {
        picture: Rows(predictions(prompt, PROBS), predictions(own, PROBS))
        for picture, prompt, own in zip(
            image_rows.PICTURES, prompts, (matching, swapped), strict=True
        )
    }
    counts = COMPARISON.count(text, rows, seed_prompt=seeds is not None)
    return {name: count for name, count in counts.items() if count}


def counted(*sources: str, **numbers: int) -> dict[str, int]:
    return {f"{source}.{name}": n for source in sources for name, n in numbers.items() if n}


FUSED = tuple(image_rows.FUSED)
IDLE = [0, 7, 8]


def test_a_row_of_the_own_picture_recalls_what_the_swapped_one_does_not() -> None:
    """Roots 4 5 4. The second 4 finds U's row alone: 5 6 7 or 1 2 3, and 6 is said."""
    counts = compared([4, 5, 4, 6], [[5, 6, 7], IDLE, IDLE], [[1, 2, 3], IDLE, IDLE])
    assert counts == counted("U", *FUSED, states=1, matching=1)


def test_longer_keys_hold_rows_of_the_same_source_positions() -> None:
    """Roots 3 4 5 3 4 5: at the second 5, G, C and U hold the row of the first; at the second 4,
    C and U do, G is behind 2 3 4 there.
    """
    rows = [IDLE, [5, 6, 7], [8, 6, 7], IDLE, IDLE, IDLE]
    other = [IDLE, [5, 6, 7], [1, 2, 3], IDLE, IDLE, IDLE]
    counts = compared([3, 4, 5, 3, 4, 5, 8], rows, other)
    assert counts == (
        counted("U", *FUSED, states=3, matching=2, swapped=1)
        | counted("C", states=2, matching=2, swapped=1)
        | counted("G", states=1, matching=1)
    )


def test_lists_are_cut_to_the_shorter_one() -> None:
    """The own picture's row has lost the placeholder, so the swapped one's third id is cut."""
    counts = compared([4, 5, 4, 3], [[PLACEHOLDER, 6, 7], IDLE, IDLE], [[1, 2, 3], IDLE, IDLE])
    assert counts == counted("U", *FUSED, states=1)


def test_the_prompts_rows_are_of_the_picture_too_where_they_seed() -> None:
    outputs, idle = [2, 6], [IDLE]
    assert compared(outputs, idle, idle) == {}
    counts = compared(outputs, idle, idle, seeds=([6, 7, 8], [3, 7, 8]))
    assert counts == counted("U", *FUSED, states=1, matching=1)


@pytest.mark.parametrize("outputs", [[], [4]])
def test_outputs_without_a_decoded_token_have_no_state(outputs: list[int]) -> None:
    assert compared(outputs, [], []) == {}


@given(st.integers(0, 2**32 - 1), st.integers(0, 20), st.booleans())
@settings(max_examples=40)
def test_equal_pictures_recall_what_the_replay_recalls(
    seed: int, num_outputs: int, seed_prompt: bool
) -> None:
    trajectory = random_trajectory(np.random.default_rng(seed), num_outputs)
    text = Text(
        trajectory.prompt_ids,
        trajectory.output_ids,
        trajectory.blocked,
        trajectory.prompt_row_tokens,
    )
    rows = Rows(trajectory.prompt_rows, trajectory.rows)
    counts = COMPARISON.count(text, dict.fromkeys(image_rows.PICTURES, rows), seed_prompt)
    expected = REPLAY.count(trajectory, seed_prompt)
    for source in ("U", "C", "G"):
        assert counts[f"{source}.states"] == expected[f"covered.{source}"]
        assert counts[f"{source}.matching"] == expected[f"hits.{source}"]
    rules = {"fusion": "recap", "fixed_prior": "without_confidence"}
    for source in FUSED:
        assert counts[f"{source}.matching"] == expected[f"rules.{rules.get(source, source)}"]
    for source in SOURCES:
        assert counts[f"{source}.matching"] == counts[f"{source}.swapped"]


REPLAY = Replay(VOCABULARY)


# A run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    options = ["study=replay", "study.after=[image_rows]", "bench=tiny_textvqa"]
    options += ["bench.num_inputs=8", "max_new_tokens=48", "warmup=false", f"results_root={root}"]
    runner.run_plan(plan_from_cfg(compose_cfg(*options)))
    (folder,) = root.glob("tiny_qwen25vl/tiny_textvqa/replay/*")
    return folder


def test_matching_pictures_beat_swapped_ones(finished: Path) -> None:
    document = json.loads((finished / "image_rows.json").read_text())
    assert len(document["units"]) == 8 and document["left_out"] == {}
    assert len(set(document["donors"])) == 8 and not any(document["reused"])
    for start in image_rows.STARTS:
        assert list(document[start]) == list(SOURCES)
        total = {name: sum(counts) for name, counts in document[start]["fusion"].items()}
        assert total["states"] > 50
        assert total["matching"] > total["swapped"]
    assert sum(document["seeded"]["U"]["states"]) > sum(document["empty"]["U"]["states"])
    for source in ("C", "G"):
        assert document["seeded"][source] == document["empty"][source]


def test_a_complete_run_is_not_read_again(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_from_cfg(compose_cfg("study=replay"))
    seeing: Any = FakeTarget()
    image_rows.after_run(FinishedRun(plan, finished, seeing, []))
    assert "is complete" in capsys.readouterr().out


@pytest.mark.parametrize("text_only", [True, False])
def test_models_and_benchmarks_without_pictures_to_swap_are_passed_over(
    text_only: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = "tiny_chartqa" if text_only else "tiny_mixed4"
    plan = plan_from_cfg(compose_cfg("study=replay", f"bench={bench}"))
    target: Any = FakeTarget()
    target.text_only = text_only
    image_rows.after_run(FinishedRun(plan, tmp_path, target, []))
    assert "only for a model that sees them" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_inputs_that_cannot_be_read_are_named_and_left_out(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_from_cfg(compose_cfg("study=replay", "bench=tiny_textvqa", "bench.num_inputs=8"))
    inputs = benches.load(plan.bench).inputs

    def refuse(run: FinishedRun, swap: Swap) -> Any:
        raise ValueError(f"no picture for {swap.item.input_id}")

    monkeypatch.setattr(image_rows, "_read", refuse)
    seeing: Any = FakeTarget()
    document = image_rows.compare(FinishedRun(plan, finished, seeing, inputs))
    assert document["left_out"] == {
        f"{item.input_id}:0": f"no picture for {item.input_id}" for item in inputs
    }
    assert document["units"] == [] == document["seeded"]["fusion"]["states"]
