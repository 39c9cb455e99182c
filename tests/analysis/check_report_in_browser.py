"""The report in headless Chromium: no requests, no errors, no sideways scrolling, sorting works.

    python -m tests.analysis.check_report_in_browser results/report.html [--screenshots FOLDER]

`tests/analysis/test_report.py` runs it where there is a browser. Chromium is driven over its
debugging pipe, with the standard library alone.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

WIDTHS = {"desktop": 1280, "phone": 390}
HEIGHT = 900
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

_SORT = """(() => {
  const problems = [];
  for (const table of document.querySelectorAll("main table")) {
    const first = table.querySelector("thead button");
    first?.focus();
    if (first && document.activeElement !== first) problems.push("no focus");
    for (const button of table.querySelectorAll("thead button")) {
      const heading = button.closest("th");
      const before = [...table.tBodies[0].rows];
      button.click();
      if (heading.getAttribute("aria-sort") !== "ascending") problems.push("not ascending");
      const cells = [...table.tBodies[0].rows].map((row) => row.cells[heading.cellIndex]);
      const values = cells.map((cell) => cell.dataset.value).filter((v) => v).map(Number);
      if (values.some((v, i) => i && v < values[i - 1])) problems.push("not in order");
      const gaps = cells.map((cell) => !(cell.dataset.value ?? cell.textContent.trim()));
      if (gaps.some((gap, i) => i && gaps[i - 1] && !gap)) problems.push("gaps are not last");
      button.click();
      if (heading.getAttribute("aria-sort") !== "descending") problems.push("not descending");
      button.click();
      const after = [...table.tBodies[0].rows];
      if (before.some((row, i) => row !== after[i])) problems.push("not as it was");
    }
  }
  return [...new Set(problems)].map((p) => "sorting: " + p);
})()"""
_WIDTH = "[document.documentElement.scrollWidth, innerWidth]"
_OPEN = "document.querySelectorAll('main details').forEach((one) => { one.open = true; })"
_LINKS = """(() => {
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  const known = new Set(ids);
  const lost = [...document.querySelectorAll("a[href^='#']")]
    .map((a) => decodeURIComponent(a.hash.slice(1))).filter((id) => !known.has(id));
  const twice = ids.filter((id, i) => ids.indexOf(id) !== i);
  return [...new Set(lost)].map((id) => "leads nowhere: #" + id)
    .concat([...new Set(twice)].map((id) => "stands twice: #" + id));
})()"""
_REVEAL = """(() => {
  const run = document.querySelector(".run");
  if (!run) return [];
  run.open = false;
  location.hash = run.id;
  return new Promise((done) => {
    setTimeout(() => done(run.open ? [] : ["a link opens nothing"]), 50);
  });
})()"""


def browser() -> str | None:
    """Chromium's path; None where there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """One page of a browser, by the DevTools protocol."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            chunk = os.read(self._answers, 1 << 16)
            if not chunk:
                raise RuntimeError("The browser has gone.")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def open(self, address: str, width: int) -> None:
        """Load a page at a width and wait until it has loaded."""
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": width < 600}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.send("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def value(self, script: str) -> Any:
        """What a script gives."""
        answer = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The visible part as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def started(program: str) -> Iterator[Page]:
    """A browser with an empty profile, ended afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        to_browser, from_browser = os.pipe(), os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        ends = [
            fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (to_browser[0], from_browser[1])
        ]
        actions = [
            (os.POSIX_SPAWN_DUP2, fd, number) for fd, number in zip(ends, (3, 4), strict=True)
        ]
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        arguments = [program, *_FLAGS, f"--user-data-dir={profile}"]
        process = os.posix_spawn(program, arguments, os.environ, file_actions=actions)
        for fd in (*ends, to_browser[0], from_browser[1]):
            os.close(fd)
        try:
            page = Page(to_browser[1], from_browser[0])
            yield page
            with contextlib.suppress(RuntimeError, OSError):
                page.send("Browser.close")
        finally:
            os.close(to_browser[1])  # the browser ends when its pipe does
            os.close(from_browser[0])
            os.waitpid(process, 0)


def check(
    report: Path, screenshots: Path | None = None, widths: Mapping[str, int] = WIDTHS
) -> list[str]:
    """What is wrong with the report; empty when nothing is."""
    program = browser()
    assert program is not None, "There is no Chromium here."
    problems: list[str] = []
    with started(program) as page:
        for name, width in widths.items():
            page.open(report.resolve().as_uri(), width)
            if screenshots is not None:
                screenshots.mkdir(parents=True, exist_ok=True)
                page.screenshot(screenshots / f"{name}.png")
            found = [*_overflow(page), *page.value(_LINKS)]
            page.value(_OPEN)
            found += [*_overflow(page), *page.value(_SORT), *page.value(_REVEAL)]
            found += _events(page, report)
            problems += [f"{name}: {problem}" for problem in found]
    return problems


def _overflow(page: Page) -> list[str]:
    content, window = page.value(_WIDTH)
    return [f"the page is {content} wide, the window {window}"] if content > window else []


def _events(page: Page, report: Path) -> list[str]:
    """Errors, anything logged, and requests for anything but the report."""
    found = []
    for event in page.events:
        method, params = event.get("method"), event.get("params", {})
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            found.append(f"{method}: {json.dumps(params)[:300]}")
        elif method == "Network.requestWillBeSent":
            address = params["request"]["url"].partition("#")[0]
            if address != report.resolve().as_uri() and not address.startswith("data:"):
                found.append(f"fetches {address}")
    return found


def main() -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--screenshots", type=Path, help="folder to write pictures to")
    options = parser.parse_args()
    if browser() is None:
        print("SKIPPED: there is no Chromium here.")
        return 0
    problems = check(options.report, options.screenshots)
    print("\n".join(problems) or f"{options.report}: all well.")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
