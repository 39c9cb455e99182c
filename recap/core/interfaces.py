"""The contract between drafters, targets and the decode loop.

A *drafter* guesses what the target will say, as a `TokenTree`. A *target* is the model that is
being accelerated; it opens one *session* per request, with a KV cache of its own.
`recap.core.decode` drives one session and one drafter. Drafters see token ids and host arrays only,
so every method also runs under a scripted target or a recorded trajectory, without a model.

Shapes: p prompt tokens, h history tokens, n tree nodes, k kept predictions per node, a accepted
candidates, c committed tokens, m seeded prompt tokens, d hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.tree import TokenTree

    FloatArray = NDArray[np.float32]
    IntArray = NDArray[np.int32]


@dataclass(frozen=True)
class Needs:
    """What a drafter asks of the engine, which computes nothing else and charges it to the drafter.

    topk:            kept predictions per node; with 0 `Predictions` has arrays of shape [n, 0].
    prompt_rows:     predictions after prompt tokens, see `RequestContext.prompt_rows`.
    image_attention: the share of the last layer's attention on image tokens, averaged over heads,
                     of the "root" or of the "last_accepted" node; drafted steps only.
    reject_at:       the loop accepts nothing in a drafted step whose root image attention is at
                     least this.
    hidden_states:   the last layer's hidden state of every node.
    topk_mass:       how much of all probability the kept predictions hold.
    """

    topk: int = 0
    prompt_rows: bool = False
    image_attention: Literal["root", "last_accepted"] | None = None
    reject_at: float | None = None
    hidden_states: bool = False
    topk_mass: bool = False

    def __post_init__(self) -> None:
        if self.topk < 0:
            raise ValueError(f"topk must be at least 0, got {self.topk}")
        if self.image_attention not in (None, "root", "last_accepted"):
            raise ValueError(
                f"image_attention is 'root', 'last_accepted' or None, got {self.image_attention!r}"
            )
        if self.reject_at is not None and self.image_attention != "root":
            raise ValueError(
                "reject_at compares the root's image attention: set image_attention='root' too"
            )


@dataclass(frozen=True, eq=False, slots=True)
class Predictions:
    """The target's predictions after n nodes (or prompt positions).

    next_token: int32[n], greedy choice: argmax of the fp32 logits, lowest id on ties.
    topk_ids:   int32[n, k], most probable first; equal logits: lower id first.
    topk_probs: float32[n, k], softmax over the k kept logits (paper, Equation 2), descending.
    topk_mass:  with ``Needs.topk_mass`` float32[n], the probability of the k together in a softmax
                over the whole vocabulary: times it, ``topk_probs`` are normalised that way.
    """

    next_token: IntArray
    topk_ids: IntArray
    topk_probs: FloatArray
    topk_mass: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.next_token)


@dataclass(frozen=True, eq=False)
class RequestContext:
    """What a drafter may know when a request begins. A request is one generation turn.

    prompt_ids:        int32[p], image placeholders included; the first generated token is not in
                       it.
    blocked_ids:       ids a drafter should not propose nor seed (the image placeholder); empty for
                       text models.
    prompt_rows:       with ``Needs.prompt_rows``: one row per distinct prompt id except blocked
                       ones, in order of first occurrence, taken at that first occurrence.
    prompt_row_tokens: int32[m], the prompt id of each row.
    stop_ids:          ids that end a generation.
    """

    prompt_ids: IntArray
    blocked_ids: frozenset[int]
    prompt_rows: Predictions | None = None
    prompt_row_tokens: IntArray | None = None
    stop_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class VerifiedStep:
    """One iteration, as a drafter observes it.

    tree:            what was verified.
    predictions:     the target's predictions after every node, in packed order.
    history:         int32[h], prompt and committed tokens before the step; ends with the root.
    accepted:        int32[a], node indices of the accepted path after the root.
    committed:       int32[c], tokens added to the output: accepted ones and the bonus token, cut
                     after a stop id and at the token limit.
    image_attention: the value `Needs.image_attention` asked for.
    hidden_states:   float32[n, d] when `Needs.hidden_states` asked for them.
    """

    tree: TokenTree
    predictions: Predictions
    history: IntArray
    accepted: IntArray
    committed: IntArray
    image_attention: float | None = None
    hidden_states: FloatArray | None = None


class Clock(Protocol):
    """Charges time to named phases. The phases are exclusive: each lap charges what went by since
    the previous one.

    A drafter may hold one (attribute ``clock``, `NULL_CLOCK` by default) and name its own phases on
    it: suffix_lookup, search, refresh, suffix_update, seed.
    """

    def lap(self, phase: str) -> None:
        """Charge the time since the previous lap to ``phase``."""


class NullClock:
    """A clock that measures nothing."""

    def lap(self, phase: str) -> None:
        """Do nothing."""


NULL_CLOCK = NullClock()


class Drafter(Protocol):
    """A drafting method. Torch-free, deterministic, without random numbers.

    ``propose`` returns a tree whose root is ``history[-1]``; calling it twice without ``observe``
    returns equal trees. ``history`` is a read-only view of the loop's own buffer: keep indices, not
    the array. ``stream_state`` and ``load_stream_state`` carry what persists between requests, so
    that a killed run resumes exactly; request-local methods return an empty mapping.
    """

    needs: Needs

    def reset_stream(self) -> None:
        """Forget everything. The runner calls it after warm-up and where a stream begins."""

    def begin_request(self, ctx: RequestContext) -> None:
        """Forget the previous request and look at the new prompt."""

    def propose(self, history: IntArray) -> TokenTree:
        """Draft a tree that continues ``history``, int32[h], prompt and committed tokens."""

    def observe(self, step: VerifiedStep) -> None:
        """Learn from a verified step. Called after every iteration, the last one included."""

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """What persists between requests, as named arrays."""

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `stream_state` returned."""


@dataclass(frozen=True, eq=False, slots=True)
class Prefill:
    """The result of a prompt forward: first output token, and rows if `Needs.prompt_rows`."""

    first_token: int
    prompt_rows: Predictions | None = None
    prompt_row_tokens: IntArray | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Verification:
    """The result of one packed forward over a tree; ``hidden_states`` as in `VerifiedStep`."""

    predictions: Predictions
    hidden_states: FloatArray | None = None


class Session(Protocol):
    """One request with its own KV cache, which holds ``h - 1`` tokens at every loop head."""

    prompt_ids: IntArray
    blocked_ids: frozenset[int]
    stop_ids: frozenset[int]

    def prefill(self) -> Prefill:
        """Run the prompt (vision tower included) and choose the first token."""

    def verify(self, tree: TokenTree) -> Verification:
        """Predict after every node of ``tree`` in one packed forward. Does not move the cache."""

    def image_attention(self, node: int) -> float:
        """The latest forward's image attention of one node, in [0, 1] (see
        `Needs.image_attention`).

        May only be asked where the session's needs name an image attention.
        """

    def commit(self, nodes: IntArray) -> None:
        """Keep keys and values of ``nodes``, the root and the accepted path; drop the others."""

    def close(self) -> None:
        """Give the cache back."""


class Target(Protocol):
    """A loaded model. ``open`` is given one encoded request and is not timed."""

    vocab_size: int

    def open(self, request: Any, needs: Needs, max_new_tokens: int) -> Session:
        """Allocate a session for ``request`` with room for ``max_new_tokens``.

        Raises ContextExceeded when the request does not fit the model's context.
        """


class ContextExceeded(ValueError):
    """Prompt and limit do not fit the model's context: the unit is skipped, never truncated."""


@dataclass(frozen=True)
class Limits:
    """When a generation ends besides at a stop id: ``max_new_tokens`` >= 1 output tokens."""

    max_new_tokens: int = 200

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")


@dataclass
class Generation:
    """One finished generation. Times are integer nanoseconds.

    output_ids:     the first token from prefill and all committed ones.
    finish_reason:  "stop" or "length".
    num_accepted:   per step, accepted candidates as verified (before any cut at the end).
    num_candidates: per step, packed nodes besides the root.
    prefill_ns:     prompt forward, with the gathering of prompt rows for a drafter that needs them.
    decode_ns:      everything after it, `begin_request` included.
    step_ns:        per step, propose to observe.
    phase_ns:       time per named phase, filled by the clock.
    trace:          what the drafter's `pop_trace` returned, per step, where it has one switched on.
    """

    output_ids: list[int]
    finish_reason: str = "length"
    num_accepted: list[int] = field(default_factory=list)
    num_candidates: list[int] = field(default_factory=list)
    prefill_ns: int = 0
    decode_ns: int = 0
    step_ns: list[int] = field(default_factory=list)
    phase_ns: dict[str, int] = field(default_factory=dict)
    trace: list[dict[str, Any]] = field(default_factory=list)
