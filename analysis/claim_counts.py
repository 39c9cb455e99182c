"""What the claims count in runs rather than look up in tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis import arms, metrics, paper, replays
from analysis.arms import PAPER_METHODS
from analysis.artefact import Cell
from analysis.checks import NOTHING, Check, Counter, Outcome, find_cell, judged, scope_model
from analysis.data import TINY, Data
from analysis.estimators import input_of
from analysis.load import REFERENCE_ARM, Run
from analysis.paper import QWEN
from analysis.tables import table04

BASELINES = {name: label for name, label in PAPER_METHODS.items() if name != "recap"}


def _runs(data: Data, study: str) -> list[Run]:
    return [run for run in data.found if run.study == study]


def same(values: list[float]) -> float | None:
    """The value that all have, the smallest where they differ, None without any."""
    return min(values) if values else None


def token_limit(data: Data) -> float | None:
    return same([run.max_new_tokens for run in data.found if run.study in ("main", "mmspec")])


def _inputs(run: Run, category: str | None = None) -> set[str]:
    """A run's inputs, of all categories or of one."""
    return {input_of(r) for r in run.of(REFERENCE_ARM) if category in (None, r.category)}


def inputs_of(study: str) -> Counter:
    return lambda data: same([len(_inputs(run)) for run in _runs(data, study)])


def smallest_category(study: str) -> Counter:
    """Inputs of the MMSpec category that has fewest."""

    def counter(data: Data) -> float | None:
        runs = _runs(data, study)
        return same([len(_inputs(run, topic)) for run in runs for topic in paper.TOPICS])

    return counter


def inputs_together(study: str, model: str) -> Counter:
    """Distinct inputs of the four diagnostic sets together, once all of them have a run."""

    def counter(data: Data) -> float | None:
        own = scope_model(data, model)
        if own is None:
            return None
        sets = [data.runs(study, bench, own) for bench in paper.DIAGNOSTIC]
        if not all(sets):
            return None
        return sum(len({name for run in runs for name in _inputs(run)}) for runs in sets)

    return counter


def turns_of(study: str, category: str | None = None) -> Counter:
    def counter(data: Data) -> float | None:
        runs = [
            [r for r in run.records if category in (None, r.category)] for run in _runs(data, study)
        ]
        return same([len({r.unit_id for r in records}) for records in runs])

    return counter


def benches(data: Data) -> float | None:
    """Single-turn benchmarks that RECAP was run on, the model with fewest."""
    runs = [run for run in _runs(data, "main") if "recap" in run.arms]
    benches = [{run.bench for run in runs if run.model == model} for model in data.models]
    return same([len(names) for names in benches if names])


def baselines(data: Data) -> float | None:
    """Baselines of the paper measured with their own settings, the benchmark with fewest."""
    pairs = {(run.bench.removeprefix(TINY), run.model) for run in _runs(data, "main")}
    found = [arms.rows(data, "main", bench, model) for bench, model in pairs]
    return same([len(rows.keys() & BASELINES.keys()) for rows in found])


def accelerators(data: Data) -> set[str]:
    """What the sessions of the main runs name."""
    runs = [run for study in ("main", "mmspec") for run in _runs(data, study)]
    sessions = [session for run in runs for session in run.manifest.get("sessions", [])]
    found = [(session.get("environment") or {}).get("accelerator") for session in sessions]
    return {str(each.get("name", "unknown")) if each else "no accelerator" for each in found}


def setting(arm: str, option: str) -> Counter:
    """An option of an arm in the main runs; None where they do not record it."""

    def counter(data: Data) -> float | None:
        settings = [run.arm_settings.get(arm, {}) for run in _runs(data, "main")]
        values = [(setting.get("config") or {}).get(option) for setting in settings]
        return same([value for value in values if value is not None])

    return counter


def topics(data: Data) -> float | None:
    return same([len({r.category for r in run.records}) for run in _runs(data, "mmspec")])


def most_candidates(names: tuple[str, ...]) -> Counter:
    """The largest tree of some arms of the component study."""
    return lambda data: _largest_tree(_runs(data, "components"), *names)


def _largest_tree(runs: Sequence[Run], *names: str) -> float | None:
    records = [record for run in runs for record in run.of(*names)]
    return max((max(r.num_candidates, default=0) for r in records), default=None)


def tree_of(arm: str) -> Counter:
    return lambda data: _largest_tree(data.found, arm)


def _replays(data: Data) -> list[replays.Replay]:
    """Those of the four data sets; none while one of them is missing."""
    model = scope_model(data, QWEN)
    found = [replays.find(data, model, bench) for bench in paper.DIAGNOSTIC] if model else []
    there = [replay for replay in found if replay is not None]
    return there if len(there) == len(paper.DIAGNOSTIC) else []


def states(data: Data) -> float | None:
    return sum(replay.total("states") for replay in _replays(data)) or None


def replayed(data: Data) -> list[float]:
    """Inputs of each replayed data set."""
    return [len(replay.document["units"]) for replay in _replays(data)]


def joint(label: str, pick: Callable[..., Cell], value: float) -> Check:
    """The smallest or largest of the data sets' recall differences of G over U."""

    def run(data: Data) -> Outcome:
        found = [
            find_cell(data, "table05", QWEN, {"Dataset": name}, "G - U, jointly")
            for name in paper.DIAGNOSTIC.values()
        ]
        measured = [cell for cell in found if cell is not None and cell.value is not None]
        if len(measured) < len(found):
            return Outcome(Cell(paper=value), None)
        chosen = pick(measured, key=lambda cell: cell.value)
        cell = Cell(chosen.value, chosen.low, chosen.high, value, signed=True)
        return judged(cell)

    return Check(label, run, timed=False)


def _persistence_means(data: Data) -> list[float]:
    model = scope_model(data, QWEN)
    return table04.persistence_means(data, model) if model else []


def orders(data: Data) -> float | None:
    return len(_persistence_means(data)) or None


def all_orders(data: Data) -> bool:
    return len(_persistence_means(data)) == len(table04.ORDERS)


def persistence_range(data: Data) -> Outcome:
    """Our range over five orders, and whether it meets the paper's."""
    means = _persistence_means(data)
    if len(means) < len(table04.ORDERS):
        return NOTHING
    text = f"{min(means):+.2f} to {max(means):+.2f} (paper +4.36 to +7.18)"
    return Outcome(text, min(means) <= 7.18 and max(means) >= 4.36)


def exact(data: Data) -> Outcome:
    """Whether RECAP's outputs equal AR's, over every run of the main study."""
    pairs = [p for r in _runs(data, "main") for p in r.pairs("recap")]
    if not pairs:
        return NOTHING
    equal = metrics.num_equal(pairs)
    text = f"{equal} of {len(pairs)} outputs equal"
    types = {(run.manifest.get("target") or {}).get("dtype") for run in _runs(data, "main")}
    if types != {"float32"}:
        return Outcome(text, None, "not testable in half precision, where no evaluation is exact")
    return Outcome(text, equal == len(pairs))
