"""SAM with Token Recycling: a long copy where the text recurs, a static tree elsewhere.

Source: Hu et al., SAM Decoding (ACL 2025), github.com/hyx1999/SAM-Decoding: the package ``samd``
with its default auxiliary drafter ``token_recycle``, without the static corpus. A peer that the
RECAP paper leaves out.

Draft: one of two, chosen anew in every step.

    match >= 5 tokens   a chain of exactly 40 rows, the root included, copied from behind the first
                        end of the longest recurring suffix. Where fewer than 40 tokens stand there
                        it gives way to the next shorter suffix that ends elsewhere, too, and so on
                        to the shortest; what is still missing is filled with id 0.
    otherwise           the 80 candidates of `baselines.token_recycling`.

Update: every verified node writes its top 8 to the matrix, those of a copied chain included; the
prompt's predictions are written at prefill.

State: the matrix, over the whole stream; the suffix automaton, within a request. Packed rows: 81,
or 40 where the text recurs.

Differences from ``samd``:
- Its auxiliary tree has 60 nodes; here it is Token Recycling's own of 80, so that this row differs
  from ``token_recycling`` by the copy (and by the prompt's rows) alone.
- It keeps rows in a dictionary whose missing rows draft id 0; the zeros of the matrix do the same.
- It writes the rows of all prompt tokens in order, so that a token's last occurrence stays; here
  the engine offers the first occurrence of each, as for every method that seeds.
- Filling with id 0 is official (its chains have a fixed shape). Such rows can only help where the
  target says 0; ``pad=false`` leaves them out.
- As in `baselines.sam`, matches hold no image placeholder and copies end before one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from baselines.sam import NO_IDS, RequestText
from baselines.token_recycling import TokenRecyclingDrafter
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep


class SamTokenRecyclingDrafter:
    """Copies or recycles. Implements `recap.core.interfaces.Drafter`.

    vocab_size:      number of token ids.
    num_rows:        rows of a copied chain, the root included (the official n_predicts).
    match_threshold: from this match length on a chain is copied (the official len_threshold).
    pad:             fill chains up to ``num_rows`` with id 0.
    duplicates, seed_prompt: see `TokenRecyclingDrafter`; "last" is the official order.

    Raises ValueError for numbers that cannot work.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        num_rows: int = 40,
        match_threshold: int = 5,
        pad: bool = True,
        duplicates: str = "last",
        seed_prompt: bool = True,
    ) -> None:
        if num_rows < 2:
            raise ValueError(f"num_rows must be at least 2, got {num_rows}.")
        if match_threshold < 1:
            raise ValueError(f"match_threshold must be at least 1, got {match_threshold}.")
        self.num_rows = num_rows
        self.match_threshold = match_threshold
        self.pad = pad
        self._text = RequestText()
        self._recycling = TokenRecyclingDrafter(
            vocab_size=vocab_size, duplicates=duplicates, seed_prompt=seed_prompt
        )
        self.needs = self._recycling.needs

    def reset_stream(self) -> None:
        """Forget everything."""
        self._recycling.reset_stream()
        self._text.begin(NO_IDS)

    def begin_request(self, ctx: RequestContext) -> None:
        """Write the prompt's rows, forget the previous text and read the prompt."""
        self._recycling.begin_request(ctx)
        self._text.begin(ctx.blocked_ids, ctx.prompt_ids)

    def propose(self, history: IntArray) -> TokenTree:
        """A chain where ``history`` int32[h] ends in a long enough match, else the static tree."""
        self._text.read(history)
        if self._text.automaton.match().length < self.match_threshold:
            return self._recycling.propose(history)
        return TokenTree.chain(int(history[-1]), self._copy())

    def _copy(self) -> list[int]:
        """What stands behind the first end of the match, or of a shorter one with more behind
        it.
        """
        automaton = self._text.automaton
        _, first_end = automaton.match_followed_by(self.num_rows)
        # The official text does not hold the root yet, so it cannot be copied.
        limit = min(self.num_rows - 1, len(automaton) - 2 - first_end)
        draft = self._text.copy(first_end, limit)
        if self.pad:
            draft += [0] * (self.num_rows - 1 - len(draft))
        return draft

    def observe(self, step: VerifiedStep) -> None:
        """Write the row of every verified node; read the committed tokens."""
        self._recycling.observe(step)
        self._text.read(step.history)
        self._text.automaton.extend(step.committed)

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """The matrix's rows, see `TokenRecyclingDrafter.stream_state`."""
        return self._recycling.stream_state()

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue a stream whose `stream_state` was saved."""
        self.reset_stream()
        self._recycling.load_stream_state(state)
