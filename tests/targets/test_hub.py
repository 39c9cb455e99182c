"""Hub repositories: from the cache, from a hub (a small one, on this machine), and from neither."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recap.targets import hub
from recap.targets.hub import HubError, snapshot
from recap.targets.load import load

from .models import picture, turn
from .test_load import saved

REPO, COMMIT, OLDER = "some/model", "a" * 40, "b" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing known of the hub."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(hub, "_out_of_reach", [])
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return folder


@pytest.fixture
def offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return cache


@pytest.fixture
def unreachable(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A port that nobody listens on."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    return cache


class LittleHub(BaseHTTPRequestHandler):
    """What the hub's client asks for, over one folder."""

    files: dict[str, bytes]
    requested: list[str]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        type(self).requested.append(f"{self.command} {path}")
        if path.startswith(f"/api/models/{REPO}/tree/"):
            self.answer([self.entry(name) for name in self.files])
        elif path.startswith(f"/api/models/{REPO}"):
            self.answer({"id": REPO, "sha": COMMIT, "siblings": []})
        elif path.startswith(f"/{REPO}/resolve/{COMMIT}/"):
            self.send(self.files[path.rpartition("/")[2]])
        else:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def entry(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        return {"type": "file", "path": name, "size": len(data), "oid": digest(data)}

    def answer(self, value: Any) -> None:
        self.send(json.dumps(value).encode(), "application/json")

    def send(self, data: bytes, kind: str = "application/octet-stream") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{digest(data)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Quiet."""


def digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def little_hub(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[type[LittleHub]]:
    folder = saved("llava", tmp_path / "published")
    LittleHub.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    LittleHub.files["pytorch_model.bin"] = b"a pickle, never fetched"
    LittleHub.requested = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), LittleHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield LittleHub
    server.shutdown()
    server.server_close()


def cached(folder: Path, name: str, revision: str = COMMIT, head: str | None = None) -> Path:
    """A model in the hub's cache, as its client lays it out."""
    repository = folder / f"models--{REPO.replace('/', '--')}"
    if head is not None:
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(head)
    return saved(name, repository / "snapshots" / revision)


def test_a_pinned_model_in_the_cache_needs_no_hub(unreachable: Path) -> None:
    cached(unreachable, "causal_lm")
    loaded = load("causal_lm", repo=REPO, revision=COMMIT)
    assert (loaded.settings["source"], loaded.settings["revision"]) == (REPO, COMMIT)


def test_an_unpinned_model_is_warned_of_and_its_commit_recorded(unreachable: Path) -> None:
    cached(unreachable, "causal_lm", OLDER)
    cached(unreachable, "causal_lm", COMMIT, head=COMMIT)
    message = r"The revision of some/model is not pinned: .* with model\.revision=<commit>"
    with pytest.warns(UserWarning, match=message):
        loaded = load("causal_lm", repo=REPO)
    assert loaded.settings["revision"] == COMMIT


def test_a_pinned_model_is_not_warned_of(offline: Path) -> None:
    cached(offline, "causal_lm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load("causal_lm", repo=REPO, revision=COMMIT)


def test_a_folder_of_the_cache_given_as_path_is_recorded_with_its_commit(offline: Path) -> None:
    loaded = load("causal_lm", path=str(cached(offline, "causal_lm")))
    assert loaded.settings["revision"] == COMMIT


@pytest.mark.parametrize("revision", (COMMIT, "main", None))
def test_offline_and_not_there(offline: Path, revision: str | None) -> None:
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        snapshot(REPO, revision, ["*.json"])


@pytest.mark.parametrize("revision", (COMMIT, None))
def test_out_of_reach_is_said_soon_and_in_one_sentence(
    unreachable: Path, revision: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    with pytest.raises(ValueError) as caught:
        load("llava", repo=REPO, revision=revision)
    assert time.monotonic() - start < 2
    message = str(caught.value)
    assert message.startswith("some/model ") and "the hub cannot be reached" in message
    assert "`hf download some/model" in message and "model.path=FOLDER" in message
    assert "\n" not in message
    printed = capfd.readouterr()
    assert "Retry" not in printed.out + printed.err


def test_an_unreachable_hub_is_asked_once(
    unreachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for repo in ("some/model", "another/model"):
        with pytest.raises(HubError, match="cannot be reached"):
            snapshot(repo, COMMIT, ["*.json"])
        monkeypatch.setattr(hub, "HfApi", None)


def test_weights_are_fetched_only_for_a_real_load(little_hub: type[LittleHub], cache: Path) -> None:
    outline = load("llava", repo=REPO, revision=COMMIT, weights=False)
    folder = next(cache.glob("models--*/snapshots/*"))
    names = {path.name for path in folder.iterdir()}
    assert "config.json" in names and "tokenizer.json" in names
    assert not names & {"model.safetensors", "pytorch_model.bin"}
    loaded = load("llava", repo=REPO, revision=COMMIT)
    names = {path.name for path in folder.iterdir()}
    assert "model.safetensors" in names and "pytorch_model.bin" not in names
    assert outline.settings == loaded.settings
    assert loaded.settings["revision"] == COMMIT


def test_a_fetched_model_is_not_asked_for_again(little_hub: type[LittleHub], cache: Path) -> None:
    load("llava", repo=REPO, revision=COMMIT)
    little_hub.requested.clear()
    target = load("llava", repo=REPO, revision=COMMIT).target
    target.encode(turn("What is it?"), [picture(60, 40, 1)])
    assert little_hub.requested == []


def test_the_head_is_resolved_by_the_hub(little_hub: type[LittleHub], cache: Path) -> None:
    assert load("llava", repo=REPO, weights=False).settings["revision"] == COMMIT


def test_a_repository_that_the_hub_does_not_have(little_hub: type[LittleHub]) -> None:
    with pytest.raises(HubError, match=r"the hub answers: .*404 Not Found"):
        snapshot("no/such", COMMIT, ["*.json"])


def test_a_cache_filled_in_part_counts_as_missing(offline: Path) -> None:
    (cached(offline, "causal_lm") / "model.safetensors").unlink()
    load("causal_lm", repo=REPO, revision=COMMIT, weights=False)
    with pytest.raises(ValueError, match=r"some/model at revision a+ is not on this machine"):
        load("causal_lm", repo=REPO, revision=COMMIT)
