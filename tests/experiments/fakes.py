"""A scripted model behind the engine's interface, for tests of the runner."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from recap.core.interfaces import ContextExceeded, Needs, Verification
from recap.core.tree import TokenTree
from tests.fakes import ScriptedSession, ScriptedTarget

BLOCKED, STOP = 0, 1
SCRIPT = ScriptedTarget(seed=4, vocab_size=16, stop_ids=frozenset({STOP}), blocked=BLOCKED)


class CountingSession(ScriptedSession):
    """Counts the target's verifications, and lets a test interfere with one."""

    owner: FakeTarget

    def verify(self, tree: TokenTree) -> Verification:
        self.owner.verified += 1
        self.owner.before_verify()
        return super().verify(tree)


class FakeTarget:
    """Encodes messages by hashing their words. ``context`` bounds prompt and output together."""

    def __init__(self) -> None:
        self.vocab_size = SCRIPT.vocab_size
        self.text_only = False
        self.context = 4096
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
        ids = [2 + sum(word.encode()) % 14 for word in text.split()]
        return SimpleNamespace(
            prompt_ids=np.array(ids, np.int32), num_image_tokens=0, prompt_text=text
        )

    def decode_text(self, ids: Sequence[int]) -> str:
        return " ".join(f"w{i}" for i in ids)

    def open(self, request: Any, needs: Needs, max_new_tokens: int) -> CountingSession:
        total = len(request.prompt_ids) + max_new_tokens
        if total > self.context:
            raise ContextExceeded(f"{total} tokens, the model's context is {self.context}")
        session = CountingSession(SCRIPT, request.prompt_ids, needs)
        session.owner = self
        return session
