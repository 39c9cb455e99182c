"""SAM Decoding: copy what followed the longest suffix of the text at its first occurrence.

Source: Hu et al., SAM Decoding (ACL 2025), github.com/hyx1999/SAM-Decoding: the dynamic part of its
package ``samd_sam_only``, without the static corpus.

Draft: a chain. The match is the longest suffix of prompt and output that also ends earlier; the
draft copies what stands behind its *earliest* end: at most 4 tokens per matched token, at most 39,
and never the root itself, which the official text does not hold yet. So periodic text drafts little
(7 7 7 7 drafts nothing). No match: the root alone.

State: a suffix automaton over this request; nothing outlives it. Packed rows: at most 40.

Differences:
- ``double_lookup`` reproduces the row that the RECAP paper most likely prints: its code appends the
  root to the automaton and then looks it up once more, as if the text ended in "x x". The match is
  nearly always 1 token long then, and the draft what followed the first x. Off by default.
- The official cap is 60 rows; the paper's, and the default here, is 40 (root and 39 candidates).
- The official code knows no images. Here no match holds an image placeholder, which spares the
  automaton runs of thousands of them, and a draft ends before the first one.
- The paper's repeated-tail guard (it stops generations early) is not built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recap.core.interfaces import Needs
from recap.core.suffix_automaton import SuffixAutomaton
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep

NO_IDS: frozenset[int] = frozenset()
NO_TOKENS = np.empty(0, np.int32)


class RequestText:
    """The suffix automaton over one request's prompt and output, and copies out of its text."""

    def __init__(self) -> None:
        self.automaton = SuffixAutomaton()
        self._blocked = NO_IDS

    def begin(self, blocked: frozenset[int], prompt: IntArray = NO_TOKENS) -> None:
        """Start over with int32[p] ``prompt``; no match and no copy holds a ``blocked`` id."""
        self._blocked = blocked
        self.automaton.reset(separators=blocked)
        self.automaton.extend(prompt)

    def read(self, history: IntArray) -> None:
        """Append what int32[h] ``history`` holds beyond the text."""
        unread = history[len(self.automaton) :]
        if len(unread):
            self.automaton.extend(unread)

    def copy(self, end: int, limit: int) -> list[int]:
        """At most ``limit`` tokens behind position ``end``, up to a blocked one."""
        tokens: list[int] = self.automaton.continuation(end, limit).tolist()
        for place, token in enumerate(tokens if self._blocked else []):
            if token in self._blocked:
                return tokens[:place]
        return tokens


class SamDrafter:
    """Copies behind the first occurrence of the longest recurring suffix. Implements
    `recap.core.interfaces.Drafter`.

    max_draft:        most tokens drafted.
    tokens_per_match: tokens drafted per matched token (the official alpha).
    double_lookup:    look the root up a second time, as the paper's code does.

    Raises ValueError for lengths that cannot work.

    >>> import numpy as np
    >>> drafter = SamDrafter(vocab_size=100)
    >>> drafter.propose(np.array([5, 6, 7, 1, 2, 5, 6, 8, 1, 2, 5, 6])).tokens.tolist()
    [6, 8, 1, 2, 5]
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        max_draft: int = 39,
        tokens_per_match: float = 4.0,
        double_lookup: bool = False,
    ) -> None:
        if max_draft < 1:
            raise ValueError(f"max_draft must be at least 1, got {max_draft}.")
        if not tokens_per_match > 0:
            raise ValueError(f"tokens_per_match must be positive, got {tokens_per_match}.")
        self.needs = Needs()
        self.vocab_size = vocab_size
        self.max_draft = max_draft
        self.tokens_per_match = tokens_per_match
        self.double_lookup = double_lookup
        self._text = RequestText()

    def reset_stream(self) -> None:
        """Forget the request; nothing else is kept."""
        self._text.begin(NO_IDS)

    def begin_request(self, ctx: RequestContext) -> None:
        """Forget the previous request and read the prompt."""
        self._text.begin(ctx.blocked_ids, ctx.prompt_ids)

    def propose(self, history: IntArray) -> TokenTree:
        """The continuation of the match in ``history`` int32[h], as a chain."""
        self._text.read(history)
        root = int(history[-1])
        length, first_end, stop = self._lookup(root)
        limit = min(self.max_draft, int(self.tokens_per_match * length), stop - first_end - 1)
        if limit <= 0:
            return TokenTree.root_only(root)
        return TokenTree.chain(root, self._text.copy(first_end, limit))

    def _lookup(self, root: int) -> tuple[int, int, int]:
        """Length and first end of the match, and the end of the text that may be copied."""
        automaton = self._text.automaton
        if self.double_lookup:
            return *automaton.match_with(root), len(automaton)
        match = automaton.match()
        return match.length, match.first_end, len(automaton) - 1

    def observe(self, step: VerifiedStep) -> None:
        """Read the committed tokens."""
        self._text.read(step.history)
        self._text.automaton.extend(step.committed)

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """Nothing persists."""
        return {}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to restore."""
