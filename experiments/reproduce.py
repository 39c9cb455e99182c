"""The whole pipeline: every study of a model, then tables, figures and the report.

    python -m experiments.reproduce --tiny      # the shipped models, on a CPU
    python -m experiments.reproduce --plan      # what an A100 would do, and how long
    python -m experiments.reproduce --model qwen25vl --study suffix --bench chartqa

Each study of a model is a process of its own and resumes where it was interrupted; studies do not
depend on one another, so they may as well be started by hand or by a cluster's launcher.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.compose import compose_cfg, config_names, plans_from_cfg
from experiments.errors import UserError, unknown_name
from experiments.plan import REPOSITORY, RunPlan

MODELS = ("qwen25vl", "llava16")
TINY = "tiny_qwen25vl"
TINY_SECOND = "tiny_llava"
# Studies that the second tiny model runs too: enough to show that nothing depends on the family.
TINY_SECOND_STUDIES = ("main", "mmspec")

# For estimates: the paper's AR throughput on an A100 (section 4.2), output tokens per unit
# (MMSpec's from its authors' stored outputs, capped at 200; the others' from the paper's draft
# counts), and the mean speedup over all rows of the paper's Table 1.
TOKENS_PER_SECOND = {"qwen25vl": 39.4, "llava16": 29.9}
MEAN_OUTPUT = {"mmspec": 120}
DEFAULT_OUTPUT = 60
MEAN_SPEEDUP = 1.23
# Bytes of one record: 1,619 measured on average at 59 output tokens, 13 more for each further one,
# rounded up. A capture's 15,743 at 55 tokens are doubled: 7B prompts have more distinct tokens.
RECORD_BYTES = 2_500
CAPTURE_BYTES = 32_000
# What is fetched once: weights, and the files of each benchmark's first source, as published.
DOWNLOAD_GB = {
    "qwen25vl": 16.6,
    "llava16": 14.1,
    "chartqa": 0.07,
    "mathvista": 0.14,
    "mmspec": 0.08,
    "mmt_bench": 0.70,
    "ocrbench": 0.07,
    "scienceqa": 0.13,
    "seed_bench": 22.0,
    "textvqa": 0.92,
}


@dataclass(frozen=True)
class Step:
    """One study on one model: the command's options and the runs it comes to."""

    study: str
    model: str
    options: tuple[str, ...]
    runs: tuple[RunPlan, ...]

    @property
    def command(self) -> list[str]:
        """What a user would type after ``python``."""
        return ["run.py", f"study={self.study}", f"model={self.model}", *self.options]


def steps(
    models: Sequence[str], studies: Sequence[str], options: Sequence[str], bench: str | None
) -> list[Step]:
    """The plan, studies within models; a study without the benchmark asked for is left out."""
    planned = []
    for model in models:
        for study in studies:
            if model == TINY_SECOND and study not in TINY_SECOND_STUDIES:
                continue
            chosen = _with_bench(study, model, options, bench)
            if chosen is None:
                continue
            overrides = (f"study={study}", f"model={model}", *chosen)
            runs = plans_from_cfg(compose_cfg(*overrides), overrides)
            planned.append(Step(study, model, tuple(chosen), tuple(runs)))
    return planned


def _with_bench(
    study: str, model: str, options: Sequence[str], bench: str | None
) -> list[str] | None:
    """Options with ``bench=`` where one is asked for; None where the study does not run on it."""
    if bench is None:
        return list(options)
    prefix = "tiny_" if model.startswith("tiny_") else ""
    benches = [f"{prefix}{name}" for name in compose_cfg(f"study={study}").study.benches]
    return [*options, f"bench={bench}"] if bench in benches else None


# Estimates


def num_units(plan: RunPlan) -> int:
    """Generation turns of a run, from the benchmark's configuration alone."""
    bench = plan.bench
    if bench.parts:
        return sum(_num_inputs(part.rows, part.sampled, bench.num_inputs) for part in bench.parts)
    if bench.layout == "mmspec":
        topics = 6
        inputs = bench.per_topic * topics if bench.per_topic else bench.rows or 0
        return round(inputs * 723 / 600)  # MMSpec's turns per input
    return _num_inputs(bench.rows, bench.sampled, bench.num_inputs)


def _num_inputs(rows: int | None, sampled: int | None, num_inputs: int | None) -> int:
    return min(limit for limit in (rows, sampled, num_inputs) if limit is not None)


def seconds(plan: RunPlan, model: str) -> float:
    """Expected wall time of a run on the paper's device, loading and warm-up left out."""
    output = MEAN_OUTPUT.get(plan.bench.name, DEFAULT_OUTPUT)
    one = output / TOKENS_PER_SECOND[model]
    arms = [one if arm.method == "ar" else one / MEAN_SPEEDUP for arm in plan.arms]
    return num_units(plan) * sum(arms)


def disk_bytes(plan: RunPlan) -> int:
    """Expected size of a run's records."""
    per_unit = sum(
        CAPTURE_BYTES if arm.config.get("capture") else RECORD_BYTES for arm in plan.arms
    )
    return num_units(plan) * per_unit


def downloads(planned: Iterable[Step]) -> dict[str, float]:
    """GB of every model and benchmark that a plan needs and that does not ship with this code."""
    needed = set()
    for step in planned:
        needed |= {step.model}
        needed |= {b.name for run in step.runs for b in (run.bench.parts or (run.bench,))}
    return {name: size for name, size in DOWNLOAD_GB.items() if name in needed}


def print_plan(planned: Sequence[Step]) -> None:
    """A line per study and model, then the sum, and what has to be fetched."""
    total_hours, total_bytes = 0.0, 0
    print(f"{'study':14} {'model':14} {'runs':>5} {'units x arms':>13} {'hours':>7} {'records':>9}")
    for step in planned:
        work = sum(num_units(run) * len(run.arms) for run in step.runs)
        size = sum(disk_bytes(run) for run in step.runs)
        timed = step.model in TOKENS_PER_SECOND
        hours = sum(seconds(run, step.model) for run in step.runs) / 3600 if timed else 0.0
        total_hours, total_bytes = total_hours + hours, total_bytes + size
        shown = f"{hours:7.1f}" if timed else f"{'-':>7}"
        print(
            f"{step.study:14} {step.model:14} {len(step.runs):5} {work:13,} {shown} "
            f"{size / 1e6:6.0f} MB"
        )
    print(f"{'all':14} {'':14} {'':5} {'':13} {total_hours:7.1f} {total_bytes / 1e6:6.0f} MB")
    if total_hours:
        print(
            "Hours are for one A100 at the paper's AR throughput (39.4 and 29.9 tokens/s), "
            f"{DEFAULT_OUTPUT} tokens per answer ({MEAN_OUTPUT['mmspec']} on MMSpec) and a mean "
            f"speedup of {MEAN_SPEEDUP}; loading, warm-up and what is derived from a run come on "
            "top."
        )
    sizes = downloads(planned)
    if sizes:
        named = ", ".join(f"{name} {size:g}" for name, size in sizes.items())
        print(f"Downloads, once, in GB: {named}: {sum(sizes.values()):.1f} in all.")


# Running


def run_steps(planned: Sequence[Step]) -> list[Step]:
    """Run each step in a process of its own; returns those that failed."""
    failed = []
    for number, step in enumerate(planned, start=1):
        started = time.monotonic()
        print(f"\n[{number}/{len(planned)}] python {' '.join(step.command)}", flush=True)
        done = subprocess.run([sys.executable, *step.command], cwd=REPOSITORY)
        if done.returncode == 130:
            raise KeyboardInterrupt
        if done.returncode != 0:
            failed.append(step)
        print(f"[{number}/{len(planned)}] {(time.monotonic() - started) / 60:.1f} minutes")
    return failed


def render() -> int:
    """Tables, figures and the report from whatever is there; the largest exit status."""
    pages = (["analysis.build", "tables"], ["analysis.build", "figures"], ["analysis.report"])
    return max(
        subprocess.run([sys.executable, "-m", *page], cwd=REPOSITORY).returncode for page in pages
    )


def _chosen(kind: str, given: str | None, valid: Sequence[str]) -> list[str]:
    """Names from a comma-separated option, or all. Raises UserError for an unknown one."""
    names = list(valid) if not given else given.split(",")
    for name in names:
        if name not in valid:
            raise unknown_name(kind, name, valid)
    return names


def main() -> int:
    """Plan, and unless ``--plan`` is given, run and render."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="the shipped models and benchmarks")
    parser.add_argument("--plan", action="store_true", help="only print the plan")
    parser.add_argument("--model", help="comma-separated; default both 7B models")
    parser.add_argument("--study", help="comma-separated; default all")
    parser.add_argument("--bench", help="only this benchmark")
    parser.add_argument("options", nargs="*", help="further options for every run, key=value")
    args = parser.parse_args()
    default = (TINY, TINY_SECOND) if args.tiny else MODELS
    try:
        models = _chosen("model", args.model, config_names("model")) if args.model else default
        studies = _chosen("study", args.study, config_names("study"))
        if args.bench and args.bench not in config_names("bench"):
            raise unknown_name("bench", args.bench, config_names("bench"))
        planned = steps(models, studies, args.options, args.bench)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print_plan(planned)
    if args.plan or not planned:
        return 0
    try:
        failed = run_steps(planned)
    except KeyboardInterrupt:
        print("Interrupted: run the same command again to resume.", file=sys.stderr)
        return 130
    code = render()
    for step in failed:
        print(f"Failed: python {' '.join(step.command)}", file=sys.stderr)
    return 2 if failed else code


if __name__ == "__main__":
    sys.exit(main())
