"""Tree Recycling: the paper's lighter Token Recycling, local to a request.

Source: the RECAP paper's baseline of this name (Appendix A), which is a setting of its own tree
engine: RECAP without what the paper adds. So it is built here: one-token keys, no scores, no
suffix, and forgotten with the request.

Draft: breadth-first, up to 2 + 4 + 8 + 16 = 30 candidates in 4 levels. A node's children are the
first 2 of the 4 predictions stored for its token. Dropped, and not replaced by rank 3 or 4: an
image placeholder, a second equal sibling, and a (parent token, child token) edge that is on the
path already. A token without a row has no children.

Update: every verified node writes its row, the first of a step for a token wins, older rows are
replaced. Prefill writes one row per distinct prompt token, that of its first occurrence.

State: the rows of this request; nothing outlives it. Packed rows: at most 31.

Differences from the paper's code: none known in what is drafted. The packed order, which decides
whose row stays where a step holds a token twice, is RECAP's (depth-first, siblings by rank).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recap.config import RecapConfig
from recap.drafter import RecapDrafter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep
    from recap.core.tree import TokenTree


class TreeRecyclingDrafter:
    """A small breadth-first tree over this request's rows. Implements
    `recap.core.interfaces.Drafter`.

    vocab_size:     number of token ids.
    top_k:          predictions stored per token.
    width:          children of a node, before any is dropped.
    depth:          deepest candidate.
    max_candidates: nodes besides the root.
    seed_prompt:    write the prompt's predictions at prefill.

    Raises ValueError for a value that cannot work.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        top_k: int = 4,
        width: int = 2,
        depth: int = 4,
        max_candidates: int = 30,
        seed_prompt: bool = True,
    ) -> None:
        config = RecapConfig(
            top_k=top_k,
            width=width,
            depth=depth,
            max_candidates=max_candidates,
            expansion="fixed",
            orders=1,
            seed_prompt=seed_prompt,
            suffix_tokens=0,
        )
        self._recap = RecapDrafter(config, vocab_size)
        self.needs = self._recap.needs

    def reset_stream(self) -> None:
        """Forget the request; nothing else is kept."""
        self._recap.reset_stream()

    def begin_request(self, ctx: RequestContext) -> None:
        """Forget the previous request's rows, then write the prompt's."""
        self._recap.reset_stream()
        self._recap.begin_request(ctx)

    def propose(self, history: IntArray) -> TokenTree:
        """The tree behind ``history`` int32[h]."""
        return self._recap.propose(history)

    def observe(self, step: VerifiedStep) -> None:
        """Write the row of every verified node."""
        self._recap.observe(step)

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """Nothing persists."""
        return {}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to restore."""
