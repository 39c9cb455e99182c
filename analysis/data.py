"""The runs of one scope: what an artefact is built from.

A scope is what may stand in one table: the paper's own setting (its two 7B models on an A100), or
one other model on one device. Numbers of different scopes never meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis import paper, studies
from analysis.artefact import Figure, Missing, Table
from analysis.load import Run, find_runs
from analysis.studies import Slot
from experiments.derived import read_document

RESULTS = Path("results/runs")
PAPER_DEVICE = "A100"
TINY = "tiny_"


@dataclass(frozen=True)
class Scope:
    """Models, device and kind of inputs whose numbers may stand together."""

    models: tuple[str, ...]
    device: str
    tiny_inputs: bool

    @property
    def is_paper(self) -> bool:
        """Whether this is the paper's own setting."""
        return self == PAPER_SCOPE

    @property
    def comparable(self) -> bool:
        """Whether a difference from the paper's number means something: the same 7B models."""
        return all(model in paper.MODELS for model in self.models) and not self.tiny_inputs

    @property
    def unusual_inputs(self) -> bool:
        """Whether a tiny model saw real inputs, or another one the tiny benchmarks."""
        return self.tiny_inputs != self.models[0].startswith(TINY)

    @property
    def label(self) -> str:
        """For captions: "tiny_qwen25vl, CPU"."""
        inputs = ("tiny inputs" if self.tiny_inputs else "real inputs",)
        parts = (*self.models, self.device, *(inputs if self.unusual_inputs else ()))
        return ", ".join(parts)

    @property
    def slug(self) -> str:
        """For file names: "tiny_qwen25vl.cpu"; empty in the paper's own setting."""
        if self.is_paper:
            return ""
        inputs = ("tiny-inputs" if self.tiny_inputs else "real-inputs",)
        parts = (*self.models, self.device.lower(), *(inputs if self.unusual_inputs else ()))
        return ".".join(part.replace(" ", "-") for part in parts)


PAPER_SCOPE = Scope(tuple(paper.MODELS), PAPER_DEVICE, False)


def paper_model(model: str) -> str | None:
    """The paper's model that this one is, or is the tiny analogue of; None for others."""
    family = {"tiny_qwen25vl": "qwen25vl", "tiny_llava": "llava16"}.get(model, model)
    return family if family in paper.MODELS else None


def scope_of(run: Run) -> Scope:
    """The scope a run belongs to."""
    tiny_inputs = run.bench.startswith(TINY)
    if run.model in paper.MODELS and run.device == PAPER_DEVICE and not tiny_inputs:
        return PAPER_SCOPE
    return Scope((run.model,), run.device, tiny_inputs)


@dataclass
class Data:
    """Runs of one scope, looked up by study, model and benchmark.

    Benchmarks go by their plain names: ``chartqa`` is ``tiny_chartqa`` where the scope is tiny.
    ``name_root``: whether commands say where runs go, because it is not the default place.
    """

    scope: Scope
    found: Sequence[Run]
    root: Path
    make: Callable[[str, Data], Table | Figure] | None = None
    name_root: bool = False
    _built: dict[str, Table | Figure] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        """The scope's models."""
        return self.scope.models

    def models_with(self, names: Iterable[str], study_names: Sequence[str]) -> tuple[str, ...]:
        """The scope's models, in the paper's setting only ``names`` and those that have runs."""
        if not self.scope.is_paper:
            return self.scope.models
        measured = {run.model for run in self.found if run.study in study_names}
        return tuple(m for m in self.scope.models if m in {*names, *measured})

    def bench_name(self, bench: str) -> str:
        """A benchmark's name in this scope's configuration."""
        return TINY + bench if self.scope.tiny_inputs else bench

    def runs(self, study: str, bench: str | None = None, model: str | None = None) -> list[Run]:
        """All runs of a study, or of ordinary ones where ``study`` is empty."""
        return [
            run
            for run in self.found
            if run.study == study
            and (bench is None or run.bench == self.bench_name(bench))
            and (model is None or run.model == model)
        ]

    def run(self, study: str, bench: str, model: str, **settings: Any) -> Run | None:
        """The run of a study with these settings (``bench__input_seed=17``), or None.

        Where several have them, the largest one counts, the newest among equals; `unused` lists the
        others.
        """
        candidates = self.candidates(study, bench, model, **settings)
        return candidates[0] if candidates else None

    def candidates(self, study: str, bench: str, model: str, **settings: Any) -> list[Run]:
        """A study's runs with these settings, the largest first, the newest among equals."""
        wanted = {key.replace("__", "."): value for key, value in settings.items()}
        fitting = [
            run
            for run in self.runs(study, bench, model)
            if all(studies.matches(run.setting(key), value, key) for key, value in wanted.items())
        ]
        return sorted(fitting, key=lambda run: (run.size, _started(run), run.name), reverse=True)

    def at(self, study: str, model: str, slot: Slot) -> Run | None:
        """The run that fills a study's slot."""
        return next(iter(self._of_slot(study, model, slot)), None)

    def _of_slot(self, study: str, model: str, slot: Slot) -> list[Run]:
        return self.candidates(_run_name(study), slot.bench, model, **dict(slot.settings))

    def slots(self, study: str) -> tuple[Slot, ...]:
        """The runs that a study consists of; none where ``conf/study`` does not describe it."""
        described = studies.study(study)
        return described.slots if described is not None else ()

    def unused(self, study: str, model: str) -> list[Run]:
        """Further runs of a study's slots, which the tables leave aside."""
        return [run for slot in self.slots(study) for run in self._of_slot(study, model, slot)[1:]]

    def derived(self, run: Run | None, name: str) -> dict[str, Any] | None:
        """A file made from a run; None where it is missing, broken or of another schema."""
        return None if run is None or run.folder is None else read_document(run.folder / name)

    def host(self, name: str) -> dict[str, Any] | None:
        """``host/<name>.<device>.json`` below the results' root: microbenchmarks of this device."""
        device = self.scope.device.lower().replace(" ", "-")
        return read_document(self.root / "host" / f"{name}.{device}.json")

    def command(self, study: str, model: str, slot: Slot | None = None) -> str:
        """What to run: a whole study, or one of its runs."""
        if slot is None:
            into = f" RESULTS={self.root}" if self.name_root else ""
            return f"make study-{study} MODEL={model}{into}"
        parts = [
            f"python run.py study={study} model={model} bench={self.bench_name(slot.bench)}",
            studies.overrides(slot),
            f"results_root={self.root}" if self.name_root else "",
        ]
        return " ".join(part for part in parts if part)

    def missing(
        self, study: str, models: Iterable[str], wanted: Callable[[Slot], bool] = lambda _: True
    ) -> list[Missing]:
        """What a study lacks: absent runs, unfinished ones, and records that were left out."""
        gaps: list[Missing] = []
        for model in models:
            slots = [slot for slot in self.slots(study) if wanted(slot)]
            found = [(slot, self.at(study, model, slot)) for slot in slots]
            if all(run is None for _, run in found):
                gaps.append(Missing(f"{study} on {model}", self.command(study, model)))
                continue
            gaps += [gap for slot, run in found for gap in self._gaps(study, model, slot, run)]
        return gaps

    def missing_files(self, study: str, models: Iterable[str], name: str) -> list[Missing]:
        """`missing`, and runs beside which a derived file is absent."""
        gaps = self.missing(study, models)
        for model in models:
            for slot in self.slots(study):
                run = self.at(study, model, slot)
                if run is not None and self.derived(run, name) is None:
                    command = self.command(study, model, slot)
                    gaps.append(Missing(f"{run.name}: no {name}", command))
        return gaps

    def _gaps(self, study: str, model: str, slot: Slot, run: Run | None) -> list[Missing]:
        command = self.command(study, model, slot)
        if run is None:
            options = studies.overrides(slot)
            where = f"{study} on {model}, {self.bench_name(slot.bench)}"
            return [Missing(f"{where}{', ' + options if options else ''}", command)]
        return [Missing(what, command) for what in faults(run)]

    def artefact(self, name: str) -> Table | Figure:
        """Another artefact of this scope, built once."""
        if name not in self._built:
            assert self.make is not None
            self._built[name] = self.make(name, self)
        return self._built[name]


def _run_name(study: str) -> str:
    """The name that a study's runs carry: that of the study it builds on, where it has no own."""
    described = studies.study(study)
    return described.name if described is not None else study


def faults(run: Run) -> list[str]:
    """What is wrong with a run that is used all the same."""
    found = [f"{run.name}: {problem}" for problem in run.problems]
    if not run.finished:
        found.append(f"{run.name}: unfinished, {run.num_units} units so far")
    return found


def _started(run: Run) -> str:
    sessions = run.manifest.get("sessions") or [{}]
    return str(sessions[-1].get("started", ""))


def load(
    root: Path, make: Callable[[str, Data], Table | Figure] | None = None
) -> tuple[list[Data], list[str]]:
    """One `Data` per scope that has runs, the paper's first, then those with most runs; the
    paper's alone where none has.
    """
    runs, problems = find_runs(root)
    found: dict[Scope, list[Run]] = {}
    for run in runs:
        found.setdefault(scope_of(run), []).append(run)
    order = sorted(found, key=lambda s: (not s.is_paper, -len(found[s]), s.label))
    scopes = order or [PAPER_SCOPE]
    return [Data(scope, found.get(scope, []), root, make) for scope in scopes], problems
