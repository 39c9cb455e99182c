"""Everything that has been measured, as one HTML file that needs nothing else.

    python -m analysis.report --results results/runs --out results/report.html

Summary, every table and figure of every scope, and the provenance of every run. Each number links
to the runs behind it, and each run to its records, by paths relative to the report.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis import build, render, report_runs
from analysis import data as scopes
from analysis.data import RESULTS, Data
from analysis.load import Run
from analysis.report_page import Anchors, Shown, Text, page, unique
from analysis.report_runs import Described, FileLink
from analysis.report_shelf import HEADLINES, Shelf, Shelves, Watched, by_name

OUT = Path("results/report.html")


@dataclass(frozen=True)
class Want:
    """A command that would fill gaps, with what it fills and where."""

    command: str
    whats: Sequence[str]
    artefacts: Sequence[str]


@dataclass(frozen=True)
class ScopePage:
    """One scope, ready for the page."""

    anchor: str
    label: str
    note: str
    counts: dict[str, int]
    shelves: Sequence[Shelf]  # tables, then figures
    wants: Sequence[Want]
    headlines: Sequence[Sequence[Shown]]
    host: Sequence[FileLink]
    host_anchor: str
    runs: Sequence[str]


class Report:
    """Collects what the page shows. ``folder``: where the page will lie."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.found, self.problems = scopes.load(root, build.make)
        self.anchors = Anchors()
        self.runs = sorted((run for data in self.found for run in data.found), key=by_name)
        self.run_anchors = {run.name: self.anchors.of("run", run.name) for run in self.runs}

    def html(self, built: str | None = None) -> str:
        """The document. ``built``: when it was made; left out where it must not vary."""
        pages = [self._scope(data) for data in self.found]
        values = {
            "root": self.root.as_posix(),
            "built": built,
            "scopes": pages,
            "states": list(_states(pages)),
            "headline_headings": ("Model", "Benchmark", *HEADLINES),
            "runs": [self._described(run) for run in self.runs],
            "run_anchors": self.run_anchors,
            "left_out": self._left_out(),
        }
        return page(values, Text(self.run_anchors))

    def _described(self, run: Run) -> Described:
        return report_runs.describe(run, self.run_anchors[run.name], self.folder)

    def _left_out(self) -> list[str]:
        """Folders and records that count nowhere, and folders that have nothing yet."""
        found = [f"{run.name}: {problem}" for run in self.runs for problem in run.problems]
        known = {run.folder for run in self.runs}
        empty = [
            f"{config.parent.relative_to(self.root).as_posix()}: nothing but a configuration yet."
            for config in sorted(self.root.glob("*/*/*/*/config.yaml"))
            if config.parent not in known
            and not any(problem.startswith(f"{config.parent}:") for problem in self.problems)
        ]
        return [*self.problems, *found, *empty]

    def _scope(self, found: Data) -> ScopePage:
        data = Watched(found.scope, found.found, found.root, build.make)
        data.name_root = self.root != RESULTS
        anchor = self.anchors.of("scope", data.scope.slug or "paper")
        maker = Shelves(data, anchor, self.anchors, self.run_anchors)
        shelves = [maker.of(module) for kind in build.KINDS for module in build.modules(kind)]
        states = [shelf.state for shelf in shelves]
        return ScopePage(
            anchor=anchor,
            label=data.scope.label,
            note=render.scope_note(data.scope),
            counts={state: states.count(state) for state in ("complete", "partial", "nothing")},
            shelves=shelves,
            wants=_wants(shelves),
            headlines=list(maker.headlines()),
            host=self._host(data),
            host_anchor=maker.host_anchor,
            runs=[run.name for run in sorted(data.found, key=by_name)],
        )

    def _host(self, data: Data) -> list[FileLink]:
        """Microbenchmarks of the scope's device, which some tables read."""
        device = data.scope.device.lower().replace(" ", "-")
        return [
            FileLink(path.name, report_runs.relative(path, self.folder), path.stat().st_size)
            for path in sorted((self.root / "host").glob("*.json"))
            if path.name.endswith(f".{device}.json")
        ]


def _wants(shelves: Sequence[Shelf]) -> list[Want]:
    """What is missing, once per command."""
    whats: dict[str, list[str]] = {}
    artefacts: dict[str, list[str]] = {}
    for shelf in shelves:
        for gap in shelf.artefact.missing:
            whats.setdefault(gap.command, []).append(gap.what)
            artefacts.setdefault(gap.command, []).append(shelf.artefact.id)
    return [Want(c, unique(whats[c]), unique(artefacts[c])) for c in whats]


def _states(pages: Sequence[ScopePage]) -> Iterator[tuple[str, list[tuple[str, str, int]]]]:
    """Per artefact its title and, scope by scope, where it stands, its state and its gaps."""
    for shelves in zip(*(one.shelves for one in pages), strict=True):
        yield (
            shelves[0].artefact.title,
            [(s.anchor, s.state, len(s.artefact.missing)) for s in shelves],
        )


def write(root: Path, out: Path, built: str | None) -> str:
    """Write the report; what the command line says of it."""
    report = Report(root, out.parent)
    html = report.html(built)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(html, encoding="utf-8")
    size = f"{len(html.encode()) / 1e6:.1f} MB"
    return f"{out}: {len(report.runs)} runs in {len(report.found)} scopes, {size}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the runs lie")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default: {OUT}")
    parser.add_argument("--no-time", action="store_true", help="leave out when it was built")
    options = parser.parse_args(arguments)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    print(write(options.results, options.out, None if options.no_time else now))
    return 0


if __name__ == "__main__":
    gc.disable()  # all that is read stays to the end: looking for garbage took half the time
    sys.exit(main())
