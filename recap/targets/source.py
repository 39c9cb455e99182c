"""Where a checkpoint's files are, and the sentences that say so when they are not there.

Three kinds of places: a local folder (or a GGUF file), an installed Python package that carries a
GGUF file, and a hub id at a revision. Whatever the place, its files are brought into one local
folder here, and everything is read from there: there is one moment at which something can be
missing, and one commit that all files belong to. Knows nothing about models.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recap.targets.hub import HubError, first_sentence, snapshot

# What a checkpoint consists of here: no pickles, no code.
_SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model")
_WEIGHTS = "*.safetensors"
_ELSEWHERE = "Or set model.path=... to a local copy."


@dataclass(frozen=True)
class Source:
    """A folder with a checkpoint's files, and what ``from_pretrained`` needs to read them.

    repo:     the hub id they came from, if they did.
    revision: the commit they belong to, where it is known.
    """

    folder: str
    repo: str | None = None
    revision: str | None = None
    gguf_file: str | None = None

    @property
    def name(self) -> str:
        """What a record calls it."""
        return self.repo or self.folder

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for every ``from_pretrained`` call."""
        return {} if self.gguf_file is None else {"gguf_file": self.gguf_file}


def find_source(
    path: str | None = None,
    repo: str | None = None,
    revision: str | None = None,
    package: str | None = None,
    gguf_file: str | None = None,
    hint: str = "",
    *,
    weights: bool = True,
) -> Source:
    """The place ``recap.targets.load.load`` was pointed at, ``path`` before ``package`` before
    ``repo``.

    A hub model that is not on this machine is downloaded; with ``weights=False`` all but the
    weights. Without a revision the hub's current head is used, after a warning.

    Raises ValueError, with ``hint`` and the override that points elsewhere, when nothing is there.
    """
    if path is not None:
        return _local(Path(path).expanduser(), gguf_file, hint)
    if package is not None:
        return _packaged(package, gguf_file, hint)
    if repo is None:
        raise ValueError("no model to load: set model.path=... to a folder")
    return _from_hub(repo, revision, hint, weights)


def _local(path: Path, gguf_file: str | None, hint: str) -> Source:
    if path.is_file() and path.suffix == ".gguf":
        return Source(str(path.parent), gguf_file=path.name)
    wanted = gguf_file or "config.json"
    if not path.is_dir():
        raise ValueError(
            _sentence(f"no model folder at {path}", hint, "Set model.path=... to a local copy.")
        )
    if not (path / wanted).is_file():
        # A GGUF model may as well be given as an ordinary checkpoint folder.
        if (path / "config.json").is_file():
            return Source(str(path), revision=_commit_of(path))
        raise ValueError(_sentence(f"{path} is no model folder: it has no {wanted}", hint))
    return Source(str(path), revision=_commit_of(path), gguf_file=gguf_file)


def _commit_of(folder: Path) -> str | None:
    """The commit of a folder in the hub's cache, which is named after it."""
    return folder.name if folder.parent.name == "snapshots" else None


def _packaged(package: str, gguf_file: str | None, hint: str) -> Source:
    # Found, not imported: such a package may pull in a whole runtime when it is.
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    if not folders:
        name = package.replace("_", "-")
        missing = f"the model comes with the Python package {name}, which is not installed"
        raise ValueError(_sentence(missing, hint, _ELSEWHERE))
    return _local(Path(folders[0]), gguf_file, hint)


def _from_hub(repo: str, revision: str | None, hint: str, weights: bool) -> Source:
    if revision is None:
        warnings.warn(
            f"The revision of {repo} is not pinned: the hub's current head is used and recorded. "
            "Pin it with model.revision=<commit>.",
            stacklevel=2,
        )
    patterns = [*_SMALL_FILES, _WEIGHTS] if weights else [*_SMALL_FILES]
    required = ["config.json", _WEIGHTS] if weights else ["config.json"]
    try:
        folder = snapshot(repo, revision, patterns, required=required)
    except HubError as error:
        raise ValueError(_not_there(repo, revision, hint, error)) from error
    return Source(str(folder), repo, folder.name)


def _not_there(repo: str, revision: str | None, hint: str, error: HubError) -> str:
    named = repo if revision is None else f"{repo} at revision {revision}"
    get = f"hf download {repo}" + ("" if revision is None else f" --revision {revision}")
    return _sentence(
        f"{named} is not on this machine, and {error}",
        hint or f"Where there is a network, get it with `{get}`.",
        "Or set model.path=FOLDER to a copy made elsewhere (`hf download ... --local-dir FOLDER`).",
    )


def unreadable(source: Source, hint: str, error: Exception) -> str:
    """Why a checkpoint that was found could not be read, and how to get a good one."""
    if source.repo is None:
        return _sentence(f"cannot load the model in {source.folder}: {first_sentence(error)}", hint)
    get = f"hf download {source.repo} --revision {source.revision}"
    return _sentence(
        f"cannot load {source.repo} at revision {source.revision}: {first_sentence(error)}",
        hint or f"Get it with `{get}`.",
        _ELSEWHERE,
    )


def _sentence(*parts: str) -> str:
    return " ".join(part if part.endswith(".") else f"{part}." for part in parts if part)
