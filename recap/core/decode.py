"""The decode loop: one for autoregressive decoding and for every drafting method.

Prefill yields the first token; then propose -> verify -> accept -> commit -> observe until a stop
id or the token limit. Knows nothing about models, tokenizers or methods. The time of a step runs
from propose to observe.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from recap.core.accept import longest_accepted
from recap.core.interfaces import Generation, Limits, Prefill, RequestContext, VerifiedStep
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from recap.core.interfaces import Drafter, IntArray, Session


class LoopClock(Protocol):
    """What the loop asks of a clock, besides the named laps of `recap.core.interfaces.Clock`."""

    def now(self) -> int:
        """Integer nanoseconds."""

    def lap(self, phase: str) -> None:
        """Charge the time since the previous lap to ``phase``."""

    def generation_boundary(self) -> None:
        """Called before the first and after the last work of a generation."""

    def forward_boundary(self) -> None:
        """Called right before and right after every target forward."""


class SilentClock:
    """Tells the time, knows no phases and has no device to wait for."""

    def now(self) -> int:
        """Integer nanoseconds of a monotonic clock."""
        return time.perf_counter_ns()

    def lap(self, phase: str) -> None:
        """Do nothing."""

    def generation_boundary(self) -> None:
        """Do nothing."""

    def forward_boundary(self) -> None:
        """Do nothing."""


SILENT_CLOCK = SilentClock()


class History:
    """Prompt and committed tokens in one preallocated buffer, handed out as read-only views."""

    def __init__(self, prompt_ids: IntArray, capacity: int) -> None:
        self._buffer: NDArray[np.int32] = np.empty(len(prompt_ids) + capacity, np.int32)
        self._buffer[: len(prompt_ids)] = prompt_ids
        self._view = self._buffer.view()
        self._view.flags.writeable = False
        self._length = len(prompt_ids)

    def view(self) -> IntArray:
        """int32[h], read-only."""
        return self._view[: self._length]

    def extend(self, tokens: IntArray | list[int]) -> None:
        """Append committed tokens."""
        end = self._length + len(tokens)
        self._buffer[self._length : end] = tokens
        self._length = end


def decode(
    session: Session, drafter: Drafter, limits: Limits, clock: LoopClock = SILENT_CLOCK
) -> Generation:
    """Generate greedily with ``drafter``'s trees, up to ``limits.max_new_tokens`` output tokens."""
    clock.generation_boundary()
    start = clock.now()
    clock.forward_boundary()
    prefill = session.prefill()
    clock.forward_boundary()
    clock.lap("prefill")
    decode_start = clock.now()
    generation = Generation([prefill.first_token], prefill_ns=decode_start - start)
    drafter.begin_request(_context(session, prefill))
    clock.lap("begin_request")
    history = History(session.prompt_ids, limits.max_new_tokens)
    history.extend(generation.output_ids)
    pop_trace = getattr(drafter, "pop_trace", None)
    while not _finished(generation, limits, session.stop_ids):
        step_start = clock.now()
        _step(session, drafter, limits, clock, history, generation)
        generation.step_ns.append(clock.now() - step_start)
        if pop_trace is not None and not _keep_trace(pop_trace, generation):
            pop_trace = None  # it traces nothing, so no later step pays for asking
    clock.generation_boundary()
    generation.decode_ns = clock.now() - decode_start
    if pop_trace is not None and not generation.trace:
        _keep_trace(pop_trace, generation)  # of a generation that prefill alone has finished
    return generation


def _keep_trace(pop_trace: Callable[[], dict[str, Any] | None], generation: Generation) -> bool:
    """Keep what a tracing drafter has to tell; whether it had anything."""
    event = pop_trace()
    if event is None:
        return False
    generation.trace.append(event)
    return True


def _context(session: Session, prefill: Prefill) -> RequestContext:
    return RequestContext(
        prompt_ids=session.prompt_ids,
        blocked_ids=session.blocked_ids,
        prompt_rows=prefill.prompt_rows,
        prompt_row_tokens=prefill.prompt_row_tokens,
        stop_ids=session.stop_ids,
    )


def _finished(generation: Generation, limits: Limits, stop_ids: AbstractSet[int]) -> bool:
    if generation.output_ids[-1] in stop_ids:
        generation.finish_reason = "stop"
        return True
    return len(generation.output_ids) >= limits.max_new_tokens


def _step(
    session: Session,
    drafter: Drafter,
    limits: Limits,
    clock: LoopClock,
    history: History,
    generation: Generation,
) -> None:
    """One iteration: propose, verify, accept, commit, observe."""
    remaining = limits.max_new_tokens - len(generation.output_ids)
    before = history.view()
    # With one token remaining no candidate could be kept: every method decodes it plainly.
    tree = TokenTree.root_only(int(before[-1])) if remaining == 1 else drafter.propose(before)
    clock.lap("propose")

    clock.forward_boundary()
    verification = session.verify(tree)
    clock.forward_boundary()
    clock.lap("verify")

    next_token = verification.predictions.next_token
    node, attention = _accept(session, drafter, tree, next_token)
    path = tree.path(node)
    committed = _committed(tree, path, int(next_token[node]), remaining, session.stop_ids)
    clock.lap("accept")

    session.commit(path)
    history.extend(committed)
    generation.output_ids.extend(committed.tolist())
    generation.num_accepted.append(len(path) - 1)
    generation.num_candidates.append(tree.num_candidates)
    clock.lap("commit")

    drafter.observe(
        VerifiedStep(
            tree=tree,
            predictions=verification.predictions,
            history=before,
            accepted=path[1:],
            committed=committed,
            image_attention=attention,
            hidden_states=verification.hidden_states,
        )
    )
    clock.lap("observe")


def _accept(
    session: Session, drafter: Drafter, tree: TokenTree, next_token: IntArray
) -> tuple[int, float | None]:
    """The accepted node, and the image attention the drafter asked for."""
    needs = drafter.needs
    node = longest_accepted(tree, next_token)
    if needs.image_attention is None or tree.num_candidates == 0:
        return node, None  # nothing was drafted, so there is nothing to decide
    if needs.image_attention == "last_accepted":
        return node, session.image_attention(node)
    attention = session.image_attention(0)
    if needs.reject_at is not None and attention >= needs.reject_at:
        node = 0
    return node, attention


def _committed(
    tree: TokenTree, path: IntArray, bonus: int, remaining: int, stop_ids: AbstractSet[int]
) -> IntArray:
    """int32[c]: accepted and bonus tokens, cut after the first stop id and at ``remaining``."""
    tokens = np.append(tree.tokens[path[1:]], np.int32(bonus))[:remaining]
    for position, token in enumerate(tokens.tolist()):
        if token in stop_ids:
            return tokens[: position + 1]
    return tokens
