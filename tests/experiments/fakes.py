"""A scripted target for runner tests: the next token is a hash of the last two, so drafts hit now
and then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from recap.core.interfaces import (
    ContextExceeded,
    Needs,
    Predictions,
    Prefill,
    Verification,
)
from recap.core.tree import TokenTree

VOCABULARY = 64
STOP = 1


def next_token(previous: int, token: int) -> int:
    """The scripted model: a fixed function of the last two tokens; STOP is possible but rare."""
    digest = hashlib.sha256(f"{previous % 7},{token}".encode()).digest()
    return STOP if digest[0] < 4 else 2 + digest[1] % 23


class FakeSession:
    """One request on the scripted model."""

    def __init__(self, target: FakeTarget, request: Any, needs: Needs) -> None:
        self.prompt_ids = request.prompt_ids
        self.blocked_ids: frozenset[int] = frozenset({0})
        self.stop_ids = frozenset({STOP})
        self._target = target
        self._needs = needs
        self._history = self.prompt_ids.tolist()
        self._tree: TokenTree | None = None

    def prefill(self) -> Prefill:
        first = next_token(self._history[-2], self._history[-1])
        rows = tokens = None
        if self._needs.prompt_rows:
            seen = self._history
            places = [i for i, t in enumerate(seen) if t != 0 and t not in seen[:i]]
            tokens = self.prompt_ids[places]
            rows = self._rows([(self._history[i - 1], self._history[i]) for i in places])
        self._history.append(first)
        return Prefill(first, rows, tokens)

    def verify(self, tree: TokenTree) -> Verification:
        self._target.verified += 1
        self._target.before_verify()
        assert tree.tokens[0] == self._history[-1]
        contexts = []
        for node in range(len(tree)):
            path = [self._history[-2], *tree.tokens[tree.path(node)].tolist()]
            contexts.append((path[-2], path[-1]))
        self._tree = tree
        return Verification(self._rows(contexts))

    def _rows(self, contexts: list[tuple[int, int]]) -> Predictions:
        choice = np.array([next_token(*c) for c in contexts], np.int32)
        k = self._needs.topk
        ids = (choice[:, None] + np.arange(k, dtype=np.int32)) % VOCABULARY
        weights = np.exp(-np.arange(k, dtype=np.float32))
        probs = np.tile(weights / weights.sum(), (len(choice), 1)).astype(np.float32)
        return Predictions(choice, ids.astype(np.int32), probs.reshape(len(choice), k))

    def image_attention(self, node: int) -> float:
        return 0.5

    def commit(self, nodes: Any) -> None:
        assert self._tree is not None
        last = int(nodes[-1])
        path = self._tree.tokens[nodes].tolist()
        previous = path[-2] if len(path) > 1 else self._history[-2]
        self._history += [*path[1:], next_token(previous, path[-1])]
        assert last >= 0

    def close(self) -> None:
        pass


class FakeTarget:
    """Encodes messages by hashing their words. ``context`` bounds prompt and output together."""

    def __init__(self, text_only: bool = False, context: int = 4096) -> None:
        self.vocab_size = VOCABULARY
        self.text_only = text_only
        self.context = context
        self.device = torch.device("cpu")
        self.model = None
        self.verified = 0
        self.before_verify = lambda: None
        self.images_seen: list[Any] = []

    def encode(self, messages: Sequence[Any], images: Sequence[Any] = ()) -> Any:
        self.images_seen += images
        text = "|".join(
            part.get("text", "<img>") for message in messages for part in message["content"]
        )
        words = text.split()
        ids = [2 + sum(word.encode()) % 40 for word in words] + [3, 4]
        return SimpleNamespace(
            prompt_ids=np.array(ids, np.int32), num_image_tokens=0, prompt_text=text
        )

    def decode_text(self, ids: Sequence[int]) -> str:
        return " ".join(f"w{i}" for i in ids)

    def open(self, request: Any, needs: Needs, max_new_tokens: int) -> FakeSession:
        total = len(request.prompt_ids) + max_new_tokens
        if total > self.context:
            raise ContextExceeded(f"{total} tokens, the model's context is {self.context}")
        return FakeSession(self, request, needs)
