"""Microbenchmarks of this machine: ``<results_root>/host/<name>.<device>.json``.

They belong to no run. They lie beside the runs of the same device, because a table shows both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analysis.load import short_device
from experiments import provenance
from experiments.derived import write_document


def host_path(results_root: Path, name: str, device: str) -> Path:
    """The file of one microbenchmark on the machine of a ``device`` such as "cpu" or "cuda:0"."""
    accelerator = provenance.environment()["accelerator"]
    found = short_device(None if device == "cpu" else accelerator)
    return results_root / "host" / f"{name}.{found.lower().replace(' ', '-')}.json"


def write_host(path: Path, document: dict[str, Any]) -> Path:
    """Write a microbenchmark's results with the machine's description; the file written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = {**provenance.environment(), "load_1m": round(os.getloadavg()[0], 2)}
    return write_document(path, {**document, "environment": machine})
