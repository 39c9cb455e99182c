"""Point estimates computed a second time, from records.jsonl in plain Python, to the printed digit.

Nothing of `analysis` computes here: it only renders the tables that are compared.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.artefact import Cell, Entry, Table
from analysis.data import Data

MODEL = "tiny_qwen25vl"
SINGLE = {
    **{"mmt_bench": "MMT-Bench", "seed_bench": "SEED-Bench", "scienceqa": "ScienceQA"},
    **{"ocrbench": "OCRBench", "chartqa": "ChartQA", "mathvista": "MathVista"},
    "textvqa": "TextVQA",
}
FOUR = ("chartqa", "textvqa", "ocrbench", "mmt_bench")
Lines = list[dict[str, Any]]


def lines_of(root: Path, bench: str, study: str, **settings: Any) -> Lines:
    """The records of the run whose configuration has these settings."""
    for config in root.glob(f"{MODEL}/{bench}/{study}/*/config.yaml"):
        content = yaml.safe_load(config.read_text())
        flat = {**content["bench"], **{k: content.get(k) for k in ("reset", "repeat")}}
        if all(flat.get(key) == value for key, value in settings.items()):
            text = (config.parent / "records.jsonl").read_text()
            return [json.loads(line) for line in text.splitlines()]
    raise AssertionError((bench, study, settings))


def speeds(lines: Lines, arm: str) -> dict[str, float]:
    """Tokens per nanosecond by unit."""
    return {
        r["unit_id"]: len(r["output_ids"]) / (r["prefill_ns"] + r["decode_ns"])
        for r in lines
        if r["arm"] == arm
    }


def mean_ratio(lines: Lines, arm: str, other: str = "ar") -> float:
    own, reference = speeds(lines, arm), speeds(lines, other)
    return statistics.fmean(own[unit] / reference[unit] for unit in own)


def mean_tau(lines: Lines, arm: str, limit: int = 200) -> float:
    values = []
    for r in lines:
        if r["arm"] == arm and r["num_accepted"]:
            left, kept = limit - 1, []
            for accepted in r["num_accepted"]:
                kept.append(min(accepted, left - 1))
                left -= accepted + 1
            values.append(statistics.fmean(kept))
    return 1 + statistics.fmean(values)


def input_changes(lines: Lines, arm: str, other: str) -> list[float]:
    """Equation 11, in per cent."""
    sums: dict[str, dict[str, list[int]]] = {}
    for r in lines:
        if r["arm"] in (arm, other):
            name = r["unit_id"].rsplit(":", 1)[0]
            entry = sums.setdefault(name, {}).setdefault(r["arm"], [0, 0])
            entry[0] += len(r["output_ids"])
            entry[1] += r["prefill_ns"] + r["decode_ns"]
    return [
        100 * ((s[arm][0] / s[arm][1]) / (s[other][0] / s[other][1]) - 1) for s in sums.values()
    ]


def percentile(values: Iterable[float], level: float) -> float:
    ranked = sorted(values)
    place = level / 100 * (len(ranked) - 1)
    below = int(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def latencies(lines: Lines, arm: str) -> list[float]:
    sums: dict[str, int] = {}
    for r in lines:
        if r["arm"] == arm:
            name = r["unit_id"].rsplit(":", 1)[0]
            sums[name] = sums.get(name, 0) + r["prefill_ns"] + r["decode_ns"]
    return [value / 1e9 for value in sums.values()]


class Pages:
    """Printed numbers by row and column."""

    def __init__(self, data: Data) -> None:
        self._data = data

    def entry(self, table: str, column: str, **row: str) -> Entry:
        found = self._data.artefact(table)
        assert isinstance(found, Table)
        for entries in found.rows:
            named = dict(zip(found.headings, entries, strict=True))
            if all(named[key] == value for key, value in row.items()):
                return named[column]
        raise AssertionError((table, row))

    def agree(self, expected: float, table: str, column: str, **row: str) -> None:
        cell = self.entry(table, column, **row)
        assert isinstance(cell, Cell)
        assert cell.value is not None
        assert f"{cell.value:.{cell.digits}f}" == f"{expected:.{cell.digits}f}"


@pytest.fixture(scope="module")
def pages(tiny_data: Data) -> Pages:
    return Pages(tiny_data)


@pytest.mark.parametrize("bench", SINGLE)
def test_tables_1_and_18(pages: Pages, tiny_results: Path, bench: str) -> None:
    lines, name = lines_of(tiny_results, f"tiny_{bench}", "main"), SINGLE[bench]
    for method, label in (("recap", "RECAP"), ("pld", "PLD"), ("racer", "RACER")):
        pages.agree(mean_ratio(lines, method), "table01", f"{name} S", Method=label)
        pages.agree(mean_tau(lines, method), "table01", f"{name} tau", Method=label)
    own, reference = speeds(lines, "recap"), speeds(lines, "ar")
    ratios = [own[unit] / reference[unit] for unit in own]
    for level in (10, 50, 90):
        pages.agree(percentile(ratios, level), "table18", f"P{level}", Dataset=name)
    faster = 100 * sum(ratio > 1 for ratio in ratios) / len(ratios)
    pages.agree(faster, "table18", "Faster %", Dataset=name)


def test_averages_weigh_benchmarks_alike(pages: Pages, tiny_results: Path) -> None:
    runs = [lines_of(tiny_results, f"tiny_{bench}", "main") for bench in SINGLE]
    s = statistics.fmean(mean_ratio(lines, "recap") for lines in runs)
    tau = statistics.fmean(mean_tau(lines, "recap") for lines in runs)
    pages.agree(s, "table01", "Average S", Method="RECAP")
    pages.agree(s, "table03", "S", Method="RECAP")
    pages.agree(tau, "table03", "tau", Method="RECAP")
    tokens = statistics.fmean(statistics.fmean(speeds(lines, "ar").values()) for lines in runs)
    pages.agree(1e9 * tokens, "table03", "AR tokens/s", Method="RECAP")


def test_table_1_extended(pages: Pages, tiny_results: Path) -> None:
    lines = lines_of(tiny_results, "tiny_chartqa", "main")
    row = {"Method": "SAM", "Benchmark": "ChartQA"}
    ratios = [
        speeds(lines, "sam")[unit] / speeds(lines, "ar")[unit] for unit in speeds(lines, "ar")
    ]
    pages.agree(statistics.geometric_mean(ratios), "table01x", "S geometric", **row)
    own = [r for r in lines if r["arm"] == "sam"]
    steps = sum(len(r["num_accepted"]) for r in own)
    pages.agree(
        sum(len(r["output_ids"]) - 1 for r in own) / steps, "table01x", "Tokens/verify", **row
    )
    time = sum(r["prefill_ns"] + r["decode_ns"] for r in own)
    prefill = 100 * sum(r["prefill_ns"] for r in own) / time
    pages.agree(prefill, "table01x", "Prefill %", **row)


def test_table_2_is_turn_weighted(pages: Pages, tiny_results: Path) -> None:
    lines = lines_of(tiny_results, "tiny_mmspec", "mmspec")
    pages.agree(mean_ratio(lines, "recap"), "table02", "Overall S", Method="RECAP")
    charts = [r for r in lines if r["category"] == "chart understanding"]
    pages.agree(mean_ratio(charts, "recap"), "table02", "Charts S", Method="RECAP")
    turns = [r for r in lines if r["category"] == "multi-turn conversation"]
    assert len({r["unit_id"] for r in turns}) > len({r["unit_id"][:-2] for r in turns})
    pages.agree(mean_tau(turns, "recap"), "table02", "Multi-turn tau", Method="RECAP")


def test_table_4(pages: Pages, tiny_results: Path) -> None:
    first = lines_of(tiny_results, "tiny_mmspec", "components", input_seed=None, repeat=0)
    gain = statistics.fmean(input_changes(first, "backoff", "unigram"))
    pages.agree(gain, "table04", "Gain %", Comparison="Context backoff vs. unigram")
    orders = [
        lines_of(tiny_results, "tiny_mmspec", "components", input_seed=seed, repeat=0)
        for seed in (None, 17, 29, 43, 59)
    ]
    means = [statistics.fmean(input_changes(o, "prior_persistent", "prior")) for o in orders]
    row = {"Comparison": "Persistent vs. reset U"}
    pages.agree(statistics.fmean(means), "table04", "Gain %", **row)
    inputs = {r["unit_id"].rsplit(":", 1)[0] for lines in orders for r in lines}
    assert pages.entry("table04", "Inputs", **row) == str(len(inputs))


def test_tables_7_and_8(pages: Pages, tiny_results: Path) -> None:
    lines = lines_of(tiny_results, "tiny_ocrbench", "suffix", reset="stream")
    gain = statistics.fmean(input_changes(lines, "fusion_suffix", "fusion"))
    pages.agree(gain, "table07", "Gain %, one stream", Dataset="OCRBench")
    means = []
    for seed in (17, 29, 43):
        settings = {"schedule": "alternating", "input_seed": seed}
        stream = lines_of(tiny_results, "tiny_mixed4", "streams", **settings)
        own = [r for r in stream if r["unit_id"].startswith("tiny_textvqa_")]
        means.append(statistics.fmean(input_changes(own, "persistent", "request_reset")))
    row = {"Dataset": "TextVQA", "Memory": "Persistent U"}
    pages.agree(statistics.fmean(means), "table08", "Alternating gain %", **row)
    pages.agree(statistics.stdev(means), "table08", "Alternating SD", **row)


def test_table_7_first_hits(pages: Pages, tiny_results: Path) -> None:
    (path,) = tiny_results.glob(f"{MODEL}/tiny_textvqa/replay/*/replay.json")
    document = json.loads(path.read_text())
    counts, states = document["seeded"]["suffix"], sum(document["states"])
    for name, column in (("first_gained", "added"), ("first_lost", "lost")):
        share = 100 * sum(counts[name]) / states
        pages.agree(share, "table07", f"First hits {column} %", Dataset="TextVQA")


@pytest.mark.parametrize("bench", FOUR)
def test_backoff_and_priors(pages: Pages, tiny_results: Path, bench: str) -> None:
    for scope, state in (("request", "request"), ("stream", "persistent")):
        lines = lines_of(tiny_results, f"tiny_{bench}", "backoff", reset=scope)
        row = {"Dataset": SINGLE[bench], "State": state}
        gain = statistics.fmean(input_changes(lines, "backoff", "unigram"))
        pages.agree(gain, "backoff", "Backoff gain %", **row)
        ratio = 1 + statistics.fmean(input_changes(lines, "prior", "uniform")) / 100
        pages.agree(ratio, "backoff", "Prior / uniform", **row)
        pages.agree(mean_tau(lines, "uniform"), "backoff", "tau uniform", **row)
        cell = pages.entry("backoff", "Prior / uniform", **row)
        assert isinstance(cell, Cell) and (cell.paper is not None) == (scope == "request")


def test_table_12(pages: Pages, tiny_results: Path) -> None:
    lines = lines_of(tiny_results, "tiny_mmspec", "fallback")
    row = {"Variant": "RECAP + semantic fallback"}
    pages.agree(mean_ratio(lines, "semantic"), "table12", "S", **row)
    change = 100 * (mean_ratio(lines, "semantic") / mean_ratio(lines, "lexical") - 1)
    pages.agree(change, "table12", "Change of S %", **row)
    traced = [r for r in lines if r["arm"] == "semantic_traced"]
    steps = [step["root_fallback"] for r in traced for step in r["trace"]]
    pages.agree(100 * sum(steps) / len(steps), "table12", "Steps with fallback %", **row)


def test_tables_13_and_17(pages: Pages, tiny_results: Path) -> None:
    changes: list[list[float]] = []
    for bench in FOUR:
        both = [
            lines_of(tiny_results, f"tiny_{bench}", "fusion", input_seed=seed) for seed in (17, 29)
        ]
        changes.append([c for o in both for c in input_changes(o, "uniform", "fixed_prior")])
        row = {"Variant": "uniform"}
        pages.agree(statistics.fmean(changes[-1]), "table13", SINGLE[bench], **row)
    pages.agree(
        statistics.fmean(statistics.fmean(c) for c in changes), "table13", "Mean", Variant="uniform"
    )
    every = [value for values in changes for value in values]
    pages.agree(statistics.median(every), "table13", "Median", Variant="uniform")
    traced = [r for o in both for r in o if r["arm"] == "traced"]
    calls = [step["fusion_weights"]["3"] for r in traced for step in r["trace"]]
    weight = sum(c["weights"][1] for c in calls) / sum(c["calls"] for c in calls)
    pages.agree(weight, "table17", "w2 of three", Dataset="MMT-Bench")


def test_table_15_sums_an_inputs_turns(pages: Pages, tiny_results: Path) -> None:
    lines = lines_of(tiny_results, "tiny_mmspec", "mmspec")
    ar, recap = latencies(lines, "ar"), latencies(lines, "recap")
    for level in (50, 90, 95, 99):
        pages.agree(percentile(ar, level), "table15", f"P{level}", Method="AR")
        pages.agree(percentile(recap, level), "table15", f"P{level}", Method="RECAP")
    faster = 100 * sum(m < r for m, r in zip(recap, ar, strict=True)) / len(ar)
    pages.agree(faster, "table15", "Faster %", Method="RECAP")


def test_mechanisms_of_memory(pages: Pages, tiny_results: Path) -> None:
    gains = []
    for seed in (17, 29, 43):
        lines = lines_of(
            tiny_results, "tiny_mixed4", "streams", schedule="blocked", input_seed=seed
        )
        accepted = {
            (r["arm"], r["unit_id"]): statistics.fmean(r["num_accepted"])
            for r in lines
            if r["num_accepted"]
        }
        units = {unit for arm, unit in accepted if arm == "persistent"}
        gains += [accepted["persistent", u] - accepted["request_reset", u] for u in sorted(units)]
    row = {"Mechanism": "memory is worth keeping", "Where": "blocked"}
    pages.agree(statistics.fmean(gains), "mechanisms", "Value", **row)


def test_order_of_methods(pages: Pages, tiny_results: Path) -> None:
    runs = [lines_of(tiny_results, f"tiny_{bench}", "main") for bench in SINGLE]
    row = {"Inputs": "Seven benchmarks", "Method": "RACER"}
    more = statistics.fmean(mean_tau(r, "recap") - mean_tau(r, "racer") for r in runs)
    pages.agree(more, "order", "tau, RECAP - it", **row)
    faster = statistics.fmean(mean_ratio(r, "recap", "racer") for r in runs)
    pages.agree(faster, "order", "S, RECAP / it", **row)


def test_equal_rows(pages: Pages, tiny_results: Path) -> None:
    lines = lines_of(tiny_results, "tiny_mmspec", "equal_rows")
    own = [r for r in lines if r["arm"] == "token_recycling"]
    steps = sum(len(r["num_accepted"]) for r in own)
    tokens = sum(len(r["output_ids"]) - 1 for r in own)
    row = {"Method": "Token Recycling"}
    pages.agree(tokens / steps, "equal_rows", "Tokens per verify", **row)
    pages.agree(mean_ratio(lines, "token_recycling"), "equal_rows", "S", **row)
