"""Image cells of benchmark rows, in whatever form a data set stores them, as encoded bytes."""

from __future__ import annotations

import ast
import base64
import binascii
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


def decoded(encoded: bytes) -> Image.Image:
    """The picture in RGB, upright as its EXIF orientation says.

    Raises OSError, or another of Pillow's many errors, for bytes that are no whole picture.
    """
    with Image.open(io.BytesIO(encoded)) as image:
        upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16"):
        # Pillow would cut 16-bit values off at 255 instead of scaling them.
        upright = upright.point(lambda value: value / 256).convert("L")
    return upright.convert("RGB")


class BadCell(ValueError):
    """An image cell that is no single picture; the message says what it is."""


def encoded_picture(cell: Any, root: Path) -> bytes:
    """The bytes of a picture file.

    cell: ``{"bytes", "path"}``, raw bytes, base64 text, a file name below ``root``, a PIL picture,
          or a list that holds exactly one of these (as Python text too, ``"['...']"``, the form of
          multi-image TSV files).

    Raises BadCell when there is none, or more than one.
    """
    if cell is None or cell == "":
        raise BadCell("no picture")
    if isinstance(cell, str) and cell.startswith("["):
        cell = _list_literal(cell)
    if isinstance(cell, list):
        if len(cell) != 1:
            raise BadCell(f"{len(cell)} pictures, one is needed")
        return encoded_picture(cell[0], root)
    if isinstance(cell, Mapping):
        return _stored(cell, root)
    if isinstance(cell, Image.Image):
        return _as_png(cell)
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return _named(cell, root) if cell.lower().endswith(_SUFFIXES) else _from_base64(cell)
    raise BadCell(f"a {type(cell).__name__}, no picture")


def _stored(cell: Mapping[str, Any], root: Path) -> bytes:
    if cell.get("bytes"):
        return bytes(cell["bytes"])
    if cell.get("path"):
        return _named(str(cell["path"]), root)
    raise BadCell("no picture")


def _named(name: str, root: Path) -> bytes:
    path = inside(root, name)
    if not path.is_file():
        raise BadCell(f"the file name {name!r}, and no such file below {root}")
    return path.read_bytes()


def inside(folder: Path, name: str) -> Path:
    """``folder / name``. Raises BadCell for a name from the data that leaves the folder."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise BadCell(f"the file name {name!r}, which lies outside {folder}")
    return path


def _as_png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _list_literal(text: str) -> list[Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise BadCell("text that begins like a list and is none") from error
    return value if isinstance(value, list) else [value]


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise BadCell("text that is not base64") from error
