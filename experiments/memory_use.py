"""How much memory a profiled generation holds, on the host and on the device.

On the host two figures stand side by side: what is *occupied* (rows, states and edges in use, times
their size) and what is *allocated* for them. ``U`` is dense: it is allocated for the whole
vocabulary before the first row is there.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recap.core.kernels import suffix
from recap.drafter import RecapDrafter

if TYPE_CHECKING:
    import torch

    from recap.core.interfaces import Drafter
    from recap.core.memory import PredictionMemory
    from recap.core.suffix_automaton import SuffixAutomaton

SLOT_BYTES = 16  # a context row's entry in the table: key, generation and row


def host_bytes(drafter: Drafter) -> dict[str, dict[str, int]] | None:
    """Bytes by structure, occupied and allocated; None for a method other than RECAP.

    U, C+G: the memories. suffix: the automaton with its text. workspace: of search and fusion.
    """
    if not isinstance(drafter, RecapDrafter):
        return None
    workspace = array_bytes(drafter._work)
    memory = drafter._memory
    occupied = {
        "U": memory.num_unigram_rows * unigram_row_bytes(memory),
        "C+G": memory.num_context_rows * context_row_bytes(memory),
        "suffix": _suffix_bytes(drafter._suffix),
    }
    return {
        "occupied": {**occupied, "workspace": workspace},
        "allocated": {**drafter.num_bytes(), "workspace": workspace},
    }


def unigram_row_bytes(memory: PredictionMemory) -> int:
    """One row of ``U``: ids, probabilities, confidence and the presence byte."""
    return memory.unigram_bytes() // memory.vocab_size


def context_row_bytes(memory: PredictionMemory) -> int:
    """One row of ``C`` or ``G`` with its slot: no presence byte."""
    return unigram_row_bytes(memory) - memory.arrays.present.itemsize + SLOT_BYTES


def _suffix_bytes(automaton: SuffixAutomaton) -> int:
    """States, edges (each with one slot) and text in use; the scratch order is left out."""
    header = automaton._header
    return int(
        header[suffix.NUM_STATES] * automaton._states[0].nbytes
        + header[suffix.NUM_EDGES] * (automaton._edges[0].nbytes + automaton._slots.itemsize)
        + header[suffix.NUM_TOKENS] * automaton._text.itemsize
    )


def array_bytes(arrays: Any) -> int:
    """Bytes of all arrays in a (nested) named tuple."""
    if isinstance(arrays, np.ndarray):
        return arrays.nbytes
    return sum(array_bytes(array) for array in arrays)


def resident_bytes() -> int | None:
    """Resident set size of this process; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()


def reset_device_peak(device: torch.device) -> None:
    """Start a new count of the device's peak memory, where there is a CUDA device."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)


def device_peak(device: torch.device) -> int | None:
    """The largest number of bytes allocated on a CUDA device since the count began, else None."""
    if device.type != "cuda":
        return None
    import torch

    return torch.cuda.max_memory_allocated(device)
