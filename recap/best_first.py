"""Composing fused transitions into a candidate tree (paper, section 3.5 and Equation 8).

A path z_1, ..., z_d scores the product of eta_j * q(z_j | path before it): eta_j is a depth prior,
q the fused distribution after the path's last three tokens, those of the established prefix
included. The best-scoring path that can extend the tree is added until ``max_candidates`` nodes
stand or nothing is left. All factors are at most 1, so an added node never has to give way to a
later one.

Rules that decide the exact tree:

- score(child) = (score(parent) * eta) * q, in float64 on the stored float32 probabilities. Equal
  scores: the lexicographically smaller path of ranks first.
- After the cut to ``width`` candidates, one is dropped that is blocked, or whose (parent token,
  token) edge is on its path already, or that is there a second time. Its place stays empty and its
  mass is not handed on.
- ``expansion="fixed"`` adds nodes breadth-first, children by rank, without a look at scores
  (Table 4).
- The suffix path is inserted last, on top of ``max_candidates``, sharing what the tree has already.
  With ``suffix_in_cap`` the search stops when its nodes and the suffix nodes it did not meet reach
  the cap.
- Packed order: the root; then depth-first, siblings by rank, so that the likeliest path comes first
  and often lies contiguous in the KV cache; then the nodes that only the suffix added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recap import fusion
from recap.core import kernels
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recap.config import RecapConfig
    from recap.core.interfaces import IntArray
    from recap.core.memory import PredictionMemory


class Prefix(NamedTuple):
    """The last three established tokens; the first two may be missing (-1)."""

    earlier: int
    previous: int
    root: int


def prefix_of(history: IntArray) -> Prefix:
    """The last three tokens of a history of at least one token."""
    tail: list[int] = history[-3:].tolist()
    return Prefix(*([-1] * (3 - len(tail))), *tail)


def settings_of(config: RecapConfig) -> kernels.Settings:
    """The search's share of a configuration, as the kernels take it."""
    return kernels.Settings(
        rule=fusion.rule_number(config.fusion),
        orders=config.orders,
        width=min(config.width, config.top_k),
        depth=config.depth,
        max_candidates=config.max_candidates,
        best_first=config.expansion == "best_first",
        suffix_in_cap=config.suffix_in_cap,
        priors=np.array(config.priors),
        depth_priors=np.array(config.depth_priors),
    )


def workspace_of(config: RecapConfig) -> kernels.Workspace:
    """Working memory for `build_tree`."""
    num_nodes = config.max_candidates + 1
    longest = num_nodes + config.suffix_tokens
    return kernels.Workspace(
        nodes=np.zeros(num_nodes, kernels.NODE),
        offers=np.zeros((num_nodes, config.width), kernels.OFFER),
        followers=np.zeros(config.depth, np.int32),
        fusion=fusion.workspace(config.top_k, config.top_k),
        tokens=np.zeros(longest, np.int32),
        parents=np.zeros(longest, np.int32),
        depths=np.zeros(longest, np.int32),
    )


def build_tree(
    memory: PredictionMemory,
    prefix: Prefix,
    suffix: IntArray,
    blocked: IntArray,
    settings: kernels.Settings,
    work: kernels.Workspace,
    num_fallback: int = 0,
    tally: NDArray[np.float64] = fusion.NO_TALLY,
) -> TokenTree:
    """The candidate tree behind ``prefix``.

    suffix:       int32[s], the path to insert; may be empty.
    blocked:      int32[b], ids that are never proposed.
    num_fallback: that many rows in ``work.fusion`` stand in where the root has none of its own.
    tally:        float64[3, 4] that collects fusion weights, see
                  `recap.drafter.RecapDrafter.pop_trace`.
    """
    size = kernels.search(
        memory.arrays,
        work,
        num_fallback,
        prefix.earlier,
        prefix.previous,
        prefix.root,
        suffix,
        blocked,
        settings,
        tally,
    )
    return TokenTree(
        work.tokens[:size].copy(), work.parents[:size].copy(), work.depths[:size].copy()
    )
