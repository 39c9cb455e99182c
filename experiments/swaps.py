"""A finished run's inputs with the picture that is put in the place of each one's own.

What `experiments.counterfactual` and `experiments.image_rows` share: first turns of one benchmark,
of the units that an arm finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.donors import Picture, pair
from experiments.records import read_records

if TYPE_CHECKING:
    from experiments.benches import BenchInput
    from experiments.records import RunRecord
    from experiments.runner import FinishedRun


# Benchmarks with categories whose donors the paper chose from all pictures (Appendix C).
POOLED = ("mmt_bench",)


@dataclass(frozen=True)
class Swap:
    """An input, its recorded generation, and its donor, see `experiments.donors.Donor`."""

    item: BenchInput
    record: RunRecord
    donor: BenchInput
    same_category: bool
    reused: bool


def swaps(run: FinishedRun, arm: str, pool: Sequence[BenchInput], seed: int) -> list[Swap]:
    """The inputs whose first turn ``arm`` finished, in order. Donors are chosen for all inputs
    alike, so that a failed one changes no other's.
    """
    readable = [item for item in pool if item.image_digest]
    pooled = run.plan.bench.name.removeprefix("tiny_") in POOLED
    targets, pictures = (
        [Picture(item.image_digest, "" if pooled else item.category) for item in items]
        for items in (run.inputs, readable)
    )
    donors = pair(targets, pictures, run.plan.bench.name, seed)
    records = read_records(run.folder / "records.jsonl")
    finished = {r.unit_id: r for r in records if r.arm == arm and r.status == "ok"}
    return [
        Swap(item, finished[unit_id], readable[d.index], d.same_category, d.reused)
        for item, d in zip(run.inputs, donors, strict=True)
        if (unit_id := f"{item.input_id}:0") in finished
    ]


def columns(found: Sequence[Swap]) -> dict[str, list[Any]]:
    """Per input the unit, its cluster and its donor, with whether the donor is of the same known
    category and whether it serves another input too.
    """
    return {
        "units": [swap.record.unit_id for swap in found],
        "clusters": [swap.record.cluster_id for swap in found],
        "donors": [swap.donor.input_id for swap in found],
        "same_category": [int(swap.same_category) for swap in found],
        "reused": [int(swap.reused) for swap in found],
    }
