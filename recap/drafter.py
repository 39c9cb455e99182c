"""RECAP: draft from the target's own earlier predictions (paper, section 3 and Figure 2).

Between two target passes the drafter does four things, each in a file of its own:

    propose   look up rows for the last three tokens and fuse them    `recap.fusion`
              compose them into a tree, best path first               `recap.best_first`
              insert what followed the current suffix last time       `recap.core.suffix_automaton`
    observe   write every verified node's prediction to memory        `recap.core.memory`

This file owns the state and its lifetimes: ``U`` persists over the stream, while ``C``, ``G``, the
suffix automaton and the root fallback belong to one request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recap import fusion
from recap.best_first import build_tree, prefix_of, settings_of, workspace_of
from recap.config import RecapConfig
from recap.core import kernels
from recap.core.interfaces import NULL_CLOCK, Needs
from recap.core.memory import PredictionMemory
from recap.core.suffix_automaton import SuffixAutomaton
from recap.root_fallback import make_root_fallback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.best_first import Prefix
    from recap.core.interfaces import Clock, IntArray, RequestContext, VerifiedStep
    from recap.core.tree import TokenTree

NO_TOKENS = np.empty(0, np.int32)


class RecapDrafter:
    """The method. Implements `recap.core.interfaces.Drafter`.

    config:     what to draft, see `RecapConfig`.
    vocab_size: number of token ids, at most 2,097,152.
    trace:      collect what `pop_trace` returns; off by default, and timed like everything else
                when on.

    >>> from recap.config import RecapConfig
    >>> from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
    >>> drafter = RecapDrafter(RecapConfig(top_k=2, suffix_tokens=0), vocab_size=10)
    >>> drafter.begin_request(RequestContext(np.array([1, 2], np.int32), frozenset()))
    >>> history = np.array([1, 2, 3], np.int32)
    >>> tree = drafter.propose(history)
    >>> tree.tokens.tolist()  # nothing known yet: the root alone
    [3]
    >>> rows = Predictions(np.array([4]), np.array([[4, 5]]), np.array([[0.9, 0.1]]))
    >>> drafter.observe(VerifiedStep(tree, rows, history, NO_TOKENS, np.array([3], np.int32)))
    >>> drafter.propose(np.array([1, 2, 3, 3], np.int32)).tokens.tolist()  # U[3] holds 4 and 5 now
    [3, 4, 5]
    """

    def __init__(self, config: RecapConfig, vocab_size: int, trace: bool = False) -> None:
        if not isinstance(config, RecapConfig):
            raise ValueError(f"config must be a RecapConfig, got {config!r}.")
        self.config = config
        self.needs = Needs(
            topk=config.top_k,
            prompt_rows=config.seed_prompt,
            hidden_states=config.root_fallback == "semantic",
        )
        self.clock: Clock = NULL_CLOCK
        self.trace = trace
        self._memory = PredictionMemory(vocab_size, config.top_k, config.orders)
        self._suffix = SuffixAutomaton()
        self._fallback = make_root_fallback(config.root_fallback, config.orders, config.top_k)
        self._blocked = NO_TOKENS
        self._settings = settings_of(config)
        self._suffix_limit = min(config.suffix_tokens, config.depth)
        self._work = workspace_of(config)
        self._tally = np.zeros((3, 4))
        self._fell_back = False

    def reset_stream(self) -> None:
        """Forget everything, ``U`` included."""
        self._memory.reset_stream()
        self._forget_request(frozenset())

    def begin_request(self, ctx: RequestContext) -> None:
        """Forget ``C``, ``G`` and the text; seed ``U`` from the prompt's rows; read the prompt."""
        prompt = _checked_prompt(ctx.prompt_ids)
        self._memory.begin_request()
        self._forget_request(ctx.blocked_ids)
        if self.config.seed_prompt and ctx.prompt_rows is not None:
            if ctx.prompt_row_tokens is None:
                raise ValueError("prompt_rows came without prompt_row_tokens, which name them")
            self._memory.seed(ctx.prompt_row_tokens, ctx.prompt_rows, self._blocked)
        self.clock.lap("seed")
        self._read(prompt)
        self.clock.lap("suffix_update")

    def _forget_request(self, blocked_ids: frozenset[int]) -> None:
        self._blocked = np.array(sorted(blocked_ids), np.int32)
        self._suffix.reset(separators=blocked_ids)
        if self._fallback is not None:
            self._fallback.begin_request()

    def propose(self, history: IntArray) -> TokenTree:
        """The tree to verify behind ``history``, int32[h] with h >= 1."""
        self._read(history)
        suffix = self._suffix.suffix_path(self._suffix_limit) if self._suffix_limit else NO_TOKENS
        self.clock.lap("suffix_lookup")
        prefix = prefix_of(history)
        if not 0 <= prefix.root < self._memory.vocab_size:
            raise ValueError(
                f"token {prefix.root} is outside the vocabulary of {self._memory.vocab_size} tokens"
            )
        num_fallback = 0 if self._fallback is None else self._fall_back(prefix)
        tree = build_tree(
            self._memory,
            prefix,
            suffix,
            self._blocked,
            self._settings,
            self._work,
            num_fallback,
            self._tally if self.trace else fusion.NO_TALLY,
        )
        self.clock.lap("search")
        return tree

    def _fall_back(self, prefix: Prefix) -> int:
        """Rows from the root fallback, where there is no row for the root: their number."""
        assert self._fallback is not None
        # Every key that ends with the root was written together with the root's own U row.
        if self._memory.lookup(prefix.root) is not None:
            return 0
        count = self._fallback.fill(self._work.fusion)
        self._fell_back = count > 0
        return count

    def observe(self, step: VerifiedStep) -> None:
        """Write the predictions of all verified nodes; append the committed tokens to the text."""
        earlier, previous, _ = prefix_of(step.history)
        self._memory.refresh(step.tree, earlier, previous, step.predictions)
        if self._fallback is not None:
            self._fallback.observe(step)
        self.clock.lap("refresh")
        self._read(step.history)
        if self._suffix_limit:
            self._suffix.extend(step.committed)
        self.clock.lap("suffix_update")

    def _read(self, text: IntArray) -> None:
        """Bring the suffix automaton up to ``text``, which begins with what it has read already."""
        if not self._suffix_limit or len(text) == len(self._suffix):
            return
        if len(text) < len(self._suffix):
            raise ValueError(
                f"a history of {len(text)} tokens is shorter than the {len(self._suffix)} tokens "
                "seen in this request; begin_request starts a new one"
            )
        self._suffix.extend(text[len(self._suffix) :])

    def pop_trace(self) -> dict[str, Any] | None:
        """What happened since the last call, or None while ``trace`` is off.

        fusion_weights: by number of rows fused, the number of fusion calls and the sum of their
                        normalised weights in the order of specificity (Table 17).
        root_fallback:  whether a draft came from the root fallback (Appendix H).
        """
        if not self.trace:
            return None
        fused = {
            str(count): {
                "calls": int(self._tally[count - 1, 0]),
                "weights": self._tally[count - 1, 1 : count + 1].tolist(),
            }
            for count in (2, 3)
        }
        fell_back, self._fell_back = self._fell_back, False
        self._tally[:] = 0.0
        return {"fusion_weights": fused, "root_fallback": fell_back}

    def num_bytes(self) -> dict[str, int]:
        """Bytes set aside for ``U``, for ``C`` and ``G``, and for the suffix automaton."""
        return {
            "U": self._memory.unigram_bytes(),
            "C+G": self._memory.context_bytes(),
            "suffix": self._suffix.num_bytes(),
        }

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """The rows of ``U``."""
        return self._memory.stream_state()

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue a stream whose `stream_state` was saved."""
        self.reset_stream()
        self._memory.load_stream_state(state)


def _checked_prompt(prompt_ids: IntArray) -> IntArray:
    """int32[p], or ValueError where an id would not fit a packed key."""
    prompt = np.asarray(prompt_ids, np.int32)
    if len(prompt) and not 0 <= prompt.min() <= prompt.max() < kernels.MAX_VOCAB:
        raise ValueError(
            f"prompt_ids hold ids from {prompt.min()} to {prompt.max()}; they must be from 0 to "
            f"{kernels.MAX_VOCAB - 1:,}"
        )
    return prompt
