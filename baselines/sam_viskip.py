"""SAM with ViSkip: leave speculation alone where the target looks at the picture.

Source: MMSpec (arXiv 2603.14989), its drafting by `baselines.sam`. The gate is the last layer's
attention on image tokens, averaged over heads, at least ``threshold``; it can act only in prompts
with image tokens and on steps with a draft.

    reject  the row of the paper, and what MMSpec's SAM code does: the attention of the *root*, read
            from the pass that has verified the draft already; at the threshold the whole draft is
            discarded, which counts as 0 accepted. Saves nothing, so it cannot be faster than SAM.
    skip    what MMSpec describes, and its code does with other drafters: the attention of the *last
            accepted* node of a drafted step; at the threshold the next step is a plain one, after
            which drafting resumes, whatever the plain step's attention.

State: as `baselines.sam`, request-local. Packed rows: at most 40.

Differences: the official code asks for eager attention weights in every layer; here the engine
computes the one row that is needed (`recap.targets.image_attention`), so the gate costs less than
in the paper's measurements. MMSpec's repeated-tail guard is not built. See also `baselines.sam`:
the paper's SAM row looks its root up twice (``double_lookup``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from baselines.sam import SamDrafter
from recap.core.interfaces import Needs
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep

MODES = ("reject", "skip")


class SamViSkipDrafter(SamDrafter):
    """`SamDrafter` behind a gate. Implements `recap.core.interfaces.Drafter`.

    mode:      "reject" or "skip", see above.
    threshold: the image attention, in [0, 1], from which on the gate acts.
    Others:    see `SamDrafter`.

    Raises ValueError for an unknown mode, or a threshold that is no share of attention.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        mode: str = "reject",
        threshold: float = 0.35,
        max_draft: int = 39,
        tokens_per_match: float = 4.0,
        double_lookup: bool = False,
    ) -> None:
        super().__init__(
            vocab_size=vocab_size,
            max_draft=max_draft,
            tokens_per_match=tokens_per_match,
            double_lookup=double_lookup,
        )
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}, which is not one of {', '.join(MODES)}.")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be from 0 to 1, got {threshold}.")
        self.mode = mode
        self.threshold = threshold
        if mode == "reject":
            self.needs = Needs(image_attention="root", reject_at=threshold)
        else:
            self.needs = Needs(image_attention="last_accepted")
        self._has_image = False
        self._skips_next = False

    def reset_stream(self) -> None:
        """Forget the request; nothing else is kept."""
        super().reset_stream()
        self._has_image = False
        self._skips_next = False

    def begin_request(self, ctx: RequestContext) -> None:
        """Read the prompt and see whether it holds an image."""
        super().begin_request(ctx)
        self._has_image = not ctx.blocked_ids.isdisjoint(ctx.prompt_ids.tolist())
        self._skips_next = False

    def propose(self, history: IntArray) -> TokenTree:
        """What SAM drafts, or the root alone where the gate asks for a plain step."""
        if self._skips_next:
            return TokenTree.root_only(int(history[-1]))
        return super().propose(history)

    def observe(self, step: VerifiedStep) -> None:
        """Read the committed tokens, and the gate. A plain step opens it again."""
        super().observe(step)
        # In mode "reject" the loop has acted on the attention already.
        self._skips_next = (
            self.mode == "skip"
            and self._has_image
            and step.tree.num_candidates > 0
            and step.image_attention is not None
            and step.image_attention >= self.threshold
        )
