"""Column types of the benchmarks: how ``conf/bench`` writes them, and what a file really holds.

A type is written as in a dataset card: ``string``, ``int32``, ``image``, ``binary`` (raw bytes of a
picture), ``base64`` (the same as text, in TSV files), ``class:A,B`` (an integer with names),
``[string]`` for a list, a mapping for a struct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import datasets
import pyarrow as pa

from experiments.errors import UserError, closest_first

ColumnType = str | list[Any] | Mapping[str, Any]


def feature(column_type: ColumnType) -> Any:
    """The ``datasets`` feature of a written type."""
    if isinstance(column_type, list):
        return datasets.List(feature(column_type[0]))
    if isinstance(column_type, Mapping):
        return {name: feature(inner) for name, inner in column_type.items()}
    if column_type == "image":
        return datasets.Image()
    if column_type == "base64":
        return datasets.Value("string")
    if column_type.startswith("class:"):
        return datasets.ClassLabel(names=column_type.removeprefix("class:").split(","))
    return datasets.Value(column_type)


def features(columns: Mapping[str, ColumnType]) -> datasets.Features:
    """The features of a whole table."""
    return datasets.Features({name: feature(written) for name, written in columns.items()})


def found_types(schema: pa.Schema) -> dict[str, str]:
    """Each column of a parquet file with its type in words."""
    declared = datasets.Features.from_arrow_schema(schema)
    return {name: words(declared[name]) for name in schema.names}


def words(found: Any) -> str:
    """A feature in words that ignore widths: text, number, image, raw bytes, list of ..."""
    if isinstance(found, datasets.Image):
        return "image"
    if isinstance(found, datasets.ClassLabel):
        return "number"
    if isinstance(found, datasets.List | datasets.LargeList):
        return f"list of {words(found.feature)}"
    if isinstance(found, Mapping):
        # How an image column looks in a file without the library's own metadata.
        return "image" if set(found) == {"bytes", "path"} else "struct"
    return _value_words(str(found.dtype))


def _value_words(dtype: str) -> str:
    if "string" in dtype:
        return "text"
    if "binary" in dtype:
        return "raw bytes"
    if dtype.startswith(("int", "uint", "float", "double")):
        return "number"
    return dtype


def check_columns(
    where: str,
    found: Mapping[str, str],
    expected: Mapping[str, ColumnType],
    used: tuple[str, ...],
) -> None:
    """Refuse a table that lacks a column, or holds another kind of value in one that is read.

    found: columns with their types in words; expected: the written types; used: columns a run
    reads, whose kind must agree. Raises UserError.
    """
    missing = [name for name in expected if name not in found]
    if missing:
        extra = [name for name in found if name not in expected] or list(found)
        raise UserError(
            f"{where}: expected the columns {', '.join(expected)}; found {', '.join(found)}; "
            f"missing {', '.join(missing)} (closest: {closest_first(missing[0], extra)[0]})."
        )
    for name in used:
        wanted = words(feature(expected[name]))
        if not _agree(found[name], wanted):
            raise UserError(
                f"{where}: column '{name}' holds {found[name]}, expected {wanted} "
                f"(written {expected[name]} in conf/bench)."
            )


def _agree(found: str, wanted: str) -> bool:
    # Names of classes come as their numbers or as text, ids as either; nothing is computed with
    # them.
    plain = ("text", "number")
    return found == wanted or (found in plain and wanted in plain)
