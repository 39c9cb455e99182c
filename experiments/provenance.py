"""Where a number came from: code, versions, machine. Written into every run's manifest."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch

from experiments.plan import REPOSITORY, RunPlan
from experiments.telemetry import driver_version

_PACKAGES = (
    "torch",
    "transformers",
    "numpy",
    "numba",
    "tokenizers",
    "pillow",
    "datasets",
    "hydra-core",
)
# Where a thing lies and how it is described does not change results; what was read has a digest.
_PATHS = (
    *("path", "hint"),
    *("data_root", "hub_id", "manifests", "sources", "parts", "rows", "prompts"),
    *("licence", "how_to_get"),
)


def run_identity(plan: RunPlan, weights: str, inputs_sha256: str) -> dict[str, Any]:
    """Everything that changes what a run measures, contents instead of paths."""
    protocol = {key: value for key, value in vars(plan.protocol).items() if key != "repeat"}
    arms = [
        {"name": arm.name, "method": arm.method, "reset": arm.reset, "config": arm.config}
        for arm in plan.arms
    ]
    return {
        "model": _without_paths(plan.model),
        "weights": weights,
        "bench": _without_paths(vars(plan.bench)),
        "inputs_sha256": inputs_sha256,
        "arms": arms,
        "protocol": protocol,
    }


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a run's folder."""
    text = json.dumps(identity, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _PATHS}


def environment() -> dict[str, Any]:
    """Versions, processor and code state of this process."""
    return {
        "git": git_state(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor_name(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": _accelerator(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _accelerator() -> dict[str, Any] | None:
    """The CUDA device with its driver, or None."""
    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "driver": driver_version(),
    }


def git_state() -> dict[str, Any]:
    """Commit of the checkout and whether tracked files differ from it; empty outside a checkout."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {}
    return {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
