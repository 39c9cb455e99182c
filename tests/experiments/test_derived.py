"""Derived files: what is written is read back, and nothing else counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.derived import SCHEMA, read_document, write_document


def test_a_document_is_read_back_with_its_schema(tmp_path: Path) -> None:
    path = write_document(tmp_path / "a.json", {"states": [1, 2]})
    assert read_document(path) == {"schema": SCHEMA, "states": [1, 2]}


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", f'{{"schema": {SCHEMA + 1}}}'])
def test_what_is_no_document_of_this_schema_is_none(tmp_path: Path, text: str) -> None:
    assert read_document(tmp_path / "missing.json") is None
    (tmp_path / "a.json").write_text(text)
    assert read_document(tmp_path / "a.json") is None
