"""Where a checkpoint's files are, and the sentences that say so when they are not there.

Three kinds of places: a local folder (or a GGUF file), an installed Python package that carries a
GGUF file, and a hub id at a pinned revision. Knows nothing about models.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Source:
    """Where a checkpoint's files are, and what ``from_pretrained`` needs to read them."""

    location: str
    revision: str | None = None
    gguf_file: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for every ``from_pretrained`` call."""
        named = {"revision": self.revision, "gguf_file": self.gguf_file}
        return {name: value for name, value in named.items() if value is not None}


def find_source(
    path: str | None,
    repo: str | None,
    revision: str | None,
    package: str | None,
    gguf_file: str | None,
    hint: str,
) -> Source:
    """The place ``recap.targets.load.load`` was pointed at, ``path`` before ``package`` before
    ``repo``.

    Raises ValueError, with ``hint`` and the override that points elsewhere, when nothing is there.
    """
    if path is not None:
        return _local(Path(path).expanduser(), gguf_file, hint)
    if package is not None:
        return _packaged(package, gguf_file, hint)
    if repo is None:
        raise ValueError("no model to load: set model.path=... to a folder")
    if revision is None:
        raise ValueError(f"{repo} needs a pinned revision: set model.revision=... to a commit hash")
    return Source(repo, revision)


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
            return Source(str(path))
        raise ValueError(_sentence(f"{path} is no model folder: it has no {wanted}", hint))
    return Source(str(path), gguf_file=gguf_file)


def _packaged(package: str, gguf_file: str | None, hint: str) -> Source:
    # Found, not imported: such a package may pull in a whole runtime when it is.
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    if not folders:
        name = package.replace("_", "-")
        missing = f"the model comes with the Python package {name}, which is not installed"
        raise ValueError(_sentence(missing, hint, "Or set model.path=... to a local copy."))
    return _local(Path(folders[0]), gguf_file, hint)


def unreadable(source: Source, hint: str, error: Exception) -> str:
    """Why a checkpoint that was found could not be read, and how to get a good one."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
    if source.revision is None:
        return _sentence(f"cannot load the model in {source.location}: {reason}", hint)
    get = f"hf download {source.location} --revision {source.revision}"
    return _sentence(
        f"cannot load {source.location} at revision {source.revision}: {reason}",
        hint or f"Get it with `{get}`",
        "or set model.path=... to a local copy.",
    )


def _sentence(*parts: str) -> str:
    return " ".join(part if part.endswith((".", "`")) else f"{part}." for part in parts if part)
