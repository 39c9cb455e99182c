from __future__ import annotations

import dataclasses

import pytest

from recap.config import RecapConfig


def test_defaults_are_the_papers() -> None:
    assert dataclasses.asdict(RecapConfig()) == {
        "top_k": 8,
        "width": 8,
        "depth": 10,
        "max_candidates": 63,
        "priors": (0.70, 0.20, 0.10),
        "depth_priors": (0.68, 0.63, 0.50, 0.43, 0.40, 0.38),
        "fusion": "entropy_confidence",
        "expansion": "best_first",
        "orders": 3,
        "seed_prompt": True,
        "suffix_tokens": 4,
        "suffix_in_cap": False,
        "root_fallback": None,
    }


def test_lists_become_tuples() -> None:
    config = RecapConfig(priors=[1, 0.5, 0.25], depth_priors=[1])  # type: ignore[arg-type]
    assert config.priors == (1.0, 0.5, 0.25)
    assert config.depth_priors == (1.0,)
    hash(config)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("top_k", 0, "top_k must be a whole number at least 1, got 0"),
        ("width", 2.5, "width must be a whole number at least 1, got 2.5"),
        ("depth", True, "depth must be a whole number at least 1, got True"),
        ("max_candidates", -1, "max_candidates must be a whole number at least 0, got -1"),
        ("suffix_tokens", "4", "suffix_tokens must be a whole number at least 0, got '4'"),
        ("orders", 4, "orders must be a whole number from 1 to 3, got 4"),
        ("seed_prompt", 1, "seed_prompt must be true or false, got 1"),
        ("suffix_in_cap", None, "suffix_in_cap must be true or false, got None"),
        ("priors", (0.7, 0.2), "priors must hold at least 3 positive numbers"),
        ("priors", (0.7, 0.2, 0.0), "priors must hold at least 3 positive numbers"),
        ("priors", 0.7, "priors must be a list of numbers, got 0.7"),
        ("depth_priors", (), "depth_priors must hold at least 1 positive numbers"),
        ("depth_priors", (float("nan"),), "depth_priors must hold at least 1 positive numbers"),
        ("fusion", "entropy", "Did you mean 'entropy_confidence'"),
        ("fusion", "back_off", "Did you mean 'backoff'"),
        ("expansion", "bestfirst", "Did you mean 'best_first'"),
        ("root_fallback", "semantics", "Did you mean 'semantic'"),
        ("expansion", 7, "which is not one of best_first, fixed"),
    ],
)
def test_a_bad_value_is_named(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecapConfig(**{field: value})


def test_fewer_orders_need_fewer_priors() -> None:
    assert RecapConfig(orders=2, priors=(0.7, 0.2)).priors == (0.7, 0.2)
    with pytest.raises(ValueError, match="at least 3"):
        RecapConfig(orders=1, priors=(1.0,), root_fallback="semantic")
