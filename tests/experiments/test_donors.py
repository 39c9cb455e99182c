"""Donors: what every pairing holds, against brute force, and pairs worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.donors import Donor, Picture, benchmark_offset, pair
from experiments.records import RunRecord, write_records
from experiments.swaps import columns, swaps

PICTURES = st.builds(Picture, st.sampled_from("abcdefg"), st.sampled_from(["", "x", "y", "z"]))


def stand_ins(target: Picture, pool: Sequence[Picture]) -> set[str]:
    """Identities that may stand in for a target."""
    others = [p for p in pool if p.identity != target.identity]
    alike = [p for p in others if target.category and p.category == target.category]
    return {p.identity for p in alike or others}


def largest_matching(wanted: Sequence[set[str]], taken: frozenset[str] = frozenset()) -> int:
    """How many targets can have a donor of their own, by trying everything."""
    if not wanted:
        return 0
    without = largest_matching(wanted[1:], taken)
    return max(
        [without, *(1 + largest_matching(wanted[1:], taken | {d}) for d in wanted[0] - taken)]
    )


@given(
    st.lists(PICTURES, max_size=8),
    st.lists(PICTURES, min_size=2, max_size=12),
    st.integers(0, 99),
)
@settings(max_examples=100)
def test_what_every_pairing_holds(targets: list[Picture], pool: list[Picture], seed: int) -> None:
    allowed = [stand_ins(target, pool) for target in targets]
    assume(all(allowed))
    donors = pair(targets, pool, "chartqa", seed)
    assert donors == pair(targets, pool, "chartqa", seed)
    assert len(donors) == len(targets)
    for target, donor, identities in zip(targets, donors, allowed, strict=True):
        picture = pool[donor.index]
        assert picture.identity in identities, "another picture, of the same category if any is"
        assert donor.same_category == (picture.category == target.category != "")
    own = [pool[donor.index].identity for donor in donors if not donor.reused]
    assert len(set(own)) == len(own)


@given(st.lists(PICTURES, max_size=5), st.lists(PICTURES, min_size=2, max_size=8))
@settings(max_examples=80)
def test_as_many_targets_as_possible_have_a_donor_of_their_own(
    targets: list[Picture], pool: list[Picture]
) -> None:
    allowed = [stand_ins(target, pool) for target in targets]
    assume(all(allowed))
    donors = pair(targets, pool, "chartqa", 0)
    assert sum(not donor.reused for donor in donors) == largest_matching(allowed)


def test_a_donor_moves_on_when_another_target_has_no_choice() -> None:
    """B can only have a's picture, and a only b's or c's: no seed may leave one of them over."""
    targets = [Picture("a", "x"), Picture("b", "y")]
    pool = [Picture("a", "y"), Picture("b", "x"), Picture("c", "x")]
    for seed in range(20):
        first, second = pair(targets, pool, "any", seed)
        assert not first.reused and first.index in (1, 2)
        assert second == Donor(0, same_category=True, reused=False)


def test_targets_that_are_left_over_share_a_donor_and_say_so() -> None:
    pool = [Picture("a", ""), Picture("b", "")]
    donors = pair([Picture("a", "")] * 3, pool, "any", 0)
    assert [donor.index for donor in donors] == [1, 1, 1]
    assert sorted(donor.reused for donor in donors) == [False, True, True]
    assert not any(donor.same_category for donor in donors)


def test_a_category_without_another_picture_falls_back_to_any() -> None:
    pool = [Picture("a", "x"), Picture("b", "y")]
    assert pair([pool[0]], pool, "any", 0) == [Donor(1, same_category=False, reused=False)]


def test_unknown_categories_match_nothing() -> None:
    pool = [Picture("a", "default"), Picture("b", "default"), Picture("c", "default")]
    assert not any(donor.same_category for donor in pair(pool, pool, "any", 0))


def test_seed_and_benchmark_choose_the_pairs() -> None:
    pool = [Picture(str(i), "") for i in range(30)]

    def pairs(benchmark: str, seed: int) -> list[int]:
        return [donor.index for donor in pair(pool, pool, benchmark, seed)]

    assert pairs("chartqa", 0) != pairs("textvqa", 0)
    assert pairs("chartqa", 0) != pairs("chartqa", 1)
    shuffled = list(range(1, 30))
    random.Random(7 + benchmark_offset("chartqa")).shuffle(shuffled)
    assert pair(pool[:1], pool, "chartqa", 7) == [Donor(shuffled[0], False, False)]


def test_one_picture_alone_has_no_donor() -> None:
    with pytest.raises(ValueError, match=r"no other picture .* take more inputs"):
        pair([Picture("a", "x")], [Picture("a", "x"), Picture("a", "y")], "any", 0)


@pytest.mark.parametrize(("bench", "alike"), [("tiny_chartqa", 1), ("mmt_bench", 0)])
def test_donors_of_a_pooled_benchmark_ignore_its_categories(
    tmp_path: Path, bench: str, alike: int
) -> None:
    items = [
        SimpleNamespace(input_id=f"i{i}", image_digest=f"picture {i}", category="ab"[i % 2])
        for i in range(12)
    ]
    facts: dict[str, Any] = dict.fromkeys(("study", "model", "bench", "category", "session"), "")
    write_records(
        tmp_path / "records.jsonl",
        [
            RunRecord(
                **facts,
                unit_id=f"{item.input_id}:0",
                turn=0,
                cluster_id=item.image_digest,
                prompt_sha256="",
                arm="ar",
                method="ar",
                repeat=0,
                order_index=0,
            )
            for item in items
        ],
    )
    plan = SimpleNamespace(bench=SimpleNamespace(name=bench))
    run: Any = SimpleNamespace(folder=tmp_path, inputs=items, plan=plan)
    pool: Any = items
    found = swaps(run, "ar", pool, seed=42)
    assert columns(found)["same_category"] == [alike] * 12
    crossed = [swap.item.category != swap.donor.category for swap in found]
    assert any(crossed) is not bool(alike)
