"""Drafts under other pictures: shadow trees against the readable reference, conditions and lengths
by hand, and a run on a tiny model from end to end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import benches, counterfactual, runner
from experiments.compose import compose_cfg, plan_from_cfg
from experiments.counterfactual import View, conditions, matched_budget, overlap
from experiments.errors import UserError
from experiments.records import read_records
from experiments.runner import FinishedRun
from experiments.shadows import Draft, ShadowedRecap, Shadows, cut
from experiments.units import UnreadableImage
from recap.config import RecapConfig
from recap.core.decode import decode
from recap.core.interfaces import Limits, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from recap.drafter import RecapDrafter
from tests.experiments.fakes import FakeTarget
from tests.fakes import ScriptedTarget
from tests.reference.drafter import ReferenceDrafter, pack

# Shadows

VOCABULARY, PLACEHOLDER = 10, 9
CONFIG = RecapConfig(top_k=4, width=4, depth=4, max_candidates=12)


class Checked(ShadowedRecap):
    """Compares every shadow with trees from dictionaries and heapq."""

    def __init__(self) -> None:
        super().__init__(CONFIG, VOCABULARY)
        self.reference = ReferenceDrafter(CONFIG)
        self.sources = {
            "U": ReferenceDrafter(replace(CONFIG, orders=1)),
            "GC": ReferenceDrafter(CONFIG),
        }
        self.compared = 0

    def begin_request(self, ctx: RequestContext) -> None:
        super().begin_request(ctx)
        self.reference.begin_request(ctx)

    def propose(self, history: np.ndarray) -> TokenTree:
        tree = super().propose(history)
        assert self.noted_alike(history.tolist())
        return tree

    def noted_alike(self, text: list[int]) -> bool:
        known = {"U": (self.reference.unigrams, {}), "GC": ({}, self.reference.contexts)}
        for source, drafter in self.sources.items():
            drafter.unigrams, drafter.contexts = known[source]
            drafter.blocked = self.reference.blocked
        roots = {s: self.tree(s, text, depth=1, max_candidates=8) for s in self.sources}
        if min(len(tree) for tree in roots.values()) == 1:
            return self._noted is None
        full = {s: self.tree(s, text) for s in self.sources}
        nodes = min(tree.num_candidates for tree in full.values())
        noted = self._noted
        assert noted is not None
        self.compared += 1
        for source in self.sources:
            assert noted.candidates[source] == roots[source].tokens[1:].tolist()
            assert same(noted.equal[source], self.tree(source, text, max_candidates=nodes))
            assert same(noted.sliced[source], cut(full[source], nodes))
        return True

    def tree(self, source: str, text: list[int], **settings: int) -> TokenTree:
        drafter = self.sources[source]
        before = drafter.config
        drafter.config = replace(before, **settings)  # type: ignore[arg-type]
        selected = drafter.search(tuple(text[-3:]), [])
        drafter.config = before
        return pack(text[-1], selected, [])

    def observe(self, step: VerifiedStep) -> None:
        super().observe(step)
        self.reference.observe(step)


def same(one: TokenTree, other: TokenTree) -> bool:
    return one.tokens.tolist() == other.tokens.tolist() and (
        one.parents.tolist() == other.parents.tolist()
    )


def test_shadows_are_what_the_sources_alone_would_have_drafted() -> None:
    drafter = Checked()
    for seed in range(12):
        target = ScriptedTarget(seed % 3, VOCABULARY, 2 + seed % 2, blocked=PLACEHOLDER)
        session = target.open([seed % 8, 2, PLACEHOLDER, 3], drafter.needs)
        decode(session, drafter, Limits(30))
    assert drafter.compared > 50


def test_watching_changes_no_draft_and_notes_every_one() -> None:
    target = ScriptedTarget(3, VOCABULARY, 3, blocked=PLACEHOLDER)
    plain, shadowed = RecapDrafter(CONFIG, VOCABULARY), ShadowedRecap(CONFIG, VOCABULARY)
    for prompt in ([1, 2, 3], [4, 2, 3, 4]):
        expected, found = (
            decode(target.open(prompt, drafter.needs), drafter, Limits(30))
            for drafter in (plain, shadowed)
        )
        assert found.output_ids == expected.output_ids
        assert found.num_accepted == expected.num_accepted
        assert found.num_candidates == expected.num_candidates
        steps = zip(found.num_accepted, found.num_candidates, strict=True)
        assert [draft.accepted for draft in shadowed.drafts] == [a for a, n in steps if n]
        committed = np.cumsum([0, *(a + 1 for a in found.num_accepted)])
        drafted = [int(c) for c, n in zip(committed, found.num_candidates, strict=False) if n]
        assert [draft.root for draft in shadowed.drafts] == drafted


def test_cutting_keeps_the_front_of_the_packed_order() -> None:
    tree = TokenTree([5, 6, 7, 8], [-1, 0, 1, 0], [0, 1, 2, 1])
    assert cut(tree, 2).tokens.tolist() == [5, 6, 7]
    assert len(cut(tree, 0)) == 1


# Conditions and values by hand


def draft(u: Sequence[int], gc: Sequence[int], **fields: Any) -> Draft:
    trees = {source: TokenTree.root_only(1) for source in ("U", "GC")}
    shadows = Shadows({"U": list(u), "GC": list(gc)}, trees, trees)
    return Draft(fields.get("root", 0), fields.get("accepted", 0), shadows)


@pytest.mark.parametrize(
    ("u", "gc", "valid", "met"),
    [
        ([1, 2, 3, 4], [4, 5, 6, 7], True, 5),  # one of four is shared
        ([1, 2, 3, 4], [3, 4, 5, 6], True, 3),  # two of four are
        ([1, 2, 3], [3, 5, 6], True, 3),  # a third is more than a quarter
        ([1, 2], [3, 4, 1, 2], True, 5),  # only the first two count
        ([1], [2, 3], True, 2),
        ([1, 2, 3, 4], [4, 5, 6, 7], False, 4),
    ],
)
def test_conditions_of_eligibility(
    u: Sequence[int], gc: Sequence[int], valid: bool, met: int
) -> None:
    assert conditions(draft(u, gc), valid) == list(counterfactual.FUNNEL[:met])


def test_a_draft_of_one_source_stops_at_the_first_condition() -> None:
    assert conditions(Draft(0, 0, None), True) == ["drafts"]


def test_budget_is_that_of_the_shorter_list_and_at_most_eight() -> None:
    assert matched_budget({"U": [1, 2, 3], "GC": [4, 5]}) == 2
    assert matched_budget({"U": list(range(10)), "GC": list(range(20))}) == 8
    assert overlap({"U": [1, 2, 3], "GC": [4, 3]}, 2) == 0


def test_a_view_asks_for_the_committed_token_and_both_sources_candidates() -> None:
    asked = counterfactual._asked(draft([1, 2, 3], [4, 5]), [8, 7])
    assert asked == [7, 1, 2, 3, *[7] * 5, 4, 5, *[7] * 6]
    assert counterfactual._asked(Draft(0, 0, None), [8, 7]) == [7] * 17


def test_drops_are_of_the_first_candidates_mass() -> None:
    def view(u: float, gc: float) -> View:
        scores = np.full((1, 17), -np.inf)
        scores[0, 1:3], scores[0, 9:11] = np.log(u), np.log(gc)
        scores[0, 3] = 0  # beyond the budget
        return View(np.zeros(1, np.int32), scores)

    views = {"own": view(0.4, 0.1), "mean": view(0.1, 0.2), "wrong": view(0.4, 0.025)}
    assert counterfactual._drops(0, 2, views) == pytest.approx(
        {"mean_U": np.log(4), "mean_GC": -np.log(2), "wrong_U": 0, "wrong_GC": np.log(4)}, abs=1e-6
    )


def test_lengths_are_matched_against_what_was_committed() -> None:
    long, short = TokenTree.chain(1, [2, 3, 4]), TokenTree.chain(1, [2, 5, 6])
    shadows = Shadows({}, {"U": short, "GC": long}, {"U": cut(short, 1), "GC": cut(long, 1)})
    expected = {"nodes": 3, "equal_U": 1, "equal_GC": 3, "sliced_U": 1, "sliced_GC": 1}
    assert counterfactual._lengths(shadows, [2, 3, 4, 5]) == expected
    assert counterfactual._lengths(shadows, [2, 3])["equal_GC"] == 2


# A run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    options = ["study=counterfactual", "bench=tiny_chartqa", "bench.num_inputs=4"]
    options += ["max_new_tokens=40", "warmup=false", f"results_root={root}"]
    runner.run_plan(plan_from_cfg(compose_cfg(*options)))
    (folder,) = root.glob("tiny_qwen25vl/tiny_chartqa/counterfactual/*")
    return folder


def test_a_run_leaves_a_row_per_draft_and_per_eligible_state(finished: Path) -> None:
    document = json.loads((finished / "counterfactual.json").read_text())
    records = [r for r in read_records(finished / "records.jsonl") if r.arm == "recap"]
    assert document["units"] == [r.unit_id for r in records]
    assert document["clusters"] == [r.cluster_id for r in records]
    assert document["equal_outputs"] == 4 and document["left_out"] == {}
    pairs = zip(document["units"], document["donors"], strict=True)
    assert all(unit != f"{donor}:0" for unit, donor in pairs)
    drafts, states = document["drafts"], document["states"]
    expected = [
        (number, accepted)
        for number, record in enumerate(records)
        for accepted, candidates in zip(record.num_accepted, record.num_candidates, strict=True)
        if candidates
    ]
    assert list(zip(drafts["unit"], drafts["accepted"], strict=True)) == capped(expected, records)
    assert all(drafts["valid"]), "in float32 a root reads the same in every forward"
    assert {len(column) for column in drafts.values()} == {document["funnel"]["drafts"]}
    assert {len(c) for c in states.values()} <= {document["funnel"]["eligible"]}
    funnel = list(document["funnel"].values())
    assert funnel == sorted(funnel, reverse=True)
    for name in ("mean_drop", "wrong_drop"):
        assert np.isfinite(drafts[name]).all() and np.ptp(drafts[name]) > 1
    assert any(drafts["mean_changed"]) and any(drafts["wrong_changed"])


def capped(expected: list[tuple[int, int]], records: Sequence[Any]) -> list[tuple[int, int]]:
    """The last draft of a generation that met the limit, cut to what the limit lets stand."""
    last = {number: place for place, (number, _) in enumerate(expected)}
    found = list(expected)
    for number, record in enumerate(records):
        excess = 1 + sum(a + 1 for a in record.num_accepted) - 40
        if excess > 0:
            place = last[number]
            found[place] = (number, expected[place][1] - excess)
    return found


def test_a_complete_run_is_not_examined_again(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Any = FinishedRun(None, finished, None, [])  # type: ignore[arg-type]
    counterfactual.after_run(run)
    assert "is complete" in capsys.readouterr().out


def unfinished(target: FakeTarget, folder: Path, *options: str) -> FinishedRun:
    """A run of the scripted target that left nothing; its benchmark is whole."""
    plan = plan_from_cfg(compose_cfg("study=counterfactual", *options))
    inputs = benches.load(replace(plan.bench, num_inputs=None)).inputs
    return FinishedRun(plan, folder, target, inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("bench", ["tiny_mmspec", "tiny_mixed4"])
def test_turns_and_streams_of_several_benchmarks_are_refused(
    bench: str, target: FakeTarget, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"bench={bench}: pictures are exchanged within one"):
        counterfactual.examine(unfinished(target, tmp_path, f"bench={bench}"))


def test_a_run_without_recap_is_refused(target: FakeTarget, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="reads the arm 'recap', which this run lacks"):
        counterfactual.examine(unfinished(target, tmp_path, "arms=[pld]"))


def test_a_model_without_pictures_is_refused(target: FakeTarget, tmp_path: Path) -> None:
    target.text_only = True
    with pytest.raises(UserError, match="sees no pictures"):
        counterfactual.examine(unfinished(target, tmp_path))


def test_inputs_that_cannot_be_read_are_named_and_their_memory_lives_on(
    target: FakeTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the scripted target, whose outputs the second decoding repeats, ``U`` persisting."""
    options = ["study=counterfactual", "bench.num_inputs=3", "max_new_tokens=20", "warmup=false"]
    plan = plan_from_cfg(compose_cfg(*options, f"results_root={tmp_path}"))

    def refuse(request: Any) -> Any:
        raise UnreadableImage("unreadable image: here")

    monkeypatch.setattr(counterfactual, "mean_view", refuse)
    runner.run_plan(plan)
    (path,) = tmp_path.rglob("counterfactual.json")
    document = json.loads(path.read_text())
    assert document["left_out"] == dict.fromkeys(document["units"], "unreadable image: here")
    assert len(document["units"]) == document["equal_outputs"] == 3
    assert document["drafts"] == document["states"] == {}
    path.write_text("{")  # as a killed process could not leave it
    counterfactual.after_run(FinishedRun(plan, path.parent, target, inputs(plan)))  # type: ignore[arg-type]
    assert json.loads(path.read_text()) == document


def inputs(plan: Any) -> Any:
    return benches.load(plan.bench).inputs
