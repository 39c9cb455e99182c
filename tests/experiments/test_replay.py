"""The offline replay: against counts by hand, and against dictionaries and brute force."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import capture, replay
from experiments.capture import Trajectory
from experiments.errors import UserError
from recap.config import RecapConfig
from recap.core.tree import TokenTree
from tests.experiments.trajectories import (
    PLACEHOLDER,
    VOCABULARY,
    captured,
    captured_folder,
    make_trajectory,
    predictions,
)
from tests.experiments.trajectories import random_trajectory as random_one
from tests.reference.drafter import ReferenceDrafter, Row, pack, rows_of
from tests.reference.suffix import suffix_path

# By hand


def by_hand(trajectory: Trajectory, seed_prompt: bool = False) -> dict[str, int]:
    counts = replay.Replay(VOCABULARY).count(trajectory, seed_prompt)
    return {name: count for name, count in counts.items() if count}


def group(counts: dict[str, int], name: str) -> dict[str, int]:
    return {
        key.partition(".")[2]: count for key, count in counts.items() if key.startswith(f"{name}.")
    }


IDLE = [6, 7, 8]  # tokens that are predicted here and there and never said


def test_sources_rules_and_matched_lengths_of_a_text_counted_by_hand() -> None:
    """Roots 4 5 2 3 5 0 4 5. The second 5 finds U's row alone, the second 4 too; the third 5 finds
    U's newer row and, behind 4, the older one in C, whose best id is blocked.
    """
    rows = [IDLE] * 8
    rows[1] = [PLACEHOLDER, 8, 7]
    probs = [[0.5, 0.3, 0.2]] * 8
    probs[4] = [0.6, 0.3, 0.1]
    text = make_trajectory(
        [1], predictions([IDLE], probs[0]), [4, 5, 2, 3, 5, 0, 4, 5, 8], predictions(rows, probs)
    )
    counts = by_hand(text)
    assert group(counts, "covered") == {"U": 3, "C": 1}
    assert group(counts, "hits") == {"U": 1, "C": 1}
    assert group(counts, "joint") == {}
    assert group(counts, "rules") == dict.fromkeys(replay.RULES, 1)
    assert group(counts, "disagreement") == {"states": 1} | dict.fromkeys(replay.RULES, 1)
    # Trees of 2, 3 and 2 candidates: at the last state backoff has 8 and 7 to offer, so all others
    # may offer two. Fixed priors (.7 C, .2 U) rank 8, 7, 6; equal weights 6, 7, 8; U 6, 7, 8.
    matched = {"nodes": 7, "UC_backoff": 1, "UCG_backoff": 1, "fixed_prior": 1}
    assert group(counts, "matched") == matched
    # The last two states recall a suffix: behind 4 came 5 2 3, behind 4 5 came 2 3 5. It takes all
    # three places, right the first time and wrong the second.
    firsts = {f"first_{name}": 1 for name in ("fusion", "fusion_suffix", "gained", "lost")}
    lengths = {"nodes": 8, "fusion": 1, "fusion_suffix": 1}
    assert group(counts, "suffix") == lengths | firsts
    assert by_hand(text, seed_prompt=True) == counts  # the prompt's 1 is never asked for


def test_the_seeded_start_knows_the_prompts_rows_and_the_empty_one_does_not() -> None:
    rows = predictions([[3, 5, 6], [4, 5, 6]], [0.6, 0.3, 0.1])
    text = make_trajectory([1, 2], rows, [1, 3], predictions([IDLE], [0.6, 0.3, 0.1]))
    assert by_hand(text) == {}
    counts = by_hand(text, seed_prompt=True)
    assert group(counts, "covered") == group(counts, "hits") == {"U": 1}
    assert group(counts, "matched") == dict.fromkeys(replay.POLICIES, 1) | {"nodes": 3}


def test_a_matched_path_is_as_long_as_the_continuation_agrees() -> None:
    """A text 1 2 3 1 2 3 ... whose rows always know: from the second round on all is matched, and
    no deeper than what is left to say.
    """
    outputs = [1, 2, 3] * 3
    rows = predictions([[token, 7, 8] for token in outputs[1:]], [0.8, 0.15, 0.05])
    counts = by_hand(make_trajectory([5], predictions([IDLE], [0.8, 0.15, 0.05]), outputs, rows))
    # States 4 to 8 have 5, 4, 3, 2, 1 tokens to go; a cycle of three may be walked once, because
    # no path repeats an edge.
    assert group(counts, "matched")["U"] == 3 + 3 + 3 + 2 + 1
    assert group(counts, "joint") == {"states": 3, "U": 3, "G": 3}


@pytest.mark.parametrize("num_outputs", [0, 1])
def test_outputs_without_a_decoded_token_have_no_state(num_outputs: int) -> None:
    rows = predictions([IDLE], [0.5, 0.3, 0.2])
    text = make_trajectory([1], rows, [1, 2][:num_outputs], predictions([], [0.5, 0.3, 0.2]))
    assert by_hand(text) == by_hand(text, seed_prompt=True) == {}


def test_matched_length_is_of_a_whole_path_from_the_root() -> None:
    tree = TokenTree([5, 6, 7, 7, 8], [-1, 0, 1, 0, 3], [0, 1, 2, 1, 2])
    end = replay.NOTHING_FOLLOWS
    for continuation, length in (([6, 7, 5], 2), ([7, 8], 2), ([6, 8], 1), ([8, 7], 0), ([6], 1)):
        assert replay.matched_length(tree, np.array([*continuation, end])) == length


# Against dictionaries


class Dictionaries:
    """The same counts from dicts, heapq and sets of paths."""

    def __init__(self, trajectory: Trajectory, seed_prompt: bool) -> None:
        self.trajectory = trajectory
        self.blocked = frozenset(trajectory.blocked.tolist())
        self.unigrams: dict[int, Row] = {}
        self.contexts: dict[tuple[int, ...], Row] = {}
        if seed_prompt:
            prompt_rows = rows_of(trajectory.prompt_rows)
            tokens = trajectory.prompt_row_tokens.tolist()
            self.unigrams.update(zip(tokens, prompt_rows, strict=True))

    def count(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        text = [*self.trajectory.prompt_ids.tolist(), *self.trajectory.output_ids.tolist()]
        start = len(self.trajectory.prompt_ids)
        for index, row in enumerate(rows_of(self.trajectory.rows)):
            history, following = text[: start + index + 1], text[start + index + 1 :]
            self.count_state(counts, history, following)
            self.unigrams[history[-1]] = row
            for length in (2, 3):
                if len(history) >= length:
                    self.contexts[tuple(history[-length:])] = row
        return counts

    def count_state(self, counts: Counter[str], history: list[int], following: list[int]) -> None:
        target = following[0]
        keys = {"U": history[-1:], "C": history[-2:], "G": history[-3:]}
        rows = {
            name: self.unigrams.get(key[0]) if name == "U" else self.contexts.get(tuple(key))
            for name, key in keys.items()
            if len(key) == "UCG".index(name) + 1
        }
        found = {name: [t for t, _ in row] for name, row in rows.items() if row is not None}
        allowed = {n: [t for t in ids if t not in self.blocked] for n, ids in found.items()}
        for name, ids in allowed.items():
            counts[f"covered.{name}"] += bool(ids)
            counts[f"hits.{name}"] += target in ids
        if allowed.get("G") and allowed.get("U"):
            counts["joint.states"] += 1
            counts["joint.G"] += target in allowed["G"]
            counts["joint.U"] += target in allowed["U"]
        disagree = any(a[0] != b[0] for a in found.values() for b in found.values())
        counts["disagreement.states"] += disagree
        for name, config in replay.RULES.items():
            hit = (target,) in self.paths(config, history)
            counts[f"rules.{name}"] += hit
            counts[f"disagreement.{name}"] += hit and disagree
        nodes, lengths = self.lengths(replay.POLICIES, history, following)
        counts["matched.nodes"] += nodes
        for name, length in lengths.items():
            counts[f"matched.{name}"] += length
        nodes, lengths = self.lengths(replay.WITH_SUFFIX, history, following)
        counts["suffix.nodes"] += nodes
        for name, length in lengths.items():
            counts[f"suffix.{name}"] += length
            counts[f"suffix.first_{name}"] += length > 0
        counts["suffix.first_gained"] += lengths["fusion_suffix"] > 0 and lengths["fusion"] == 0
        counts["suffix.first_lost"] += lengths["fusion_suffix"] == 0 and lengths["fusion"] > 0

    def paths(self, config: RecapConfig, history: list[int]) -> set[tuple[int, ...]]:
        """Every path from the root of a configuration's tree, the suffix within its cap."""
        drafter = ReferenceDrafter(config)
        drafter.unigrams, drafter.contexts = self.unigrams, self.contexts
        drafter.blocked = self.blocked
        limit = min(config.suffix_tokens, config.max_candidates)
        suffix = suffix_path(history, self.blocked, config.suffix_tokens)[:limit]
        tree = pack(history[-1], drafter.search(tuple(history[-3:]), suffix), suffix)
        tokens = tree.tokens.tolist()
        return {tuple(tokens[n] for n in tree.path(i)[1:]) for i in range(1, len(tree))}

    def lengths(
        self, configs: dict[str, RecapConfig], history: list[int], following: list[int]
    ) -> tuple[int, dict[str, int]]:
        nodes = min(len(self.paths(config, history)) for config in configs.values())
        lengths = {}
        for name, config in configs.items():
            paths = self.paths(replace(config, max_candidates=nodes), history)
            assert len(paths) == nodes
            agreeing = [n for n in range(1, len(following) + 1) if tuple(following[:n]) in paths]
            lengths[name] = max(agreeing, default=0)
        return nodes, lengths


@given(st.integers(0, 2**32 - 1), st.integers(0, 24), st.booleans())
@settings(max_examples=100, deadline=None)
def test_counts_equal_those_of_dictionaries_and_brute_force(
    seed: int, num_outputs: int, seed_prompt: bool
) -> None:
    trajectory = random_one(np.random.default_rng(seed), num_outputs)
    counts = REPLAY.count(trajectory, seed_prompt)
    assert +counts == +Dictionaries(trajectory, seed_prompt).count()


REPLAY = replay.Replay(VOCABULARY)  # shared: an input must not see what another one left


def test_random_trajectories_exercise_everything_that_is_counted() -> None:
    """Else the equality above would hold of zeros."""
    rng = np.random.default_rng(0)
    total: Counter[str] = Counter()
    for _ in range(60):
        total += REPLAY.count(random_one(rng, 20), seed_prompt=bool(rng.integers(2)))
    names = {f"{group}.{name}" for group, names in replay.NAMES.items() for name in names}
    assert set(total) == names
    assert len({total[f"matched.{name}"] for name in replay.POLICIES}) > 3
    assert len({total[f"rules.{name}"] for name in replay.RULES}) > 2


# The files


def test_a_captured_run_is_replayed_into_its_folder(tmp_path: Path) -> None:
    folder = captured_folder(tmp_path / "run")
    replay.main([str(folder)])
    document = json.loads((folder / "replay.json").read_text())
    assert list(document) == ["schema", "units", "clusters", "states", "empty", "seeded"]
    assert document["units"] == ["u0:0", "u1:0", "u2:0"]
    assert document["clusters"] == ["c0", "c0", "c1"]
    assert document["states"][2] == 0 < min(document["states"][:2])
    for start in replay.STARTS:
        assert {name: list(counts) for name, counts in document[start].items()} == replay.NAMES
        lists = [counts for group in document[start].values() for counts in group.values()]
        assert all(len(counts) == 3 and counts[2] == 0 for counts in lists)
    assert sum(document["seeded"]["covered"]["U"]) > sum(document["empty"]["covered"]["U"])
    before = (folder / "replay.json").read_bytes()
    replay.main([str(folder)])
    assert (folder / "replay.json").read_bytes() == before


def test_the_file_counts_what_the_trajectories_give(tmp_path: Path) -> None:
    folder = captured_folder(tmp_path / "run")
    document = replay.replay_folder(folder)
    trajectory = capture.read_trajectories(folder)[1]
    counts = Dictionaries(trajectory, seed_prompt=True).count()
    for group_name, names in document["seeded"].items():
        for name, values in names.items():
            assert values[1] == counts[f"{group_name}.{name}"], (group_name, name)


def test_folders_without_a_capture_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="holds no captured generation: run study=replay"):
        replay.replay_folder(tmp_path)
    with pytest.raises(SystemExit):
        replay.main([str(tmp_path)])
    run: Any = SimpleNamespace(folder=tmp_path)
    replay.after_run(run)  # a run whose units are all bad keeps its summary
    assert capsys.readouterr().err.count("holds no captured generation") == 2


@pytest.mark.parametrize("trace", [None, [], [{"topk_ids": [], "topk_probs": [], "topk_mass": []}]])
def test_a_record_without_its_prompts_capture_is_refused(trace: list[dict[str, object]]) -> None:
    with pytest.raises(UserError, match="a:0 holds no capture"):
        capture.trajectory(captured([1, 2], trace=trace))


def test_an_earlier_versions_capture_is_refused() -> None:
    record = captured([1, 2])
    assert record.trace is not None
    del record.trace[0]["prompt_topk_mass"]
    with pytest.raises(UserError, match="of an earlier version of this code: remove the run's"):
        capture.trajectory(record)


def test_a_capture_that_lost_rows_is_refused() -> None:
    record = captured([1, 2])
    assert record.trace is not None
    record.trace[0]["topk_ids"].pop()
    record.trace[0]["topk_probs"].pop()
    record.trace[0]["topk_mass"].pop()
    num_rows = len(record.output_ids) - 1
    with pytest.raises(UserError, match=f"{num_rows - 1} rows of its output .* {num_rows} and 2"):
        capture.trajectory(record)


def test_a_capture_in_one_piece_is_the_same_trajectory() -> None:
    record = captured([1, 2])
    assert record.trace is not None and len(record.trace) > 1
    rows = {
        name: [row for part in record.trace for row in part[name]]
        for name in ("topk_ids", "topk_probs", "topk_mass")
    }
    whole = capture.trajectory(replace(record, trace=[record.trace[0] | rows]))
    expected = capture.trajectory(record)
    assert np.array_equal(whole.rows.topk_ids, expected.rows.topk_ids)
    assert np.array_equal(whole.rows.topk_probs, expected.rows.topk_probs)
    assert whole.rows.topk_mass is not None
    assert np.array_equal(whole.rows.topk_mass, expected.rows.topk_mass)
