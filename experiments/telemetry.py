"""What the machine was doing while an arm ran. Recorded, never used to drop a unit."""

from __future__ import annotations

import os
import resource
from typing import Any


class Telemetry:
    """Load average, involuntary context switches and, with NVML, the accelerator's state."""

    def __init__(self, device: str) -> None:
        self._nvml, self._handle = _nvml_handle(device)
        self._switches = 0

    def start(self) -> None:
        """Call right before the timed region."""
        self._switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw

    def read(self) -> dict[str, Any]:
        """Call right after the timed region; plain values for the record."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        state: dict[str, Any] = {
            "load_1m": round(os.getloadavg()[0], 2),
            "involuntary_switches": usage.ru_nivcsw - self._switches,
        }
        if self._handle is not None:
            state |= self._accelerator()
        return state

    def _accelerator(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self._handle
        return {
            "sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "power_w": nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "temperature_c": nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        }


def driver_version() -> str | None:
    """The NVIDIA driver's version, or None where NVML is not there."""
    nvml, handle = _nvml_handle("cuda")
    return None if handle is None else str(nvml.nvmlSystemGetDriverVersion())


def _nvml_handle(device: str) -> tuple[Any, Any]:
    """The NVML module and the handle of a CUDA device, or two Nones where there is none."""
    if not device.startswith("cuda"):
        return None, None
    try:
        import pynvml
    except ImportError:
        return None, None
    try:
        pynvml.nvmlInit()
        index = int(device.partition(":")[2] or 0)
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError:
        return None, None
