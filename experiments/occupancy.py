"""What ``U`` takes and what a hit costs at three fillings, up to the whole vocabulary (Table 11).

    python -m experiments.occupancy

Synthetic rows of eight predictions under tokens spread over the vocabulary, each filling in a fresh
process. A hit adds up the ids and probabilities of one row. The search reads rows within compiled
code, so the loop over the hits is compiled too; the same hits through one Python call each stand
beside it. Nothing here needs a model: the vocabularies are those of the paper's two.

The file, ``<results_root>/host/occupancy.<device>.json``, keeps what earlier calls measured for
other vocabularies.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from experiments.derived import read_document
from experiments.memory_use import resident_bytes, unigram_row_bytes
from experiments.plan import REPOSITORY
from recap.best_first import Prefix, build_tree, settings_of, workspace_of
from recap.config import RecapConfig
from recap.core.interfaces import Predictions
from recap.core.memory import MISSING, PredictionMemory

NAME = "occupancy"
VOCABULARIES = (152_064, 32_064)  # Qwen2.5-VL-7B, LLaVA-1.6-7B
FILLINGS = (1_000, 10_000)  # and the whole vocabulary
TOP_K = 8
REPEATS = 7
HITS = 100_000
QUERIES = 128  # trees per repeat
CHUNK = 1024  # rows generated at a time, so that making them leaves no trace in the resident set
CONFIG = RecapConfig(suffix_tokens=0)
NO_TOKENS = np.empty(0, np.int32)

Tokens = NDArray[np.int32]


def measure(
    vocab_size: int, rows: int, hits: int = HITS, repeats: int = REPEATS, queries: int = QUERIES
) -> dict[str, Any]:
    """One filling, measured in this process.

    bytes_per_row, occupied_bytes (rows times that) and allocated_bytes: of ``U``.
    rss_growth_bytes: of the resident set while ``U`` was made and filled; pages are touched whole.
    lookup_ns:        per repeat, nanoseconds per hit within one compiled loop.
    call_ns:          the same, with one call from Python for each hit.
    tree_us:          per repeat, microseconds per 63-candidate tree; candidates: their mean.
    checksum:         what the hits add up to, the same either way.
    """
    _compile()
    before = resident_bytes()
    memory = PredictionMemory(vocab_size, TOP_K)
    tokens = fill(memory, rows)
    after = resident_bytes()
    order = np.random.default_rng(hits).choice(tokens, hits)
    lookup_ns, checksum = _hits(lambda: _sum_rows(memory.arrays, order), hits, repeats)
    call_ns, same = _hits(lambda: _sum_by_call(memory.arrays, order), hits, repeats)
    assert np.isclose(checksum, same, rtol=1e-9)
    tree_us, candidates = _trees(memory, order[:queries], repeats)
    return {
        "vocab_size": vocab_size,
        "rows": memory.num_unigram_rows,
        "bytes_per_row": unigram_row_bytes(memory),
        "occupied_bytes": memory.num_unigram_rows * unigram_row_bytes(memory),
        "allocated_bytes": memory.unigram_bytes(),
        "rss_growth_bytes": None if before is None or after is None else after - before,
        "hits": hits,
        "lookup_ns": lookup_ns,
        "call_ns": call_ns,
        "tree_us": tree_us,
        "candidates": candidates,
        "checksum": checksum,
    }


def fill(memory: PredictionMemory, rows: int) -> Tokens:
    """Write rows whose predictions have rows themselves; the tokens that have one, int32[rows]."""
    if not TOP_K <= rows <= memory.vocab_size:
        raise ValueError(f"rows must be from {TOP_K} to {memory.vocab_size}, got {rows}")
    rng = np.random.default_rng(rows)
    tokens = rng.choice(memory.vocab_size, rows, replace=False).astype(np.int32)
    apart = np.arange(TOP_K) * (rows // TOP_K)
    for start in range(0, rows, CHUNK):
        keys = tokens[start : start + CHUNK]
        ids = tokens[(rng.integers(0, rows, (len(keys), 1)) + apart) % rows]
        logits = -np.sort(-rng.normal(0, 2, ids.shape), axis=1)
        weights = np.exp(logits - logits[:, :1])
        probs = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
        memory.seed(keys, Predictions(ids[:, 0].copy(), ids, probs), NO_TOKENS)
    return tokens


def _compile() -> None:
    """Everything that is measured, once and small: compiled code is not the memory's."""
    small = PredictionMemory(TOP_K, TOP_K)
    tokens = fill(small, TOP_K)
    _sum_rows(small.arrays, tokens)
    _sum_by_call(small.arrays, tokens)
    _trees(small, tokens, 1)


@njit(cache=True)
def _sum_row(memory, token):  # type: ignore[no-untyped-def]
    """Ids and probabilities of one token's row in ``U``, added up; 0 where it has none."""
    total = 0.0
    if memory.present[token]:
        for j in range(memory.unigrams.ids.shape[1]):
            total += memory.unigrams.ids[token, j] + memory.unigrams.probs[token, j]
    return total


@njit(cache=True)
def _sum_rows(memory, tokens):  # type: ignore[no-untyped-def]
    total = 0.0
    for token in tokens:
        total += _sum_row(memory, token)
    return total


def _sum_by_call(memory: Any, tokens: Tokens) -> float:
    total = 0.0
    for token in tokens.tolist():
        total += _sum_row(memory, token)
    return total


def _hits(work: Callable[[], float], hits: int, repeats: int) -> tuple[list[float], float]:
    """Nanoseconds per hit, per repeat, and the checksum."""
    times, checksum = [], 0.0
    for _ in range(repeats):
        start = time.perf_counter_ns()
        checksum = float(work())
        times.append((time.perf_counter_ns() - start) / hits)
    return times, checksum


def _trees(memory: PredictionMemory, roots: Tokens, repeats: int) -> tuple[list[float], float]:
    """Microseconds per tree, per repeat, and the mean number of candidates."""
    settings, work = settings_of(CONFIG), workspace_of(CONFIG)
    prefixes = [Prefix(MISSING, MISSING, root) for root in roots.tolist()]
    times, sizes = [], []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        trees = [build_tree(memory, p, NO_TOKENS, NO_TOKENS, settings, work) for p in prefixes]
        times.append((time.perf_counter_ns() - start) / len(prefixes) / 1e3)
        sizes = [tree.num_candidates for tree in trees]
    return times, statistics.mean(sizes)


# Fresh processes


def fresh(vocab_size: int, rows: int, **sizes: int) -> dict[str, Any]:
    """`measure` in a process of its own."""
    options = [f"--{key}={value}" for key, value in sizes.items()]
    command = [sys.executable, "-m", "experiments.occupancy", f"--rows={rows}", *options]
    command.append(f"--vocab-size={vocab_size}")
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    if result.returncode != 0:
        raise RuntimeError(f"measuring {rows:,} rows failed: {result.stderr.strip()}")
    measured: dict[str, Any] = json.loads(result.stdout)
    return measured


def study(vocabularies: Iterable[int], **sizes: int) -> dict[str, list[dict[str, Any]]]:
    """All fillings of each vocabulary, by its size as text."""
    return {
        str(vocab_size): [
            fresh(vocab_size, rows, **sizes)
            for rows in (*(n for n in FILLINGS if n < vocab_size), vocab_size)
        ]
        for vocab_size in vocabularies
    }


def write(path: Path, measured: dict[str, Any]) -> Path:
    """Add fillings to a file, see the module; the file written."""
    from experiments.host_file import write_host  # brings torch, which a child does without

    earlier = (read_document(path) or {"vocabularies": {}})["vocabularies"]
    return write_host(path, {"vocabularies": {**earlier, **measured}})


def run_alone(device: str, results_root: Path) -> None:
    """The whole study, which has no benchmark: ``device`` only names the file."""
    from experiments.host_file import host_path

    print(write(host_path(results_root, NAME, device), study(VOCABULARIES)))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vocab-size", type=int, nargs="+", default=list(VOCABULARIES))
    parser.add_argument("--rows", type=int, help="measure this filling here and print it as JSON")
    parser.add_argument("--hits", type=int, default=HITS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--queries", type=int, default=QUERIES, help="trees per repeat")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: whose runs it lies beside")
    parser.add_argument("--results-root", type=Path, default=Path("results/runs"))
    parser.add_argument("--out", type=Path, help="default: <results-root>/host/occupancy.<device>")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Measure all fillings in fresh processes, or one of them here."""
    options = _options(arguments)
    sizes = {key: getattr(options, key) for key in ("hits", "repeats", "queries")}
    if options.rows is not None:
        print(json.dumps(measure(options.vocab_size[0], options.rows, **sizes)))
        return
    from experiments.host_file import host_path

    path = options.out or host_path(options.results_root, NAME, options.device)
    print(write(path, study(options.vocab_size, **sizes)))


if __name__ == "__main__":
    main()
