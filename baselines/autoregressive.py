"""Autoregressive decoding: the root alone, nothing drafted. The reference arm of every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recap.core.interfaces import Needs
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep


class AutoregressiveDrafter:
    """Proposes the root and no candidate; asks nothing of the engine and keeps nothing."""

    needs = Needs()

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def reset_stream(self) -> None:
        """Nothing to forget."""

    def begin_request(self, ctx: RequestContext) -> None:
        """Nothing to forget."""

    def propose(self, history: IntArray) -> TokenTree:
        """The tree that holds the newest token of ``history`` int32[h] alone."""
        return TokenTree.root_only(int(history[-1]))

    def observe(self, step: VerifiedStep) -> None:
        """Nothing to learn."""

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """Nothing persists."""
        return {}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to restore."""
