"""Benchmarks as lists of inputs: a picture, the user's turns, and where they come from.

An input's picture stays encoded until its unit runs, so that one unreadable picture costs one unit
and not the run. Which rows a benchmark has, and in which order, is frozen in ``data_manifests`` and
verified here. Knows nothing about models.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from experiments import manifests
from experiments.errors import UserError, closest_first
from experiments.manifests import Manifest, text_digest
from experiments.pictures import BadCell, decoded, encoded_picture, inside
from experiments.plan import BenchSettings
from experiments.prompts import render_question
from experiments.sources import OpenSource, Source, how_to_get, open_source


@dataclass(frozen=True)
class BenchInput:
    """One input: an encoded picture (or the file it lies in) and one or more user turns.

    task:         the data set it comes from, where ``reset=task`` ends a memory.
    cluster:      what the data says makes inputs dependent; "" = the picture itself.
    source_index: row after the filter; raw_index: row in the files.
    question_id:  the data's own id of the row, or "".
    text_sha256:  digest of the row's texts, whatever prompt style shows of them.
    """

    input_id: str
    turns: tuple[str, ...]
    category: str
    task: str
    image_bytes: bytes | None = None
    image_path: Path | None = None
    cluster: str = ""
    source_index: int = 0
    raw_index: int = 0
    question_id: str = ""
    text_sha256: str = ""

    def read_image_bytes(self) -> bytes:
        """The encoded picture. Raises OSError when it cannot be read."""
        if self.image_bytes is not None:
            return self.image_bytes
        if self.image_path is None:
            raise OSError(f"input {self.input_id} has no image")
        return self.image_path.read_bytes()

    def open_image(self) -> Image.Image:
        """The picture in RGB. Raises OSError, or Pillow's own errors, when it cannot be decoded."""
        return decoded(self.read_image_bytes())

    @cached_property
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


@dataclass(frozen=True)
class Benchmark:
    """The inputs a run reads.

    facts: where they were read from; frozen: the manifest they were verified against, if any.
    """

    inputs: list[BenchInput]
    facts: dict[str, Any]
    frozen: dict[str, Any] | None = None


def load(settings: BenchSettings, fetch: bool = True) -> Benchmark:
    """The benchmark's inputs in frozen order, restricted to what the settings ask for.

    fetch: get data that is not on this machine from the hub.

    Raises UserError for missing data, wrong columns, data that differs from the frozen inputs, or
    an empty selection.
    """
    if settings.layout == "mixed":
        return _mixed(settings, fetch)
    manifest = manifests.read(settings)
    if settings.layout == "mmspec":
        loaded = _load_folder(settings)
    else:
        loaded = _load_table(settings, manifest, open_source(settings, fetch))
    if manifest is not None:
        path = manifests.manifest_path(settings)
        manifests.verify(manifest, loaded.inputs, loaded.facts, str(path))
    if not loaded.inputs:
        raise UserError(f"Benchmark {settings.name} has no input under these settings.")
    turns = settings.max_turns
    inputs = [replace(item, turns=item.turns[:turns]) for item in loaded.inputs]
    if settings.input_seed is not None:
        random.Random(settings.input_seed).shuffle(inputs)
    return Benchmark(inputs, loaded.facts, None if manifest is None else manifest.facts())


def _mixed(settings: BenchSettings, fetch: bool) -> Benchmark:
    """The parts' inputs, one part after another or in turn; each part in its own order."""
    loaded = {part.name: load(part, fetch) for part in settings.parts}
    columns = [benchmark.inputs for benchmark in loaded.values()]
    if settings.schedule == "blocked":
        inputs = [item for column in columns for item in column]
    else:
        rounds = itertools.zip_longest(*columns)
        inputs = [item for row in rounds for item in row if item is not None]
    facts = {name: benchmark.facts for name, benchmark in loaded.items()}
    frozen = {name: benchmark.frozen for name, benchmark in loaded.items()}
    return Benchmark(inputs, facts, frozen)


def inputs_digest(inputs: Sequence[BenchInput]) -> str:
    """sha256 over ids, turns and picture contents: what a run really read, wherever it lay."""
    digest = hashlib.sha256()
    for item in inputs:
        line = [item.input_id, item.category, list(item.turns), item.image_digest]
        digest.update(json.dumps(line).encode() + b"\n")
    return digest.hexdigest()


def _check_rows(settings: BenchSettings, found: int, where: str) -> None:
    checked = settings.manifests is not None and settings.rows is not None
    if checked and found != settings.rows:
        raise UserError(
            f"{where} has {found:,} rows for benchmark {settings.name} (split {settings.split}), "
            f"expected {settings.rows:,}: another version or another part of the data? "
            "bench.manifests=null runs what is there, unverified; with `rows` corrected in "
            "conf/bench, `make freeze` freezes it."
        )


def _first_of_each(categories: Sequence[str], limit: int | None) -> list[int]:
    """Positions of the first ``limit`` entries of each category."""
    if limit is None:
        return list(range(len(categories)))
    seen: Counter[str] = Counter()
    kept = []
    for position, category in enumerate(categories):
        seen[category] += 1
        if seen[category] <= limit:
            kept.append(position)
    return kept


# Rows of a table


def _load_table(
    settings: BenchSettings, manifest: Manifest | None, opened: OpenSource
) -> Benchmark:
    raw_rows = _kept_rows(opened)
    _check_rows(settings, len(raw_rows), opened.where)
    order = _frozen_order(settings, manifest, len(raw_rows))
    categories = _categories(opened, [raw_rows[index] for index in order])
    kept = _first_of_each(categories, settings.per_topic)[: settings.num_inputs]
    rows = opened.table.rows([raw_rows[order[position]] for position in kept])
    _check_pictures(opened, rows)
    inputs = [
        _input(settings, opened, row, categories[position], order[position], raw_rows)
        for position, row in zip(kept, rows, strict=True)
    ]
    facts = {**opened.facts(), "rows": opened.table.num_rows, "rows_after_filter": len(raw_rows)}
    return Benchmark(inputs, facts)


def _kept_rows(opened: OpenSource) -> list[int]:
    """Rows that the source's filter keeps, by their cheap columns."""
    rule = opened.source.filter
    if rule is None:
        return list(range(opened.table.num_rows))
    if rule["is"] == "present":
        keep = opened.table.has_value(rule["column"])
    else:
        values = opened.table.column(rule["column"])
        keep = [str(value).lower() == rule["is"].lower() for value in values]
    return [index for index, kept in enumerate(keep) if kept]


def _frozen_order(settings: BenchSettings, manifest: Manifest | None, rows: int) -> list[int]:
    if manifest is not None:
        return [entry.source_index for entry in manifest.entries]
    return manifests.chosen_rows(rows, settings.sampled)


def _categories(opened: OpenSource, rows: Sequence[int]) -> list[str]:
    column = opened.source.fields.get("category")
    if column is None:
        return ["default"] * len(rows)
    values = opened.table.column(column)
    names = _class_names(opened.source, column)
    found = [values[row] for row in rows]
    # A class may come as its number or, in a copy made elsewhere, as its name.
    return [str(names[v] if names and isinstance(v, int) else v) for v in found]


def _class_names(source: Source, column: str) -> list[str]:
    """Names of a class column whose values are their numbers."""
    written = source.columns[column]
    if isinstance(written, str) and written.startswith("class:"):
        return written.removeprefix("class:").split(",")
    return []


def _check_pictures(opened: OpenSource, rows: Sequence[dict[str, Any]]) -> None:
    """Refuse rows that hold no picture or several; count them all first."""
    column = opened.source.fields["image"]
    bad = []
    for number, row in enumerate(rows):
        try:
            row[column] = encoded_picture(row[column], opened.root)
        except BadCell as error:
            bad.append(f"row {number} of those asked for holds {error}")
    if bad:
        raise UserError(
            f"{opened.where}: {len(bad)} of {len(rows)} rows have no single picture in column "
            f"'{column}': {'; '.join(bad[:3])}{'; ...' if len(bad) > 3 else ''}."
        )


def _input(
    settings: BenchSettings,
    opened: OpenSource,
    row: dict[str, Any],
    category: str,
    source_index: int,
    raw_rows: Sequence[int],
) -> BenchInput:
    fields = opened.source.fields
    question = str(row[fields["question"]] or "")
    options = _options(row, fields.get("options"))
    context = str(row[fields["context"]] or "") if "context" in fields else ""
    return BenchInput(
        input_id=f"{settings.name}_{source_index:05d}",
        turns=(render_question(settings, question, options, context, row),),
        category=category,
        task=settings.name,
        image_bytes=row[fields["image"]],
        cluster=str(row[fields["cluster"]]) if "cluster" in fields else "",
        question_id=str(row[fields["id"]]) if "id" in fields else "",
        text_sha256=text_digest([question, *(text for _, text in options), context]),
        source_index=source_index,
        raw_index=raw_rows[source_index],
    )


def _options(row: dict[str, Any], columns: Any) -> list[tuple[str, str]]:
    """Letters and texts of the options that are not blank: of one list column, or a column each."""
    if columns is None:
        return []
    values = [row[name] for name in columns] if isinstance(columns, list) else row[columns] or []
    lettered = zip(string.ascii_uppercase, values, strict=False)
    return [(letter, str(text)) for letter, text in lettered if text and str(text).strip()]


# MMSpec's folder


def _load_folder(settings: BenchSettings) -> Benchmark:
    """Upstream layout: ``<root>/<split>/mmspec.jsonl`` and ``<root>/<split>/images/``."""
    folder = _data_root(settings) / settings.split
    table = folder / "mmspec.jsonl"
    if not table.is_file():
        raise UserError(
            f"{table} is missing: bench.data_root must be the folder that holds {settings.split}/."
        )
    content = table.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{table} is not UTF-8 text; get a fresh copy of the data.") from error
    inputs = list(_folder_inputs(settings, folder, text))
    if settings.split == settings.splits[0]:
        _check_rows(settings, len(inputs), str(table))
    categories = [item.category for item in inputs]
    kept = _first_of_each(categories, settings.per_topic)[: settings.num_inputs]
    facts = {
        "source": settings.name,
        "id": settings.name,
        "revision": None,
        "files": [table.name],
        "rows": len(inputs),
        "table_sha256": hashlib.sha256(content).hexdigest(),
    }
    return Benchmark([inputs[position] for position in kept], facts)


def _folder_inputs(settings: BenchSettings, folder: Path, text: str) -> Iterator[BenchInput]:
    lines = [line for line in text.split("\n") if line.strip()]
    for number, line in enumerate(lines, start=1):
        where = f"{folder / 'mmspec.jsonl'} line {number}"
        row = _json_row(line, where)
        turns = _turns(row["turns"], where)
        try:
            image_path = inside(folder / "images", str(row["image"]))
        except BadCell as error:
            raise UserError(f"{where} holds {error}.") from error
        yield BenchInput(
            input_id=str(row["id"]),
            turns=turns,
            category=str(row["topic"]),
            task=settings.name,
            image_path=image_path,
            source_index=number - 1,
            raw_index=number - 1,
            question_id=str(row["id"]),
            text_sha256=text_digest(turns),
        )


def _data_root(settings: BenchSettings) -> Path:
    if settings.data_root is None:
        raise UserError(
            f"Benchmark {settings.name} needs its data: set bench.data_root=FOLDER. "
            f"{how_to_get(settings)}"
        )
    root = Path(settings.data_root).expanduser()
    if not root.is_dir():
        raise UserError(
            f"bench.data_root={settings.data_root} does not exist or is not a folder. "
            f"{how_to_get(settings)}"
        )
    return root


def _json_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON ({error}); get a fresh copy of the data.") from error
    if not isinstance(row, dict):
        raise UserError(f"{where} is not a JSON object; get a fresh copy of the data.")
    expected = ("id", "image", "turns", "category", "topic")
    missing = [name for name in expected if name not in row]
    if missing:
        raise UserError(
            f"{where}: expected the columns {', '.join(expected)}; found {', '.join(row)}; "
            f"missing {', '.join(missing)} (closest: {closest_first(missing[0], row)[0]})."
        )
    return row


def _turns(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(t, str) for t in value):
        raise UserError(f"{where}: turns must be a list of at least one text, got {value!r}.")
    return tuple(value)
