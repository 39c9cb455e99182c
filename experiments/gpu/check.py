"""What holds on this GPU: token identity, the cost of every kind of step, and how steady it is.

One command for a CUDA machine without network or checkpoints, under five minutes. It needs torch,
transformers 5.24, numpy and numba, and writes one JSON named after the device:

    python -m experiments.gpu.check
    python -m experiments.gpu.check --device cpu --small     # the same code in miniature

Sections run in order of importance, and those that no longer fit the budget are skipped and say so.
The file is written anew after every section, so a killed run leaves what it had measured. The exit
status is 1 when a section failed or a check did not hold, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import torch
import transformers
from transformers.utils import logging as transformers_logging

from experiments.gpu.device import Device, copy_bandwidth
from experiments.gpu.generations import against_generate, pair_with_itself
from experiments.gpu.host import host_times
from experiments.gpu.identity import identity
from experiments.gpu.models import ARCHITECTURES, RandomModel
from experiments.gpu.report import checks_of, slug, table, write
from experiments.gpu.sizes import FULL, SMALL
from experiments.gpu.steps import picture_times, step_times
from experiments.timing import still_garbage_collector

if TYPE_CHECKING:
    from experiments.gpu.device import Results
    from experiments.gpu.sizes import Sizes

SCHEMA = 1
REPOSITORY = Path(__file__).resolve().parents[2]
TRANSFORMERS = "5.24"

# Most important first. The name behind the underscore is the model measured, if there is one.
SECTIONS = (
    *("identity_tiny_qwen25vl", "identity_tiny_llava", "bandwidth"),
    *("steps_qwen25vl", "generate_qwen25vl", "picture_qwen25vl"),
    *("steps_llava", "generate_llava", "picture_llava"),
    *("host", "pair_qwen25vl"),
)


class GpuCheck:
    """One run: its sections, its budget and the report it leaves."""

    def __init__(self, device: str, out: Path, sizes: Sizes, budget_seconds: float) -> None:
        self._start = time.monotonic()
        self._budget = budget_seconds
        self._out = out
        self._model: RandomModel | None = None
        self.device = Device(device)
        self.sizes = sizes
        self.report: dict[str, Any] = {
            "schema": SCHEMA,
            "device": self.device.facts(),
            "versions": versions(),
            "settings": {**vars(sizes), "budget_seconds": budget_seconds},
            "models": {},
            "sections": {},
            "checks": [],
        }

    def run(self, only: list[str] | None = None) -> Path:
        """Run all sections, or those named, in their own order; where the report lies."""
        whole = slug(self.report["device"]["name"])
        path = self._out / (f"{whole}-partial.json" if only else f"{whole}.json")
        sections = self.report["sections"]
        for name in SECTIONS:
            if not only or name in only:
                sections[name] = {"status": "not run"}
        for name in sections:
            print(f"{name} ...", file=sys.stderr, flush=True)
            sections[name] = self._run(name)
            self._write(path)
        self._release()
        self._write(path)
        return path

    def out_of_time(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() - self._start >= self._budget

    def _run(self, name: str) -> Results:
        """One section, whatever becomes of it."""
        if self.out_of_time():
            return {"status": "skipped: out of time"}
        start = time.monotonic()
        section: Results
        try:
            self._hold(name.partition("_")[2])
            self.device.reset_peak()
            # The collector is off within: what a model leaves behind is collected out here.
            with still_garbage_collector():
                section = {"status": "ok", "results": self._measure(name)}
        except Exception as error:  # one section must not take the others with it
            traceback.print_exc()
            section = {"status": "failed", "error": sentence(error)}
        section["peak_mib"] = self.device.peak_mib()
        if section["status"] == "failed":
            self._release()  # only now: until here the traceback held on to tensors
        return section | {"seconds": round(time.monotonic() - start, 2)}

    def _measure(self, name: str) -> Results:
        """One section's results."""
        kind, _, subject = name.partition("_")
        device, sizes, model = self.device, self.sizes, self._model
        if kind == "identity":
            return identity(subject, device, sizes)
        if kind == "bandwidth":
            return copy_bandwidth(device, sizes)
        if kind == "host":
            return host_times(device, sizes)
        assert model is not None
        if kind == "steps":
            measured = self.report["sections"].get("bandwidth", {}).get("results", {})
            # None where that section failed or was left out.
            return step_times(model, sizes, measured.get("bytes_per_second"))
        if kind == "generate":
            return against_generate(model, sizes)
        if kind == "picture":
            return picture_times(model, sizes)
        return pair_with_itself(model, sizes, self.out_of_time)

    def _hold(self, name: str) -> None:
        """Have the 7B model of this name on the device and no other; none for another name."""
        if self._model is not None and self._model.name != name:
            self._release()
        if name in ARCHITECTURES and self._model is None:
            self.device.free_unused()
            self.device.reset_peak()
            self._model = RandomModel(name, self.device, self.sizes.small)
            self.report["models"][name] = self._model.facts()

    def _release(self) -> None:
        name = None if self._model is None else self._model.name
        self._model = None
        self.device.free_unused()
        if name is not None:
            left = self.device.allocated_mib()
            self.report["models"][name]["allocated_after_release_mib"] = left

    def _write(self, path: Path) -> None:
        self.report["checks"] = checks_of(self.report)
        self.report["total_seconds"] = round(time.monotonic() - self._start, 1)
        write(path, self.report)


def sentence(error: BaseException) -> str:
    """An exception as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def versions() -> dict[str, str | None]:
    """Of everything that decides a number."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def refusal(options: argparse.Namespace) -> str | None:
    """Why nothing can be run here, in a sentence; None when something can."""
    if not transformers.__version__.startswith(f"{TRANSFORMERS}."):
        return (
            f"transformers {TRANSFORMERS} is needed, found {transformers.__version__}: unpack its "
            "wheel into a folder and put that first on PYTHONPATH"
        )
    try:
        device = torch.device(options.device)
    except RuntimeError:
        return f"unknown device {options.device!r}: cuda, cuda:1 or cpu"
    if device.type == "cuda" and not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} sees no CUDA device here; the same code in miniature runs "
            "with --device cpu --small"
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        return f"no device {options.device!r}: this machine has {torch.cuda.device_count()}"
    if device.type != "cuda" and not options.small:
        return f"7B models are too slow for device {options.device!r}: add --small"
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the check, print its table, and say by the status whether all of it held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="folder of the JSON")
    parser.add_argument("--small", action="store_true", help="tiny models and few repetitions")
    parser.add_argument("--only", action="append", metavar="SECTION", choices=SECTIONS)
    parser.add_argument("--budget-seconds", type=float, default=280.0)
    options = parser.parse_args(arguments)
    problem = refusal(options)
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    # float32 means float32 in the identity check; half precision is not concerned.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    transformers_logging.set_verbosity_error()
    folder = "results/runs/gpu_check" if options.small else "results/reference/gpu"
    sizes = SMALL if options.small else FULL
    check = GpuCheck(
        options.device, options.out or REPOSITORY / folder, sizes, options.budget_seconds
    )
    path = check.run(options.only)
    print("\n".join(table(check.report)))
    print(os.path.relpath(path))
    return 0 if all(row["passed"] for row in check.report["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
