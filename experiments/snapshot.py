"""The state that makes a killed run resumable: ``stream.npz``.

Written after the last arm of every unit, untimed, by temporary file and rename. It carries the
number of complete units, so whatever the records hold beyond them is cut off and run again.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.records import write_atomically

StreamStates = dict[str, dict[str, NDArray[Any]]]
_COUNT = "num_complete_units"


def save_snapshot(
    path: Path, num_complete_units: int, states: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write the arms' stream states (arm -> name -> array) and the number of complete units."""
    arrays = {
        f"{arm}/{name}": array for arm, state in states.items() for name, array in state.items()
    }
    buffer = io.BytesIO()
    arrays[_COUNT] = np.array(num_complete_units)
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def load_snapshot(path: Path) -> tuple[int, StreamStates] | None:
    """What `save_snapshot` wrote, or None when there is no readable snapshot."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            count = int(archive[_COUNT])
            states: StreamStates = {}
            for key in archive.files:
                if key != _COUNT:
                    arm, _, name = key.partition("/")
                    states.setdefault(arm, {})[name] = archive[key]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    return count, states
