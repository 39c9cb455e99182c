"""Random streams of requests, driven through two drafters that must agree at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.core.interfaces import Drafter, IntArray
    from recap.core.tree import TokenTree


@dataclass(frozen=True)
class World:
    """A random language: each pair of tokens has a favourite next row, which every visit perturbs a
    little.

    alphabet: token ids in use. coarse: round logits, so that equal probabilities are common.
    """

    seed: int
    alphabet: tuple[int, ...]
    row_length: int
    coarse: bool = False

    def predictions(
        self, contexts: Sequence[Sequence[int]], rng: np.random.Generator
    ) -> Predictions:
        """One row per context."""
        rows = [self._row(context, rng) for context in contexts]
        ids = np.array([r[0] for r in rows], np.int32)
        probs = np.array([r[1] for r in rows], np.float32)
        return Predictions(ids[:, 0].copy(), ids, probs)

    def _row(self, context: Sequence[int], rng: np.random.Generator) -> tuple[IntArray, np.ndarray]:
        favourite = np.random.default_rng([self.seed, *context[-2:]])
        logits = favourite.normal(0, 2, len(self.alphabet))
        if rng.random() < 0.5:
            logits += rng.normal(0, 1, len(self.alphabet))
        if self.coarse:
            logits = np.round(logits)
        k = min(self.row_length, len(self.alphabet))
        order = np.argsort(-logits, kind="stable")[:k]
        exponentials = np.exp((logits[order] - logits[order[0]]).astype(np.float32))
        return np.array(self.alphabet, np.int32)[order], exponentials / exponentials.sum()


def requests(
    world: World, blocked: frozenset[int], count: int, rng: np.random.Generator
) -> list[RequestContext]:
    """Prompts with runs of a placeholder, and a row for each of their distinct other tokens."""
    contexts = []
    for _ in range(count):
        prompt = rng.choice(world.alphabet, int(rng.integers(0, 40))).tolist()
        for placeholder in sorted(blocked):
            at = int(rng.integers(0, len(prompt) + 1))
            prompt[at:at] = [placeholder] * int(rng.integers(0, 5))
        distinct = [t for t in dict.fromkeys(prompt) if t not in blocked]
        rows = world.predictions([[t] for t in distinct], rng) if distinct else None
        contexts.append(
            RequestContext(
                np.array(prompt, np.int32),
                blocked,
                prompt_rows=rows,
                prompt_row_tokens=np.array(distinct, np.int32) if distinct else None,
            )
        )
    return contexts


def path_contexts(tree: TokenTree, history: IntArray) -> list[list[int]]:
    """The last tokens up to every node."""
    texts: list[list[int]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
        texts.append([*texts[parent], token] if parent >= 0 else history[-3:].tolist())
    return texts


def verified(
    tree: TokenTree, history: IntArray, world: World, rng: np.random.Generator
) -> VerifiedStep:
    """What a target of this world says about ``tree``; sometimes it says something else than its
    top row.
    """
    predictions = world.predictions(path_contexts(tree, history), rng)
    surprised = rng.random(len(tree)) < 0.1
    predictions.next_token[surprised] = rng.choice(world.alphabet, int(surprised.sum()))
    node = longest_accepted(tree, predictions.next_token)
    accepted = tree.path(node)[1:]
    committed = np.append(tree.tokens[accepted], predictions.next_token[node]).astype(np.int32)
    return VerifiedStep(tree, predictions, history, accepted, committed)


def assert_same_tree(left: TokenTree, right: TokenTree) -> None:
    """Equal tokens, parents and depths."""
    assert left.tokens.tolist() == right.tokens.tolist()
    assert left.parents.tolist() == right.parents.tolist()
    assert left.depths.tolist() == right.depths.tolist()


def run_both(
    one: Drafter,
    other: Drafter,
    world: World,
    contexts: Sequence[RequestContext],
    num_steps: int,
    rng: np.random.Generator,
) -> int:
    """Drive both through the requests, asserting equal trees; the number of candidates seen."""
    seen = 0
    for context in contexts:
        one.begin_request(context)
        other.begin_request(context)
        first = rng.choice(world.alphabet, 1)
        history = np.concatenate([context.prompt_ids, first]).astype(np.int32)
        for _ in range(num_steps):
            tree = one.propose(history)
            assert_same_tree(tree, other.propose(history))
            assert_same_tree(tree, one.propose(history))
            step = verified(tree, history, world, rng)
            one.observe(step)
            other.observe(step)
            history = np.concatenate([history, step.committed])
            seen += tree.num_candidates
    return seen
