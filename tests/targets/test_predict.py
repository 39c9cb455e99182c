"""Greedy choice and top-k rows: tie rules, softmax over the kept logits, dtypes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recap.targets.predict import greedy, joined, predictions

# Few distinct values: most rows hold ties.
ROWS = st.lists(st.lists(st.integers(-2, 2), min_size=6, max_size=6), min_size=1, max_size=5)


@settings(derandomize=True)
@given(ROWS, st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
def test_greedy_takes_the_lowest_id_on_ties(rows: list[list[int]], dtype: torch.dtype) -> None:
    expected = [row.index(max(row)) for row in rows]
    logits = torch.tensor(rows, dtype=dtype)
    assert greedy(logits).tolist() == expected
    assert predictions(logits, 0).next_token.tolist() == expected
    assert predictions(logits, 3).next_token.tolist() == expected


@settings(derandomize=True)
@given(ROWS, st.integers(1, 6))
def test_topk_is_ordered_by_logit_then_id(rows: list[list[int]], k: int) -> None:
    result = predictions(torch.tensor(rows, dtype=torch.float32), k)
    assert result.topk_ids.dtype == np.int32 and result.topk_probs.dtype == np.float32
    for row, ids, probs in zip(rows, result.topk_ids.tolist(), result.topk_probs, strict=True):
        kept = [row[i] for i in ids]
        assert kept == sorted(row, reverse=True)[:k]
        assert ids == sorted(ids, key=lambda i: (-row[i], i)) and len(set(ids)) == k
        weights = np.exp(np.array(kept, np.float64))
        np.testing.assert_allclose(probs, weights / weights.sum(), rtol=1e-6)


@settings(derandomize=True)
@given(ROWS, st.integers(1, 6))
def test_mass_turns_the_kept_probabilities_into_those_of_the_whole_vocabulary(
    rows: list[list[int]], k: int
) -> None:
    logits = torch.tensor(rows, dtype=torch.float32)
    assert predictions(logits, k).topk_mass is None
    halves = [predictions(part, k, mass=True) for part in (logits[:1], logits[1:])]
    result = joined(halves) if len(rows) > 1 else halves[0]
    assert result.topk_mass is not None and result.topk_mass.dtype == np.float32
    whole = torch.softmax(logits.double(), dim=-1).gather(
        1, torch.from_numpy(result.topk_ids).long()
    )
    np.testing.assert_allclose(
        result.topk_probs * result.topk_mass[:, None], whole.numpy(), rtol=1e-5
    )


def test_without_topk_the_arrays_are_empty_rows() -> None:
    result = predictions(torch.zeros(3, 9), 0)
    assert result.topk_ids.shape == result.topk_probs.shape == (3, 0)
    assert result.next_token.dtype == np.int32 and len(result) == 3


def test_choice_is_made_in_float32() -> None:
    logits = torch.tensor([[1.0, 1.0 + 1e-12]], dtype=torch.float64)
    assert greedy(logits).tolist() == [0]


def test_topk_beyond_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="topk is 10"):
        predictions(torch.zeros(1, 9), 10)
