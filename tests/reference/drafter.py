"""The RECAP drafter, readable: what `recap.drafter.RecapDrafter` must equal, without the root
fallback.

Rows are lists of (token, probability), probabilities as stored: float32. Ranks count from 0.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recap.core.tree import TokenTree
from tests.reference.suffix import suffix_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.config import RecapConfig
    from recap.core.interfaces import Predictions, RequestContext, VerifiedStep

Row = list[tuple[int, float]]
Context = tuple[int, ...]


def confidence(row: Row) -> float:
    """exp(-entropy in nats)."""
    return math.exp(sum(p * math.log(p) for _, p in row if p > 0))


def fuse(rows: Sequence[Row], rule: str, priors: Sequence[float], top_k: int) -> Row:
    """Candidates of one to three rows, most specific first (paper, Equations 4 to 6)."""
    if len(rows) == 1 or rule == "backoff":
        return rows[0]
    if rule == "confidence_gate":
        return max(rows, key=confidence)  # the first of equals
    mass: dict[int, float] = {}
    for row, weight in zip(rows, weights(rows, rule, priors), strict=True):
        for token, p in row:
            mass[token] = mass.get(token, 0.0) + weight * p
    kept = sorted(mass.items(), key=lambda item: -item[1])[:top_k]  # stable: first seen first
    total = sum(m for _, m in kept)
    return [(token, m / total) for token, m in kept]


def weights(rows: Sequence[Row], rule: str, priors: Sequence[float]) -> list[float]:
    """One weight per row, not normalised."""
    if rule == "uniform":
        return [1.0] * len(rows)
    factors = [1.0] * len(rows) if rule == "fixed_prior" else [confidence(row) for row in rows]
    if rule == "no_prior":
        return factors
    return [prior * factor for prior, factor in zip(priors, factors, strict=False)]


@dataclass(frozen=True)
class Node:
    """A path: ranks and tokens below the root, score, edges used, and the last three tokens."""

    ranks: tuple[int, ...]
    tokens: tuple[int, ...]
    score: float
    edges: frozenset[tuple[int, int]]
    context: Context


class ReferenceDrafter:
    """The same verbs as `RecapDrafter`."""

    def __init__(self, config: RecapConfig) -> None:
        self.config = config
        self.reset_stream()

    def reset_stream(self) -> None:
        self.unigrams: dict[int, Row] = {}
        self.contexts: dict[Context, Row] = {}  # two and three tokens
        self.blocked: frozenset[int] = frozenset()

    def begin_request(self, ctx: RequestContext) -> None:
        self.contexts = {}
        self.blocked = ctx.blocked_ids
        if self.config.seed_prompt and ctx.prompt_rows is not None:
            assert ctx.prompt_row_tokens is not None
            rows = rows_of(ctx.prompt_rows)
            first = dict(zip(reversed(ctx.prompt_row_tokens.tolist()), reversed(rows), strict=True))
            self.unigrams.update({t: r for t, r in first.items() if t not in self.blocked})

    def propose(self, history: np.ndarray) -> TokenTree:
        text = history.tolist()
        limit = min(self.config.suffix_tokens, self.config.depth)
        suffix = suffix_path(text, self.blocked, limit)
        selected = self.search(tuple(text[-3:]), suffix)
        return pack(text[-1], selected, suffix)

    def observe(self, step: VerifiedStep) -> None:
        tokens, parents = step.tree.tokens.tolist(), step.tree.parents.tolist()
        new: dict[Context, Row] = {}
        texts: list[list[int]] = []
        for i, row in enumerate(rows_of(step.predictions)):
            texts.append(texts[parents[i]] + [tokens[i]] if i else step.history.tolist())
            for length in range(1, min(self.config.orders, len(texts[i])) + 1):
                new.setdefault(tuple(texts[i][-length:]), row)
        for key, row in new.items():
            if len(key) == 1:
                self.unigrams[key[0]] = row
            else:
                self.contexts[key] = row

    def candidates(self, context: Context) -> Row:
        """The fused distribution after the last three tokens; empty where nothing matches."""
        rows = [
            self.contexts[context[-length:]]
            for length in range(min(self.config.orders, len(context)), 1, -1)
            if context[-length:] in self.contexts
        ]
        if context[-1] in self.unigrams:
            rows.append(self.unigrams[context[-1]])
        if not rows:
            return []
        return fuse(rows, self.config.fusion, self.config.priors, self.config.top_k)

    def children(self, parent: Node) -> list[Node]:
        """The nodes that may follow ``parent``."""
        cfg = self.config
        depth = len(parent.tokens)
        if depth == cfg.depth:
            return []
        eta = cfg.depth_priors[min(depth, len(cfg.depth_priors) - 1)]
        candidates = self.candidates(parent.context)[: cfg.width]
        children: list[Node] = []
        for rank, (token, q) in enumerate(candidates):
            edge = (parent.context[-1], token)
            is_double = token in (earlier for earlier, _ in candidates[:rank])
            if token in self.blocked or edge in parent.edges or is_double:
                continue
            children.append(
                Node(
                    (*parent.ranks, rank),
                    (*parent.tokens, token),
                    (parent.score * eta) * q,
                    parent.edges | {edge},
                    (*parent.context, token)[-3:],
                )
            )
        return children

    def search(self, context: Context, suffix: Sequence[int]) -> list[Node]:
        """Best-first, or breadth-first with ``expansion="fixed"``."""
        selected: list[Node] = []
        heap: list[tuple[float, tuple[int, ...], int, Node]] = []
        arrivals = 0
        newest = Node((), (), 1.0, frozenset(), context)
        while len(selected) + self.reserved(selected, suffix) < self.config.max_candidates:
            for child in self.children(newest):
                arrivals += 1
                priority = -child.score if self.config.expansion == "best_first" else arrivals
                heapq.heappush(heap, (priority, child.ranks, child.tokens[-1], child))
            if not heap:
                break
            newest = heapq.heappop(heap)[-1]
            selected.append(newest)
        return selected

    def reserved(self, selected: Sequence[Node], suffix: Sequence[int]) -> int:
        """Suffix nodes that still need a place within the cap."""
        if not self.config.suffix_in_cap:
            return 0
        paths = {node.tokens for node in selected}
        return sum(tuple(suffix[: i + 1]) not in paths for i in range(len(suffix)))


def pack(root: int, selected: Sequence[Node], suffix: Sequence[int]) -> TokenTree:
    """Root, preorder by rank path, then the suffix nodes that are not there yet."""
    paths: list[tuple[int, ...]] = [()]
    paths += [node.tokens for node in sorted(selected, key=lambda node: node.ranks)]
    place = {path: i for i, path in enumerate(paths)}
    for i in range(len(suffix)):
        path = tuple(suffix[: i + 1])
        if path not in place:
            place[path] = len(paths)
            paths.append(path)
    tokens = [path[-1] if path else root for path in paths]
    parents = [place[path[:-1]] if path else -1 for path in paths]
    return TokenTree(tokens, parents, [len(path) for path in paths])


def rows_of(predictions: Predictions) -> list[Row]:
    """Rows as stored: probabilities rounded to float32."""
    return [
        list(zip(ids.tolist(), probs.tolist(), strict=True))
        for ids, probs in zip(
            np.asarray(predictions.topk_ids),
            np.asarray(predictions.topk_probs, np.float32),
            strict=True,
        )
    ]
