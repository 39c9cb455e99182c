"""Prompt lookup decoding: copy what followed the newest tokens the last time they occurred.

Source: A. Saxena, Prompt Lookup Decoding (2023), github.com/apoorvumang/prompt-lookup-decoding; the
port in transformers, `PromptLookupCandidateGenerator`. The RECAP paper cites PLD+ (Somasundaram et
al. 2025) and runs plain prompt lookup with a four-token key.

Draft: a chain. The *key* is the newest n tokens of prompt and output; a *match* is an earlier
occurrence of it; the draft is a copy of up to ``max_draft`` tokens behind the match. Nothing
matches: the root alone. Three rules, which differ as the programs do:

    rule        key     match         may overlap  draft               filters
    paper       4       most recent   no           1 to 10 tokens      key and draft without image
    hf          2, 1    first         yes          1 to 10 tokens      cut before the first stop id
    original    3 to 1  first         no           exactly 10 tokens   none

(paper: a key with an image id drafts nothing; a match whose continuation holds one is passed over
for the next older match. hf and original back off to shorter keys, longest first.)

State: the positions of keys in this request; nothing outlives it. Packed rows: at most 11.

A lookup takes constant time and copies a bounded number of tokens. A continuation that is complete
can never change, so the index holds one position per key, that of its best complete continuation
(the newest or the first), and only the few newest positions are compared at lookup.

Differences from the programs:
- The paper's code verifies twice per drafted step, stops generations that look repetitive, drops
  its key and length options (4 and 10 are constants), filters images for Qwen only, and does not
  rewind LLaVA's cache after a rejection. Here: one verification, no early stop, images filtered for
  both families, options that count.
- transformers drops candidates that a logits processor forbids; there are no processors here. Its
  key defaults to two tokens, as here; set ``max_key`` to compare with other settings.
- The original verifies one dummy token (id 100) where nothing matches; here that is a plain step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from recap.core.interfaces import Needs
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep

NO_IDS: frozenset[int] = frozenset()
NO_MATCH = -1


@dataclass(frozen=True)
class Rule:
    """What counts as a match, and which one is taken.

    max_key, min_key: key lengths in tokens, tried from the longest to the shortest.
    match:            "last" takes the most recent match, "first" the leftmost.
    overlap:          whether the match may overlap the key.
    full:             whether ``max_draft`` tokens must follow the match, which then ends more than
                      one key length before the end of the text.
    skip_blocked:     whether keys and continuations with a blocked id are passed over.
    cut_at_stop:      whether the draft ends before its first stop id.
    """

    max_key: int
    min_key: int
    match: Literal["last", "first"]
    overlap: bool
    full: bool
    skip_blocked: bool
    cut_at_stop: bool


RULES = {
    "paper": Rule(4, 4, "last", overlap=False, full=False, skip_blocked=True, cut_at_stop=False),
    "hf": Rule(2, 1, "first", overlap=True, full=False, skip_blocked=False, cut_at_stop=True),
    "original": Rule(
        3, 1, "first", overlap=False, full=True, skip_blocked=False, cut_at_stop=False
    ),
}


class PromptLookupDrafter:
    """Copies the continuation of an earlier occurrence. Implements `recap.core.interfaces.Drafter`.

    rule:      "paper", "hf" or "original": presets of what the other options leave None.
    max_draft: most tokens drafted.
    Others:    see `Rule`.

    Raises ValueError for an unknown rule or match and for lengths that cannot work.

    >>> import numpy as np
    >>> drafter = PromptLookupDrafter(vocab_size=100)
    >>> drafter.propose(np.array([1, 2, 3, 4, 50, 51, 1, 2, 3, 4])).tokens.tolist()
    [4, 50, 51, 1, 2, 3, 4]
    """

    needs = Needs()

    def __init__(
        self,
        *,
        vocab_size: int,
        rule: str = "paper",
        max_draft: int = 10,
        max_key: int | None = None,
        min_key: int | None = None,
        match: str | None = None,
        overlap: bool | None = None,
        full: bool | None = None,
        skip_blocked: bool | None = None,
        cut_at_stop: bool | None = None,
    ) -> None:
        if rule not in RULES:
            raise ValueError(f"rule is {rule!r}, which is not one of {', '.join(RULES)}.")
        options: dict[str, Any] = {
            "max_key": max_key,
            "min_key": min_key,
            "match": match,
            "overlap": overlap,
            "full": full,
            "skip_blocked": skip_blocked,
            "cut_at_stop": cut_at_stop,
        }
        given = {name: value for name, value in options.items() if value is not None}
        self.vocab_size = vocab_size
        self.rule = replace(RULES[rule], **given)
        self.max_draft = max_draft
        _check(self.rule, max_draft)
        self._forget(NO_IDS, NO_IDS)

    def _forget(self, blocked: frozenset[int], stop_ids: frozenset[int]) -> None:
        rule = self.rule
        self._blocked = blocked if rule.skip_blocked else NO_IDS
        self._stop_ids = stop_ids if rule.cut_at_stop else NO_IDS
        sizes = range(rule.max_key, rule.min_key - 1, -1)
        self._indexes = [KeyIndex(size, rule, self.max_draft, self._blocked) for size in sizes]

    def reset_stream(self) -> None:
        """Forget the request; nothing else is kept."""
        self._forget(NO_IDS, NO_IDS)

    def begin_request(self, ctx: RequestContext) -> None:
        """Forget the previous request and index the prompt."""
        self._forget(ctx.blocked_ids, ctx.stop_ids)
        for index in self._indexes:
            index.read(ctx.prompt_ids)

    def propose(self, history: IntArray) -> TokenTree:
        """The continuation of the longest key that matches in ``history`` int32[h], as a chain."""
        for index in self._indexes:
            index.read(history)
        for index in self._indexes:
            start = index.find(history)
            if start != NO_MATCH:
                return TokenTree.chain(int(history[-1]), self._draft(history, start))
        return TokenTree.root_only(int(history[-1]))

    def _draft(self, history: IntArray, start: int) -> list[int]:
        draft: list[int] = history[start : start + self.max_draft].tolist()
        for position, token in enumerate(draft if self._stop_ids else []):
            if token in self._stop_ids:
                return draft[:position]
        return draft

    def observe(self, step: VerifiedStep) -> None:
        """Nothing to learn: the next history holds what was committed."""

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """Nothing persists."""
        return {}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Nothing to restore."""


def _check(rule: Rule, max_draft: int) -> None:
    if rule.match not in ("last", "first"):
        raise ValueError(f"match is {rule.match!r}, which is neither 'last' nor 'first'.")
    if not 1 <= rule.min_key <= rule.max_key:
        raise ValueError(
            f"key lengths must satisfy 1 <= min_key <= max_key, got min_key={rule.min_key} and "
            f"max_key={rule.max_key}."
        )
    if max_draft < 1:
        raise ValueError(f"max_draft must be at least 1, got {max_draft}.")


class KeyIndex:
    """Where the text goes on behind each of its n-grams of one length.

    A *start* is the position behind an n-gram, where its continuation begins. A start is settled
    when no later token can change its standing: its continuation is complete and lies clear of any
    key. Settled starts are kept, one per n-gram; the others, a bounded number, are compared one by
    one.

    size:      tokens per n-gram.
    rule:      which start an n-gram keeps, and which are eligible.
    max_draft: tokens of a complete continuation.
    blocked:   ids that neither a key nor a continuation may hold.
    """

    def __init__(self, size: int, rule: Rule, max_draft: int, blocked: frozenset[int]) -> None:
        self._size = size
        self._rule = rule
        self._max_draft = max_draft
        self._blocked = blocked
        self._horizon = max(
            max_draft, size + 1
        )  # a settled start lies so far before the text's end
        self._starts: dict[tuple[int, ...], int] = {}
        self._next = size  # the first start that is not settled

    def read(self, text: IntArray) -> None:
        """Settle what can be settled, given the text int32[h] so far."""
        end = len(text) - self._horizon + 1
        if end <= self._next:
            return
        size, first = self._size, self._next - self._size
        tokens = text[first : end + self._max_draft].tolist()
        keys = zip(*(tokens[place:] for place in range(size)), strict=False)
        keep_first = self._rule.match == "first"
        for start, key in zip(range(self._next, end), keys, strict=False):
            if self._blocked and not self._is_clean(tokens, start - first):
                continue
            if keep_first:
                self._starts.setdefault(key, start)
            else:
                self._starts[key] = start
        self._next = end

    def _is_clean(self, tokens: list[int], start: int) -> bool:
        return self._blocked.isdisjoint(tokens[start : start + self._max_draft])

    def find(self, text: IntArray) -> int:
        """The start that the rule chooses for the newest n-gram of ``text``, or `NO_MATCH`."""
        key = text[-self._size :].tolist()
        if len(text) <= self._size or not self._blocked.isdisjoint(key):
            return NO_MATCH
        settled = self._starts.get(tuple(key), NO_MATCH)
        if settled != NO_MATCH and self._rule.match == "first":
            return settled
        recent = self._find_recent(text, key)
        return settled if recent == NO_MATCH else recent

    def _find_recent(self, text: IntArray, key: list[int]) -> int:
        """The chosen one among the starts that are not settled."""
        starts = range(self._next, self._latest(len(text)) + 1)
        first = self._next - self._size
        tokens = text[first:].tolist()
        for start in starts if self._rule.match == "first" else reversed(starts):
            at = start - first
            if tokens[at - self._size : at] == key and self._is_clean(tokens, at):
                return start
        return NO_MATCH

    def _latest(self, length: int) -> int:
        """The last eligible start in a text of ``length`` tokens."""
        if self._rule.full:
            return min(length - self._max_draft, length - self._size - 1)
        return length - 1 if self._rule.overlap else length - self._size
