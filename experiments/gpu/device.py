"""The device: what it is, its clock, its memory, and how fast it copies.

Times are wall time from an idle device to an idle device. Configurations that are compared are
measured in turn, in a new random order every round.
"""

from __future__ import annotations

import gc
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

if TYPE_CHECKING:
    from experiments.gpu.sizes import Sizes

MIB = 2**20

Results = dict[str, Any]
Key = TypeVar("Key")


class Device:
    """Where everything runs. Memory figures are None on a CPU, whose allocator keeps none."""

    def __init__(self, name: str) -> None:
        self.place = torch.device(name)
        self.is_cuda = self.place.type == "cuda"
        if self.is_cuda:
            index = torch.cuda.current_device() if self.place.index is None else self.place.index
            self.place = torch.device("cuda", index)
            torch.cuda.set_device(self.place)

    def facts(self) -> Results:
        """What it is, its driver, and the host in front of it."""
        host = {"cpu_count": os.cpu_count(), "machine": platform.machine()}
        if not self.is_cuda:
            return {"name": f"cpu {platform.machine()}", "type": "cpu", **host}
        properties = torch.cuda.get_device_properties(self.place)
        return {
            "name": properties.name,
            "type": "cuda",
            "memory_mib": properties.total_memory // MIB,
            "multiprocessors": properties.multi_processor_count,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "driver": _driver_version(),
            **host,
        }

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        if self.is_cuda:
            torch.cuda.synchronize(self.place)

    def timed(self, work: Callable[[], Any]) -> tuple[int, int]:
        """Nanoseconds until ``work`` returned, and until the device had finished it."""
        self.synchronize()
        start = time.perf_counter_ns()
        work()
        returned = time.perf_counter_ns()
        self.synchronize()
        return returned - start, time.perf_counter_ns() - start

    def timed_in_turn(
        self, work: Mapping[Key, Callable[[], Any]], rounds: int, warm_up: int
    ) -> dict[Key, list[tuple[int, int]]]:
        """`timed` of each piece of work, once per round, every round in another order."""
        names, order = [*work], np.random.default_rng(0)
        times: dict[Key, list[tuple[int, int]]] = {name: [] for name in names}
        for number in range(warm_up + rounds):
            for place in order.permutation(len(names)):
                measured = self.timed(work[names[place]])
                if number >= warm_up:
                    times[names[place]].append(measured)
        return times

    def reset_peak(self) -> None:
        """Let `peak_mib` count from here."""
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats(self.place)

    def peak_mib(self) -> float | None:
        """Most memory that tensors held since `reset_peak`."""
        return torch.cuda.max_memory_allocated(self.place) / MIB if self.is_cuda else None

    def allocated_mib(self) -> float | None:
        """Memory that tensors hold now."""
        return torch.cuda.memory_allocated(self.place) / MIB if self.is_cuda else None

    def free_unused(self) -> None:
        """Collect what is unreachable (caches are cyclic) and return its memory to the device."""
        gc.collect()
        if self.is_cuda:
            self.synchronize()
            torch.cuda.empty_cache()


def _driver_version() -> str | None:
    """The NVIDIA driver's version, or None where nvidia-smi is not there to say."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return output.stdout.split("\n")[0].strip() or None


def spread(times_ns: list[int] | list[float], unit: str) -> Results:
    """Median and quartiles in "ms" or "us"."""
    scaled = np.asarray(times_ns) / {"ms": 1e6, "us": 1e3}[unit]
    low, median, high = (float(f"{value:.6g}") for value in np.percentile(scaled, (25, 50, 75)))
    named = {f"median_{unit}": median, f"q1_{unit}": low, f"q3_{unit}": high}
    return {**named, "count": len(times_ns)}


def copy_bandwidth(device: Device, sizes: Sizes) -> Results:
    """Bytes read and written per second by copies of a large buffer within the device."""
    mib, copies = sizes.copy_mib, 10
    if device.is_cuda:
        mib = min(mib, torch.cuda.mem_get_info(device.place)[0] // (4 * MIB))
    source = torch.empty(mib * MIB // 4, device=device.place).normal_()
    copy = torch.empty_like(source)

    def work() -> None:
        for _ in range(copies):
            copy.copy_(source)

    work()
    times = [device.timed(work)[1] / copies for _ in range(7)]
    rate = 2 * source.nbytes / (float(np.median(times)) / 1e9)
    return {"buffer_mib": mib, "bytes_per_second": rate, "copy": spread(times, "ms")}
