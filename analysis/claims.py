"""Every sentence of the paper's abstract and sections 4, 5 that holds a number, with its tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis import contrasts, counterfactuals, metrics, paper, replays
from analysis.artefact import Cell
from analysis.bootstrap import Interval
from analysis.checks import (
    NOTHING,
    Check,
    Outcome,
    at_most,
    count,
    find_cell,
    judged,
    leads,
    number,
    ordered,
    scope_model,
    untrained,
)
from analysis.data import Data
from analysis.estimators import input_of
from analysis.load import REFERENCE_ARM, Run
from analysis.tables import table04

QWEN, LLAVA = "qwen25vl", "llava16"
NAMES = {QWEN: "Qwen", LLAVA: "LLaVA"}
RECAP, RECYCLING = {"Method": "RECAP"}, {"Method": "Token Recycling"}


@dataclass(frozen=True)
class Claim:
    """A sentence, where it stands, the study that tests it, and how."""

    place: str
    sentence: str
    study: str
    checks: tuple[Check, ...]


def _speed(model: str, method: dict[str, str], column: str, table: str = "table01") -> Check:
    label = f"{NAMES[model]}, {method['Method']}, {column}"
    return number(label, table, model, method, column, timed=column.endswith(" S"))


def _both(column: str, table: str = "table01") -> tuple[Check, ...]:
    """RECAP and Token Recycling on both models."""
    return tuple(_speed(m, k, column, table) for k in (RECAP, RECYCLING) for m in (QWEN, LLAVA))


def _gain(label: str, comparison: str, model: str = QWEN, value: float | None = None) -> Check:
    return number(label, "table04", model, {"Comparison": comparison}, "Gain %", value)


# What is counted in runs rather than looked up in tables


def _runs(data: Data, study: str) -> list[Run]:
    return [run for run in data.found if run.study == study]


def _same(values: list[float]) -> float | None:
    """The value that all have, the smallest where they differ, None without any."""
    return min(values) if values else None


def _token_limit(data: Data) -> float | None:
    return _same([run.max_new_tokens for run in data.found if run.study in ("main", "mmspec")])


def _inputs_of(study: str, bench: str | None = None) -> Callable[[Data], float | None]:
    def counter(data: Data) -> float | None:
        runs = [r for r in _runs(data, study) if bench in (None, r.bench)]
        units = ({input_of(r) for r in run.records if r.arm == REFERENCE_ARM} for run in runs)
        return _same([len(names) for names in units])

    return counter


def _turns_of(study: str) -> Callable[[Data], float | None]:
    return lambda data: _same([run.num_units for run in _runs(data, study)])


def _topics(data: Data) -> float | None:
    return _same([len({r.category for r in run.records}) for run in _runs(data, "mmspec")])


def _most_candidates(arms: tuple[str, ...]) -> Callable[[Data], float | None]:
    def counter(data: Data) -> float | None:
        records = [r for run in _runs(data, "components") for r in run.records if r.arm in arms]
        return max((max(r.num_candidates, default=0) for r in records), default=None)

    return counter


def _static_tree(data: Data) -> float | None:
    records = (r for run in data.found for r in run.records if r.arm == "token_recycling")
    return max((max(r.num_candidates, default=0) for r in records), default=None)


def _replays(data: Data) -> list[replays.Replay]:
    model = scope_model(data, QWEN)
    found = [replays.find(data, model, bench) for bench in paper.DIAGNOSTIC] if model else []
    return [replay for replay in found if replay is not None]


def _states(data: Data) -> float | None:
    found = _replays(data)
    return sum(r.total("states") for r in found) if len(found) == len(paper.DIAGNOSTIC) else None


def _replayed_inputs(data: Data) -> float | None:
    found = _replays(data)
    return sum(len(r.document["units"]) for r in found) if found else None


def _joint(label: str, pick: Callable[..., Cell], value: float) -> Check:
    """The smallest or largest of the data sets' recall differences of G over U."""

    def run(data: Data) -> Outcome:
        found = [
            find_cell(data, "table05", QWEN, {"Dataset": name}, "G - U, jointly")
            for name in paper.DIAGNOSTIC.values()
        ]
        measured = [cell for cell in found if cell is not None and cell.value is not None]
        if len(measured) < len(found):
            return Outcome(Cell(paper=value), None)
        chosen = pick(measured, key=lambda cell: cell.value)
        cell = Cell(chosen.value, chosen.low, chosen.high, value, signed=True)
        return judged(cell)

    return Check(label, run, timed=False)


def _persistence_range(data: Data) -> Outcome:
    """Our range over five orders, and whether it meets the paper's."""
    model = scope_model(data, QWEN)
    means = table04.persistence_means(data, model) if model else []
    if len(means) < len(table04.ORDERS):
        return NOTHING
    text = f"{min(means):+.2f} to {max(means):+.2f} (paper +4.36 to +7.18)"
    return Outcome(text, min(means) <= 7.18 and max(means) >= 4.36)


def _backoff(bench: str) -> Check:
    """The online gain of U+C backoff (Figure 3b), U reset per request."""
    name = paper.DIAGNOSTIC[bench]

    def run(data: Data) -> Outcome:
        model = scope_model(data, QWEN)
        found = data.run("backoff", bench, model, reset="request") if model else None
        interval: Interval = contrasts.changes(found, "backoff", "unigram").mean
        file = "figure03_online_backoff_gain"
        published = paper.value(file, "gain_percent", dataset=name)
        cell = Cell.of(interval, published, signed=True)
        return judged(cell)

    return Check(f"{name}, online gain %", run)


def _image_rows(bench: str) -> Check:
    """What rows of the own picture recall more than a swapped one's, fused (Appendix C)."""
    name = paper.DIAGNOSTIC[bench]

    def run(data: Data) -> Outcome:
        model = scope_model(data, QWEN)
        study, file = counterfactuals.RECALL_STUDY, counterfactuals.RECALL_FILE
        found = counterfactuals.find(data, study, file, model, bench) if model else None
        gain = None
        if found is not None:
            gain = counterfactuals.recall_gain(found.document, "fusion", "seeded")
        column = "matching_minus_swapped_points"
        published = paper.value("image_conditioned_recall", column, dataset=name)
        return judged(Cell.of(gain, published, signed=True))

    return Check(f"{name}, points", run, timed=False)


def _exact(data: Data) -> Outcome:
    """Whether RECAP's outputs equal AR's, over every run of the main study."""
    pairs = [p for r in _runs(data, "main") for p in metrics.pairs(r.records, "recap")]
    if not pairs:
        return NOTHING
    equal = metrics.num_equal(pairs)
    text = f"{equal} of {len(pairs)} outputs equal"
    types = {(run.manifest.get("target") or {}).get("dtype") for run in _runs(data, "main")}
    if types != {"float32"}:
        return Outcome(text, None, "not testable in half precision, where no evaluation is exact")
    return Outcome(text, equal == len(pairs))


_TOPICS = [f"{name} {what}" for name in paper.TOPICS.values() for what in ("S", "tau")]
_BENCHES = [f"{name} {what}" for name in paper.SINGLE_TURN.values() for what in ("S", "tau")]
_TEXT_VQA = ("Text VQA S", "Text VQA tau")

CLAIMS = (
    Claim(
        "Abstract",
        "RECAP achieves mean speedups over autoregressive decoding of 1.66x and 1.56x across seven "
        "single-turn benchmarks on Qwen2.5-VL-7B and LLaVA-1.6-7B, exceeding the strongest "
        "training-free baseline, Token Recycling (1.51x and 1.37x).",
        "main",
        (
            *_both("Average S"),
            leads("Qwen, RECAP first by mean S", "table01", QWEN, ["Average S"]),
            leads("LLaVA, RECAP first by mean S", "table01", LLAVA, ["Average S"]),
        ),
    ),
    Claim(
        "4.1",
        "Generation is greedy at batch size one, with at most 200 new tokens.",
        "main",
        (count("token limit of the runs", 200, _token_limit, general=True),),
    ),
    Claim(
        "4.1",
        "We fix 1,000 inputs for each single-turn benchmark.",
        "main",
        (count("inputs, smallest benchmark", 1000, _inputs_of("main")),),
    ),
    Claim(
        "4.1",
        "MMSpec adds 600 inputs from six categories; Table 2: 723 total turns.",
        "mmspec",
        (
            count("inputs", 600, _inputs_of("mmspec")),
            count("categories", 6, _topics),
            count("turns", 723, _turns_of("mmspec")),
        ),
    ),
    Claim(
        "4.1",
        "A Top-8 adjacency matrix retained across requests drafts a static 80-node tree.",
        "main",
        (count("most candidates of Token Recycling", 80, _static_tree, general=True),),
    ),
    Claim(
        "4.1",
        "When target evaluations are exact, RECAP preserves greedy decoding without loss "
        "(Equation 1).",
        "main",
        (Check("outputs equal to AR's", _exact, timed=False, general=True),),
    ),
    Claim(
        "4.2",
        "RECAP leads every single-turn model-benchmark comparison in speedup and acceptance "
        "(Table 1).",
        "main",
        (
            leads("Qwen, columns of Table 1", "table01", QWEN, _BENCHES),
            leads("LLaVA, columns of Table 1", "table01", LLAVA, _BENCHES),
        ),
    ),
    Claim(
        "4.2",
        "Qwen's mean speedup across seven benchmarks is 1.66x, compared with 1.51x for Token "
        "Recycling, the strongest baseline by mean speedup. LLaVA's corresponding values are 1.56x "
        "and 1.37x.",
        "main",
        _both("Average S"),
    ),
    Claim(
        "4.2",
        "Qwen reaches 2.19x on MathVista and 1.75x on ChartQA, while LLaVA reaches 1.81x on "
        "OCRBench and 1.71x on MathVista.",
        "main",
        (
            _speed(QWEN, RECAP, "MathVista S"),
            _speed(QWEN, RECAP, "ChartQA S"),
            _speed(LLAVA, RECAP, "OCRBench S"),
            _speed(LLAVA, RECAP, "MathVista S"),
        ),
    ),
    Claim(
        "4.2",
        "Its mean acceptance lengths of 3.02 and 2.92 exceed Token Recycling's 2.71 and 2.55, the "
        "strongest baseline acceptance averages.",
        "main",
        (
            *_both("Average tau"),
            leads("Qwen, RECAP first by mean tau", "table01", QWEN, ["Average tau"]),
            leads("LLaVA, RECAP first by mean tau", "table01", LLAVA, ["Average tau"]),
        ),
    ),
    Claim(
        "4.2",
        "On MMSpec, RECAP reaches overall speedups of 1.89x on Qwen and 1.59x on LLaVA, exceeding "
        "Token Recycling, the strongest baseline on both models, at 1.56x and 1.43x.",
        "mmspec",
        (
            *_both("Overall S", "table02"),
            leads("Qwen, RECAP first overall", "table02", QWEN, ["Overall S"]),
            leads("LLaVA, RECAP first overall", "table02", LLAVA, ["Overall S"]),
        ),
    ),
    Claim(
        "4.2",
        "RECAP leads in both speedup and acceptance length across categories except Qwen text "
        "VQA, where Token Recycling reaches 1.31x against 1.26x, while both methods round to tau "
        "= 2.49.",
        "mmspec",
        (
            leads("Qwen, other columns of Table 2", "table02", QWEN, _TOPICS, _TEXT_VQA),
            leads("LLaVA, columns of Table 2", "table02", LLAVA, _TOPICS),
            *(_speed(QWEN, who, c, "table02") for who in (RECYCLING, RECAP) for c in _TEXT_VQA),
        ),
    ),
    Claim(
        "4.2",
        "Overall acceptance lengths for RECAP are 2.77 and 2.85.",
        "mmspec",
        tuple(_speed(model, RECAP, "Overall tau", "table02") for model in (QWEN, LLAVA)),
    ),
    Claim(
        "4.2",
        "Multi-turn conversation yields 2.09x on Qwen, second only to complex reasoning at 2.16x, "
        "and 1.73x on LLaVA, its largest category speedup.",
        "mmspec",
        (
            _speed(QWEN, RECAP, "Multi-turn S", "table02"),
            _speed(QWEN, RECAP, "Reasoning S", "table02"),
            _speed(LLAVA, RECAP, "Multi-turn S", "table02"),
        ),
    ),
    Claim(
        "4.2",
        "Trained drafters accept longer continuations, with mean tau of 3.68-3.76 against 2.92 and "
        "3.02 for RECAP, which reaches 78-80% of their acceptance length.",
        "main",
        (
            untrained("trained drafters' tau", "3.68 to 3.76"),
            _speed(LLAVA, RECAP, "Average tau"),
            _speed(QWEN, RECAP, "Average tau"),
        ),
    ),
    Claim(
        "4.2",
        "Their speedups of 1.05-1.26x fall below those of RECAP, but they were measured against "
        "autoregressive baselines of 41.9-61.2 tokens/s rather than 29.9-39.4 tokens/s.",
        "main",
        (
            untrained("trained drafters' S and AR tokens/s", "1.05 to 1.26, 41.9 to 61.2"),
            number("LLaVA, AR tokens/s", "table03", LLAVA, RECAP, "AR tokens/s"),
            number("Qwen, AR tokens/s", "table03", QWEN, RECAP, "AR tokens/s"),
        ),
    ),
    Claim(
        "4.2",
        "Their acceptance advantage adds 451M-890M parameters, or 0.84-1.66 GiB of 16-bit weights, "
        "to the serving GPU.",
        "-",
        (untrained("trained drafters' size", "451M to 890M, 0.84 to 1.66 GiB"),),
    ),
    Claim(
        "4.2",
        "At the default budget, its proposal state occupies at most 8.70 MiB of host memory "
        "(Table 10).",
        "profile",
        tuple(
            at_most(f"{NAMES[m]}, host MiB", "table10", m, {"Cap": "63"}, "Host MiB", 8.70)
            for m in (QWEN, LLAVA)
        ),
    ),
    Claim(
        "5.1",
        "The MMSpec subset comprises 120 inputs, 20 per category, expanding to 160 generation "
        "turns.",
        "components",
        (
            count("inputs", 120, _inputs_of("components")),
            count("turns", 160, _turns_of("components")),
        ),
    ),
    Claim(
        "5.1",
        "Policies share a tree builder and a 63-node transition budget.",
        "components",
        (
            count(
                "most candidates",
                63,
                _most_candidates(("fixed_expansion", "unigram", "backoff", "uniform", "prior")),
                general=True,
            ),
        ),
    ),
    Claim(
        "5.1",
        "Contextual backoff improves throughput over unigram recycling by 3.03%, and an "
        "independent repeat of the same 120-input comparison yields 2.42%.",
        "components",
        (
            _gain("backoff over unigram, %", "Context backoff vs. unigram"),
            _gain("the repeat, %", "Context backoff vs. unigram, independent repeat"),
        ),
    ),
    Claim(
        "5.1",
        "Uniform fusion improves backoff by 0.75%, and specificity priors improve uniform fusion "
        "by 2.80%.",
        "components",
        (
            _gain("uniform over backoff, %", "Uniform fusion vs. backoff"),
            _gain("priors over uniform, %", "Specificity priors vs. uniform fusion"),
        ),
    ),
    Claim(
        "5.1",
        "Across five runs, retaining token memory across requests improves throughput over "
        "per-request reset by 5.42% on average, ranging from 4.36% to 7.18%.",
        "components",
        (
            _gain("mean, %", "Persistent vs. reset U, 5 of 5 orders"),
            Check("range over five runs, %", _persistence_range),
        ),
    ),
    Claim(
        "5.1",
        "Entropy-confidence weighting adds a smaller gain over fixed priors: 0.73% mean throughput "
        "on Qwen and 1.09% on LLaVA.",
        "fusion",
        tuple(
            number(f"{NAMES[m]}, mean %", "table13", m, {"Variant": "RECAP"}, "Mean")
            for m in (QWEN, LLAVA)
        ),
    ),
    Claim(
        "5.1",
        "Confidence-based single-source gating decreases throughput by 0.66% and 1.90%, "
        "respectively.",
        "fusion",
        tuple(
            number(f"{NAMES[m]}, mean %", "table13", m, {"Variant": "confidence gate"}, "Mean")
            for m in (QWEN, LLAVA)
        ),
    ),
    Claim(
        "5.1",
        "Suffix complementarity is tested separately on 100 inputs each from ChartQA, TextVQA, "
        "OCRBench, and MMT-Bench.",
        "suffix",
        (count("inputs, smallest data set", 100, _inputs_of("suffix")),),
    ),
    Claim(
        "5.1",
        "Adding suffix insertion to fusion improves mean paired throughput by 0.61%, with "
        "dataset-specific changes from -0.67% to +2.23% (Table 7).",
        "suffix",
        (
            _gain("mean, %", "Suffix insertion vs. none, U reset per request (four sets)"),
            *(
                number(f"{d}, %", "table07", QWEN, {"Dataset": d}, "Gain %, per request")
                for d in ("OCRBench", "MMT-Bench")
            ),
        ),
    ),
    Claim(
        "5.2",
        "Replay comprises 23,811 states from 400 inputs, with 100 each from ChartQA, TextVQA, "
        "OCRBench, and MMT-Bench.",
        "replay",
        (
            count("inputs", 400, _replayed_inputs),
            count("states (2 % either way)", 23811, _states, tolerance=0.02),
        ),
    ),
    Claim(
        "5.2",
        "On jointly covered queries with eight candidates per source, matching-image rows "
        "outperform swapped-image rows in fused Recall@8 by 0.89-6.35 percentage points across "
        "datasets (Appendix C).",
        "replay",
        tuple(_image_rows(bench) for bench in paper.DIAGNOSTIC),
    ),
    Claim(
        "5.2",
        "All four datasets show higher conditional recall and lower coverage with finer keys "
        "(Figure 3(a)).",
        "replay",
        (
            ordered(
                "recall rises from U to C to G, coverage falls",
                "table05",
                [
                    (QWEN, {"Dataset": name}, f"{what} {a}", f"{what} {b}")
                    for name in paper.DIAGNOSTIC.values()
                    for what, a, b in (
                        ("Recall@8", "U", "C"),
                        ("Recall@8", "C", "G"),
                        ("Coverage", "C", "U"),
                        ("Coverage", "G", "C"),
                    )
                ],
            ),
        ),
    ),
    Claim(
        "5.2",
        "On OCRBench, U coverage is 54.9% and G coverage is 18.6%, while recall rises from 63.6% "
        "to 90.6%.",
        "replay",
        tuple(
            number(f"OCRBench, {c}", "table05", QWEN, {"Dataset": "OCRBench"}, c, timed=False)
            for c in ("Coverage U", "Coverage G", "Recall@8 U", "Recall@8 G")
        ),
    ),
    Claim(
        "5.2",
        "In a prompt-seeded variant, on states where both G and U match, G improves Recall@8 over "
        "U by 5.00-29.54 percentage points across datasets.",
        "replay",
        (
            _joint("smallest of the four, points", min, 5.00),
            _joint("largest of the four, points", max, 29.54),
        ),
    ),
    Claim(
        "5.2",
        "At equal actual candidate counts, U+C backoff improves matched continuation length on "
        "every dataset, from 0.516 to 0.709 tokens on ChartQA and 0.632 to 1.135 on OCRBench.",
        "replay",
        tuple(
            number(f"{d}, {p}", "table06", QWEN, {"Policy": p}, d, timed=False)
            for d in ("ChartQA", "OCRBench")
            for p in ("U", "U+C backoff")
        ),
    ),
    Claim(
        "5.2",
        "Online controls yield 1.11-3.64% paired throughput gains from U+C backoff (Figure 3(b)).",
        "backoff",
        tuple(_backoff(bench) for bench in paper.DIAGNOSTIC),
    ),
    Claim(
        "5.3",
        "The added suffix increases mean matched length by 0.059-0.190 tokens across four replay "
        "datasets.",
        "replay",
        tuple(
            number(f"{d}, tokens", "table07", QWEN, {"Dataset": d}, "Difference", timed=False)
            for d in paper.DIAGNOSTIC.values()
        ),
    ),
    Claim(
        "5.3",
        "Online throughput changes from suffix insertion range between -0.67% and +2.23% across "
        "the four datasets.",
        "suffix",
        tuple(
            number(f"{d}, %", "table07", QWEN, {"Dataset": d}, "Gain %, per request")
            for d in paper.DIAGNOSTIC.values()
        ),
    ),
    Claim(
        "5.3",
        "At the default budget, retrieval, fusion, tree construction, and packing together require "
        "0.907 ms per Qwen iteration and 1.121 ms per LLaVA iteration.",
        "profile",
        tuple(
            number(f"{NAMES[m]}, ms", "table10", m, {"Cap": "63"}, "Preparation ms")
            for m in (QWEN, LLAVA)
        ),
    ),
    Claim(
        "5.3",
        "All stages outside target verification take 1.778 and 1.974 ms, or 8.20% and 5.61% of "
        "decoding wall time (Appendix G).",
        "profile",
        tuple(
            number(f"{NAMES[m]}, {label}", "table09", m, {"Stage": "All but verification"}, column)
            for column, label in (("Wall ms", "ms"), ("%", "% of a step"))
            for m in (QWEN, LLAVA)
        ),
    ),
)
