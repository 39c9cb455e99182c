from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from baselines.sam import SamDrafter
from baselines.sam_viskip import SamViSkipDrafter
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs, RequestContext, VerifiedStep
from tests.baselines import drive
from tests.fakes import ScriptedSession, ScriptedTarget

if TYPE_CHECKING:
    from recap.core.interfaces import Generation

IMAGE = drive.PLACEHOLDER
PROMPT = [IMAGE, IMAGE, 1, 2, 3, 4, 5, 6, 1, 2]
TEXT_PROMPT = PROMPT[2:]

# Attention rows of the root over the keys [image, image, text, root], per head (V-1).
HEADS = np.array([[0.2, 0.2, 0.3, 0.3], [0.1, 0.3, 0.3, 0.3]])


def share(heads: np.ndarray) -> float:
    """Summed over image keys, averaged over heads, as the engine computes it."""
    return float(heads[:, :2].sum(axis=1).mean())


@dataclass
class LookingSession(ScriptedSession):
    """A session whose attention on the image is told: for the root, and for every other node."""

    root_share: float = 0.0
    other_share: float = 0.0
    asked: list[int] = field(default_factory=list)

    def image_attention(self, node: int) -> float:
        self.asked.append(node)
        if not self.blocked_ids & set(self.prompt_ids.tolist()):
            return 0.0  # there is no image key to look at
        return self.root_share if node == 0 else self.other_share


class Counting(ScriptedTarget):
    """Always counts from 1 to 6 and over, so that every SAM draft is right."""

    def next_token(self, text: Any) -> int:
        return int(text[-1]) % 6 + 1

    def logits(self, text: Any) -> np.ndarray:
        return np.eye(self.vocab_size)[self.next_token(text)]


def generate(
    drafter: SamDrafter, prompt: list[int], root: float = 0.0, other: float = 0.0
) -> Generation:
    target = Counting(vocab_size=drive.VOCABULARY, blocked=IMAGE)
    session = LookingSession(
        target,
        np.array(prompt, np.int32),
        drafter.needs,
        root_share=root,
        other_share=other,
    )
    generation = decode(session, drafter, Limits(20))
    assert generation.output_ids == target.greedy(prompt, 20)
    return generation


def make(**options: Any) -> SamViSkipDrafter:
    return SamViSkipDrafter(vocab_size=drive.VOCABULARY, **options)


PLAIN = generate(SamDrafter(vocab_size=drive.VOCABULARY), PROMPT)


def test_needs() -> None:
    assert make().needs == Needs(image_attention="root", reject_at=0.35)
    assert make(threshold=0.5).needs.reject_at == 0.5
    assert make(mode="skip").needs == Needs(image_attention="last_accepted")


def test_at_the_threshold_the_draft_is_discarded() -> None:
    """V-1: a share of .40; the draft, which is right, counts as 0 accepted."""
    assert share(HEADS) == pytest.approx(0.40)
    generation = generate(make(), PROMPT, root=share(HEADS))
    assert set(generation.num_accepted) == {0}
    assert len(generation.num_accepted) == 19
    assert max(generation.num_candidates) >= 3
    assert set(generate(make(), PROMPT, root=0.35).num_accepted) == {0}  # "at least"


def test_below_the_threshold_nothing_changes() -> None:
    """V-2."""
    assert generate(make(), PROMPT, root=0.3499).num_accepted == PLAIN.num_accepted
    assert max(PLAIN.num_accepted) > 0


@pytest.mark.parametrize("mode", ["reject", "skip"])
def test_a_prompt_without_an_image_is_sam(mode: str) -> None:
    """V-3."""
    expected = generate(SamDrafter(vocab_size=drive.VOCABULARY), TEXT_PROMPT)
    generation = generate(make(mode=mode), TEXT_PROMPT, root=1.0, other=1.0)
    assert generation.num_accepted == expected.num_accepted
    assert generation.num_candidates == expected.num_candidates


def test_an_empty_draft_is_no_rejection() -> None:
    """V-4: the gate changes nothing in a step without a draft."""
    prompt = [IMAGE, 9, 8]  # counting on from 8 finds nothing to copy at first
    gated = generate(make(), prompt, root=0.9)
    free = generate(make(), prompt, root=0.0)
    assert gated.num_candidates[:3] == free.num_candidates[:3] == [0, 0, 0]
    assert gated.num_accepted[:3] == [0, 0, 0]


def test_skip_makes_the_next_step_plain_and_then_drafts_again() -> None:
    generation = generate(make(mode="skip"), PROMPT, root=0.0, other=0.35)
    candidates = generation.num_candidates
    assert generation.num_accepted[0] > 0
    assert [c > 0 for c in candidates[:5]] == [True, False, True, False, True]


def test_skip_reads_the_last_accepted_node() -> None:
    below = generate(make(mode="skip"), PROMPT, root=1.0, other=0.3499)
    assert below.num_accepted == PLAIN.num_accepted


def test_a_plain_step_asks_for_no_other() -> None:
    """Attention counts after a drafted step only: an empty draft is followed by a normal step."""
    drafter = make(mode="skip")
    drafter.begin_request(RequestContext(np.array(PROMPT, np.int32), frozenset({IMAGE})))
    history = np.array([*PROMPT, 9], np.int32)
    tree = drafter.propose(history)
    assert tree.num_candidates == 0
    committed = np.array([1], np.int32)
    step = VerifiedStep(tree, None, history, committed[:0], committed, image_attention=0.9)  # type: ignore[arg-type]
    drafter.observe(step)
    assert drafter.propose(np.append(history, committed)).num_candidates > 0


def test_a_new_request_starts_without_a_skip() -> None:
    drafter = make(mode="skip")
    first = generate(drafter, PROMPT, other=0.9)
    assert generate(drafter, PROMPT, other=0.9).num_candidates == first.num_candidates


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="mode is 'hop', which is not one of reject, skip"):
        make(mode="hop")
    with pytest.raises(ValueError, match="threshold must be from 0 to 1, got 35"):
        make(threshold=35)


@pytest.mark.parametrize("mode", ["reject", "skip"])
def test_contract(mode: str) -> None:
    assert drive.check_lossless(lambda: make(mode=mode)) > 0
    drive.check_replay(lambda: make(mode=mode))
    drive.check_request_local(lambda: make(mode=mode))
