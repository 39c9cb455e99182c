from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.suffix_decoding import CountedSuffixTree, SuffixDecodingDrafter
from recap.core.interfaces import Predictions, RequestContext, VerifiedStep
from recap.core.tree import TokenTree
from tests.baselines.drive import VOCABULARY, check_lossless, check_replay
from tests.reference.suffix_decoding import count_substrings, cut, speculate

VLLM = {"mode": "path", "depth": 24}
IMAGE = 9
NOTHING = np.empty(0, np.int32)


def ids(tokens: list[int] | range) -> np.ndarray:
    return np.array(tokens, np.int32)


def begin(drafter: SuffixDecodingDrafter, prompt: list[int], blocked: tuple[int, ...] = ()) -> None:
    drafter.begin_request(RequestContext(ids(prompt), frozenset(blocked)))


def commit(drafter: SuffixDecodingDrafter, history: list[int], tokens: list[int]) -> None:
    tree = TokenTree.root_only(history[-1])
    rows = Predictions(ids([0]), np.empty((1, 0), np.int32), np.empty((1, 0), np.float32))
    drafter.observe(VerifiedStep(tree, rows, ids(history), NOTHING, ids(tokens)))


def propose(drafter: SuffixDecodingDrafter, history: list[int]) -> tuple[list[int], list[int]]:
    tree = drafter.propose(ids(history))
    assert tree.tokens[0] == history[-1]
    again = drafter.propose(ids(history))
    assert again.tokens.tolist() == tree.tokens.tolist()
    return tree.tokens[1:].tolist(), (tree.parents[1:] - 1).tolist()


@pytest.mark.parametrize(
    ("prompt", "output", "factor", "expected"),
    [
        ([*range(10, 18), 99], [10, 11, 12], 1, [13, 14, 15]),
        ([*range(10, 18), 99], [10, 11, 12], 4, [13, 14, 15, 16, 17, 99, 10, 11, 12]),
        ([1, 2, 3, 5, 1, 2, 3, 5, 1, 2, 3, 6, 9], [1, 2, 3], 1, [5, 1, 2]),
        ([7, 8, 7, 8], [7, 8], 2, [7, 8, 7, 8]),
        ([1, 2, 3, 4], [5], 1, []),
    ],
)
def test_worked_examples(
    prompt: list[int], output: list[int], factor: float, expected: list[int]
) -> None:
    drafter = SuffixDecodingDrafter(vocab_size=100, factor=factor, **VLLM)
    begin(drafter, prompt)
    tokens, parents = propose(drafter, prompt + output)
    assert tokens == expected
    assert parents == list(range(-1, len(expected) - 1))


@pytest.mark.parametrize(
    ("mode", "tokens", "parents", "score"),
    [("path", [7, 8], [-1, 0], 1.25), ("tree", [7, 8, 9], [-1, 0, 0], 1.5)],
)
def test_worked_example_of_the_global_tree(
    mode: Any, tokens: list[int], parents: list[int], score: float
) -> None:
    drafter = SuffixDecodingDrafter(vocab_size=100, mode=mode, depth=24, factor=2)
    for output in ([1, 2, 3, 7, 8], [1, 2, 3, 7, 8], [1, 2, 3, 7, 9]):
        begin(drafter, [60])
        commit(drafter, [60, output[0]], output[1:])
    begin(drafter, [50, 51])
    # The current output is in the global tree, too: "1 2 3" occurs four times.
    context = ids([50, 51, 1, 2, 3])
    drafted = propose(drafter, context.tolist())
    assert drafted == (tokens, parents)
    assert drafter._work.scores[0] == pytest.approx(score)


SETTINGS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["path", "tree"]),
        "depth": st.integers(2, 9),
        "max_tokens": st.integers(1, 8),
        "factor": st.sampled_from([0.5, 1.0, 4.0]),
        "offset": st.sampled_from([0.0, 1.0]),
        "min_prob": st.sampled_from([0.1, 0.3]),
        "max_requests": st.integers(0, 3),
    }
)
TOKENS = st.lists(st.sampled_from([0, 1, 1, 2, 3, IMAGE]), max_size=14)
REQUESTS = st.lists(st.tuples(TOKENS, st.lists(TOKENS, min_size=1, max_size=4)), max_size=6)


def expected_draft(
    local: list[int], outputs: list[list[int]], options: dict[str, Any]
) -> tuple[list[int], list[int]]:
    rule = {key: options[key] for key in ("factor", "offset", "min_prob")}
    rule |= {"path": options["mode"] == "path", "cap": options["max_tokens"]}
    depth = options["depth"]
    pieces = cut(local, {IMAGE})
    limit = min(len(local), depth) - 1
    draft = speculate(count_substrings(pieces, depth), pieces[-1], limit, ([], [], 0.0), **rule)
    if options["max_requests"]:
        texts = [p for output in outputs[-options["max_requests"] :] for p in cut(output, {IMAGE})]
        counts = count_substrings(texts, depth)
        draft = speculate(counts, pieces[-1][-depth:], limit, draft, **rule)
    return draft[0], draft[1]


@settings(max_examples=200)
@given(REQUESTS, SETTINGS)
def test_equals_counting_every_substring(
    requests: list[tuple[list[int], list[list[int]]]], options: dict[str, Any]
) -> None:
    """Every step of every request; evictions, separators, and a load of the saved stream between
    requests included.
    """
    drafter = SuffixDecodingDrafter(vocab_size=10, **options)
    drafter._local = CountedSuffixTree(options["depth"], capacity=2)  # so that both grow
    drafter._global = CountedSuffixTree(options["depth"], capacity=2)
    outputs: list[list[int]] = []
    for prompt, pieces in requests:
        loaded = SuffixDecodingDrafter(vocab_size=10, **options)
        loaded.load_stream_state(drafter.stream_state())
        outputs.append([])
        begin(drafter, prompt, (IMAGE,))
        begin(loaded, prompt, (IMAGE,))
        history = list(prompt)
        for piece in pieces:
            if history:
                commit(drafter, history, piece)
                commit(loaded, history, piece)
                outputs[-1] += piece
            history += piece
            if history:
                outputs[-1] = history[len(prompt) :]
                expected = expected_draft(history, outputs, options)
                assert propose(drafter, history) == expected
                assert propose(loaded, history) == expected


def test_memory_stays_linear_and_runs_of_placeholders_cost_nothing() -> None:
    tree = CountedSuffixTree(depth=64)
    rng = np.random.default_rng(0)
    for _ in range(20):
        tree.append(rng.integers(0, 4, 500, dtype=np.int32))
        tree.end_sequence()
    assert tree.num_nodes() <= 2 * 10_000 + 1
    drafter = SuffixDecodingDrafter(vocab_size=10)
    begin(drafter, [1, 2, 3, *[IMAGE] * 2900, 1, 2], (IMAGE,))
    assert propose(drafter, [1, 2, 3, *[IMAGE] * 2900, 1, 2])[0] == [3]
    assert drafter._local.num_nodes() <= 2 * 5 + 1


def test_everything_evicted_leaves_an_empty_tree() -> None:
    tree = CountedSuffixTree(depth=5)
    rng = np.random.default_rng(1)
    for _ in range(8):
        tree.append(rng.integers(0, 3, 40, dtype=np.int32))
        tree.end_sequence()
    for start in range(0, 320, 40):
        tree.remove(start, start + 40)
    assert tree.arrays.nodes[0, 2] == -1
    assert not tree.arrays.slots.any()


def test_reset_forgets_the_stream() -> None:
    drafter = SuffixDecodingDrafter(vocab_size=10)
    begin(drafter, [1])
    commit(drafter, [1, 2], [3, 4])
    drafter.reset_stream()
    begin(drafter, [1])
    assert propose(drafter, [1, 2])[0] == []


@pytest.mark.parametrize(
    "options", [{"mode": "graph"}, {"depth": 1}, {"min_prob": 0.0}, {"max_tokens": 0}]
)
def test_refuses_settings_without_meaning(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|mode is"):
        SuffixDecodingDrafter(vocab_size=10, **options)


@pytest.mark.parametrize(
    "options", [{}, {"mode": "path", "depth": 24, "factor": 1}, {"max_requests": 2, "depth": 9}]
)
def test_keeps_the_contract_of_a_drafter(options: dict[str, Any]) -> None:
    def make() -> SuffixDecodingDrafter:
        return SuffixDecodingDrafter(vocab_size=VOCABULARY, **options)

    assert check_lossless(make) > 300
    check_replay(make)
