"""What entropy confidence costs a fusion: the production kernel beside a readable Python twin.

    python -m experiments.fusion_cost

512 synthetic queries that find two or three rows, fused with fixed priors and with entropy
confidence (paper, Appendix G.1). Python computes a row's entropy whenever it is fused, as the
paper's reference did; the kernel finds it stored with the row, so that its cost, given apart, falls
on writing. The kernel's queries run within one compiled loop, as in the search; placing their rows
is part of it. The twin is the reference that the tests hold the kernel to.

The file is ``<results_root>/host/fusion_cost.<device>.json``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from experiments.host_file import host_path, write_host
from recap import fusion
from recap.config import MAX_SOURCES, RecapConfig
from recap.core import kernels
from tests.reference.drafter import fuse as readable_fuse

if TYPE_CHECKING:
    from experiments.runner import FinishedRun
    from recap.config import Fusion

NAME = "fusion_cost"
QUERIES = 512
REPEATS = 21
TOP_K = 8
POOL = 16  # ids that the rows of one query choose from, so that they overlap
RULES: tuple[Fusion, ...] = ("fixed_prior", "entropy_confidence")
PRIORS = RecapConfig().priors


class Queries(NamedTuple):
    """Rows of q queries, most specific first: ids int32[q, 3, K], probs float32[q, 3, K],
    confidence float64[q, 3], and how many there are, counts int64[q].
    """

    ids: np.ndarray
    probs: np.ndarray
    confidence: np.ndarray
    counts: np.ndarray


def make_queries(count: int = QUERIES) -> Queries:
    """Half of the queries find two rows, half three."""
    rng = np.random.default_rng(count)
    pools = rng.integers(0, 32_000, (count, 1, 1)) + np.arange(POOL)
    order = np.argsort(rng.random((count, MAX_SOURCES, POOL)), axis=-1)[..., :TOP_K]
    logits = -np.sort(-rng.normal(0, 2, order.shape), axis=-1)
    weights = np.exp(logits - logits[..., :1])
    probs = (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)
    confidence = np.array([[kernels.row_confidence(row) for row in rows] for rows in probs])
    ids = np.take_along_axis(np.broadcast_to(pools, (*order.shape[:2], POOL)), order, axis=-1)
    counts = 2 + np.arange(count) % 2
    return Queries(ids.astype(np.int32), probs, confidence, counts)


def measure(count: int = QUERIES, repeats: int = REPEATS) -> dict[str, Any]:
    """Microseconds per query and repeat, by rule.

    kernel, python: see the module. entropy: microseconds per row in compiled code, at its writing.
    queries, sources: their number, and how many rows they find together.
    """
    queries = make_queries(count)
    rows = _as_lists(queries)
    return {
        "queries": count,
        "sources": int(queries.counts.sum()),
        "kernel": {rule: _times(_kernel_work(queries, rule), count, repeats) for rule in RULES},
        "python": {rule: _times(_python_work(rows, rule), count, repeats) for rule in RULES},
        "entropy": _times(lambda: _all_confidences(queries.probs), count * MAX_SOURCES, repeats),
    }


def _kernel_work(queries: Queries, rule: Fusion) -> Callable[[], Any]:
    work, number = fusion.workspace(TOP_K, TOP_K), fusion.rule_number(rule)
    priors = np.array(PRIORS)
    return lambda: fuse_all(work, queries, number, priors, fusion.NO_TALLY)


def _python_work(rows: list[list[list[tuple[int, float]]]], rule: Fusion) -> Callable[[], Any]:
    return lambda: [readable_fuse(found, rule, PRIORS, TOP_K) for found in rows]


def _as_lists(queries: Queries) -> list[list[list[tuple[int, float]]]]:
    """Per query its rows as the readable twin takes them."""
    return [
        [list(zip(i, p, strict=True)) for i, p in zip(ids, probs, strict=True)][:count]
        for ids, probs, count in zip(
            queries.ids.tolist(), queries.probs.tolist(), queries.counts.tolist(), strict=True
        )
    ]


def _times(work: Callable[[], Any], count: int, repeats: int) -> list[float]:
    """Microseconds per item, per repeat; the first call compiles and is left out."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - start) / count / 1e3)
    return times


# Not cached on disk: numba would not notice an edited kernel in another file.
@njit
def fuse_all(work, queries, rule, priors, tally):  # type: ignore[no-untyped-def]
    """Fuse every query; the sum of all first candidates, so that nothing is optimised away."""
    total = 0
    for query in range(len(queries.counts)):
        count = queries.counts[query]
        for source in range(count):
            for j in range(queries.ids.shape[2]):
                work.ids[source, j] = queries.ids[query, source, j]
                work.probs[source, j] = queries.probs[query, source, j]
            work.confidence[source] = queries.confidence[query, source]
        kernels.fuse(work, count, rule, priors, tally)
        total += work.kept_ids[0]
    return total


@njit
def _all_confidences(probs):  # type: ignore[no-untyped-def]
    total = 0.0
    for query in range(probs.shape[0]):
        for source in range(probs.shape[1]):
            total += kernels.row_confidence(probs[query, source])
    return total


def after_run(run: FinishedRun) -> None:
    """Measure on the machine of a finished run, beside its results."""
    path = host_path(run.plan.results_root, NAME, run.target.device.type)
    print(f"Fusion: {write_host(path, measure())}")


def main(arguments: list[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda: whose runs it lies beside")
    parser.add_argument("--results-root", type=Path, default=Path("results/runs"))
    options = parser.parse_args(arguments)
    print(write_host(host_path(options.results_root, NAME, options.device), measure()))


if __name__ == "__main__":
    main()
