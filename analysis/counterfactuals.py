"""Estimators of what other pictures change: Figure 1 (`experiments.counterfactual`) and the
image-conditioned rows of section 5.2 and Appendix C (`experiments.image_rows`).

Figure 1 averages benchmarks equally. Its intervals resample image clusters within each benchmark
10,000 times, groups fixed; a resample counts only where every benchmark has every group, and there
is no interval unless nine in ten count (paper, Appendix E, and the authors' code for what it leaves
open).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.bootstrap import NOTHING, FloatArray, Interval, Resampler, around
from analysis.data import Data
from analysis.estimators import RESAMPLES as RECALL_RESAMPLES
from analysis.load import Run

IntArray = NDArray[np.int64]

STUDY, FILE = "counterfactual", "counterfactual.json"
RECALL_STUDY, RECALL_FILE = "replay", "image_rows.json"
RESAMPLES = 10_000
LEAST_VALID = 0.9
DRAFT_SEED, STATE_SEED = 141421, 223607
BINS = ("0", "1", "2", "3", "4", "5+")
QUINTILES = ("Q1", "Q2", "Q3", "Q4", "Q5")
CONTROLS = ("mean", "wrong")


@dataclass(frozen=True)
class Derived:
    """A run and a derived file beside it."""

    run: Run
    document: Mapping[str, Any]


def find(data: Data, study: str, file: str, model: str, bench: str) -> Derived | None:
    """A study's derived file of one benchmark, or None."""
    run = data.run(study, bench, model)
    document = data.derived(run, file)
    return None if run is None or document is None else Derived(run, document)


def find_all(
    data: Data, study: str, file: str, model: str, benches: Sequence[str]
) -> dict[str, Derived]:
    """Those of several benchmarks that are there."""
    found = {bench: find(data, study, file, model, bench) for bench in benches}
    return {bench: derived for bench, derived in found.items() if derived is not None}


def pair_note(found: Sequence[Derived]) -> str:
    """How the donors came about, without a full stop."""
    documents = [one.document for one in found]
    total, left_out = (sum(len(d[name]) for d in documents) for name in ("units", "left_out"))
    alike, reused = (sum(sum(d[name]) for d in documents) for name in ("same_category", "reused"))
    return (
        f"{total} inputs; {alike} donors of the same known category, {reused} used again; "
        f"{left_out} inputs left out"
    )


# Figure 1


@dataclass(frozen=True)
class Rows:
    """One benchmark's rows: float64[r] values, the group int64[r] and the cluster of each."""

    values: FloatArray
    groups: IntArray
    clusters: tuple[str, ...]


def changes(document: Mapping[str, Any]) -> Rows:
    """Valid drafts by accepted length: 100 where the greedy choice at the root changes under
    either control, else 0.
    """
    columns = document["drafts"]
    either = np.logical_or(*(_column(columns, f"{control}_changed") for control in CONTROLS))
    return _drafts(document, 100.0 * either)


def dependence(document: Mapping[str, Any]) -> Rows:
    """Valid drafts by accepted length: the smaller drop of the root token's log probability."""
    columns = document["drafts"]
    return _drafts(
        document, np.minimum(*(_column(columns, f"{control}_drop") for control in CONTROLS))
    )


def _drafts(document: Mapping[str, Any], values: FloatArray) -> Rows:
    columns = document["drafts"]
    valid = _column(columns, "valid") == 1
    groups = np.minimum(_column(columns, "accepted"), len(BINS) - 1).astype(np.int64)
    clusters = _clusters(document, columns)
    kept = tuple(c for c, keep in zip(clusters, valid.tolist(), strict=True) if keep)
    return Rows(np.asarray(values, np.float64)[valid], groups[valid], kept)


def support_share(document: Mapping[str, Any]) -> Rows:
    """Eligible states by quintile: per cent of normalised support that U's candidates have."""
    return _states(document, lambda d: 100 / (1 + np.exp(_support(d, "GC") - _support(d, "U"))))


def length_gain(document: Mapping[str, Any], trees: str = "equal") -> Rows:
    """Eligible states by quintile: matched length with C and G minus that with U, in "equal" or in
    "sliced" trees.
    """

    def gain(columns: Mapping[str, Any]) -> FloatArray:
        return _column(columns, f"{trees}_GC") - _column(columns, f"{trees}_U")

    return _states(document, gain)


def _states(document: Mapping[str, Any], value: Callable[[Mapping[str, Any]], FloatArray]) -> Rows:
    columns = document["states"]
    if not columns:
        return Rows(np.zeros(0), np.zeros(0, np.int64), ())
    groups = quintiles(_support(columns, "GC") - _support(columns, "U"))
    return Rows(value(columns), groups, _clusters(document, columns))


def _support(columns: Mapping[str, Any], source: str) -> FloatArray:
    """E of a source (Equation 13): the smaller drop of its candidates' log mass."""
    return np.asarray(
        np.minimum(*(_column(columns, f"{control}_{source}") for control in CONTROLS)), np.float64
    )


def quintiles(values: FloatArray) -> IntArray:
    """int64[r]: the fifth, from 0, in which each value's percentile lies; ties share the average.

    >>> quintiles(np.array([3.0, 1.0, 5.0, 2.0, 4.0])).tolist()
    [2, 0, 4, 1, 3]
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    smaller = np.cumsum(counts) - counts
    middle = (smaller + counts / 2) / len(values)
    return np.floor(len(QUINTILES) * middle[places]).astype(np.int64)


def _column(columns: Mapping[str, Any], name: str) -> FloatArray:
    return np.array(columns.get(name, []), np.float64)


def _clusters(document: Mapping[str, Any], columns: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(document["clusters"][unit] for unit in columns.get("unit", []))


def equal_means(parts: Sequence[Rows], num_groups: int, seed: int) -> list[Interval]:
    """Per group the plain mean of the benchmarks' means. A benchmark without a row of a group is
    left out of its estimate, and then there are no intervals.
    """
    parts = [part for part in parts if len(part.values)]
    if not parts:
        return [NOTHING] * num_groups
    rng = np.random.default_rng(seed)
    means = np.array([_means(part, num_groups, _once(part)) for part in parts])[:, 0]
    draws = np.mean([_means(p, num_groups, _resampled(p, rng)) for p in parts], axis=0)
    kept = draws[np.isfinite(draws).all(axis=1)]
    enough = len(kept) >= LEAST_VALID * len(draws)
    intervals = []
    for group in range(num_groups):
        found = means[:, group][np.isfinite(means[:, group])]
        estimate = float(found.mean()) if len(found) else float("nan")
        no_draws = np.zeros(0)
        intervals.append(around(estimate, kept[:, group] if enough else no_draws))
    return intervals


def _once(part: Rows) -> FloatArray:
    return np.ones((1, len(set(part.clusters))))


def _resampled(part: Rows, rng: np.random.Generator) -> FloatArray:
    """How often each cluster is drawn in each resample, float64[resamples, clusters]."""
    clusters = len(set(part.clusters))
    drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=RESAMPLES)
    return drawn.astype(np.float64)


def _means(part: Rows, num_groups: int, weights: FloatArray) -> FloatArray:
    """float64[w, groups]: means of a benchmark's groups, nan where there is nothing."""
    _, index = np.unique(np.array(part.clusters), return_inverse=True)
    cells = index * num_groups + part.groups
    shape = (weights.shape[1], num_groups)
    size = shape[0] * shape[1]
    sums = np.bincount(cells, weights=part.values, minlength=size).reshape(shape)
    counts = np.bincount(cells, minlength=size).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((weights @ sums) / (weights @ counts))


def group_sizes(parts: Sequence[Rows], num_groups: int) -> list[int]:
    """Rows of all benchmarks per group."""
    groups = np.concatenate([part.groups for part in parts])
    return [int(count) for count in np.bincount(groups, minlength=num_groups)]


# Image-conditioned rows


def recall_gain(document: Mapping[str, Any], source: str, start: str) -> Interval:
    """Recall@8 with rows of the own picture minus that with a swapped one's, points."""
    counts = {name: np.array(c, np.float64) for name, c in document[start][source].items()}
    if counts["states"].sum() == 0:
        return NOTHING
    gained = 100 * (counts["matching"] - counts["swapped"])
    return Resampler(document["clusters"], RECALL_RESAMPLES).ratio(gained, counts["states"])
