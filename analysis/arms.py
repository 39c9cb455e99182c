"""Which run a method's row comes from, and what footnotes say about it.

A row of Tables 1 and 2 may come from a run of the study that has all methods as arms, from one of
that method alone, or from an ordinary run. Each is paired with the AR arm of its own run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from analysis.bootstrap import Interval
from analysis.data import Data
from analysis.load import REFERENCE_ARM, Run
from analysis.metrics import num_distinct
from analysis.studies import CONF, deviations

NULL_ARM = "null"
NULL_LABEL = "AR again (null arm)"
# Rows of Tables 1 and 2 as the paper orders them, then the methods it does not have.
PAPER_METHODS = {
    "pld": "PLD",
    "lookahead": "Lookahead",
    "tree_recycling": "Tree Recycling",
    "token_recycling": "Token Recycling",
    "sam": "SAM",
    "sam_viskip": "SAM+ViSkip",
    "recap": "RECAP",
}
OTHER_METHODS = {
    "lookahead_jacobi": "Lookahead (Jacobi)",
    "sam_token_recycling": "SAM + Token Recycling",
    "suffix_decoding": "SuffixDecoding",
    "racer": "RACER",
}
METHODS = {**PAPER_METHODS, **OTHER_METHODS}
_RUNS = "; runs with units/distinct requests: "
_DEVIATION = re.compile(r"[\w.]+=[^\s,]+ \(the study: [^)]*\)")
_SAME_FOR_ALL = {"bench.prompt_style": "question_only", "history": "ar"}
_PROFILED = "phases"  # a timing whose times are no speeds


@dataclass(frozen=True)
class Row:
    """A method on a benchmark: the run that has it. Its arm carries the method's name."""

    method: str
    run: Run


def rows(data: Data, study: str, bench: str, model: str) -> dict[str, Row]:
    """Every method measured with its own settings on a benchmark, the paper's order.

    The study may have all methods in one run or each in a run of its own.
    """
    candidates = _candidates(data, study, bench, model)
    found: dict[str, Row] = {}
    for method in METHODS:
        fitting = (run for run in candidates if has_method(run, method))
        run = next(fitting, None)
        if run is not None:
            found[method] = Row(method, run)
    return found


def passed_over(
    data: Data, study: str, bench: str, model: str, found: Mapping[str, Row]
) -> list[Run]:
    """Runs of a benchmark, the study's and ordinary ones, that no row comes from."""
    used = {row.run.name for row in found.values()}
    return [run for run in _candidates(data, study, bench, model) if run.name not in used]


def _candidates(data: Data, study: str, bench: str, model: str) -> list[Run]:
    return [*data.candidates(study, bench, model), *data.candidates("", bench, model)]


def has_method(run: Run, method: str) -> bool:
    """Whether an arm is the method as ``conf/method`` has it, in the protocol of the tables."""
    if method not in run.arms:
        return False
    if any((run.setting(key) or value) != value for key, value in _SAME_FOR_ALL.items()):
        return False
    if run.setting("timing") == _PROFILED:
        return False
    arm = run.arm_settings.get(method)
    if arm is None:
        return bool(run.study)
    same_scope = arm.get("reset", "stream") == "stream"
    return same_scope and _agrees(arm.get("config") or {}, _defaults(method))


def _agrees(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether every option that both have is the same, and no other one is set."""
    for key, value in config.items():
        if key not in defaults:
            if value:
                return False
        elif isinstance(value, Mapping) and isinstance(defaults[key], Mapping):
            if not _agrees(value, defaults[key]):
                return False
        elif value != defaults[key]:
            return False
    return True


@functools.cache
def _defaults(method: str) -> dict[str, Any]:
    path = CONF / "method" / f"{method}.yaml"
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def noise_mark(effect: Interval, null: Interval, neutral: float) -> str:
    """The mark of an effect that is no larger than what the null arm shows.

    ``neutral`` is no effect at all: an effect between it and the null arm's interval is noise, too.
    """
    inside = min(null.low, neutral) <= effect.mean <= max(null.high, neutral)
    return "noise" if inside else ""


# Footnotes


def sources(runs: Iterable[Run]) -> list[str]:
    """Where the numbers come from: one note per group of runs that were made alike."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run not in groups.setdefault(_conditions(run), []):
            groups[_conditions(run)].append(run)
    return [
        f"{conditions}{_RUNS}{', '.join(_run_note(run) for run in members)}."
        for conditions, members in groups.items()
    ]


def merged(footnotes: Iterable[str]) -> tuple[str, ...]:
    """Footnotes once each, those on runs last and one per group of runs that were made alike."""
    plain: dict[str, None] = {}
    runs: dict[str, dict[str, None]] = {}
    for note in footnotes:
        conditions, found, members = note.partition(_RUNS)
        if found:
            names = members.removesuffix(".").split(", ")
            runs.setdefault(conditions, {}).update(dict.fromkeys(names))
        else:
            plain[note] = None
    sources_ = (f"{start}{_RUNS}{', '.join(names)}." for start, names in runs.items())
    return (*plain, *sources_)


def unlike_study(footnotes: Iterable[str]) -> str:
    """A sentence for the caption on runs that differ in size from their study; empty without."""
    found = dict.fromkeys(part for note in footnotes for part in _DEVIATION.findall(note))
    return f"Unlike the study: {', '.join(found)}." if found else ""


def _conditions(run: Run) -> str:
    commits = sorted({_commit(session) for session in run.manifest.get("sessions", [])})
    timing = run.setting("timing") or "generation"
    dtype = (run.manifest.get("target") or {}).get("dtype") or run.setting("model.dtype")
    parts = [
        f"Timing `{timing}`, at most {run.max_new_tokens} new tokens",
        str(dtype or "dtype not recorded"),
        _device(run),
        f"commit {', '.join(commits) or 'not recorded'}",
        *deviations(run.study, run.setting),
    ]
    return ", ".join(parts)


def _device(run: Run) -> str:
    sessions = run.manifest.get("sessions") or [{}]
    environment = sessions[-1].get("environment") or {}
    accelerator = environment.get("accelerator")
    if run.device == "CPU":
        return f"{environment.get('processor', 'CPU')}, {environment.get('threads', '?')} threads"
    return str(accelerator.get("name", run.device)) if accelerator else run.device


def _commit(session: Mapping[str, Any]) -> str:
    git = (session.get("environment") or {}).get("git") or {}
    return f"{git.get('commit', 'unknown')[:7]}{' (changed)' if git.get('dirty') else ''}"


def _run_note(run: Run) -> str:
    own = run.of(REFERENCE_ARM)
    bad = sum(r.status != "ok" for r in own)
    remark = f" ({bad} skipped or bad)" if bad else ""
    return f"`{run.name}` {len(own)}/{num_distinct(own)}{remark}"


def passed_over_note(runs: Iterable[Run]) -> list[str]:
    """The footnote on runs that no row comes from."""
    names = [f"`{run.name}`" for run in runs]
    if not names:
        return []
    return [
        "Runs that no row comes from, because their method's settings are not the defaults or a "
        f"larger or newer run has the same method: {', '.join(names)}."
    ]


def separate_runs(found: Sequence[dict[str, Row]], names: Sequence[str]) -> list[str]:
    """A note per benchmark whose rows come from more than one run."""
    lines = []
    for rows_of_bench, name in zip(found, names, strict=True):
        runs: dict[str, list[str]] = {}
        for row in rows_of_bench.values():
            runs.setdefault(row.run.name, []).append(METHODS[row.method])
        if len(runs) > 1:
            parts = "; ".join(f"{', '.join(m)} from `{run}`" for run, m in runs.items())
            lines.append(f"{name}: rows come from separate runs, each against its own AR: {parts}.")
    return lines
