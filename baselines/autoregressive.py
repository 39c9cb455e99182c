"""Autoregressive decoding: the root alone, nothing drafted. The reference arm of every run.

With ``capture`` it still drafts nothing and says the same, but keeps the target's predictions after
every prompt and output token: what `experiments.replay` replays without a model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recap.core.interfaces import Needs
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import (
        FloatArray,
        IntArray,
        Predictions,
        RequestContext,
        VerifiedStep,
    )


class AutoregressiveDrafter:
    """Proposes the root and no candidate; keeps nothing that could change what is proposed.

    capture: predictions kept per token for `pop_trace`; with 0 nothing is asked of the engine.

    Raises ValueError for a ``capture`` that is no number of predictions.
    """

    def __init__(self, vocab_size: int, capture: int = 0) -> None:
        if not isinstance(capture, int) or isinstance(capture, bool) or capture < 0:
            raise ValueError(f"capture must be a whole number of at least 0, got {capture!r}.")
        self.vocab_size = vocab_size
        self.capture = capture
        self.needs = Needs(topk=capture, prompt_rows=capture > 0, topk_mass=capture > 0)
        self._request: RequestContext | None = None
        self._rows_seen: list[Predictions] = []

    def reset_stream(self) -> None:
        """Nothing to forget."""

    def begin_request(self, ctx: RequestContext) -> None:
        """Drop what was captured of the previous request; keep the prompt's predictions."""
        if self.capture:
            self._request, self._rows_seen = ctx, []

    def propose(self, history: IntArray) -> TokenTree:
        """The tree that holds the newest token of ``history`` int32[h] alone."""
        return TokenTree.root_only(int(history[-1]))

    def observe(self, step: VerifiedStep) -> None:
        """Keep the prediction after the root, where it is to be captured."""
        if self.capture:
            self._rows_seen.append(step.predictions)

    def pop_trace(self) -> dict[str, Any] | None:
        """What was captured since the last call, or None while ``capture`` is off.

        Once per request, the fields of its prompt: ``vocab_size``, ``blocked_ids``, ``prompt_ids``,
        and per distinct prompt token that is not blocked, in order of first occurrence,
        ``prompt_row_tokens`` with ``prompt_topk_ids``, ``prompt_topk_probs`` and
        ``prompt_topk_mass``. Always ``topk_ids``, ``topk_probs`` and ``topk_mass``, a row per
        decoded token except the newest, in order. Probabilities are the shortest decimals that
        name the float32 value; see `recap.core.interfaces.Predictions`.
        """
        if not self.capture:
            return None
        trace = {} if self._request is None else self._prompt_fields(self._request)
        trace["topk_ids"] = [rows.topk_ids[0].tolist() for rows in self._rows_seen]
        trace["topk_probs"] = [_shortest(rows.topk_probs[0]) for rows in self._rows_seen]
        trace["topk_mass"] = [p for rows in self._rows_seen for p in _shortest(_mass(rows))]
        self._request, self._rows_seen = None, []
        return trace

    def _prompt_fields(self, ctx: RequestContext) -> dict[str, Any]:
        if ctx.prompt_rows is None or ctx.prompt_row_tokens is None:
            raise ValueError("capture asks the engine for prompt rows, and none came")
        return {
            "vocab_size": self.vocab_size,
            "blocked_ids": sorted(ctx.blocked_ids),
            "prompt_ids": ctx.prompt_ids.tolist(),
            "prompt_row_tokens": ctx.prompt_row_tokens.tolist(),
            "prompt_topk_ids": ctx.prompt_rows.topk_ids.tolist(),
            "prompt_topk_probs": [_shortest(row) for row in ctx.prompt_rows.topk_probs],
            "prompt_topk_mass": _shortest(_mass(ctx.prompt_rows)),
        }

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """Nothing persists."""
        return {}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to restore."""


def _mass(rows: Predictions) -> FloatArray:
    assert rows.topk_mass is not None  # what `Needs.topk_mass` asks for
    return rows.topk_mass


def _shortest(probs: FloatArray) -> list[float]:
    """float32[k] as numbers that JSON writes in few digits and that read back unchanged."""
    return [float(str(p)) for p in probs]
