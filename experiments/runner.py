"""Carry out a plan: interleave the arms unit by unit, record everything, resume what was
interrupted.

Arms run back to back on the same unit and the same prompt; between them nothing is written.
Memories belong to arms and live as long as the arm's scope says. Re-running a plan picks up after
its last complete unit.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from experiments import benches, provenance, report
from experiments.arms import ArmSet, Outcome, divergence
from experiments.errors import UserError
from experiments.plan import REFERENCE_ARM, RunPlan
from experiments.records import RunRecord
from experiments.rundir import Resumed, RunDirectory
from experiments.schedule import arm_order
from experiments.targets import load_target, weights_fingerprint
from experiments.timing import still_garbage_collector
from experiments.units import (
    Unit,
    UnreadableImage,
    drop_repeated,
    encode_turn,
    first_prompt_digest,
    list_units,
    prompt_digest,
    shortest_and_longest,
)
from experiments.warmup import WARMUP_TOKENS, warm_up
from recap.core.interfaces import ContextExceeded

if TYPE_CHECKING:
    from experiments.benches import BenchInput
    from recap.targets.hf import HFTarget
    from recap.targets.load import LoadedModel
    from recap.targets.request import Request

BAD_UNIT_LIMIT = 0.05
CPU_NOTE = (
    "On a CPU a packed forward costs in proportion to its rows: S says nothing of a GPU; "
    "tok/verify and exact match carry over."
)


def run_plan(
    plan: RunPlan, load: Callable[[Mapping[str, Any]], LoadedModel] | None = None
) -> dict[str, Any]:
    """Run or resume ``plan``, print its summary, return it.

    load: gives the target of ``plan.model``, by default loaded anew.

    Raises UserError for what the user can mend, and after the summary when more than 5 % of the
    units are bad.
    """
    benchmark = benches.load(plan.bench)
    loaded = (load or load_target)(plan.model)
    target = loaded.target
    inputs, dropped = _distinct(plan, target, benchmark.inputs)
    identity = provenance.run_identity(
        plan, weights_fingerprint(target.model), benches.inputs_digest(inputs)
    )
    directory = RunDirectory(_run_path(plan, provenance.identity_hash(identity)))
    try:
        directory.write_config(plan.resolved)
        facts = {
            **identity,
            "data": benchmark.facts,
            "frozen_inputs": benchmark.frozen,
            "dropped_inputs": dropped,
            "target": loaded.settings,
        }
        runner = Runner(plan, target, list_units(inputs), directory)
        records = runner.run(facts)
        summary = report.summarise(records, runner.arms.names, plan.protocol.max_new_tokens)
        report.write_summary(directory.summary_path, summary)
        finished = FinishedRun(plan, directory.path, target, inputs)
        for module in plan.after:
            importlib.import_module(f"experiments.{module}").after_run(finished)
    finally:
        directory.close()
    _print_summary(plan, summary, dropped, directory)
    _refuse_many_bad(summary)
    return summary


@dataclass(frozen=True)
class FinishedRun:
    """What a study's ``after`` modules get to read."""

    plan: RunPlan
    folder: Path
    target: HFTarget
    inputs: list[BenchInput]


def _distinct(
    plan: RunPlan, target: HFTarget, inputs: list[BenchInput]
) -> tuple[list[BenchInput], list[str]]:
    wanted = plan.bench.distinct_prompts
    if wanted is None:
        wanted = target.text_only
    return drop_repeated(target, plan.bench, inputs) if wanted else (inputs, [])


def _run_path(plan: RunPlan, digest: str) -> Any:
    repeat = plan.protocol.repeat
    name = f"{digest}-r{repeat}" if repeat else digest
    label = plan.protocol.study or plan.label
    return plan.results_root / plan.model["name"] / plan.bench.name / label / name


def _print_summary(
    plan: RunPlan, summary: dict[str, Any], dropped: list[str], directory: RunDirectory
) -> None:
    print(f"\n{plan.model['name']} on {plan.bench.name}: {', '.join(summary['arms'])}")
    print(report.table(summary))
    if plan.model["device"] == "cpu":
        print(CPU_NOTE)
    if dropped:
        shown = ", ".join(dropped[:5]) + (", ..." if len(dropped) > 5 else "")
        print(f"{len(dropped)} inputs dropped, identical to earlier ones for this model: {shown}")
    print(directory.summary_path)


def _refuse_many_bad(summary: dict[str, Any]) -> None:
    bad, units = summary["errors"], summary["units"]
    if bad > BAD_UNIT_LIMIT * units:
        raise UserError(
            f"{bad} of {units} units are bad, more than {BAD_UNIT_LIMIT:.0%}: see the 'error' "
            "field in records.jsonl. The figures above leave them out."
        )


class Runner:
    """The loop over units."""

    def __init__(
        self, plan: RunPlan, target: HFTarget, units: Sequence[Unit], directory: RunDirectory
    ) -> None:
        self.arms = ArmSet(plan, target)
        self._plan = plan
        self._protocol = plan.protocol
        self._target = target
        self._units = units
        self._directory = directory
        self._session = datetime.now(UTC).isoformat(timespec="seconds")
        self._answers: dict[tuple[str, str], list[str]] = {}
        self._clusters: dict[str, str] = {}

    def run(self, facts: dict[str, Any]) -> list[RunRecord]:
        """Run all units that are not on disk yet; returns every record of the run."""
        unit_ids = [unit.unit_id for unit in self._units]
        resumed = self._directory.resume(unit_ids, self.arms.names)
        if resumed.num_units == len(self._units):
            print(f"This run is complete ({len(self._units)} units); nothing is left to do.")
            return resumed.records
        warmup = self._warm_up() if self._protocol.warmup else {"rounds": 0}
        self._directory.write_manifest(facts, self._session_facts(resumed, warmup))
        self._restore(resumed)
        records = list(resumed.records)
        with still_garbage_collector(), self._progress(resumed.num_units) as bar:
            for unit in self._units[resumed.num_units :]:
                gc.collect()
                new = self._run_unit(unit)
                self._directory.append_unit(new, unit.index + 1, self.arms.states())
                records += new
                self._show(bar, records)
        return records

    def _session_facts(self, resumed: Resumed, warmup: dict[str, Any]) -> dict[str, Any]:
        return {
            "started": self._session,
            "resumed_after": resumed.num_units,
            "warmup": warmup,
            "environment": provenance.environment(),
        }

    def _progress(self, initial: int) -> tqdm[Any]:
        return tqdm(total=len(self._units), initial=initial, unit="unit", dynamic_ncols=True)

    def _show(self, bar: tqdm[Any], records: Sequence[RunRecord]) -> None:
        shown = [name for name in self.arms.names if name != REFERENCE_ARM][:3]
        figures = {
            name: report.running_figures(records, name, self._protocol.max_new_tokens)
            for name in shown
        }
        bar.set_postfix_str(
            " | ".join(f"{name} S={f['S']} tau={f['tau']}" for name, f in figures.items())
        )
        bar.update()

    # Warm-up and resuming

    def _warm_up(self) -> dict[str, Any]:
        """Warm every arm up on the longest and the shortest prompt, then forget it all."""
        requests = []
        for unit in shortest_and_longest(self._target, self._units):
            try:
                requests.append(encode_turn(self._target, self._plan.bench, unit.item, []))
            except (UnreadableImage, ValueError):
                continue  # the unit itself will be recorded as bad
        tokens = min(WARMUP_TOKENS, self._protocol.max_new_tokens)
        for arm in self.arms.names:
            for request in requests[:1]:
                with suppress(ContextExceeded):
                    self.arms.warm_widths(arm, request)

        def step_times(arm: str) -> list[int]:
            times: list[int] = []
            for request in requests:
                try:
                    times += self.arms.generate(arm, request, tokens).generation.step_ns
                except ContextExceeded:
                    continue
            return times

        outcome = warm_up(self.arms.names, step_times)
        self.arms.reset()
        return outcome

    def _restore(self, resumed: Resumed) -> None:
        """Bring answers and memories to where the earlier process left them."""
        for record in resumed.records:
            if record.status == "ok":
                self._remember_answer(record)
        if resumed.num_units == 0:
            return
        print(f"Resuming after {resumed.num_units} of {len(self._units)} units.", file=sys.stderr)
        if resumed.states is not None:
            last = self._units[resumed.num_units - 1]
            self.arms.restore(resumed.states, last.item.task)
            return
        self._rebuild(resumed)

    def _rebuild(self, resumed: Resumed) -> None:
        """Run finished units again, unrecorded, to rebuild memories that no snapshot holds."""
        names = [name for name in self.arms.names if self.arms.has_stream_state(name)]
        if not names:
            return
        print(
            f"No snapshot matches these {resumed.num_units} units: the memory of "
            f"{', '.join(names)} is rebuilt by running them again. Their records are kept.",
            file=sys.stderr,
        )
        finished = {(r.unit_id, r.arm) for r in resumed.records if r.status == "ok"}
        for unit in tqdm(self._units[: resumed.num_units], desc="rebuilding", unit="unit"):
            for name in names:
                self.arms.begin_unit(name, unit.item.task)
                if (unit.unit_id, name) in finished:
                    request = self._encode(unit, name)
                    self.arms.generate(name, request, self._protocol.max_new_tokens)

    # One unit

    def _run_unit(self, unit: Unit) -> list[RunRecord]:
        """All arms on one unit, back to back; whatever is not timed comes before or after."""
        order = arm_order(unit.index, self.arms.names, self._protocol.order_seed)
        requests, failure = self._requests(unit, order)
        outcomes: dict[str, Outcome | tuple[str, str]] = {}
        for name in order:
            self.arms.begin_unit(name, unit.item.task)  # of a bad unit, too: it may begin a task
            outcomes[name] = failure or self._attempt(name, requests[name])
        reference = outcomes.get(REFERENCE_ARM)
        records = []
        for index, name in enumerate(order):
            base = self._base_record(unit, name, index, requests.get(name))
            outcome = outcomes[name]
            if not isinstance(outcome, Outcome):
                status, reason = outcome
                records.append(RunRecord(**base, status=status, error=reason))
                continue
            difference = None
            if isinstance(reference, Outcome) and self._protocol.history == "ar":
                expected, output = reference.generation.output_ids, outcome.generation.output_ids
                difference = divergence(self._target, requests[name], expected, output)
            record = RunRecord(**base, **_outcome_fields(outcome), divergence=difference)
            self._remember_answer(record)
            records.append(record)
        return records

    def _requests(
        self, unit: Unit, names: Sequence[str]
    ) -> tuple[dict[str, Request], tuple[str, str] | None]:
        """Each arm's encoded prompt (one for all unless ``history=own``), or why there is none."""
        if any(len(self._history(unit, name)) < unit.turn for name in names):
            return {}, ("skipped", "an earlier turn of this input has no answer to continue from")
        try:
            if self._protocol.history == "ar":
                return dict.fromkeys(names, self._encode(unit, REFERENCE_ARM)), None
            return {name: self._encode(unit, name) for name in names}, None
        except (UnreadableImage, ValueError) as error:
            return {}, ("error", str(error))

    def _encode(self, unit: Unit, arm: str) -> Request:
        answers = self._history(unit, arm)[: unit.turn]
        return encode_turn(self._target, self._plan.bench, unit.item, answers)

    def _attempt(self, name: str, request: Request) -> Outcome | tuple[str, str]:
        try:
            return self.arms.generate(name, request, self._protocol.max_new_tokens)
        except ContextExceeded as error:
            return "skipped", str(error)
        except (MemoryError, torch.OutOfMemoryError) as error:
            return "error", f"out of memory: {error}"

    # History and records

    def _history(self, unit: Unit, arm: str) -> list[str]:
        """Answers that the turn's prompt contains: AR's, or the arm's own with ``history=own``."""
        source = REFERENCE_ARM if self._protocol.history == "ar" else arm
        return self._answers.get((source, unit.item.input_id), [])

    def _remember_answer(self, record: RunRecord) -> None:
        input_id, _, turn = record.unit_id.rpartition(":")
        answers = self._answers.setdefault((record.arm, input_id), [])
        if len(answers) == int(turn):
            answers.append(self._target.decode_text(record.output_ids).strip())

    def _base_record(
        self, unit: Unit, name: str, order_index: int, request: Request | None
    ) -> dict[str, Any]:
        return {
            "study": self._protocol.study,
            "model": self._plan.model["name"],
            "bench": self._plan.bench.name,
            "unit_id": unit.unit_id,
            "turn": unit.turn,
            "category": unit.item.category,
            "cluster_id": self._cluster(unit.item),
            "prompt_sha256": "" if request is None else prompt_digest(request),
            "arm": name,
            "method": self.arms.method(name),
            "repeat": self._protocol.repeat,
            "session": self._session,
            "order_index": order_index,
            "num_prompt_tokens": 0 if request is None else len(request.prompt_ids),
            "num_image_tokens": 0 if request is None else request.num_image_tokens,
            "sync_policy": self._protocol.timing,
            "state_lifetime": self.arms.state_lifetime(name),
        }

    def _cluster(self, item: BenchInput) -> str:
        """What makes units dependent: the picture, or the first prompt where those are dropped."""
        if item.input_id not in self._clusters:
            self._clusters[item.input_id] = (
                first_prompt_digest(self._target, self._plan.bench, item)
                if self._target.text_only
                else item.cluster or item.image_digest or item.input_id
            )
        return self._clusters[item.input_id]


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
    fields = asdict(outcome.generation)
    fields["trace"] = fields["trace"] or None
    return {**fields, "telemetry": outcome.telemetry}
