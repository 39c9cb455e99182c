"""RECAP's settings: the defaults of the paper's Appendix A, one field per axis of its ablations."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

Fusion = Literal[
    "entropy_confidence", "fixed_prior", "no_prior", "uniform", "confidence_gate", "backoff"
]
Expansion = Literal["best_first", "fixed"]
RootFallback = Literal["semantic", "recency"]

MAX_SOURCES = 3  # G, C and U; or the rows of a root fallback


@dataclass(frozen=True)
class RecapConfig:
    """Everything that changes what RECAP drafts.

    top_k:          predictions kept per row (Equation 2) and per fused distribution.
    width:          children of a node; beyond ``top_k`` there are none to be had.
    depth:          deepest candidate; the root has depth 0.
    max_candidates: transition candidates besides the root.
    priors:         weight of the most specific available row, the next one, ... (section 3.4).
    depth_priors:   eta_1, eta_2, ... of Equation 8; the last one holds for all deeper nodes.
    fusion:         how rows are mixed, see `recap.fusion`: "entropy_confidence" is Equation 4,
                    "fixed_prior" its c_j = 1 case.
    expansion:      "best_first" (Equation 8), or "fixed": breadth-first without scores (Table 4).
    orders:         1 = U, 2 = U and C, 3 = U, C and G.
    seed_prompt:    write U rows from the prompt's predictions at prefill.
    suffix_tokens:  longest inserted suffix continuation; 0 switches suffix insertion off.
    suffix_in_cap:  count the suffix nodes within ``max_candidates``.
    root_fallback:  what to draft from when no lexical row exists at the root (Table 12).

    Raises ValueError for a value that cannot work, naming the field, the value and what is valid.
    """

    top_k: int = 8
    width: int = 8
    depth: int = 10
    max_candidates: int = 63
    priors: tuple[float, ...] = (0.70, 0.20, 0.10)
    depth_priors: tuple[float, ...] = (0.68, 0.63, 0.50, 0.43, 0.40, 0.38)
    fusion: Fusion = "entropy_confidence"
    expansion: Expansion = "best_first"
    orders: int = 3
    seed_prompt: bool = True
    suffix_tokens: int = 4
    suffix_in_cap: bool = False
    root_fallback: RootFallback | None = None

    def __post_init__(self) -> None:
        for name in ("top_k", "width", "depth"):
            _check_int(name, getattr(self, name), 1)
        for name in ("max_candidates", "suffix_tokens"):
            _check_int(name, getattr(self, name), 0)
        _check_int("orders", self.orders, 1, MAX_SOURCES)
        for name in ("seed_prompt", "suffix_in_cap"):
            _check_bool(name, getattr(self, name))
        _check_name("fusion", self.fusion, get_args(Fusion))
        _check_name("expansion", self.expansion, get_args(Expansion))
        if self.root_fallback is not None:
            _check_name("root_fallback", self.root_fallback, get_args(RootFallback))
        most_rows = MAX_SOURCES if self.root_fallback == "semantic" else self.orders
        object.__setattr__(self, "priors", _positive("priors", self.priors, most_rows))
        object.__setattr__(self, "depth_priors", _positive("depth_priors", self.depth_priors, 1))


def _check_int(name: str, value: Any, lowest: int, highest: int | None = None) -> None:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if is_int and lowest <= value <= (math.inf if highest is None else highest):
        return
    valid = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
    raise ValueError(f"{name} must be a whole number {valid}, got {value!r}.")


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}.")


def _check_name(name: str, value: object, valid: tuple[str, ...]) -> None:
    if value in valid:
        return
    close = difflib.get_close_matches(str(value), valid, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"{name} is {value!r}, which is not one of {', '.join(valid)}.{hint}")


def _positive(name: str, values: Sequence[float], shortest: int) -> tuple[float, ...]:
    """``values`` as a tuple of positive, finite floats."""
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a list of numbers, got {values!r}.") from None
    if len(numbers) < shortest or not all(math.isfinite(v) and v > 0 for v in numbers):
        raise ValueError(f"{name} must hold at least {shortest} positive numbers, got {values!r}.")
    return numbers
