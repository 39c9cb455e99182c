"""Claims: every one finds its numbers, and verdicts are fair."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis import checks, counterfactuals
from analysis.arms import PAPER_METHODS
from analysis.artefact import Cell, Entry, Table
from analysis.checks import Check, Outcome, judged, verdict
from analysis.claims import CLAIMS
from analysis.data import PAPER_SCOPE, Data, Scope
from analysis.load import REFERENCE_ARM, Run
from analysis.tables import image_recall

H200 = Scope(("qwen25vl",), "H200", False)
TINY = Scope(("tiny_qwen25vl",), "CPU", True)
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
    a100, h200, tiny = scoped(PAPER_SCOPE), scoped(H200), scoped(TINY)
    assert verdict(timed, outcome(True), a100) == checks.REPRODUCED
    assert verdict(timed, outcome(False), a100) == checks.NOT_REPRODUCED
    assert verdict(timed, outcome(None), a100) == checks.NOT_MEASURED
    assert verdict(timed, outcome(True), h200) == checks.NOT_TESTABLE
    assert verdict(untimed, outcome(True), h200) == checks.REPRODUCED
    assert verdict(untimed, outcome(True), tiny) == checks.NOT_TESTABLE
    assert verdict(general, outcome(False), tiny) == checks.NOT_REPRODUCED
    assert verdict(untimed, outcome(None, "no GPU"), tiny) == "no GPU"


# Hand-made tables


def with_table(
    headings: Sequence[str], *rows: Sequence[float | str | None], scope: Scope = H200
) -> Data:
    """Data whose every artefact is a table of Qwen's rows; numbers are cells."""
    full: list[list[Entry]] = [
        ["qwen25vl", *(e if isinstance(e, str) else Cell(e) for e in row)] for row in rows
    ]
    table = Table("page", "", "", ["Model", *headings], full)
    return Data(scope, [], Path(), lambda name, data: table)


def policies(*values: float | None) -> Data:
    rows = [(name, value) for name, value in zip("ABC", values, strict=False)]
    return with_table(["Policy", "ChartQA"], *rows)


def place(policy: str) -> checks.Place:
    return {"Policy": policy}, "ChartQA"


@pytest.mark.parametrize(
    ("values", "text", "holds"),
    [
        ((1.0, 2.0, 3.0), "in 2 of 2", True),
        ((1.0, 2.0, 2.0), "in 1 of 2", False),  # as large is not larger
        ((1.0, None, 3.0), None, None),
        ((1.0, 2.0), None, None),
    ],
)
def test_cells_are_ordered_when_every_pair_rises(
    values: tuple[float | None, ...], text: str | None, holds: bool | None
) -> None:
    pairs = [(place("A"), place("B")), (place("B"), place("C"))]
    found = checks.ordered("", "page", "qwen25vl", pairs).run(policies(*values))
    assert found.holds is holds
    assert text is None or found.entry == text


def methods(s: float, tau: float) -> Data:
    """RECAP at S 1.5 and tau 2.5, every other method of the paper at the given values."""
    rows = [(name, s, tau) for key, name in PAPER_METHODS.items() if key != "recap"]
    return with_table(["Method", "Average S", "Average tau"], *rows, ("RECAP", 1.5, 2.5))


def test_acceptance_is_compared_on_any_device_and_speed_is_not() -> None:
    speed = checks.leads("", "page", "qwen25vl", ["Average S"])
    tau = checks.leads("", "page", "qwen25vl", ["Average tau"], timed=False)
    for data, word in (
        (methods(1.4, 2.4), checks.REPRODUCED),
        (methods(1.6, 2.6), checks.NOT_REPRODUCED),
        (with_table(["Method"]), checks.NOT_MEASURED),
    ):
        assert verdict(speed, speed.run(data), data) == checks.NOT_TESTABLE
        assert verdict(tau, tau.run(data), data) == word


def test_labels_say_which_checks_are_of_speed() -> None:
    for claim in CLAIMS:
        for check in claim.checks:
            words = check.label.replace(",", "").split()
            if "trained" not in words and ("S" in words or "tau" in words):
                assert check.timed == ("S" in words), check.label


@pytest.mark.parametrize(
    ("tau", "holds"), [(2.92, True), (2.93, True), (2.90, True), (2.95, False), (None, None)]
)
def test_a_share_is_of_a_printed_number(tau: float | None, holds: bool | None) -> None:
    check = checks.share("", "page", "qwen25vl", {"Method": "RECAP"}, "tau", 3.74, 78)
    found = check.run(with_table(["Method", "tau"], ("RECAP", tau)))
    assert isinstance(found.entry, Cell)
    assert found.entry.paper == 78
    assert found.holds is holds
    assert found.entry.value == (None if tau is None else pytest.approx(100 * tau / 3.74))


def test_a_share_has_the_interval_of_its_cell() -> None:
    cell = Cell(3.74, 2.992, 4.488)
    table = Table("page", "", "", ["Model", "Method", "tau"], [["qwen25vl", "RECAP", cell]])
    data = Data(H200, [], Path(), lambda name, data: table)
    found = checks.share("", "page", "qwen25vl", {"Method": "RECAP"}, "tau", 3.74, 80).run(data)
    assert isinstance(found.entry, Cell)
    assert (found.entry.low, found.entry.high) == (pytest.approx(80), pytest.approx(120))
    assert found.holds is True


# Hand-made counts and words


@pytest.mark.parametrize(
    ("found", "holds", "to_come"),
    [(6, True, True), (5, False, None), (7, False, False), (None, None, None)],
)
def test_fewer_runs_than_the_paper_has_may_be_still_to_come(
    found: float | None, holds: bool | None, to_come: bool | None
) -> None:
    data = scoped(H200)
    assert checks.count("", 6, lambda _: found).run(data).holds is holds
    assert checks.count("", 6, lambda _: found, to_come=True).run(data).holds is to_come


@pytest.mark.parametrize(
    ("first", "second", "holds"), [(30, 80, True), (80, 80, False), (30, None, None)]
)
def test_a_size_may_have_to_be_smaller_than_another(
    first: float, second: float | None, holds: bool | None
) -> None:
    check = checks.fewer("", lambda _: first, lambda _: second)
    found = check.run(scoped(TINY))
    assert found.holds is holds
    assert holds is None or found.entry == f"{first} against {second}"
    words = {True: checks.REPRODUCED, False: checks.NOT_REPRODUCED, None: checks.NOT_MEASURED}
    assert verdict(check, found, scoped(TINY)) == words[holds]


def test_the_accelerator_is_named_by_every_run() -> None:
    for names, word in (
        ({"NVIDIA A100-SXM4-80GB"}, checks.REPRODUCED),
        ({"NVIDIA A100-PCIE-40GB"}, checks.NOT_REPRODUCED),
        ({"NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB"}, checks.NOT_REPRODUCED),
        (set[str](), checks.NOT_MEASURED),
    ):
        check = checks.named("", "NVIDIA A100-SXM4-80GB", lambda _, names=names: names)
        found = check.run(scoped(PAPER_SCOPE))
        assert verdict(check, found, scoped(PAPER_SCOPE)) == word
        assert verdict(check, found, scoped(H200)) == checks.NOT_TESTABLE


def test_what_no_run_records_is_said_in_words() -> None:
    check = checks.untestable("", "8, not an option", checks.FIXED)
    for scope in (PAPER_SCOPE, H200, TINY):
        assert verdict(check, check.run(scoped(scope)), scoped(scope)) == checks.FIXED


def test_an_average_counts_once_all_its_runs_are_there() -> None:
    cell = Cell(5.3, 4.9, 5.6, 5.42, signed=True)
    whole = Check("", lambda _: judged(cell))
    assert checks.once(lambda _: True, whole).run(scoped(H200)) == judged(cell)
    part = checks.once(lambda _: False, whole).run(scoped(H200))
    assert part == Outcome(Cell(paper=5.42, signed=True), None)
    words = checks.once(lambda _: False, Check("", lambda _: outcome(True)))
    assert words.run(scoped(H200)) == Outcome("-", None)


# The paper's claims


def claimed(words: str, label: str) -> Check:
    """A check of the first sentence that holds these words."""
    claim = next(claim for claim in CLAIMS if words in claim.sentence)
    return next(check for check in claim.checks if check.label == label)


@pytest.mark.parametrize(
    ("words", "label", "value"),
    [
        ("six draft-model-free", "baselines in the main runs", 6),
        ("Each category", "inputs, smallest category", 1),  # 8 inputs in turn
        ("Each category", "multi-turn turns", 2),
        ("Each category", "turns", 9),
        ("Deployment cost", "benchmarks of RECAP's rows", 7),
        ("20 per category", "inputs, smallest category", 1),
        ("averages five runs", "input orders of the persistence row", 5),
        ("200 inputs per model", "Qwen, inputs of the four sets", 16),
        ("400 inputs for suffix", "inputs of the four sets", 16),
        ("Replay comprises", "inputs, smallest data set", 4),
        ("Replay comprises", "inputs", 16),
    ],
)
def test_sizes_are_counted_in_the_runs(
    tiny_data: Data, words: str, label: str, value: float
) -> None:
    check = claimed(words, label)
    entry = check.run(tiny_data).entry
    assert isinstance(entry, Cell)
    assert entry.value == value
    nothing = check.run(dataclasses.replace(tiny_data, found=[], _built={}))
    assert nothing.holds is None
    assert isinstance(nothing.entry, Cell)
    assert nothing.entry.value is None


def test_the_four_sets_count_together_or_not_at_all(tiny_data: Data) -> None:
    three = [run for run in tiny_data.found if run.bench != "tiny_textvqa"]
    less = dataclasses.replace(tiny_data, found=three, _built={})
    for words, label in (
        ("400 inputs for suffix", "inputs of the four sets"),
        ("Replay comprises", "inputs"),
        ("Replay comprises", "inputs, smallest data set"),
    ):
        assert claimed(words, label).run(less).holds is None


def test_the_main_runs_name_their_accelerator(tiny_data: Data, paper_data: Data) -> None:
    check = claimed("A100-SXM4-80GB", "accelerator of the main runs")
    assert check.run(paper_data) == Outcome("NVIDIA A100-SXM4-80GB", True)
    assert check.run(tiny_data) == Outcome("no accelerator", False)
    assert verdict(check, check.run(tiny_data), tiny_data) == checks.NOT_TESTABLE


def with_manifest(run: Run, **content: Any) -> Run:
    copy = Run(run.config, run.records)
    copy.__dict__["manifest"] = {**run.manifest, **content}
    return copy


@pytest.mark.parametrize(("top_k", "holds"), [(4, True), (8, False), (None, None)])
def test_tree_recycling_stores_four_predictions(
    tiny_data: Data, top_k: int | None, holds: bool | None
) -> None:
    run = next(run for run in tiny_data.found if run.study == "main")
    config = {} if top_k is None else {"top_k": top_k}
    run = with_manifest(run, arms=[{"name": "tree_recycling", "config": config}])
    check = claimed("Tree Recycling is", "predictions stored per token")
    assert check.run(dataclasses.replace(tiny_data, found=[run])).holds is holds


def test_the_mean_of_five_orders_needs_five(tiny_data: Data) -> None:
    check = claimed("Across five runs", "mean, %")
    whole = check.run(tiny_data)
    assert isinstance(whole.entry, Cell)
    assert whole.entry.measured
    assert whole.holds is not None
    four = [r for r in tiny_data.found if r.setting("bench.input_seed") != 59]
    for found in (four, []):
        part = check.run(dataclasses.replace(tiny_data, found=found, _built={}))
        assert part.holds is None
        assert isinstance(part.entry, Cell)
        assert not part.entry.measured
        assert part.entry.paper == 5.42


def timed_run(like: Run, gains: dict[str, Sequence[float]]) -> Run:
    """Records of equal outputs; an arm is faster than ``unigram`` by per cent, one per input."""
    arms = {"ar": [0.0] * 4, "unigram": [0.0] * 4, **gains}
    records = [
        dataclasses.replace(
            like.records[0],
            unit_id=f"tiny_chartqa_{unit:05d}:0",
            cluster_id=f"picture-{unit}",
            arm=arm,
            prefill_ns=0,
            decode_ns=round(1e9 / (1 + gain / 100)),
        )
        for arm, values in arms.items()
        for unit, gain in enumerate(values)
    ]
    return Run(like.config, records)


@pytest.mark.parametrize(
    ("backoff", "again", "holds", "reason"),
    [
        ([2.1, 2.2, 2.4, 2.5], [-0.2, -0.1, 0.1, 0.2], True, ""),
        ([2.1, 2.2, 2.4, 2.5], [2.0, 3.0, 3.0, 4.0], False, "noise"),
        ([4.1, 4.2, 4.4, 4.5], [-0.2, -0.1, 0.1, 0.2], False, ""),
    ],
)
def test_backoff_must_be_more_than_its_reference_a_second_time(
    tiny_data: Data, backoff: list[float], again: list[float], holds: bool, reason: str
) -> None:
    like = tiny_data.run("backoff", "chartqa", "tiny_qwen25vl", reset="request")
    assert like is not None
    run = timed_run(like, {"backoff": backoff, "unigram_again": again})
    check = claimed("Online controls", "ChartQA, online gain %")
    found = check.run(dataclasses.replace(tiny_data, found=[run], _built={}))
    assert found.holds is holds
    assert reason in found.reason
    assert check.run(dataclasses.replace(tiny_data, found=[], _built={})).holds is None


def test_picture_rows_are_fused_by_fixed_priors(
    tiny_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    column_sources = [source for _, source, _, _ in image_recall.COLUMNS]
    sources = {
        source: {"states": [10, 10], "matching": [matching, 6], "swapped": [5, 5]}
        for matching, names in ((10, column_sources), (6, ["fixed_prior"]))
        for source in names
    }
    keys = ("units", "left_out", "same_category", "reused", "clusters")
    document: dict[str, Any] = {key: [0, 1] for key in keys}
    document |= {start: sources for start in ("empty", "seeded")}
    derived = counterfactuals.Derived(tiny_data.found[0], document)
    monkeypatch.setattr(counterfactuals, "find", lambda *_: derived)
    data = dataclasses.replace(tiny_data, _built={})
    entry = claimed("swapped-image", "ChartQA, points").run(data).entry
    assert isinstance(entry, Cell)
    assert entry.value == pytest.approx(10)


def test_gaps_are_of_the_models_that_the_paper_has(paper_data: Data) -> None:
    gaps = {gap.what for gap in paper_data.artefact("claims").missing}
    for study in ("backoff", "components", "replay", "suffix"):
        assert f"{study} on qwen25vl" in gaps
        assert f"{study} on llava16" not in gaps
    assert "profile on llava16" in gaps


def test_every_claim_finds_its_numbers(tiny_data: Data) -> None:
    for claim in CLAIMS:
        for check in claim.checks:
            if claim.study not in MEASURED or "LLaVA" in check.label:
                continue
            if "swapped-image" in claim.sentence:  # needs a model's own predictions
                continue
            if "Top-4" in claim.sentence and "stored" in check.label:
                continue  # the synthetic arms have no options
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
    run = with_manifest(halves[0], target={"device": "cpu", "dtype": "bfloat16"})
    found = check.run(dataclasses.replace(tiny_data, found=[run]))
    assert found.holds is None
    assert "half precision" in found.reason
    assert REFERENCE_ARM in run.arms
