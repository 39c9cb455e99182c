"""What one command comes to: a run, all runs of a study, a dry run, or a study of the machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import compose
from experiments.errors import UserError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from experiments.plan import RunPlan, Study


def launch(cfg: DictConfig, overrides: Sequence[str]) -> list[UserError]:
    """Carry out the configuration; returns the errors of the user's own, told already.

    overrides: what the command line set. A failed run does not stop the others of a study.
    """
    try:
        study = compose.study_of(cfg)
        if study is not None and study.alone is not None:
            _run_alone(cfg, study)
            return []
        plans = compose.plans_from_cfg(cfg, overrides)
    except UserError as error:
        return [_told(error)]
    return _carry_out(plans, dry=bool(cfg.dry_run))


def _carry_out(plans: Sequence[RunPlan], dry: bool) -> list[UserError]:
    # These load torch, and are therefore left until the configuration is known to be good.
    from experiments.dry_run import dry_run
    from experiments.runner import run_plan
    from experiments.targets import LastTarget

    target = LastTarget()
    failures = []
    for number, plan in enumerate(plans, start=1):
        if len(plans) > 1:
            print(f"\nRun {number} of {len(plans)} of study {plan.protocol.study}", flush=True)
        try:
            dry_run(plan) if dry else run_plan(plan, target.load)
        except UserError as error:
            failures.append(_told(error))
    return failures


def _run_alone(cfg: DictConfig, study: Study) -> None:
    """A study without a benchmark, which measures this machine."""
    if cfg.dry_run:
        print(f"study={study.name} needs neither a model nor a benchmark.")
        return
    device = str(cfg.device or cfg.model.device)
    module = importlib.import_module(f"experiments.{study.alone}")
    module.run_alone(device, Path(cfg.results_root))


def _told(error: UserError) -> UserError:
    print(f"Error: {error}", file=sys.stderr)
    return error
