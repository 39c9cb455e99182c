"""A scripted target: a model without weights, for tests of the loop and of drafters."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from recap.core.interfaces import Needs, Predictions, Prefill, Verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recap.core.interfaces import IntArray
    from recap.core.tree import TokenTree


@dataclass(frozen=True)
class ScriptedTarget:
    """Logits are a hash of the last ``order`` tokens, so that its texts repeat and drafts hit.

    The alphabet is 0 .. vocab_size - 1; ``blocked`` is the image placeholder.
    """

    seed: int = 0
    vocab_size: int = 6
    order: int = 2
    stop_ids: frozenset[int] = frozenset()
    blocked: int | None = None

    def logits(self, text: Sequence[int]) -> np.ndarray:
        """float64[vocab_size], small whole numbers: ties are common."""
        context = ",".join(map(str, [self.seed, *text[-self.order :]]))
        digest = hashlib.sha256(context.encode()).digest()
        return np.resize(np.frombuffer(digest, np.uint8) % 7, self.vocab_size).astype(float)

    def next_token(self, text: Sequence[int]) -> int:
        """The greedy choice: the lowest id of the highest logit."""
        return int(np.argmax(self.logits(text)))

    def rows(self, texts: Sequence[Sequence[int]], topk: int, mass: bool = False) -> Predictions:
        """Predictions after each text."""
        logits = np.array([self.logits(text) for text in texts]).reshape(-1, self.vocab_size)
        ids = np.argsort(-logits, axis=1, kind="stable")[:, : min(topk, self.vocab_size)]
        exponentials = np.exp(np.take_along_axis(logits, ids, axis=1))
        probs = exponentials / exponentials.sum(axis=1, keepdims=True)
        shares = exponentials.sum(axis=1) / np.exp(logits).sum(axis=1)
        return Predictions(
            logits.argmax(axis=1).astype(np.int32),
            ids.astype(np.int32),
            probs.astype(np.float32),
            shares.astype(np.float32) if mass else None,
        )

    def greedy(self, prompt: Sequence[int], max_new_tokens: int) -> list[int]:
        """What plain autoregressive decoding says."""
        text = list(prompt)
        while len(text) < len(prompt) + max_new_tokens:
            text.append(self.next_token(text))
            if text[-1] in self.stop_ids:
                break
        return text[len(prompt) :]

    def open(self, prompt: Sequence[int], needs: Needs) -> ScriptedSession:
        """One request."""
        return ScriptedSession(self, np.array(prompt, np.int32), needs)


@dataclass
class ScriptedSession:
    """One request on a `ScriptedTarget`; checks that the loop keeps its side of the contract."""

    target: ScriptedTarget
    prompt_ids: IntArray
    needs: Needs
    history: list[int] = field(init=False)
    num_verified: int = 0

    def __post_init__(self) -> None:
        blocked = self.target.blocked
        self.blocked_ids = frozenset() if blocked is None else frozenset({blocked})
        self.stop_ids = self.target.stop_ids
        self.history = self.prompt_ids.tolist()
        self._tree: TokenTree | None = None

    def prefill(self) -> Prefill:
        prompt = self.prompt_ids.tolist()
        first = self.target.next_token(prompt)
        self.history.append(first)
        if not self.needs.prompt_rows:
            return Prefill(first)
        distinct = [t for t in dict.fromkeys(prompt) if t not in self.blocked_ids]
        rows = self._rows([prompt[: prompt.index(t) + 1] for t in distinct])
        return Prefill(first, rows, np.array(distinct, np.int32))

    def verify(self, tree: TokenTree) -> Verification:
        assert tree.tokens[0] == self.history[-1]
        self._tree = tree
        self.num_verified += 1
        texts: list[list[int]] = []
        for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True):
            texts.append([*texts[parent], token] if parent >= 0 else list(self.history))
        states = None
        if self.needs.hidden_states:
            states = np.array([self.target.logits(t) for t in texts], np.float32)
        return Verification(self._rows(texts), states)

    def _rows(self, texts: Sequence[Sequence[int]]) -> Predictions:
        return self.target.rows(texts, self.needs.topk, self.needs.topk_mass)

    def image_attention(self, node: int) -> float:
        return 0.0

    def commit(self, nodes: IntArray) -> None:
        assert self._tree is not None
        self.history += self._tree.tokens[nodes[1:]].tolist()
        self.history.append(self.target.next_token(self.history))

    def close(self) -> None:
        self._tree = None
