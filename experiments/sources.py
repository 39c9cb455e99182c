"""Where a benchmark's rows come from: the user's copy of the data, or the hub at a pinned revision.

A benchmark lists its sources in order of preference. A local folder or file is matched to the first
source whose files and columns it has; on the hub the first id that answers is taken, and only the
files of the one split are fetched. Both ways end in the same `Table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from experiments.errors import UserError, unknown_name
from experiments.plan import settings_from
from experiments.schema import ColumnType, check_columns
from experiments.tables import ParquetTable, Table, TsvTable
from recap.targets.hub import HubError, snapshot

if TYPE_CHECKING:
    from experiments.plan import BenchSettings

FIELDS = ("question", "image", "id", "category", "cluster", "options", "context")


@dataclass(frozen=True)
class Source:
    """One place and form of a benchmark's data (an entry of ``sources`` in ``conf/bench``).

    ids:      hub ids that hold the same files, in order of preference; none = local files only.
    files:    path of the split's files in the repository, with wildcards.
    columns:  name and written type of each column (see `experiments.schema`).
    fields:   which column holds the question, the image, and where there are any the id, category,
              cluster, options (one list column, or one column per option) and context.
    filter:   ``{column, is}``: rows to keep; ``is: present`` keeps rows that have a value.
    revision: commit of the repository; None = not known, the hub's head is taken and recorded.
    """

    ids: list[str]
    files: str
    columns: Mapping[str, ColumnType]
    fields: Mapping[str, Any]
    filter: Mapping[str, str] | None = None
    revision: str | None = None
    config: str | None = None

    def __post_init__(self) -> None:
        for name in self.fields:
            if name not in FIELDS:
                raise unknown_name("field of a source", name, FIELDS)
        for column in self.used_columns():
            if column not in self.columns:
                raise unknown_name("column of a source", column, self.columns)

    @property
    def name(self) -> str:
        """The first id, or the file's name where there is none."""
        return self.ids[0] if self.ids else PurePosixPath(self.files).name

    @property
    def suffix(self) -> str:
        """The form of the files: .parquet or .tsv."""
        return PurePosixPath(self.files).suffix

    def used_columns(self) -> tuple[str, ...]:
        """Columns that a run reads."""
        used: list[str] = []
        for value in self.fields.values():
            used += value if isinstance(value, list) else [value]
        if self.filter is not None:
            used.append(self.filter["column"])
        return tuple(used)


@dataclass(frozen=True)
class OpenSource:
    """A source's table, and where it was found.

    id:       the hub id that answered, or the source's name for a local copy.
    revision: the commit that was read, where the hub's cache tells; None for a local copy.
    """

    source: Source
    id: str
    revision: str | None
    root: Path
    files: list[Path] = field(repr=False)
    table: Table = field(repr=False)

    @property
    def where(self) -> str:
        """What an error calls it: the hub id, or the local folder."""
        return self.id if self.revision is not None else str(self.root)

    def facts(self) -> dict[str, Any]:
        """What a run's manifest records."""
        return {
            "source": self.source.name,
            "id": self.id,
            "config": self.source.config,
            "revision": self.revision,
            "files": [path.name for path in self.files],
            "columns": self.table.types,
        }


def sources_of(settings: BenchSettings) -> list[Source]:
    """The benchmark's sources, or the one that ``bench.hub_id`` names."""
    sources = [settings_from(Source, "a source", entry) for entry in settings.sources]
    if settings.hub_id is None:
        return sources
    chosen = [source for source in sources if settings.hub_id in source.ids]
    if not chosen:
        known = [name for source in sources for name in source.ids]
        raise unknown_name("bench.hub_id", settings.hub_id, known)
    return [Source(**{**vars(chosen[0]), "ids": [settings.hub_id]})]


def open_source(settings: BenchSettings, fetch: bool = True) -> OpenSource:
    """Find the benchmark's data; ``fetch`` it from the hub where it is not here.

    Raises UserError saying what is missing and how to get it.
    """
    sources = sources_of(settings)
    if settings.data_root is not None:
        return _open_local(settings, sources, Path(settings.data_root).expanduser())
    return _open_hub(settings, sources, fetch)


# A local copy


def _open_local(settings: BenchSettings, sources: list[Source], root: Path) -> OpenSource:
    if not root.exists():
        raise UserError(f"bench.data_root={root} does not exist. {how_to_get(settings)}")
    mismatches: list[tuple[int, UserError]] = []
    for source, files in _candidates(root, sources, settings.split):
        table = _table(files, source)
        try:
            check_columns(_where(files), table.types, source.columns, source.used_columns())
        except UserError as error:
            lacking = sum(name not in table.types for name in source.columns)
            mismatches.append((lacking, error))
            continue
        folder = root if root.is_dir() else root.parent
        return OpenSource(source, source.name, None, folder, files, table)
    if mismatches:
        raise min(mismatches, key=lambda mismatch: mismatch[0])[1]
    wanted = ", ".join(dict.fromkeys(source.files for source in sources))
    raise UserError(f"No file below {root} matches {wanted}. {how_to_get(settings)}")


def _candidates(
    root: Path, sources: list[Source], split: str
) -> Iterator[tuple[Source, list[Path]]]:
    """Sources with files of theirs: those at their place first, then those known by name only."""
    if root.is_file():
        yield from ((source, [root]) for source in sources if source.suffix == root.suffix)
        return
    for source in sources:
        if files := _files(root.glob(source.files)):
            yield source, files
    for source in sources:
        names = (PurePosixPath(source.files).name, f"{split}*{source.suffix}")
        files = _files(root.rglob(names[0])) or _files(root.rglob(names[1]))
        if files:
            _check_one_folder(root, files)
            yield source, files


def _files(found: Iterable[Path]) -> list[Path]:
    return sorted(path for path in found if path.is_file())


def _check_one_folder(root: Path, files: list[Path]) -> None:
    folders = sorted({str(path.parent) for path in files})
    if len(folders) > 1:
        raise UserError(
            f"bench.data_root={root} holds files of more than one data set or configuration: "
            f"{', '.join(folders)}. Point it at one of these folders."
        )


def _table(files: list[Path], source: Source) -> Table:
    if files[0].suffix == ".tsv":
        return TsvTable(files[0], source.fields["image"])
    return ParquetTable(files)


def _where(files: list[Path]) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{files[0]}{more}"


# The hub


def _open_hub(settings: BenchSettings, sources: list[Source], fetch: bool) -> OpenSource:
    failures: dict[str, list[str]] = {}
    for source in sources:
        for hub_id in source.ids:
            try:
                folder = snapshot(
                    hub_id,
                    source.revision,
                    [source.files],
                    repo_type="dataset",
                    required=[source.files],
                    fetch=fetch,
                )
            except HubError as error:
                failures.setdefault(str(error), []).append(hub_id)
                continue
            files = _files(folder.glob(source.files))
            table = _table(files, source)
            check_columns(hub_id, table.types, source.columns, source.used_columns())
            return OpenSource(source, hub_id, folder.name, folder, files, table)
    tried = "\n".join(f"  {', '.join(ids)}: {reason}" for reason, ids in failures.items())
    raise UserError(
        f"The data of benchmark {settings.name} is not in the hub's cache on this machine:\n"
        f"{tried}\n{how_to_get(settings)}"
    )


def how_to_get(settings: BenchSettings) -> str:
    """Sentences: the command that fetches the data, and the override that points at a copy."""
    if settings.how_to_get:
        return settings.how_to_get
    source = next((s for s in sources_of(settings) if s.ids), None)
    if source is None:
        return "Set bench.data_root=FOLDER to a copy of the data."
    revision = f" --revision {source.revision}" if source.revision else ""
    return (
        "On a machine with a network the same command fetches it; or get it with\n"
        f"  hf download {source.ids[0]} --repo-type dataset{revision} "
        f"--include '{source.files}' --local-dir FOLDER\n"
        "and set bench.data_root=FOLDER."
    )
