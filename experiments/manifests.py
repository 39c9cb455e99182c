"""Frozen inputs: which rows a benchmark has, in which order, and what they contained.

``data_manifests/<bench>.jsonl`` has a line per input, ``<bench>.yaml`` the rule behind it. Row
lists need nothing but a row count, so they exist before anybody has fetched the data; hashes of
texts and pictures are filled in by ``make freeze`` and verified on every run.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from PIL import Image

from experiments.errors import UserError
from experiments.pictures import decoded

if TYPE_CHECKING:
    from experiments.benches import BenchInput
    from experiments.plan import BenchSettings

SEED = 42
_SHOWN_DIFFERENCES = 10


@dataclass(frozen=True)
class Picture:
    """A picture as stored (``sha256_encoded``) and as decoded to RGB (``sha256_pixels``)."""

    sha256_encoded: str
    sha256_pixels: str
    width: int
    height: int
    mode: str
    format: str


@dataclass(frozen=True)
class Entry:
    """One frozen input. Everything behind ``source_index`` is unknown until the data was read.

    source_index: row after the filter; raw_index: row in the files.
    """

    position: int
    source_index: int
    raw_index: int | None = None
    question_id: str | None = None
    cluster_id: str | None = None
    category: str | None = None
    num_turns: int | None = None
    text_sha256: str | None = None
    picture: Picture | None = None


@dataclass(frozen=True)
class Manifest:
    """A benchmark's frozen inputs; ``rule`` is the YAML file, ``sha256`` that of the lines."""

    rule: Mapping[str, Any]
    entries: tuple[Entry, ...]
    sha256: str

    def facts(self) -> dict[str, Any]:
        """What a run's manifest records."""
        return {"sha256": self.sha256, "hashes": self.rule["hashes"]}


def chosen_rows(rows: int, sampled: int | None) -> list[int]:
    """The first ``sampled`` of a permutation of all rows with seed 42; None = all in file order.

    Equals ``datasets.Dataset.shuffle(seed=42)`` followed by ``select(range(sampled))``, which is
    how the paper's inputs were drawn.
    """
    if sampled is None:
        return list(range(rows))
    return [int(row) for row in np.random.default_rng(SEED).permutation(rows)[:sampled]]


def text_digest(texts: Sequence[str]) -> str:
    """sha256 over a row's texts."""
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()


# Files


def manifest_path(settings: BenchSettings) -> Path | None:
    """Where the benchmark's frozen inputs lie; None when they are not to be used."""
    if settings.manifests is None:
        return None
    first = settings.split == settings.splits[0]
    name = settings.name if first else f"{settings.name}_{settings.split}"
    return Path(settings.manifests) / f"{name}.jsonl"


def read(settings: BenchSettings) -> Manifest | None:
    """The benchmark's manifest, or None where there is none. Raises UserError for a broken one."""
    path = manifest_path(settings)
    if path is None or not path.is_file():
        return None
    content = path.read_bytes()
    try:
        entries = tuple(_entry(json.loads(line)) for line in content.decode().splitlines())
        rule = yaml.safe_load(path.with_suffix(".yaml").read_text(encoding="utf-8"))
        if not entries or not {"source", "hashes"} <= rule.keys():
            raise ValueError("incomplete")
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path} or the YAML file beside it is damaged ({error}): restore both with git, or "
            "run with bench.manifests=null."
        ) from error
    return Manifest(rule, entries, hashlib.sha256(content).hexdigest())


def _entry(values: dict[str, Any]) -> Entry:
    picture = values.pop("picture", None)
    return Entry(**values, picture=None if picture is None else Picture(**picture))


def write(path: Path, rule: Mapping[str, Any], entries: Sequence[Entry]) -> None:
    """Write a manifest and its rule."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(_known(asdict(entry)), ensure_ascii=False) for entry in entries]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = yaml.safe_dump(dict(rule), sort_keys=False, allow_unicode=True)
    path.with_suffix(".yaml").write_text(text, encoding="utf-8")


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


# Freezing


def index_entries(rows: int, sampled: int | None) -> list[Entry]:
    """Entries that know only which rows they are."""
    return [Entry(position, row) for position, row in enumerate(chosen_rows(rows, sampled))]


def full_entries(inputs: Sequence[BenchInput]) -> list[Entry]:
    """Entries with everything that can be verified. Raises OSError for an unreadable picture."""
    return [_full_entry(position, item) for position, item in enumerate(inputs)]


def _full_entry(position: int, item: BenchInput) -> Entry:
    return Entry(
        position=position,
        source_index=item.source_index,
        raw_index=item.raw_index,
        question_id=item.question_id or None,
        cluster_id=item.cluster or item.image_digest[:16],
        category=item.category,
        num_turns=len(item.turns),
        text_sha256=item.text_sha256,
        picture=describe_picture(item.read_image_bytes()),
    )


def describe_picture(encoded: bytes) -> Picture:
    """Digests and form of an encoded picture."""
    pixels = decoded(encoded)
    size = f"{pixels.width}x{pixels.height}:".encode()
    with Image.open(io.BytesIO(encoded)) as image:
        return Picture(
            sha256_encoded=hashlib.sha256(encoded).hexdigest(),
            sha256_pixels=hashlib.sha256(size + pixels.tobytes()).hexdigest(),
            width=image.width,
            height=image.height,
            mode=image.mode,
            format=image.format or "",
        )


def make_rule(settings: BenchSettings, facts: Mapping[str, Any], hashes: bool) -> dict[str, Any]:
    """What the lines of a manifest are, for its YAML file."""
    drawn = {"rng": "numpy.random.default_rng", "seed": SEED, "first": settings.sampled}
    rule = {
        "bench": settings.name,
        "split": settings.split,
        "licence": settings.licence,
        **facts,
        "order": "file" if settings.sampled is None else drawn,
        "hashes": hashes,
        "command": f"make freeze BENCH={settings.name}" if hashes else "make row-lists",
    }
    if hashes:
        rule["made_with"] = {name: metadata.version(name) for name in ("numpy", "pillow")}
    return rule


# Verifying


def verify(
    manifest: Manifest, inputs: Sequence[BenchInput], facts: Mapping[str, Any], where: str
) -> None:
    """Refuse data that differs from the frozen inputs, naming what differs. Raises UserError.

    facts: what was read (source, table_sha256); where: the manifest's file, for the message.
    """
    differences = _file_differences(manifest.rule, facts)
    by_row = {entry.source_index: entry for entry in manifest.entries}
    for item in inputs:
        entry = by_row.get(item.source_index)
        if entry is None:
            differences.append(f"{item.input_id}: not among the frozen inputs")
        else:
            differences += [f"{item.input_id}: {text}" for text in _row_differences(entry, item)]
    if differences:
        shown = "\n".join(f"  {line}" for line in differences[:_SHOWN_DIFFERENCES])
        more = len(differences) - _SHOWN_DIFFERENCES
        rest = f"  ... and {more} more\n" if more > 0 else ""
        raise UserError(
            f"The data differs from the frozen inputs in {where}:\n{shown}\n"
            f"{rest}"
            "Get the data at the revision named there, freeze your own with `make freeze`, or run "
            "unverified with bench.manifests=null."
        )


def _file_differences(rule: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    differences = []
    for name in ("source", "table_sha256", "rows_after_filter"):
        if rule.get(name) is not None and facts.get(name) != rule[name]:
            differences.append(f"{name}: frozen {rule[name]}, found {facts.get(name)}")
    return differences


def _row_differences(entry: Entry, item: BenchInput) -> list[str]:
    pairs = {
        "question id": (entry.question_id, item.question_id),
        "category": (entry.category, item.category),
        "number of turns": (entry.num_turns, len(item.turns)),
        "sha256 of its texts": (entry.text_sha256, item.text_sha256),
    }
    differences = [
        f"{what}: frozen {frozen}, found {found}"
        for what, (frozen, found) in pairs.items()
        if frozen is not None and frozen != found
    ]
    return differences + _picture_differences(entry.picture, item)


def _picture_differences(frozen: Picture | None, item: BenchInput) -> list[str]:
    if frozen is None or frozen.sha256_encoded == item.image_digest:
        return []
    try:
        found = describe_picture(item.read_image_bytes())
    except (OSError, Image.DecompressionBombError) as error:
        return [f"its picture cannot be read ({type(error).__name__})"]
    if found.sha256_pixels == frozen.sha256_pixels:
        return ["its picture has the same pixels in another encoding"]
    return [
        f"another picture: frozen {frozen.width}x{frozen.height} {frozen.sha256_encoded[:12]}, "
        f"found {found.width}x{found.height} {found.sha256_encoded[:12]}"
    ]
