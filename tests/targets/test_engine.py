"""The engine against transformers: packed logits, cache contents, isolation, AR parity."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GraniteConfig

from baselines.autoregressive import AutoregressiveDrafter
from recap.core.decode import decode
from recap.core.interfaces import ContextExceeded, Limits, Needs
from recap.core.tree import TokenTree
from recap.targets.causal_lm import CausalLM
from recap.targets.hf import HFTarget, first_occurrences

from . import reference as ref
from .models import CONTEXT, FAMILIES, VOCAB, family, picture, turn

SLOW_OK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True}
DTYPES = (torch.float64, torch.float32)
# Sampled trees avoid special tokens: a path must not look like an image to the reference's position
# index.
TEXT_VOCAB = 250
NOTHING = Needs()


def opened(
    adapter: Any, needs: Needs = NOTHING, seed: int = 0, new: int = 40, **options: Any
) -> tuple[Any, Any]:
    """A session on a prompt with one picture, and the reference's inputs for it."""
    messages, images = turn("What do you see here?"), [picture(90 + 30 * seed, 70, seed)]
    target = HFTarget(adapter, **options)
    return target.open(target.encode(messages, images), needs, new), ref.processed(
        adapter, messages, images
    )


def run(session: Any, tokens: int, vocab: int = VOCAB) -> list[int]:
    """Greedy output of our autoregressive arm."""
    return decode(session, AutoregressiveDrafter(vocab), Limits(tokens)).output_ids


@pytest.mark.parametrize("name", FAMILIES)
def test_encoded_ids_equal_the_processors_own(name: str) -> None:
    session, inputs = opened(family(name))
    assert session.prompt_ids.dtype == np.int32
    assert session.prompt_ids.tolist() == inputs["input_ids"][0].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=10, **SLOW_OK)
@given(seed=st.integers(0, 2**31), nodes=st.integers(1, 14), bushy=st.sampled_from([0.0, 0.4, 1.0]))
def test_packed_tree_equals_sequential_decoding(
    name: str, dtype: torch.dtype, seed: int, nodes: int, bushy: float
) -> None:
    adapter, rng = family(name, dtype), np.random.default_rng(seed)
    session, inputs = opened(adapter, seed=seed % 3)
    session.prefill()
    committed: list[int] = []
    for _ in range(2):  # the second tree is verified behind a compacted path
        tree = ref.random_tree(rng, nodes, int(rng.integers(TEXT_VOCAB)), TEXT_VOCAB, bushy)
        logits = ref.packed_logits(session, tree)
        for node in range(nodes):
            path = committed + tree.tokens[tree.path(node)].tolist()
            expected = ref.logits_after(adapter, inputs, path)
            torch.testing.assert_close(logits[node], expected, atol=ref.TOLERANCE[dtype], rtol=0)
        path = tree.path(int(rng.integers(nodes)))
        session.commit(path)
        committed += tree.tokens[path].tolist()
    session.close()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=12, **SLOW_OK)
@given(seed=st.integers(0, 2**31), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6))
def test_cache_after_commits_equals_a_fresh_prefill(
    name: str, dtype: torch.dtype, seed: int, sizes: list[int]
) -> None:
    adapter, rng = family(name, dtype), np.random.default_rng(seed)
    session, inputs = opened(adapter, new=200)
    session.prefill()
    committed: list[int] = []
    for size in sizes:
        tree = ref.random_tree(rng, size, int(rng.integers(TEXT_VOCAB)), TEXT_VOCAB)
        session.verify(tree)
        path = tree.path(int(rng.integers(size)))
        session.commit(path)
        committed += tree.tokens[path].tolist()
    assert session.cache_length == len(session.prompt_ids) + len(committed)
    expected = ref.forward(adapter, ref.continued(inputs, committed)).cache
    for ours, theirs in zip(session._cache.layers, expected.layers, strict=True):
        for name_ in ("keys", "values"):
            rows = getattr(ours, name_)[:, :, : session.cache_length]
            torch.testing.assert_close(
                rows, getattr(theirs, name_), atol=ref.TOLERANCE[dtype], rtol=0
            )
    session.close()


@pytest.mark.parametrize("name", FAMILIES)
def test_interleaved_sessions_do_not_disturb_each_other(name: str) -> None:
    adapter = family(name)
    target = HFTarget(adapter)
    requests = [
        target.encode(turn(f"Question {i}"), [picture(60 + 90 * i, 80, i)]) for i in range(3)
    ]
    alone = [run(target.open(request, Needs(), 20), 20) for request in requests]
    sessions = [target.open(request, Needs(), 20) for request in requests]
    outputs = [[session.prefill().first_token] for session in sessions]
    for _ in range(19):
        for session, output in zip(sessions, outputs, strict=True):
            result = session.verify(TokenTree.root_only(output[-1]))
            session.commit(np.zeros(1, np.int32))
            output.append(int(result.predictions.next_token[0]))
    assert [output[: len(a)] for output, a in zip(outputs, alone, strict=True)] == alone
    assert len({tuple(output) for output in outputs}) == 3


@pytest.mark.parametrize("name", FAMILIES)
def test_generate_in_between_does_not_disturb_a_session(name: str) -> None:
    adapter = family(name)
    session, _ = opened(adapter, seed=0)
    alone = run(session, 12)
    session, _ = opened(adapter, seed=0)
    output = [session.prefill().first_token]
    # generate overwrites the model's own rope delta with that of another picture
    ref.generated(adapter, ref.processed(adapter, turn("Other"), [picture(200, 40, 5)]), 3)
    while len(output) < 12:
        output.append(
            int(session.verify(TokenTree.root_only(output[-1])).predictions.next_token[0])
        )
        session.commit(np.zeros(1, np.int32))
    assert output[: len(alone)] == alone


@pytest.mark.parametrize("images", (0, 1, 2))
@pytest.mark.parametrize("name", FAMILIES)
def test_autoregressive_equals_generate(name: str, images: int) -> None:
    adapter = family(name)
    messages = turn("Compare, please.", images, system="Be brief.")
    pictures = [picture(120, 60 + 50 * i, i) for i in range(images)]
    target = HFTarget(adapter)
    output = run(target.open(target.encode(messages, pictures), Needs(), 60), 60)
    assert output == ref.generated(adapter, ref.processed(adapter, messages, pictures), 60)
    assert len(set(output)) > 10  # a text that wanders, so that equality says something


class KnowingDrafter(AutoregressiveDrafter):
    """Drafts trees around the known output: right continuations of random length among wrong
    branches.
    """

    def __init__(self, output: list[int], prompt: int) -> None:
        super().__init__(VOCAB)
        self._output, self._prompt = output, prompt
        self._rng = np.random.default_rng(len(output))

    def propose(self, history: Any) -> TokenTree:
        done = len(history) - self._prompt
        right = self._output[done : done + int(self._rng.integers(0, 6))]
        tokens, parents, depths, tip = [int(history[-1])], [-1], [0], 0
        for token in right:
            for wrong in self._rng.integers(0, VOCAB, self._rng.integers(0, 3)).tolist():
                tokens.append(wrong)
                parents.append(tip)
                depths.append(depths[tip] + 1)
            tokens.append(token)
            parents.append(tip)
            depths.append(depths[tip] + 1)
            tip = len(tokens) - 1
        return TokenTree(tokens, parents, depths)


@pytest.mark.parametrize("name", FAMILIES)
def test_drafting_changes_the_steps_and_not_the_output(name: str) -> None:
    adapter = family(name)
    session, _ = opened(adapter, new=80)
    output = run(session, 80)
    session, _ = opened(adapter, new=80)
    drafter = KnowingDrafter(output, len(session.prompt_ids))
    generation = decode(session, drafter, Limits(80))
    assert generation.output_ids == output
    assert sum(generation.num_accepted) > len(output) // 4
    assert session.cache_length >= len(session.prompt_ids) + len(output) - 1


@pytest.mark.parametrize("name", FAMILIES)
def test_stop_ids_are_the_union_and_end_the_generation(name: str) -> None:
    adapter = family(name)
    session, inputs = opened(adapter)
    output = run(session, 30)
    before, extra = adapter.model.generation_config.eos_token_id, [output[4], output[5]]
    adapter.model.generation_config.eos_token_id = [adapter.tokenizer.eos_token_id, *extra]
    try:
        session, _ = opened(adapter)
        assert session.stop_ids == {adapter.tokenizer.eos_token_id, *extra}
        stopped = run(session, 30)
        assert stopped == ref.generated(adapter, inputs, 30)
        assert stopped[-1] in session.stop_ids and len(stopped) <= 5
    finally:
        adapter.model.generation_config.eos_token_id = before


@pytest.mark.parametrize("name", FAMILIES)
def test_padding_rows_changes_nothing(name: str) -> None:
    adapter, rng = family(name, torch.float64), np.random.default_rng(0)
    needs = Needs(topk=4, hidden_states=True)
    plain = opened(adapter, needs)[0]
    padded = opened(adapter, needs, pad_rows=True)[0]
    wide = opened(adapter, needs, min_rows=40)[0]
    sessions = (plain, padded, wide)
    assert len({session.prefill().first_token for session in sessions}) == 1
    for nodes in (1, 5, 23, 1, 66):
        tree = ref.random_tree(rng, nodes, 7, VOCAB)
        path = tree.path(nodes // 2)
        expected = plain.verify(tree)
        for session in (padded, wide):
            result = session.verify(tree)
            assert (
                result.predictions.next_token.tolist() == expected.predictions.next_token.tolist()
            )
            assert result.predictions.topk_ids.tolist() == expected.predictions.topk_ids.tolist()
            np.testing.assert_allclose(result.hidden_states, expected.hidden_states, atol=1e-6)
        for session in sessions:
            session.commit(path)


@pytest.mark.parametrize("name", FAMILIES)
def test_prompt_rows_equal_the_rows_of_all_logits(name: str) -> None:
    adapter = family(name)
    session, inputs = opened(adapter, Needs(topk=5, prompt_rows=True))
    prefill = session.prefill()
    ids = session.prompt_ids.tolist()
    positions = [
        i
        for i, token in enumerate(ids)
        if ids.index(token) == i and token != adapter.image_token_id
    ]
    assert prefill.prompt_row_tokens.tolist() == [ids[i] for i in positions]
    logits = ref.forward(adapter, inputs).logits[0].float()
    values, order = logits[positions].topk(5)
    assert prefill.first_token == int(logits[-1].argmax())
    assert prefill.prompt_rows.next_token.tolist() == logits[positions].argmax(-1).tolist()
    assert prefill.prompt_rows.topk_ids.tolist() == order.tolist()
    np.testing.assert_allclose(
        prefill.prompt_rows.topk_probs, values.softmax(-1).numpy(), atol=1e-4
    )


def test_prompt_rows_come_only_when_asked_for() -> None:
    session, _ = opened(family("qwen25vl"), Needs(topk=5))
    prefill = session.prefill()
    assert prefill.prompt_rows is None and prefill.prompt_row_tokens is None
    predictions = session.verify(TokenTree.chain(1, [2, 3])).predictions
    assert predictions.topk_ids.shape == predictions.topk_probs.shape == (3, 5)


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=30),
    st.frozensets(st.integers(0, 6), max_size=3),
)
@settings(derandomize=True)
def test_first_occurrences(ids: list[int], blocked: frozenset[int]) -> None:
    found = first_occurrences(np.array(ids, np.int32), blocked).tolist()
    assert [ids[i] for i in found] == [t for t in dict.fromkeys(ids) if t not in blocked]
    assert all(ids.index(ids[i]) == i for i in found)


def test_hidden_states_are_those_the_model_reports() -> None:
    adapter = family("llava")
    session, inputs = opened(adapter, Needs(hidden_states=True))
    session.prefill()
    tree = TokenTree.chain(4, [5, 6])
    states = session.verify(tree).hidden_states
    output = ref.forward(adapter, ref.continued(inputs, [4, 5, 6]), output_hidden_states=True)
    assert states.dtype == np.float32
    np.testing.assert_allclose(states, output.hidden_states[-1][0, -3:].numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ("qwen25vl", "llava"))
def test_image_attention_equals_eager_attention(name: str) -> None:
    needs, rng = Needs(image_attention="root"), np.random.default_rng(3)
    session, inputs = opened(family(name), needs)
    eager = family(name, attention="eager")
    on_image = inputs["input_ids"][0] == eager.image_token_id
    session.prefill()
    committed: list[int] = []
    for nodes in (1, 9, 12):
        tree = ref.random_tree(rng, nodes, 3, TEXT_VOCAB)
        session.verify(tree)
        for node in range(nodes):
            path = committed + tree.tokens[tree.path(node)].tolist()
            output = ref.forward(eager, ref.continued(inputs, path), output_attentions=True)
            row = output.attentions[-1][0, :, -1, : len(on_image)]
            expected = float(row[:, on_image].sum(-1).mean())
            assert session.image_attention(node) == pytest.approx(expected, abs=1e-5)
            assert 0.0 < expected < 1.0
        path = tree.path(nodes - 1)
        session.commit(path)
        committed += tree.tokens[path].tolist()
    assert not session._decoder.layers[-1].self_attn._forward_pre_hooks


@pytest.mark.parametrize("rows", (1, 8, 64))
def test_autoregressive_decoding_runs_in_any_bucket(rows: int) -> None:
    adapter = family("qwen25vl")
    target = HFTarget(adapter, pad_rows=True)
    request = target.encode(turn("Hm?"), [picture(90, 70, 2)])
    plain = run(HFTarget(adapter).open(request, Needs(), 30), 30)
    session = target.open(request, Needs(), 30, min_rows=rows)
    seen = []
    handle = adapter.language_model.norm.register_forward_hook(
        lambda module, args, output: seen.append(output.shape[1])
    )
    try:
        assert run(session, 30) == plain
    finally:
        handle.remove()
    assert set(seen[1:]) == {rows}


def test_closing_twice_lends_no_cache_twice() -> None:
    target = HFTarget(family("causal_lm"))
    request = target.encode(turn("a", 0))
    session = target.open(request, Needs(), 5)
    session.close()
    session.close()
    assert target.open(request, Needs(), 5)._cache is not target.open(request, Needs(), 5)._cache


def test_image_attention_without_pictures_is_zero() -> None:
    target = HFTarget(family("causal_lm"))
    session = target.open(target.encode(turn("hi", 0)), Needs(image_attention="last_accepted"), 5)
    session.prefill()
    session.verify(TokenTree.root_only(1))
    assert session.image_attention(0) == 0.0


def test_image_attention_must_be_among_the_needs() -> None:
    session, _ = opened(family("llava"))
    session.prefill()
    session.verify(TokenTree.root_only(1))
    with pytest.raises(ValueError, match="not among the needs"):
        session.image_attention(0)


def test_context_exceeded_names_the_numbers() -> None:
    target = HFTarget(family("causal_lm"))
    request = target.encode(turn("x" * 100, 0))
    room = CONTEXT - len(request.prompt_ids)
    target.open(request, Needs(), room).close()
    with pytest.raises(
        ContextExceeded, match=rf"{len(request.prompt_ids)} prompt tokens and {room + 1} new"
    ):
        target.open(request, Needs(), room + 1)


def test_a_tree_larger_than_the_headroom_grows_the_cache() -> None:
    adapter, rng = family("causal_lm", torch.float64), np.random.default_rng(1)
    session, inputs = opened(adapter)
    session.prefill()
    tree = ref.random_tree(rng, 300, 5, TEXT_VOCAB, bushy=0.9)
    logits = ref.packed_logits(session, tree)
    for node in (0, 150, 299):
        expected = ref.logits_after(adapter, inputs, tree.tokens[tree.path(node)].tolist())
        torch.testing.assert_close(logits[node], expected, atol=1e-9, rtol=0)
    path = tree.path(299)
    session.commit(path)
    committed = tree.tokens[path].tolist()
    logits = ref.packed_logits(session, TokenTree.chain(7, [8]))
    expected = ref.logits_after(adapter, inputs, [*committed, 7, 8])
    torch.testing.assert_close(logits[1], expected, atol=1e-9, rtol=0)


def test_models_the_engine_would_run_wrong_are_refused() -> None:
    with pytest.raises(ValueError, match="needs attn_implementation='sdpa'"):
        HFTarget(family("causal_lm", attention="eager"))
    swallowing = SimpleNamespace(forward=lambda hidden, past_key_values=None, **kwargs: hidden)
    old = SimpleNamespace(
        model=family("causal_lm").model, language_model=SimpleNamespace(layers=[swallowing])
    )
    with pytest.raises(ValueError, match="takes no 'cache' argument"):
        HFTarget(old)  # type: ignore[arg-type]


@pytest.mark.parametrize("config_class", (GraniteConfig, Gemma3TextConfig))
def test_models_whose_packed_logits_would_differ_are_refused(config_class: Any) -> None:
    """Granite scales embeddings and logits, Gemma 3 has sliding windows."""
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 300}
    config = config_class(**small, **heads, attn_implementation="sdpa")
    if config_class is GraniteConfig:
        config.embedding_multiplier, config.logits_scaling = 3.0, 2.0
    model = AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(ValueError, match=r"cannot drive GraniteFor|full-attention layers only"):
        HFTarget(CausalLM(model, family("causal_lm").tokenizer))
