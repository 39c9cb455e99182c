"""The kernels equal the readable reference, on streams of every shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.config import RecapConfig
from recap.core import kernels, memory
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from recap.drafter import NO_TOKENS, RecapDrafter
from recap.fusion import RULES
from tests.recap.streams import World, assert_same_tree, requests, run_both, verified
from tests.reference.drafter import ReferenceDrafter

CONFIGS = st.builds(
    RecapConfig,
    top_k=st.integers(1, 8),
    width=st.integers(1, 8),
    depth=st.integers(1, 12),
    max_candidates=st.integers(0, 127),
    depth_priors=st.sampled_from([(0.68, 0.63, 0.50, 0.43, 0.40, 0.38), (1.0,), (0.5, 0.9)]),
    fusion=st.sampled_from(RULES),
    expansion=st.sampled_from(["best_first", "best_first", "fixed"]),
    orders=st.integers(1, 3),
    seed_prompt=st.booleans(),
    suffix_tokens=st.integers(0, 6),
    suffix_in_cap=st.booleans(),
)
SEEDS = st.integers(0, 2**32)


def worlds(config: RecapConfig, seed: int, vocab_size: int, alphabet_size: int) -> World:
    """A language over some ids of the vocabulary, the largest included."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(vocab_size - 1, min(alphabet_size, vocab_size) - 1, replace=False).tolist()
    return World(seed, (*ids, vocab_size - 1), config.top_k, coarse=bool(seed % 2))


def compare(config: RecapConfig, seed: int, vocab_size: int, alphabet_size: int) -> None:
    """Drive both drafters through two requests."""
    rng = np.random.default_rng(seed)
    world = worlds(config, seed, vocab_size, alphabet_size)
    blocked = frozenset(rng.choice(world.alphabet, int(rng.integers(0, 3))).tolist())
    contexts = requests(world, blocked, 2, rng)
    one, other = RecapDrafter(config, vocab_size), ReferenceDrafter(config)
    run_both(one, other, world, contexts, 6, rng)
    # What is stored is equal, too, not only what was drafted from it.
    state = one.stream_state()
    assert state["tokens"].tolist() == sorted(other.unigrams)
    for token, ids, probs in zip(*state.values(), strict=True):
        assert list(zip(ids[ids >= 0], probs[ids >= 0], strict=True)) == other.unigrams[token]


@settings(max_examples=1000)
@given(CONFIGS, SEEDS, st.integers(2, 30))
def test_small_vocabularies_full_of_repeats(config: RecapConfig, seed: int, size: int) -> None:
    compare(config, seed, size, size)


@settings(max_examples=200)
@given(CONFIGS, SEEDS)
def test_a_large_vocabulary(config: RecapConfig, seed: int) -> None:
    compare(config, seed, 152_064, 40)


@settings(max_examples=40)
@given(CONFIGS, SEEDS)
def test_ids_up_to_the_packing_limit(config: RecapConfig, seed: int) -> None:
    compare(config, seed, kernels.MAX_VOCAB, 25)


@settings(max_examples=150)
@given(CONFIGS, SEEDS)
def test_a_table_that_grows_within_the_request(config: RecapConfig, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "FIRST_SLOTS", 4)
        compare(config, seed, 60, 60)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("expansion", ["best_first", "fixed"])
def test_the_papers_settings(rule: str, expansion: str) -> None:
    """A longer stream for every rule and expansion: 63 candidates, depth 10."""
    config = RecapConfig(fusion=rule, expansion=expansion)
    rng = np.random.default_rng(11)
    world = World(5, tuple(range(40)), 8)
    contexts = requests(world, frozenset({39}), 3, rng)
    one, other = RecapDrafter(config, 40), ReferenceDrafter(config)
    run_both(one, other, world, contexts[:1], 15, rng)
    num_candidates = run_both(one, other, world, contexts[1:], 15, rng)
    assert num_candidates > 30 * 60  # with a filled memory, trees fill up


@settings(max_examples=100)
@given(CONFIGS, SEEDS)
def test_a_saved_stream_continues_exactly(config: RecapConfig, seed: int) -> None:
    rng = np.random.default_rng(seed)
    world = worlds(config, seed, 20, 20)
    first, second = requests(world, frozenset({3}), 2, rng)
    original = RecapDrafter(config, 20)
    run_both(original, ReferenceDrafter(config), world, [first], 5, rng)
    resumed = RecapDrafter(config, 20)
    run_both(resumed, ReferenceDrafter(config), world, [second], 3, rng)  # other content
    resumed.load_stream_state(original.stream_state())
    run_both(original, resumed, world, [second], 5, rng)


def test_reset_stream_forgets_everything() -> None:
    config = RecapConfig()
    rng = np.random.default_rng(2)
    world = World(2, tuple(range(12)), 8)
    used = RecapDrafter(config, 12)
    run_both(used, ReferenceDrafter(config), world, requests(world, frozenset(), 2, rng), 5, rng)
    used.reset_stream()
    contexts = requests(world, frozenset(), 1, rng)
    run_both(used, RecapDrafter(config, 12), world, contexts, 5, rng)


# --- worked examples ------------------------------------------------------------------------------


def seeded(config: RecapConfig, rows: dict[int, list[tuple[int, float]]]) -> RecapDrafter:
    """A drafter whose U holds ``rows``, in a request without prompt."""
    drafter = RecapDrafter(config, vocab_size=100)
    ids = np.array([[t for t, _ in row] for row in rows.values()], np.int32)
    probs = np.array([[p for _, p in row] for row in rows.values()], np.float32)
    tokens = np.array(list(rows), np.int32)
    predictions = Predictions(ids[:, 0].copy(), ids, probs)
    drafter.begin_request(
        RequestContext(NO_TOKENS, frozenset({99}), predictions, prompt_row_tokens=tokens)
    )
    return drafter


BINARY = {parent: [(2 * parent + 1, 0.9), (2 * parent + 2, 0.1)] for parent in range(4)}


def test_the_best_path_first() -> None:
    config = RecapConfig(top_k=2, width=2, depth=3, max_candidates=4, suffix_tokens=0)
    tree = seeded(config, BINARY).propose(np.array([0], np.int32))
    assert tree.tokens.tolist() == [0, 1, 3, 7, 2]
    assert tree.depths.tolist() == [0, 1, 2, 3, 1]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 0]


def test_fixed_expansion_is_breadth_first() -> None:
    config = RecapConfig(
        top_k=2, width=2, depth=3, max_candidates=5, suffix_tokens=0, expansion="fixed"
    )
    tree = seeded(config, BINARY).propose(np.array([0], np.int32))
    assert tree.tokens.tolist() == [0, 1, 3, 4, 2, 5]  # selected 1 2 3 4 5, packed in preorder
    assert tree.depths.tolist() == [0, 1, 2, 2, 1, 2]


def test_equal_scores_go_by_rank_path() -> None:
    rows = {0: [(5, 0.5), (1, 0.5)], 5: [(6, 0.5), (7, 0.5)], 1: [(8, 0.5), (9, 0.5)]}
    config = RecapConfig(top_k=2, depth=2, max_candidates=4, suffix_tokens=0, depth_priors=(1.0,))
    tree = seeded(config, rows).propose(np.array([0], np.int32))
    assert tree.tokens.tolist() == [0, 5, 6, 7, 1]


def test_filtered_candidates_leave_their_place_empty() -> None:
    # 99 is blocked; 0 -> 1 would repeat an edge of the path 0 1 0.
    rows = {0: [(99, 0.6), (1, 0.3), (2, 0.1)], 1: [(0, 0.8), (3, 0.1), (4, 0.1)]}
    config = RecapConfig(top_k=3, width=2, max_candidates=10, suffix_tokens=0)
    tree = seeded(config, rows).propose(np.array([0], np.int32))
    # Width 2 was used up by 99 and 1: no 2 behind either 0. Behind the second 0 only 99 and 1.
    assert tree.tokens.tolist() == [0, 1, 0, 3]
    assert tree.parents.tolist() == [-1, 0, 1, 1]


def test_the_suffix_shares_prefixes_and_comes_last() -> None:
    config = RecapConfig(top_k=2, max_candidates=2)
    drafter = seeded(config, {5: [(6, 0.9), (7, 0.1)]})
    # ... 5 6 8 9 4 ... 5: after 5 came 6 8 9 4, of which 6 is in the tree already.
    history = np.array([5, 6, 8, 9, 4, 3, 5], np.int32)
    tree = drafter.propose(history)
    assert tree.tokens.tolist() == [5, 6, 7, 8, 9, 4]
    assert tree.parents.tolist() == [-1, 0, 0, 1, 3, 4]
    assert tree.depths.tolist() == [0, 1, 1, 2, 3, 4]


def test_suffix_in_cap_counts_what_the_search_did_not_meet() -> None:
    history = np.array([5, 6, 8, 9, 4, 3, 5], np.int32)
    for cap, tokens in ((4, [5, 6, 8, 9, 4]), (5, [5, 6, 7, 8, 9, 4]), (3, [5, 6, 8, 9, 4])):
        config = RecapConfig(top_k=2, max_candidates=cap, suffix_in_cap=True)
        tree = seeded(config, {5: [(6, 0.9), (7, 0.1)]}).propose(history)
        assert tree.tokens.tolist() == tokens


def test_the_suffix_is_a_true_longest_match() -> None:
    # The last token alone occurred more recently, but 1 2 3 is longer.
    drafter = RecapDrafter(RecapConfig(), 100)
    tree = drafter.propose(np.array([1, 2, 3, 7, 7, 3, 8, 1, 2, 3], np.int32))
    assert tree.tokens.tolist() == [3, 7, 7, 3, 8]


def test_a_placeholder_is_never_part_of_a_match_nor_drafted() -> None:
    drafter = RecapDrafter(RecapConfig(), 100)
    prompt = np.array([1, 99, 99, 2, 6, 99, 99, 2], np.int32)
    drafter.begin_request(RequestContext(prompt[:-1], frozenset({99})))
    assert drafter.propose(prompt).tokens.tolist() == [2, 6]  # stops before 99


def test_the_first_root_has_the_prompts_end_as_context() -> None:
    drafter = RecapDrafter(RecapConfig(top_k=2, suffix_tokens=0), 100)
    drafter.begin_request(RequestContext(np.array([1, 2], np.int32), frozenset()))
    rows = Predictions(np.array([4]), np.array([[4, 5]]), np.array([[0.9, 0.1]]))
    step = VerifiedStep(TokenTree.root_only(3), rows, np.array([1, 2, 3]), NO_TOKENS, np.array([4]))
    drafter.observe(step)
    assert drafter._memory.lookup(1, 2, 3) is not None
    assert drafter._memory.lookup(2, 3) is not None


# --- contract -------------------------------------------------------------------------------------


class Laps:
    def __init__(self) -> None:
        self.names: list[str] = []

    def lap(self, phase: str) -> None:
        self.names.append(phase)


def test_needs_clock_and_trace() -> None:
    drafter = RecapDrafter(RecapConfig(top_k=5, root_fallback="semantic"), 50, trace=True)
    assert (drafter.needs.topk, drafter.needs.prompt_rows, drafter.needs.hidden_states) == (
        5,
        True,
        True,
    )
    plain = RecapDrafter(RecapConfig(seed_prompt=False), 50)
    assert (plain.needs.topk, plain.needs.prompt_rows, plain.needs.hidden_states) == (
        8,
        False,
        False,
    )
    assert plain.pop_trace() is None
    plain.clock = clock = Laps()
    rng = np.random.default_rng(0)
    world = World(0, tuple(range(10)), 8)
    plain.trace = True
    history = np.array([1, 2, 3], np.int32)
    plain.begin_request(RequestContext(history[:-1], frozenset()))
    for _ in range(9):
        step = verified(plain.propose(history), history, world, rng)
        plain.observe(step)
        history = np.concatenate([history, step.committed])
    assert clock.names[:2] == ["seed", "suffix_update"]
    assert clock.names[2:] == ["suffix_lookup", "search", "refresh", "suffix_update"] * 9
    trace = plain.pop_trace()
    assert trace is not None
    for count in (2, 3):
        fused = trace["fusion_weights"][str(count)]
        assert fused["calls"] > 0
        assert np.isclose(sum(fused["weights"]), fused["calls"])
    again = plain.pop_trace()
    assert again is not None
    assert again["fusion_weights"]["2"]["calls"] == 0


def test_observes_a_step_it_did_not_propose() -> None:
    """With one token remaining the loop verifies the root alone."""
    drafter = RecapDrafter(RecapConfig(), 50)
    drafter.begin_request(RequestContext(np.array([1, 2], np.int32), frozenset()))
    world = World(0, tuple(range(30)), 8)
    history = np.array([1, 2, 3], np.int32)
    step = verified(TokenTree.root_only(3), history, world, np.random.default_rng(0))
    drafter.observe(step)
    history = np.concatenate([history, step.committed])
    assert len(drafter.propose(history)) >= 1


def test_any_integer_and_float_type_will_do() -> None:
    rng = np.random.default_rng(0)
    world = World(0, tuple(range(30)), 8)
    narrow, wide = RecapDrafter(RecapConfig(), 50), RecapDrafter(RecapConfig(), 50)
    history = np.array([1, 2, 3], np.int32)
    for _ in range(3):
        tree = narrow.propose(history)
        assert_same_tree(tree, wide.propose(history.astype(np.int64)))
        step = verified(tree, history, world, rng)
        p = step.predictions
        converted = Predictions(
            p.next_token.astype(np.int64),
            np.asfortranarray(p.topk_ids.astype(np.int64)),
            p.topk_probs.astype(np.float64),
        )
        narrow.observe(step)
        wide.observe(
            VerifiedStep(tree, converted, history.astype(np.int64), step.accepted, step.committed)
        )
        history = np.concatenate([history, step.committed])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="2,097,152"):
        RecapDrafter(RecapConfig(), kernels.MAX_VOCAB + 1)
    drafter = RecapDrafter(RecapConfig(), 50)
    with pytest.raises(ValueError, match="prompt_ids"):
        drafter.begin_request(RequestContext(np.array([1, -200], np.int32), frozenset()))
    with pytest.raises(ValueError, match="token 50 is outside"):
        drafter.propose(np.array([1, 50], np.int32))
    drafter.begin_request(RequestContext(np.array([1, 2, 3], np.int32), frozenset()))
    with pytest.raises(ValueError, match="shorter"):
        drafter.propose(np.array([1], np.int32))


def test_num_bytes() -> None:
    held = RecapDrafter(RecapConfig(), 152_064).num_bytes()
    assert set(held) == {"U", "C+G", "suffix"}
    assert held["U"] <= 12 * 2**20
