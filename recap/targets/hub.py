"""Files of hub repositories, models and data sets alike: from the cache, else from the hub.

The hub's own client asks an unreachable hub six times per repository, for half a minute. Here it is
asked once, briefly, and not again in this process. Needs no torch.

Example: ``snapshot("Qwen/Qwen2.5-VL-7B-Instruct", commit, ["*.json"])``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

# Seconds until the hub counts as out of reach.
_PATIENCE = 10

# Why the hub is out of reach, once that is known: one entry at most.
_out_of_reach: list[str] = []


class HubError(Exception):
    """A repository that neither the cache nor the hub has; the message is half a sentence."""


def snapshot(
    repo: str,
    revision: str | None,
    patterns: Sequence[str],
    *,
    repo_type: str = "model",
    required: Sequence[str] = (),
    fetch: bool = True,
) -> Path:
    """The folder, named after its commit, that holds the repository's files of these patterns.

    A pinned commit whose files are in the cache is not asked for; a branch, or None for the head,
    is looked up, and read from the cache where the hub is out of reach.

    required: patterns that a cached folder must have a file for. A cache that another program
    filled may hold a part of the repository only, and need not know it.
    fetch: False reads the cache and asks nobody.

    Raises HubError.
    """
    cached = _cached(repo, revision, patterns, repo_type, required)
    if cached is not None and (is_commit(revision) or not fetch):
        return cached
    if not fetch:
        raise HubError("nothing is fetched now")
    try:
        commit = _head(repo, revision, repo_type)
    except HubError:
        if cached is not None:
            return cached
        raise
    try:
        folder = snapshot_download(
            repo, repo_type=repo_type, revision=commit, allow_patterns=list(patterns)
        )
    except Exception as error:  # of whichever library carries the client's requests
        raise HubError(f"the download failed ({first_sentence(error)})") from error
    return Path(folder)


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a full commit hash, which always means the same files."""
    return revision is not None and re.fullmatch("[0-9a-f]{40}", revision) is not None


def first_sentence(error: Exception) -> str:
    """The first sentence of an error of somebody else's, or its name."""
    lines = (str(error).strip() or type(error).__name__).splitlines()
    return lines[0].split(". ")[0]


def _cached(
    repo: str,
    revision: str | None,
    patterns: Sequence[str],
    repo_type: str,
    required: Sequence[str],
) -> Path | None:
    try:
        folder = Path(
            snapshot_download(
                repo,
                repo_type=repo_type,
                revision=revision,
                allow_patterns=list(patterns),
                local_files_only=True,
            )
        )
    except (OSError, ValueError):
        return None
    return folder if all(any(folder.glob(pattern)) for pattern in required) else None


def _head(repo: str, revision: str | None, repo_type: str) -> str | None:
    """The commit the hub has for a revision; raises HubError when it has none or does not answer.

    One request, without the client's retries.
    """
    if _out_of_reach:
        raise HubError(_out_of_reach[0])
    try:
        info = HfApi().repo_info(repo, revision=revision, repo_type=repo_type, timeout=_PATIENCE)
    except HfHubHTTPError as error:
        raise HubError(f"the hub answers: {first_sentence(error)}") from error
    except OfflineModeIsEnabled as error:
        raise HubError("the hub is not asked, because HF_HUB_OFFLINE is set") from error
    except Exception as error:  # as above
        _out_of_reach.append(f"the hub cannot be reached ({first_sentence(error)})")
        raise HubError(_out_of_reach[0]) from error
    return info.sha
