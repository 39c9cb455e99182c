"""What the picture decides: RECAP's drafts again, read under other pictures (Figure 1, Appendix E).

After a run of study=counterfactual every generation of its RECAP arm is decoded once more, untimed,
with shadow trees beside the drafts (`experiments.shadows`). The target then reads each output under
three views: the input's own picture, the mean picture and a wrong one (`experiments.views`,
`experiments.donors`; donors come from all frozen inputs of the benchmark). The text stays the same.

Drafts (left panel). A draft is a step with at least one candidate. Its root prediction is the token
committed next; an *anchor* is valid where the greedy choice under the own picture is that token. A
control's *drop* is how much the token's log probability falls under it.

States (right panel). A draft is eligible if ``U`` and ``C``/``G`` both have candidates at the root
(so that its last two or three tokens are a known key), b = min(|U|, |GC|, 8) is at least 2, at most
a quarter of the first b of either source is the other's too, and the anchor is valid. A drop is
that of the log of the b candidates' total probability.

Where the paper and the authors' code disagree this follows the paper: C and G are fused with
entropy-confidence weights, and accepted length is counted in trees of equal node count. The code
fuses with fixed priors and slices packed trees, which is counted beside it. Its runs also cleared
``U`` once, between a discovery and a held-out part, of which the paper says nothing; here ``U``
lives as long as the arm's.

``counterfactual.json`` holds a row per draft and per eligible state, see `examine`. Intervals are
`analysis.counterfactuals`' business.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from experiments import benches
from experiments.derived import read_document, write_document
from experiments.errors import UserError
from experiments.replay import NOTHING_FOLLOWS, matched_length
from experiments.shadows import ROOT_CANDIDATES, SOURCES, Draft, ShadowedRecap, Shadows
from experiments.swaps import columns, swaps
from experiments.units import UnreadableImage, encode_turn
from experiments.views import log_mass, log_probs, mean_view, read_along, wrong_view
from recap.core.decode import decode
from recap.core.interfaces import Limits
from recap.drafter import RecapDrafter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from experiments.benches import BenchInput
    from experiments.plan import BenchSettings
    from experiments.runner import FinishedRun
    from experiments.swaps import Swap
    from recap.targets.request import Request

FILE = "counterfactual.json"
ARM = "recap"
PAIR_SEED = 314159
OWN, CONTROLS = "own", ("mean", "wrong")
LEAST_BUDGET, MOST_OVERLAP = 2, 0.25
FUNNEL = ("drafts", "both_sources", "budget", "overlap", "eligible")
_DIGITS = 6


@dataclass(frozen=True)
class View:
    """What the target says at every draft's root under one picture.

    choices: int32[r], the greedy ones.
    scores:  float64[r, 17], log probabilities of the committed token, then of up to eight
             candidates of each source in `SOURCES`' order.
    """

    choices: NDArray[np.int32]
    scores: NDArray[np.float64]

    def mass(self, place: int, source: str, budget: int) -> float:
        """Log total probability of a source's first ``budget`` candidates."""
        start = 1 + ROOT_CANDIDATES * SOURCES.index(source)
        return log_mass(self.scores[place, start : start + budget])


class Examination:
    """Decodes a run's generations once more and collects rows about them."""

    def __init__(self, run: FinishedRun) -> None:
        self._run = run
        self._arm = run.plan.arm(ARM)
        made = self._arm.make(run.target.vocab_size)
        assert isinstance(made, RecapDrafter)
        self._drafter = ShadowedRecap(made.config, run.target.vocab_size)
        self.drafts: dict[str, list[Any]] = defaultdict(list)
        self.states: dict[str, list[Any]] = defaultdict(list)
        self.funnel: Counter[str] = Counter()
        self.equal_outputs = 0
        self.left_out: dict[str, str] = {}

    def unit(self, number: int, swap: Swap) -> None:
        """Add the rows of one generation."""
        if self._arm.reset == "request":
            self._drafter.reset_stream()
        request = encode_turn(self._run.target, self._run.plan.bench, swap.item, [])
        output = self._decode(request)
        self.equal_outputs += output == swap.record.output_ids
        drafts = self._drafter.drafts
        if not drafts:
            return
        try:
            views = self._views(swap, request, drafts, output)
        except (UnreadableImage, ValueError) as error:
            self.left_out[swap.record.unit_id] = str(error)
            return
        for place, draft in enumerate(drafts):
            self._add(number, place, draft, output, views)

    def _decode(self, request: Request) -> list[int]:
        limit = self._run.plan.protocol.max_new_tokens
        session = self._run.target.open(request, self._drafter.needs, limit)
        try:
            return decode(session, self._drafter, Limits(limit)).output_ids
        finally:
            session.close()

    def _views(
        self, swap: Swap, request: Request, drafts: Sequence[Draft], output: Sequence[int]
    ) -> dict[str, View]:
        target, bench = self._run.target, self._run.plan.bench
        requests = {
            OWN: request,
            "mean": mean_view(request),
            "wrong": wrong_view(target, bench, swap.item, swap.donor, request),
        }
        places = np.array([len(request.prompt_ids) + draft.root for draft in drafts], np.int64)
        tokens = np.array([_asked(draft, output) for draft in drafts], np.int64)
        return {
            name: View(*log_probs(target, read_along(target, view, output), places, tokens))
            for name, view in requests.items()
        }

    def _add(
        self,
        number: int,
        place: int,
        draft: Draft,
        output: Sequence[int],
        views: Mapping[str, View],
    ) -> None:
        own = views[OWN]
        valid = int(own.choices[place]) == output[draft.root + 1]
        # Of the last steps no more counts than the token limit lets stand, as in tau.
        remaining = self._run.plan.protocol.max_new_tokens - (draft.root + 1)
        row: dict[str, Any] = {
            "unit": number,
            "accepted": min(draft.accepted, remaining - 1),
            "valid": int(valid),
        }
        for control in CONTROLS:
            view = views[control]
            row[f"{control}_changed"] = int(view.choices[place] != own.choices[place])
            row[f"{control}_drop"] = _short(own.scores[place, 0] - view.scores[place, 0])
        _append(self.drafts, row)
        met = conditions(draft, valid)
        self.funnel.update(met)
        if met[-1] == FUNNEL[-1]:
            assert draft.shadows is not None
            budget = matched_budget(draft.shadows.candidates)
            state = {"unit": number, "budget": budget, **_drops(place, budget, views)}
            _append(self.states, state | _lengths(draft.shadows, output[draft.root + 1 :]))


def conditions(draft: Draft, valid: bool) -> list[str]:
    """The names in `FUNNEL` of the conditions that a draft meets, up to the first it does not."""
    if draft.shadows is None:
        return ["drafts"]
    budget = matched_budget(draft.shadows.candidates)
    small_overlap = overlap(draft.shadows.candidates, budget) <= MOST_OVERLAP
    checks = (True, True, budget >= LEAST_BUDGET, small_overlap, valid)
    met = itertools.takewhile(lambda check: check[1], zip(FUNNEL, checks, strict=True))
    return [name for name, _ in met]


def matched_budget(candidates: Mapping[str, Sequence[int]]) -> int:
    """How many candidates of either source are compared."""
    return min(*(len(ids) for ids in candidates.values()), ROOT_CANDIDATES)


def overlap(candidates: Mapping[str, Sequence[int]], budget: int) -> float:
    """The share of candidates, among the first ``budget`` of either source, that both have.

    >>> overlap({"U": [1, 2, 3, 4], "GC": [4, 5, 6, 1, 7]}, budget=4)
    0.5
    """
    first = [set(candidates[source][:budget]) for source in SOURCES]
    return len(first[0] & first[1]) / budget


def _asked(draft: Draft, output: Sequence[int]) -> list[int]:
    """The tokens of a `View`'s row; what a source lacks is filled with the committed token."""
    committed = output[draft.root + 1]
    asked = [committed]
    for source in SOURCES:
        found = [] if draft.shadows is None else draft.shadows.candidates[source]
        asked += [*found, *[committed] * (ROOT_CANDIDATES - len(found))]
    return asked


def _drops(place: int, budget: int, views: Mapping[str, View]) -> dict[str, float]:
    """By control and source, how much the log mass of the candidates falls."""
    return {
        f"{control}_{source}": _short(
            views[OWN].mass(place, source, budget) - views[control].mass(place, source, budget)
        )
        for control in CONTROLS
        for source in SOURCES
    }


def _lengths(shadows: Shadows, continuation: Sequence[int]) -> dict[str, int]:
    """Both sources' matched length in trees of equal size, and that size."""
    following = np.array([*continuation, NOTHING_FOLLOWS], np.int32)
    trees = {"equal": shadows.equal, "sliced": shadows.sliced}
    lengths = {
        f"{kind}_{source}": matched_length(tree, following)
        for kind, of_source in trees.items()
        for source, tree in of_source.items()
    }
    return {"nodes": shadows.equal["U"].num_candidates, **lengths}


def _append(columns: dict[str, list[Any]], row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        columns[name].append(value)


def _short(value: float) -> float:
    return round(float(value), _DIGITS)


# A run


def examine(run: FinishedRun) -> dict[str, Any]:
    """Everything about a run, as ``counterfactual.json`` holds it.

    units, clusters, donors, same_category, reused: per input, see `experiments.swaps.columns`.

    equal_outputs: inputs whose second decoding gave the recorded output again.
    left_out:      inputs that could not be read under a view, and why.
    drafts:        columns over drafts: place of the unit, accepted candidates (no more than the
                   token limit lets stand), whether the anchor is valid; per control whether the
                   greedy choice changed, and the drop.
    funnel:        how many drafts passed each condition of eligibility, in turn.
    states:        columns over eligible drafts: place of the unit, budget b, per control and source
                   the drop, candidates per tree, and per source the matched length in equal and in
                   sliced trees.
    """
    check_run(run)
    found = swaps(run, ARM, _frozen_inputs(run.plan.bench), PAIR_SEED)
    examination = Examination(run)
    for number, swap in enumerate(tqdm(found, desc="other pictures", unit="input")):
        examination.unit(number, swap)
    return {
        **columns(found),
        "equal_outputs": examination.equal_outputs,
        "left_out": examination.left_out,
        "drafts": dict(examination.drafts),
        "funnel": {name: examination.funnel[name] for name in FUNNEL},
        "states": dict(examination.states),
    }


def _frozen_inputs(bench: BenchSettings) -> list[BenchInput]:
    whole = replace(bench, num_inputs=None, per_topic=None, input_seed=None)
    return benches.load(whole).inputs


def check_run(run: FinishedRun) -> None:
    """Raises UserError for a run that this study cannot read."""
    plan = run.plan
    if run.target.text_only:
        raise UserError(f"{plan.model['name']} sees no pictures: there are none to exchange.")
    if plan.bench.layout == "mixed" or any(len(item.turns) > 1 for item in run.inputs):
        raise UserError(
            f"bench={plan.bench.name}: pictures are exchanged within one single-turn benchmark "
            "(bench.max_turns=1)."
        )
    if ARM not in [arm.name for arm in plan.arms]:
        raise UserError(f"study=counterfactual reads the arm '{ARM}', which this run lacks.")


def after_run(run: FinishedRun) -> None:
    """What study=counterfactual does with a finished run; nothing where it has done it."""
    path = run.folder / FILE
    if read_document(path) is not None:  # of a complete run, which changes no more
        print(f"Other pictures: {path} is complete.")
        return
    print(f"Other pictures: {write_document(path, examine(run))}")
