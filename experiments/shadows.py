"""What RECAP would have drafted from ``U`` alone, and from ``C`` and ``G`` without ``U``.

A *shadow* tree is built from the very memory that a generation drafts from, and is never verified:
how far it would have got is read off the native continuation, the tokens that the generation went
on to commit (paper, Appendix E). Torch-free and untimed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from recap.best_first import Prefix, build_tree, prefix_of, settings_of, workspace_of
from recap.core.tree import TokenTree
from recap.drafter import NO_TOKENS, RecapDrafter

if TYPE_CHECKING:
    from recap.config import RecapConfig
    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep
    from recap.core.kernels import Settings
    from recap.core.memory import PredictionMemory

SOURCES = ("U", "GC")  # token-only, contextual
ROOT_CANDIDATES = 8


@dataclass(frozen=True)
class Shadows:
    """Both sources at one root; everything by the names of `SOURCES`.

    candidates: the root's candidates, best first.
    equal:      the trees with as many candidates as the smaller one has, built for that number.
    sliced:     the same number cut off the front of the packed order, which is depth-first and not
                the order of selection: what the authors' code compares.
    """

    candidates: Mapping[str, list[int]]
    equal: Mapping[str, TokenTree]
    sliced: Mapping[str, TokenTree]


@dataclass(frozen=True)
class Draft:
    """One step in which something was drafted.

    root:     place of the root in the output; the step's first token is the next one.
    accepted: candidates accepted, as verified.
    shadows:  None where one of the sources has no candidate at the root.
    """

    root: int
    accepted: int
    shadows: Shadows | None


class ShadowedRecap(RecapDrafter):
    """RECAP, which also notes shadows: proposals and memory are those of `RecapDrafter`.

    ``drafts`` holds the current request's, in order.
    """

    def __init__(self, config: RecapConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        plain = replace(config, suffix_tokens=0, root_fallback=None)
        self._of_source: dict[str, Settings] = {
            "U": settings_of(replace(plain, orders=1)),
            "GC": settings_of(plain),
        }
        self._shadow_work = workspace_of(plain)
        self._no_unigram = np.zeros(vocab_size, np.uint8)
        self._prompt_length = 0
        self._noted: Shadows | None = None
        self.drafts: list[Draft] = []

    def begin_request(self, ctx: RequestContext) -> None:
        """As RECAP; earlier drafts are dropped."""
        super().begin_request(ctx)
        self._prompt_length = len(ctx.prompt_ids)
        self.drafts = []

    def propose(self, history: IntArray) -> TokenTree:
        """RECAP's tree."""
        tree = super().propose(history)
        self._noted = self._shadows(prefix_of(history))
        return tree

    def observe(self, step: VerifiedStep) -> None:
        """As RECAP; a step with a draft is noted."""
        if step.tree.num_candidates > 0:
            root = len(step.history) - self._prompt_length - 1
            self.drafts.append(Draft(root, len(step.accepted), self._noted))
        super().observe(step)

    def _shadows(self, prefix: Prefix) -> Shadows | None:
        candidates = {
            source: self._tree(source, prefix, at_root(settings)).tokens[1:].tolist()
            for source, settings in self._of_source.items()
        }
        if not all(candidates.values()):
            return None
        full = {name: self._tree(name, prefix, chosen) for name, chosen in self._of_source.items()}
        nodes = min(tree.num_candidates for tree in full.values())
        equal = {
            name: self._tree(name, prefix, self._of_source[name]._replace(max_candidates=nodes))
            for name in full
        }
        return Shadows(candidates, equal, {name: cut(tree, nodes) for name, tree in full.items()})

    def _tree(self, source: str, prefix: Prefix, settings: Settings) -> TokenTree:
        memory = self._memory if source == "U" else self._without_unigrams()
        return build_tree(memory, prefix, NO_TOKENS, self._blocked, settings, self._shadow_work)

    def _without_unigrams(self) -> PredictionMemory:
        """The memory as the search sees it when no ``U`` row is present. For reading only."""
        memory = copy.copy(self._memory)
        memory.arrays = memory.arrays._replace(present=self._no_unigram)
        return memory


def at_root(settings: Settings) -> Settings:
    """The same search, for the root's candidates alone."""
    return settings._replace(depth=1, max_candidates=ROOT_CANDIDATES)


def cut(tree: TokenTree, num_candidates: int) -> TokenTree:
    """The tree's first candidates in packed order; parents come before their children."""
    kept = num_candidates + 1
    return TokenTree(tree.tokens[:kept], tree.parents[:kept], tree.depths[:kept])
