"""Claims: every one finds its numbers, and verdicts are fair."""

from __future__ import annotations

import dataclasses

import pytest

from analysis import checks
from analysis.artefact import Cell, Table
from analysis.checks import Check, Outcome, judged, verdict
from analysis.claims import CLAIMS
from analysis.data import PAPER_SCOPE, Data, Scope
from analysis.load import REFERENCE_ARM

# Studies whose artefacts the synthetic results have.
MEASURED = {"main", "mmspec", "components", "fusion", "suffix", "replay", "backoff", "-"}


@pytest.mark.parametrize(
    ("cell", "holds"),
    [
        (Cell(1.66, 1.64, 1.68, 1.66), True),
        (Cell(1.60, 1.58, 1.655, 1.66), True),  # 1.66 may stand for 1.655
        (Cell(1.60, 1.58, 1.654, 1.66), False),
        (Cell(0.73, 0.1, 1.4, 0.73, signed=True), True),
        (Cell(0.73, -0.1, 1.4, 0.73, signed=True), False),
        (Cell(0.73, 0.1, 1.4, 0.73, signed=True, mark="noise"), False),
        (Cell(paper=1.66), None),
        (Cell(1.66, 1.6, 1.7), None),
    ],
)
def test_a_number_is_reproduced_by_an_interval_that_holds_it(
    cell: Cell, holds: bool | None
) -> None:
    assert judged(cell).holds is holds


def scoped(scope: Scope) -> Data:
    return Data(scope, [], None)  # type: ignore[arg-type]


def outcome(holds: bool | None, reason: str = "") -> Outcome:
    return Outcome("", holds, reason)


def test_verdicts_depend_on_model_and_device() -> None:
    timed, untimed = Check("", lambda _: outcome(True)), Check("", lambda _: outcome(True), False)
    general = Check("", lambda _: outcome(True), False, general=True)
    a100, h200 = scoped(PAPER_SCOPE), scoped(Scope(("qwen25vl",), "H200", False))
    tiny = scoped(Scope(("tiny_qwen25vl",), "CPU", True))
    assert verdict(timed, outcome(True), a100) == checks.REPRODUCED
    assert verdict(timed, outcome(False), a100) == checks.NOT_REPRODUCED
    assert verdict(timed, outcome(None), a100) == checks.NOT_MEASURED
    assert verdict(timed, outcome(True), h200) == checks.NOT_TESTABLE
    assert verdict(untimed, outcome(True), h200) == checks.REPRODUCED
    assert verdict(untimed, outcome(True), tiny) == checks.NOT_TESTABLE
    assert verdict(general, outcome(False), tiny) == checks.NOT_REPRODUCED
    assert verdict(untimed, outcome(None, "no GPU"), tiny) == "no GPU"


def test_every_claim_finds_its_numbers(tiny_data: Data) -> None:
    for claim in CLAIMS:
        for check in claim.checks:
            if claim.study not in MEASURED or "LLaVA" in check.label:
                continue
            if "swapped-image" in claim.sentence:  # needs a model's own predictions
                continue
            found = check.run(tiny_data)
            measured = isinstance(found.entry, str) or found.entry.measured
            assert measured, (claim.sentence, check.label)


def test_the_papers_numbers_stand_beside_ours(paper_data: Data) -> None:
    for claim in CLAIMS:
        for check in claim.checks:
            entry = check.run(paper_data).entry
            if claim.study in ("main", "mmspec") and isinstance(entry, Cell):
                assert entry.paper is not None, (claim.sentence, check.label)


def test_the_page_has_every_sentence_and_counts_its_verdicts(paper_data: Data) -> None:
    table = paper_data.artefact("claims")
    assert isinstance(table, Table)
    sentences = [row[1] for row in table.rows if row[1]]
    assert sentences == [claim.sentence for claim in CLAIMS]
    assert sum(len(claim.checks) for claim in CLAIMS) == len(table.rows)
    words = {str(row[-1]).partition(" (")[0] for row in table.rows}
    assert checks.REPRODUCED in words
    assert checks.NOT_REPRODUCED in words
    assert checks.UNTRAINED in words
    assert any("components" in gap.what for gap in table.missing)


def test_half_precision_is_no_test_of_losslessness(tiny_data: Data) -> None:
    (check,) = next(c.checks for c in CLAIMS if "without loss" in c.sentence)
    assert check.run(tiny_data).holds is True
    halves = [run for run in tiny_data.found if run.study == "main"]
    manifest = {**halves[0].manifest, "target": {"device": "cpu", "dtype": "bfloat16"}}
    run = type(halves[0])(halves[0].config, halves[0].records, halves[0].folder)
    run.__dict__["manifest"] = manifest
    found = check.run(dataclasses.replace(tiny_data, found=[run]))
    assert found.holds is None
    assert "half precision" in found.reason
    assert REFERENCE_ARM in run.arms
