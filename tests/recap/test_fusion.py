from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recap.core import kernels
from recap.fusion import RULES, fuse
from tests.reference import drafter as reference

# Worked example: three rows that agree in part.
G = [1, 2, 3, 4], [0.4, 0.3, 0.2, 0.1]
C = [5, 6, 1, 2], [0.6, 0.2, 0.1, 0.1]
U = [7, 8, 1, 2], [0.6, 0.2, 0.1, 0.1]


@pytest.mark.parametrize(
    ("rule", "priors", "kept"),
    [
        ("backoff", (0.70, 0.20, 0.10), [1, 2, 3, 4]),
        ("uniform", (0.70, 0.20, 0.10), [1, 5, 7, 2]),
        ("fixed_prior", (0.70, 0.20, 0.10), [1, 2, 3, 5]),
        ("fixed_prior", (0.55, 0.30, 0.15), [1, 2, 5, 3]),
        ("entropy_confidence", (0.70, 0.20, 0.10), [1, 2, 5, 3]),
        ("confidence_gate", (0.70, 0.20, 0.10), [5, 6, 1, 2]),  # C and U tie: the more specific
    ],
)
def test_worked_example(rule: str, priors: tuple[float, ...], kept: list[int]) -> None:
    assert fuse([G, C, U], rule, priors, top_k=4)[0].tolist() == kept


def test_entropy_confidence_in_numbers() -> None:
    confidences = [kernels.row_confidence(np.array(probs)) for _, probs in (G, C, U)]
    assert np.allclose(confidences, [0.2781, 0.3366, 0.3366], atol=5e-5)
    products = np.array([0.70, 0.20, 0.10]) * confidences
    assert np.allclose(products / products.sum(), [0.6584, 0.2277, 0.1139], atol=5e-5)
    _, probs = fuse([G, C, U], "entropy_confidence", (0.70, 0.20, 0.10), top_k=4)
    assert np.allclose(probs, [0.3731, 0.2905, 0.1713, 0.1651], atol=5e-5)


@pytest.mark.parametrize("rule", RULES)
def test_one_row_passes_unchanged(rule: str) -> None:
    ids, probs = fuse([C], rule, (0.70, 0.20, 0.10), top_k=4)
    assert ids.tolist() == C[0]
    assert probs.tolist() == C[1]


def test_priors_go_by_rank_among_the_rows_present() -> None:
    two = fuse([C, U], "fixed_prior", (0.70, 0.20, 0.10), top_k=8)
    ids, probs = two
    mass = {5: 0.42, 6: 0.14, 1: 0.09, 2: 0.09, 7: 0.12, 8: 0.04}
    assert ids.tolist() == sorted(mass, key=lambda token: -mass[token])
    assert np.allclose(probs, sorted((m / 0.9 for m in mass.values()), reverse=True))


def test_a_certain_row_has_confidence_one() -> None:
    assert kernels.row_confidence(np.array([1.0, 0.0], np.float32)) == 1.0
    assert np.isclose(kernels.row_confidence(np.full(8, 0.125, np.float32)), 0.125)


def test_one_to_three_rows() -> None:
    with pytest.raises(ValueError, match="one to 3 rows"):
        fuse([])
    with pytest.raises(ValueError, match="one to 3 rows"):
        fuse([G, G, G, G])


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[list[int], np.ndarray]]:
    """One to three float32 rows with few distinct ids and probabilities."""
    drawn = []
    for _ in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 8))
        ids = draw(st.lists(st.integers(0, 11), min_size=size, max_size=size, unique=True))
        parts = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
        probs = np.sort(np.array(parts, np.float32) + np.float32(0.01))[::-1]
        drawn.append((ids, probs / probs.sum()))
    return drawn


@given(rows(), st.sampled_from(RULES), st.integers(1, 8))
def test_equals_the_reference(
    drawn: list[tuple[list[int], np.ndarray]], rule: str, top_k: int
) -> None:
    priors = (0.7, 0.2, 0.1)
    as_pairs = [list(zip(ids, probs.tolist(), strict=True)) for ids, probs in drawn]
    expected = reference.fuse(as_pairs, rule, priors, top_k)[:top_k]
    ids, probs = fuse(drawn, rule, priors, top_k)
    assert ids.tolist() == [token for token, _ in expected]
    assert np.allclose(probs, [q for _, q in expected], rtol=0, atol=1e-6)
    assert probs.tolist() == [q for _, q in expected]  # to the last bit, here
