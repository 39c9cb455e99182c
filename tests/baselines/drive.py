"""What holds for every drafter, checked on scripted targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recap.core.decode import decode
from recap.core.interfaces import Limits
from tests.fakes import ScriptedTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recap.core.interfaces import Drafter, Generation, IntArray, RequestContext, VerifiedStep
    from recap.core.tree import TokenTree

VOCABULARY = 10
PLACEHOLDER = 7
PROMPTS: list[list[int]] = [
    [3],
    [0, 1, 2, 0, 1, 2, 0, 1],
    [4, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, 1, 9, 8, 9, 8, 9, 8, 9],
    [VOCABULARY - 1] * 5,
    [1, 2, 3, 4, PLACEHOLDER, 1, 2, 3, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4],
]


class Watched:
    """A drafter that is asked everything twice, and whose trees are kept."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.needs = drafter.needs
        self.trees: list[tuple[list[int], list[int]]] = []

    def begin_request(self, ctx: RequestContext) -> None:
        self.drafter.begin_request(ctx)

    def propose(self, history: IntArray) -> TokenTree:
        tree, again = self.drafter.propose(history), self.drafter.propose(history)
        assert tree.tokens[0] == history[-1]
        assert shape(tree) == shape(again)
        self.trees.append(shape(tree))
        return again

    def observe(self, step: VerifiedStep) -> None:
        self.drafter.observe(step)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.drafter, name)


def shape(tree: TokenTree) -> tuple[list[int], list[int]]:
    """Tokens and parents."""
    return tree.tokens.tolist(), tree.parents.tolist()


def generate(
    drafter: Drafter, target: ScriptedTarget, prompt: Sequence[int], max_new_tokens: int = 40
) -> tuple[Generation, list[tuple[list[int], list[int]]]]:
    """One request; the generation, and the trees proposed."""
    watched = Watched(drafter)
    session = target.open(prompt, drafter.needs)
    return decode(session, watched, Limits(max_new_tokens)), watched.trees


def check_lossless(make: Callable[[], Drafter]) -> int:
    """Equal to greedy decoding over streams of requests; the number of candidates accepted."""
    num_accepted = 0
    for seed in range(6):
        stops = frozenset({seed}) if seed % 2 else frozenset()
        target = ScriptedTarget(seed, VOCABULARY, 1 + seed % 3, stops, PLACEHOLDER)
        for max_new_tokens in (1, 2, 3, 45):
            drafter = make()
            for prompt in PROMPTS:
                generation, _ = generate(drafter, target, prompt, max_new_tokens)
                assert generation.output_ids == target.greedy(prompt, max_new_tokens)
                num_accepted += sum(generation.num_accepted)
    return num_accepted


def check_replay(make: Callable[[], Drafter]) -> None:
    """A stream after ``reset_stream``, and from a saved state on, is drafted as before."""
    target = ScriptedTarget(3, VOCABULARY, 2, frozenset(), PLACEHOLDER)
    drafter, resumed = make(), make()
    first = [generate(drafter, target, prompt)[1] for prompt in PROMPTS]
    drafter.reset_stream()
    for number, prompt in enumerate(PROMPTS):
        state = {name: np.array(array) for name, array in drafter.stream_state().items()}
        resumed.load_stream_state(state)
        assert generate(drafter, target, prompt)[1] == first[number]
        assert generate(resumed, target, prompt)[1] == first[number]


def check_request_local(make: Callable[[], Drafter]) -> None:
    """A request is drafted as on a fresh drafter, whatever came before it."""
    target = ScriptedTarget(5, VOCABULARY, 2, frozenset(), PLACEHOLDER)
    drafter = make()
    assert drafter.stream_state() == {}
    for prompt in PROMPTS:
        assert generate(drafter, target, prompt)[1] == generate(make(), target, prompt)[1]
