"""How the rows available at a node become one distribution (paper, section 3.4 and Appendix I).

Up to three rows, most specific first, get a weight each. Their weighted probabilities are summed
per token (Equation 5), the top-K tokens are kept and renormalised (Equation 6). A single row passes
unchanged.

| rule               | weight of row j                                                            |
|--------------------|----------------------------------------------------------------------------|
| entropy_confidence | prior_j * exp(-entropy of the row in nats), Equation 4                     |
| fixed_prior        | prior_j: the paper's "w/o confidence"                                      |
| no_prior           | exp(-entropy): the paper's "w/o prior"                                     |
| uniform            | 1                                                                          |
| confidence_gate    | the most confident row alone, unchanged; on ties the more specific one     |
| backoff            | the most specific row alone, unchanged                                     |

Priors go by rank among the rows present: where only C and U match, they get the first and the
second prior. The arithmetic is float64 on the stored float32 probabilities; mass is summed in the
order G, C, U; equal masses keep the order in which their tokens were first seen on that walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import numpy as np

from recap.config import MAX_SOURCES, Fusion
from recap.core import kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

RULES: tuple[str, ...] = get_args(Fusion)  # a rule's place is its number in the kernels
NO_TALLY = np.empty((0, 1 + MAX_SOURCES))  # switches the weight statistics off


def rule_number(rule: Fusion) -> int:
    """The number by which the kernels know a rule."""
    return RULES.index(rule)


def workspace(row_length: int, top_k: int) -> kernels.Fusion:
    """Working memory for the rows of one node; rows may be longer than what is kept."""
    return kernels.Fusion(
        ids=np.full((MAX_SOURCES, row_length), -1, np.int32),
        probs=np.zeros((MAX_SOURCES, row_length)),
        confidence=np.zeros(MAX_SOURCES),
        weights=np.zeros(MAX_SOURCES),
        merged_ids=np.zeros(MAX_SOURCES * row_length, np.int32),
        mass=np.zeros(MAX_SOURCES * row_length),
        kept_ids=np.zeros(top_k, np.int32),
        kept_probs=np.zeros(top_k),
    )


def place_row(
    work: kernels.Fusion, index: int, ids: ArrayLike, probs: NDArray[np.floating]
) -> None:
    """Put a row of k <= K predictions in place ``index``."""
    length = len(probs)
    work.ids[index] = -1
    work.ids[index, :length] = ids
    work.probs[index, :length] = probs
    work.confidence[index] = kernels.row_confidence(probs)


def fuse(
    rows: Sequence[tuple[ArrayLike, ArrayLike]],
    rule: Fusion = "entropy_confidence",
    priors: Sequence[float] = (0.70, 0.20, 0.10),
    top_k: int = 8,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Fuse one to three (ids, probs) rows, most specific first, into one such row.

    The search calls the same kernel; this is its way in for a reader, a notebook or an analysis.

    >>> contextual = [1, 2, 3, 4], [0.4, 0.3, 0.2, 0.1]
    >>> token_level = [5, 6, 1, 2], [0.6, 0.2, 0.1, 0.1]
    >>> ids, probs = fuse([contextual, token_level], "fixed_prior", (0.75, 0.25), top_k=4)
    >>> ids.tolist(), probs.round(4).tolist()
    ([1, 2, 3, 5], [0.3714, 0.2857, 0.1714, 0.1714])
    """
    if not 1 <= len(rows) <= MAX_SOURCES:
        raise ValueError(f"expected one to {MAX_SOURCES} rows, got {len(rows)}")
    work = workspace(max(top_k, *(len(np.asarray(ids)) for ids, _ in rows)), top_k)
    for index, (ids, probs) in enumerate(rows):
        place_row(work, index, ids, np.asarray(probs, np.float64))
    weights = np.asarray(priors, np.float64)
    count = kernels.fuse(work, len(rows), rule_number(rule), weights, NO_TALLY)
    return work.kept_ids[:count], work.kept_probs[:count]
