"""Files made from a run, or from a machine: JSON documents of one schema. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.records import write_atomically

SCHEMA = 1


def write_document(path: Path, content: Mapping[str, Any]) -> Path:
    """Write a document with its schema, whole or not at all; the file written."""
    text = json.dumps({"schema": SCHEMA, **content}) + "\n"
    write_atomically(path, text.encode())
    return path


def read_document(path: Path) -> dict[str, Any] | None:
    """A document of this schema; None where it is missing, broken or of another one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    known = isinstance(content, dict) and content.get("schema") == SCHEMA
    return content if known else None
