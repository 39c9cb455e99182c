"""Every method of conf/method, without Hydra."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from baselines.autoregressive import AutoregressiveDrafter
from baselines.lookahead import LookaheadDrafter
from baselines.lookahead_jacobi import LookaheadJacobiDrafter
from baselines.prompt_lookup import PromptLookupDrafter
from baselines.racer import RacerDrafter
from baselines.sam import SamDrafter
from baselines.sam_token_recycling import SamTokenRecyclingDrafter
from baselines.sam_viskip import SamViSkipDrafter
from baselines.suffix_decoding import SuffixDecodingDrafter
from baselines.token_recycling import TokenRecyclingDrafter
from baselines.tree_recycling import TreeRecyclingDrafter
from recap.config import RecapConfig
from recap.drafter import RecapDrafter

if TYPE_CHECKING:
    from recap.core.interfaces import Drafter

# With the settings it has there, where they are not the class's own. AR comes first.
METHODS: dict[str, tuple[Callable[..., Drafter], dict[str, Any]]] = {
    "ar": (AutoregressiveDrafter, {}),
    "recap": (RecapDrafter, {"config": RecapConfig()}),
    "pld": (PromptLookupDrafter, {}),
    "token_recycling": (TokenRecyclingDrafter, {}),
    "tree_recycling": (TreeRecyclingDrafter, {}),
    "sam": (SamDrafter, {}),
    "sam_viskip": (SamViSkipDrafter, {}),
    "sam_token_recycling": (SamTokenRecyclingDrafter, {}),
    "lookahead": (LookaheadDrafter, {"min_output": 32}),
    "lookahead_jacobi": (LookaheadJacobiDrafter, {}),
    "suffix_decoding": (SuffixDecodingDrafter, {}),
    "racer": (RacerDrafter, {}),
}


def make_drafter(method: str, vocab_size: int) -> Drafter:
    """A method's drafter with its published settings."""
    kind, settings = METHODS[method]
    return kind(vocab_size=vocab_size, **settings)
