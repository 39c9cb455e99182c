"""Tables of benchmark rows: parquet files and TSV files with base64 pictures, read alike.

Columns without pictures are read for all rows, since filters and frozen row lists need them;
pictures only of the rows a run uses. Memory stays at one row group (parquet) or one row (TSV)
beside what was asked for.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.errors import UserError
from experiments.schema import found_types

# VLMEvalKit's tables store an image once: a shorter cell names the row that has it.
REFERENCE_LENGTH = 64


class Table(Protocol):
    """Rows 0..num_rows-1 of named columns."""

    num_rows: int
    types: dict[str, str]
    """Column names with their types in words, see `experiments.schema.words`."""

    def column(self, name: str) -> list[Any]:
        """A column's values for all rows."""

    def has_value(self, name: str) -> list[bool]:
        """Whether each row has a value in this column, found without reading the values."""

    def rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Whole rows, in the order asked for."""


class ParquetTable:
    """Rows of one or more parquet files, in the order of the files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [_open_parquet(path) for path in files]
        schema = self._files[0].schema_arrow
        self.types = found_types(schema)
        for path, file in zip(files, self._files, strict=True):
            if file.schema_arrow.names != schema.names:
                raise UserError(
                    f"{path} has the columns {', '.join(file.schema_arrow.names)}, {files[0]} has "
                    f"{', '.join(schema.names)}: do two data sets lie in one folder?"
                )
        self.num_rows = sum(file.metadata.num_rows for file in self._files)

    def column(self, name: str) -> list[Any]:
        """A column's values for all rows."""
        return [value for file in self._files for value in file.read([name])[name].to_pylist()]

    def has_value(self, name: str) -> list[bool]:
        """Whether each row has a value; of a picture's struct only its small half is read."""
        present: list[bool] = []
        for file in self._files:
            field = file.schema_arrow.field(name)
            paths = pa.types.is_struct(field.type) and "path" in [f.name for f in field.type]
            column = file.read([f"{name}.path" if paths else name])[name]
            present += column.is_valid().to_pylist()
        return present

    def rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Whole rows, in the order asked for."""
        wanted = sorted(set(indices))
        found: dict[int, dict[str, Any]] = {}
        for start, group in self._groups(wanted):
            local = [index for index in wanted if start <= index < start + group.num_rows]
            taken = group.take([index - start for index in local]).to_pylist()
            found.update(zip(local, taken, strict=True))
        return [found[index] for index in indices]

    def _groups(self, wanted: Sequence[int]) -> Iterator[tuple[int, pa.Table]]:
        """Row groups that hold a wanted row, each with the index of its first row."""
        start = 0
        for file in self._files:
            for number in range(file.num_row_groups):
                end = start + file.metadata.row_group(number).num_rows
                if any(start <= index < end for index in wanted):
                    yield start, file.read_row_group(number)
                start = end


class TsvTable:
    """Rows of a tab-separated file with a header; every value is text."""

    def __init__(self, path: Path, image: str) -> None:
        csv.field_size_limit(sys.maxsize)
        self._path = path
        self._image = image
        self._small: list[dict[str, str]] = []  # every column but the picture
        self._lengths: list[int] = []
        for row in self._stream():
            self._lengths.append(len(row.pop(image, "")))
            self._small.append(row)
        self.num_rows = len(self._small)
        self.types = dict.fromkeys(self._header(), "text")

    def _stream(self) -> Iterator[dict[str, str]]:
        try:
            with self._path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    yield {str(name): value or "" for name, value in row.items()}
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{self._path} cannot be read as TSV: {error}.") from error

    def _header(self) -> list[str]:
        with self._path.open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file, delimiter="\t"), [])

    def column(self, name: str) -> list[Any]:
        """A column's values for all rows."""
        return [row[name] for row in self._small]

    def has_value(self, name: str) -> list[bool]:
        """Whether each row's cell is filled."""
        if name == self._image:
            return [length > 0 for length in self._lengths]
        return [bool(value) for value in self.column(name)]

    def rows(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Whole rows, in the order asked for; a reference is replaced by the picture it names."""
        wanted = set(indices)
        references = {index for index in wanted if 0 < self._lengths[index] <= REFERENCE_LENGTH}
        cells = self._cells(wanted)
        if references:
            by_name = {row["index"]: number for number, row in enumerate(self._small)}
            named = {index: self._named(cells[index], by_name, index) for index in references}
            targets = self._cells(set(named.values()))
            cells.update({index: targets[number] for index, number in named.items()})
        return [{**self._small[index], self._image: cells[index]} for index in indices]

    def _named(self, cell: str, by_name: dict[str, int], index: int) -> int:
        number = by_name.get(cell.strip())
        if number is None or self._lengths[number] <= REFERENCE_LENGTH:
            raise UserError(
                f"{self._path}: row {index} refers to the picture of row {cell.strip()!r}, which "
                "has none; get a fresh copy of the file."
            )
        return number

    def _cells(self, wanted: set[int]) -> dict[int, str]:
        return {
            number: row[self._image]
            for number, row in enumerate(self._stream())
            if number in wanted
        }


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise UserError(
            f"{path} cannot be read as parquet ({error}); get a fresh copy of the file."
        ) from error
