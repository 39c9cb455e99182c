"""A table or figure with its numbers linked to the runs behind them.

Cells do not say which runs they come from. A table's are those of its studies; of these a number's
are the ones that its row and column name, by model, study and benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analysis import arms, build, paper, render
from analysis.artefact import Cell, Entry, Figure, Table
from analysis.data import Data
from analysis.load import Run
from analysis.main_results import BY_METHOD, MAIN, MMSPEC
from analysis.report_page import Anchors, Shown, inline_svg, shown_number, unique

if TYPE_CHECKING:
    from markupsafe import Markup

# Names that a row or a heading may begin with, and the benchmark that its number comes from then.
_BENCHES = {**{name: bench for bench, name in paper.SINGLE_TURN.items()}, "MMSpec": MMSPEC}
_BENCHES |= {bench: bench for bench in (*paper.SINGLE_TURN, MMSPEC)}
HEADLINES = ("S", "tau", "Tokens/verify", "Exact of", "Null S", "S decode")


class Watched(Data):
    """Runs of a scope that note which microbenchmarks an artefact asks for."""

    asked: bool = False

    def host(self, name: str) -> Any:
        """As `Data.host`."""
        self.asked = True
        return super().host(name)


@dataclass
class Behind:
    """The runs behind an artefact, and the parts of them that single numbers link to.

    ``host`` is the anchor of the device's microbenchmarks, where the numbers are these.
    """

    anchor: str
    runs: Sequence[Run]
    host: str = ""
    groups: dict[tuple[Run, ...], str] = field(default_factory=dict)
    names: list[tuple[str, str, list[str]]] = field(default_factory=list)

    def link(self, runs: tuple[Run, ...], words: str, run_anchors: dict[str, str]) -> str:
        """Where a number from these runs leads: the run, or the list of them."""
        if self.host:
            return f"#{self.host}"
        if not runs:
            return ""
        if len(runs) == 1:
            return f"#{run_anchors[runs[0].name]}"
        if runs not in self.groups:
            anchor = f"{self.anchor}-{len(self.groups) + 1}"
            self.groups[runs] = anchor
            self.names.append((anchor, words, [run.name for run in runs]))
        return f"#{self.groups[runs]}"


@dataclass(frozen=True)
class Shelf:
    """One artefact of one scope, ready for the page.

    ``numeric`` and ``rows`` are a table's, ``plot`` is a figure's. ``groups``: anchor, words and
    names of the runs that single numbers link to.
    """

    anchor: str
    artefact: Table | Figure
    caption: str
    state: str
    numeric: Sequence[bool]
    rows: Sequence[Sequence[Shown]]
    plot: Markup | None
    runs: Sequence[str]
    groups: Sequence[tuple[str, str, Sequence[str]]]
    host: str


class Shelves:
    """Makes the shelves of one scope. ``anchor`` is the scope's."""

    def __init__(
        self, data: Watched, anchor: str, anchors: Anchors, run_anchors: dict[str, str]
    ) -> None:
        self.data, self.anchor, self.anchors = data, anchor, anchors
        self.run_anchors = run_anchors
        self.host_anchor = anchors.of("host", data.scope.slug or "paper")
        self._behind: dict[str, Behind] = {}

    def of(self, module: ModuleType) -> Shelf:
        """An artefact's shelf."""
        self.data.asked = False
        artefact = self.data.artefact(module.ID)
        anchor = self.anchors.of(self.anchor, artefact.id)
        host = self.host_anchor if self.data.asked else ""
        runs = [] if host else self._runs(module.STUDIES, artefact)
        behind = Behind(f"{anchor}-runs", runs, host)
        self._behind[artefact.id] = behind
        return Shelf(
            anchor=anchor,
            artefact=artefact,
            caption=render.caption(artefact, self.data.scope),
            state=build.state(artefact),
            numeric=_numeric(artefact) if isinstance(artefact, Table) else (),
            rows=list(self._rows(artefact, behind)) if isinstance(artefact, Table) else (),
            plot=_plot(artefact, self.data, anchor),
            runs=[run.name for run in behind.runs],
            groups=behind.names,
            host=host,
        )

    def _runs(self, study_names: Sequence[str], artefact: Table | Figure) -> list[Run]:
        own = named(artefact.rows, self.data) if isinstance(artefact, Table) else []
        return unique([*sources(study_names, self.data), *own])

    def _rows(self, table: Table, behind: Behind) -> Iterator[list[Shown]]:
        lead = _num_leading(table)
        above: list[Shown] = []
        for row in table.rows:
            shown = [
                self._shown(entry, heading, row, behind)
                for entry, heading in zip(row, table.headings, strict=True)
            ]
            above = _with_leading(shown, above, lead)
            yield above

    def _shown(self, entry: Entry, heading: str, row: Sequence[Entry], behind: Behind) -> Shown:
        if isinstance(entry, str):
            return Shown(entry)
        runs, words = narrowed(behind.runs, heading, row, self.data)
        href = behind.link(runs, words, self.run_anchors) if entry.measured else ""
        what = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
        what = "microbenchmarks" if behind.host else what
        return shown_number(entry, self.data.scope.comparable, href, what)

    def headlines(self) -> Iterator[list[Shown]]:
        """RECAP's rows of Tables 1 and 2 and of their extended forms; after their shelves."""
        for study, names, places in (
            (MAIN, ("table01", "table01x"), (*paper.SINGLE_TURN.values(), "Average")),
            (MMSPEC, ("table02", "table02x"), ("Overall",)),
        ):
            short, extended = (_recap_rows(self.data.artefact(name)) for name in names)
            for model in self.data.models:
                for place in places:
                    found = _headline(model, place, short, extended)
                    if any(isinstance(entry, Cell) and entry.measured for entry in found.values()):
                        bench = "MMSpec" if study == MMSPEC else place
                        yield self._headline(model, bench, found, self._behind[names[0]])

    def _headline(
        self, model: str, bench: str, found: Mapping[str, Entry], behind: Behind
    ) -> list[Shown]:
        row = [model, bench]
        values = [
            self._shown(found[name], bench, row, behind) if name in found else Shown()
            for name in HEADLINES
        ]
        return [Shown(model, heading=True), Shown(bench, heading=True), *values]


def _recap_rows(table: Table | Figure) -> list[dict[str, Entry]]:
    """RECAP's rows of a table by their headings."""
    assert isinstance(table, Table)
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
    return [row for row in rows if row["Method"] == arms.METHODS["recap"]]


def _headline(
    model: str,
    place: str,
    short: Sequence[Mapping[str, Entry]],
    extended: Sequence[Mapping[str, Entry]],
) -> dict[str, Entry]:
    """S and tau with the paper's beside them, and what the extended table adds."""
    found: dict[str, Entry] = {}
    for row in extended:
        if row["Model"] == model and row.get("Benchmark", "Overall") == place:
            found |= {name: row[name] for name in HEADLINES}
    for row in short:
        if row["Model"] == model:
            found |= {name: row[f"{place} {name}"] for name in ("S", "tau")}
    return found


def sources(study_names: Sequence[str], data: Data) -> list[Run]:
    """The runs in use of these studies, and ordinary ones that rows of Tables 1 and 2 come from."""
    found: dict[str, Run] = {}
    for study in study_names:
        for model in data.models:
            for slot in data.slots(study):
                runs = [data.at(study, model, slot)]
                if study in BY_METHOD:
                    rows = arms.rows(data, study, slot.bench, model)
                    runs += [row.run for row in rows.values()]
                found |= {run.name: run for run in runs if run is not None}
    return sorted(found.values(), key=by_name)


def named(rows: Iterable[Sequence[Entry]], data: Data) -> list[Run]:
    """Runs whose own names, the last part of their folders', stand in a table."""
    words = {entry for row in rows for entry in row if isinstance(entry, str)}
    return [run for run in data.found if run.name.rpartition("/")[2] in words]


def narrowed(
    runs: Sequence[Run], heading: str, row: Sequence[Entry], data: Data
) -> tuple[tuple[Run, ...], str]:
    """The runs that a number's row and column name, all of them where they name none.

    Model, study and benchmark are told by the words that tables use for them.
    """
    words = [entry for entry in row if isinstance(entry, str)]
    chosen = [run for run in runs if run.name.rpartition("/")[2] in words] or list(runs)
    told_apart: list[str] = []
    for told in (
        [(word, [r for r in chosen if r.model == word]) for word in words],
        [(word, [r for r in chosen if r.study == word]) for word in words],
        _by_bench(runs, words, data) or _by_bench(runs, _BENCHES, data, heading),
    ):
        fitting = [run for run in chosen if any(run in kept for _, kept in told)]
        if fitting:
            chosen = fitting
            told_apart += [word for word, kept in told if kept]
    return tuple(chosen), ", ".join(unique(told_apart)) or "the whole table"


def _by_bench(
    runs: Sequence[Run], words: Iterable[str], data: Data, heading: str = ""
) -> list[tuple[str, list[Run]]]:
    """Words that are benchmarks, and their runs; only those that the heading begins with."""
    found = []
    for word in words:
        names = (word, data.bench_name(_BENCHES.get(word, word)))
        kept = [run for run in runs if run.bench in names]
        if kept and f"{heading} ".startswith(f"{word} " if heading else ""):
            found.append((word, kept))
    return found


def _numeric(table: Table) -> list[bool]:
    columns = range(len(table.headings))
    return [any(isinstance(row[i], Cell) for row in table.rows) for i in columns]


def _num_leading(table: Table) -> int:
    """How many columns of text come before the first of numbers."""
    numeric = _numeric(table)
    return numeric.index(True) if True in numeric else len(numeric)


def _with_leading(row: list[Shown], above: Sequence[Shown], lead: int) -> list[Shown]:
    """The row with its leading texts as headings; empty ones repeat what stands above them.

    A sorted table needs them: its rows no longer stand under the one that named them.
    """
    for i in range(lead):
        text = row[i].text
        repeated = not text and bool(above)
        row[i] = Shown(above[i].text if repeated else text, heading=True, repeated=repeated)
    return row


def _plot(artefact: Table | Figure, data: Data, anchor: str) -> Markup | None:
    if isinstance(artefact, Table) or artefact.plot is None:
        return None
    return inline_svg(artefact.plot, f"{anchor}-svg", f"{artefact.title}. {data.scope.label}")


def by_name(run: Run) -> str:
    return run.name
