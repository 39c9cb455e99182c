"""Benchmarks as lists of inputs: a picture, the user's turns, and where they come from.

An input's picture stays encoded until its unit runs, so that one unreadable picture costs one unit
and not the run. Knows nothing about models.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

from experiments.errors import UserError, closest_first
from experiments.plan import BenchSettings


@dataclass(frozen=True)
class BenchInput:
    """One input: an encoded picture (or the file it lies in) and one or more user turns.

    task: the data set it comes from, where ``reset=task`` ends a memory.
    """

    input_id: str
    turns: tuple[str, ...]
    category: str
    task: str
    image_bytes: bytes | None = None
    image_path: Path | None = None

    def read_image_bytes(self) -> bytes:
        """The encoded picture. Raises OSError when it cannot be read."""
        if self.image_bytes is not None:
            return self.image_bytes
        if self.image_path is None:
            raise OSError(f"input {self.input_id} has no image")
        return self.image_path.read_bytes()

    def open_image(self) -> Image.Image:
        """The decoded picture, as stored. Raises OSError for one that cannot be decoded."""
        image = Image.open(io.BytesIO(self.read_image_bytes()))
        image.load()
        return image

    def image_digest(self) -> str:
        """sha256 of the encoded picture, or "" when there is none to read."""
        try:
            return hashlib.sha256(self.read_image_bytes()).hexdigest()
        except OSError:
            return ""

    def image_size(self) -> tuple[int, int]:
        """Width and height from the picture's header; (0, 0) when it cannot be read."""
        try:
            with Image.open(io.BytesIO(self.read_image_bytes())) as image:
                return image.size
        except (OSError, Image.DecompressionBombError):
            return (0, 0)


def load_inputs(settings: BenchSettings) -> list[BenchInput]:
    """The benchmark's inputs in file order, restricted to what the settings ask for.

    Raises UserError for missing data, wrong columns or an empty selection.
    """
    root = _data_root(settings)
    inputs = list(_SOURCES[settings.source](root, settings))
    inputs = _restrict(inputs, settings)
    if not inputs:
        raise UserError(f"Benchmark {settings.name} has no input under these settings.")
    return inputs


def inputs_digest(inputs: list[BenchInput]) -> str:
    """sha256 over ids, turns and picture contents: what a run really read, wherever it lay."""
    digest = hashlib.sha256()
    for item in inputs:
        line = [item.input_id, item.category, list(item.turns), item.image_digest()]
        digest.update(json.dumps(line).encode() + b"\n")
    return digest.hexdigest()


def _data_root(settings: BenchSettings) -> Path:
    if settings.data_root is None:
        raise UserError(
            f"Benchmark {settings.name} needs its data: set bench.data_root=FOLDER. "
            f"{settings.how_to_get}"
        )
    root = Path(settings.data_root).expanduser()
    if not root.is_dir():
        raise UserError(
            f"bench.data_root={settings.data_root} does not exist or is not a folder. "
            f"{settings.how_to_get}"
        )
    return root


def _restrict(inputs: list[BenchInput], settings: BenchSettings) -> list[BenchInput]:
    if settings.per_topic is not None:
        seen: Counter[str] = Counter()
        kept = []
        for item in inputs:
            seen[item.category] += 1
            if seen[item.category] <= settings.per_topic:
                kept.append(item)
        inputs = kept
    inputs = inputs[: settings.num_inputs]
    return [replace(item, turns=item.turns[: settings.max_turns]) for item in inputs]


def _mmspec_inputs(root: Path, settings: BenchSettings) -> Iterator[BenchInput]:
    """Upstream layout: ``<root>/<split>/mmspec.jsonl`` and ``<root>/<split>/images/``."""
    folder = root / settings.split
    table = folder / "mmspec.jsonl"
    if not table.is_file():
        raise UserError(
            f"{table} is missing: bench.data_root must be the folder that holds {settings.split}/."
        )
    for number, line in enumerate(table.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        row = _json_row(line, f"{table.name} line {number}")
        _check_columns(row.keys(), ("id", "image", "turns", "category", "topic"), str(table))
        yield BenchInput(
            input_id=str(row["id"]),
            turns=_turns(row["turns"], f"{table.name} line {number}"),
            category=str(row["topic"]),
            task=settings.name,
            image_path=_inside(folder / "images", str(row["image"])),
        )


def _json_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON ({error}); get a fresh copy of the data.") from error
    if not isinstance(row, dict):
        raise UserError(f"{where} is not a JSON object; get a fresh copy of the data.")
    return row


def _turns(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(t, str) for t in value):
        raise UserError(f"{where}: turns must be a list of at least one text, got {value!r}.")
    return tuple(value)


def _inside(folder: Path, name: str) -> Path:
    """``folder / name``, refused when a name from the data points outside the folder."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserError(f"The data names an image outside its folder: {name!r}.")
    return path


def _parquet_inputs(root: Path, settings: BenchSettings) -> Iterator[BenchInput]:
    """Rows of ``<root>/<data_files>``; pictures are {"bytes", "path"} cells, not decoded."""
    import datasets  # heavy, and only these benchmarks need it
    from datasets.exceptions import DatasetsError
    from pyarrow import ArrowException

    pattern = settings.data_files or "data/*.parquet"
    files = sorted(str(path) for path in root.glob(pattern))
    if not files:
        raise UserError(f"No file matches {pattern} below {root}; check bench.data_root.")
    try:
        table = datasets.Dataset.from_parquet(files, keep_in_memory=True)
    except (ArrowException, DatasetsError) as error:
        raise UserError(f"{root}: the parquet files cannot be read ({error}).") from error
    columns = settings.columns
    _check_columns(table.column_names, tuple(columns.values()), str(root))
    table = table.cast_column(columns["image"], datasets.Image(decode=False))
    for index, row in enumerate(table):
        cell = row[columns["image"]] or {}
        yield BenchInput(
            input_id=str(row[columns["id"]]) if "id" in columns else f"{settings.name}_{index:05d}",
            turns=(str(row[columns["question"]]),),
            category=str(row[columns["category"]]) if "category" in columns else "default",
            task=settings.name,
            image_bytes=cell.get("bytes"),
        )


def _check_columns(found: Any, expected: tuple[str, ...], where: str) -> None:
    missing = [name for name in expected if name not in found]
    if missing:
        raise UserError(
            f"{where}: expected the columns {', '.join(expected)}; "
            f"found {', '.join(sorted(found))}; "
            f"missing {', '.join(missing)} (closest: {closest_first(missing[0], found)[0]})."
        )


_SOURCES: dict[str, Callable[[Path, BenchSettings], Iterator[BenchInput]]] = {
    "mmspec": _mmspec_inputs,
    "parquet": _parquet_inputs,
}
