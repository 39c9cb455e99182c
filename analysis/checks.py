"""How a sentence of the paper is tested: looked up in our tables, compared, or counted.

A check gives what was found, as a cell or in words, and whether that agrees with the paper. It
takes its numbers from the artefacts themselves, so that no page can contradict another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.arms import PAPER_METHODS
from analysis.artefact import Cell, Entry, Table
from analysis.data import Data, paper_model

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
NOT_TESTABLE, NOT_MEASURED = "not testable on this hardware", "not measured yet"
UNTRAINED = "not testable here: trained drafters are not run"


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    holds:  None where nothing is measured.
    reason: why it cannot be tested, or why it does not hold; empty where the verdict says enough.
    """

    entry: Entry
    holds: bool | None
    reason: str = ""


NOTHING = Outcome(Cell(), None)


@dataclass(frozen=True)
class Check:
    """One number, or one comparison, of a sentence.

    label:   what is compared.
    run:     finds the outcome in the runs of a scope.
    timed:   whether it depends on the device's speed.
    general: whether it holds for every model and device, or for none.
    """

    label: str
    run: Callable[[Data], Outcome]
    timed: bool = True
    general: bool = False


def verdict(check: Check, outcome: Outcome, data: Data) -> str:
    """Reproduced or not, or why that cannot be said."""
    scope = data.scope
    if outcome.holds is None and outcome.reason:
        return outcome.reason
    if not check.general and (not scope.comparable or (check.timed and not scope.is_paper)):
        return NOT_TESTABLE
    if outcome.holds is None:
        return NOT_MEASURED
    because = f" ({outcome.reason})" if outcome.reason else ""
    return REPRODUCED if outcome.holds else NOT_REPRODUCED + because


# Numbers


def judged(cell: Cell) -> Outcome:
    """Whether the printed number lies in our interval, given that it was rounded.

    An effect must also be one: where our interval holds 0, or the null arm shows as much, a printed
    gain is compatible with what we see but not reproduced by it.
    """
    if cell.value is None or cell.paper is None:
        return Outcome(cell, None)
    half = 0.5 * 10.0**-cell.digits
    low = cell.value if cell.low is None else cell.low
    high = cell.value if cell.high is None else cell.high
    if not low - half <= cell.paper <= high + half:
        return Outcome(cell, False)
    if cell.signed and cell.mark == "noise":
        return Outcome(cell, False, "compatible, inside the null arm's noise")
    if cell.signed and low <= 0 <= high:
        return Outcome(cell, False, "compatible, our interval holds 0")
    return Outcome(cell, True)


def number(
    label: str,
    table: str,
    model: str,
    row: dict[str, str],
    column: str,
    paper: float | None = None,
    timed: bool = True,
) -> Check:
    """A cell of a table; ``paper`` is the printed number where the table does not hold it."""

    def run(data: Data) -> Outcome:
        cell = find_cell(data, table, model, row, column)
        if cell is None:
            return Outcome(Cell(paper=paper), None)
        cell = cell if paper is None else replace(cell, paper=paper)
        return judged(cell)

    return Check(label, run, timed)


def at_most(
    label: str, table: str, model: str, row: dict[str, str], column: str, limit: float
) -> Check:
    """A cell of a table that must not exceed a printed limit."""

    def run(data: Data) -> Outcome:
        cell = find_cell(data, table, model, row, column)
        if cell is None or cell.value is None:
            return Outcome(Cell(paper=limit), None)
        return Outcome(replace(cell, paper=limit), cell.value <= limit)

    return Check(label, run, timed=False)


def scope_model(data: Data, model: str) -> str | None:
    """The scope's model that is the paper's one, or its tiny analogue."""
    return next((name for name in data.models if paper_model(name) == model), None)


def table_of(data: Data, name: str) -> Table | None:
    """A table of this scope; None where there is no such artefact yet."""
    try:
        artefact = data.artefact(name)
    except ValueError:
        return None
    return artefact if isinstance(artefact, Table) else None


def find_row(data: Data, name: str, model: str, wanted: dict[str, str]) -> dict[str, Entry] | None:
    """The first row of a model whose columns hold these texts, by heading."""
    table, own = table_of(data, name), scope_model(data, model)
    if table is None or own is None:
        return None
    for row in table.rows:
        entries = dict(zip(table.headings, row, strict=True))
        texts = {"Model": own, **wanted}
        if all(entries.get(heading) == text for heading, text in texts.items()):
            return entries
    return None


def find_cell(
    data: Data, name: str, model: str, wanted: dict[str, str], column: str
) -> Cell | None:
    """One number of a table; None where the row, the column or the table is not there."""
    row = find_row(data, name, model, wanted)
    entry = None if row is None else row.get(column)
    return entry if isinstance(entry, Cell) else None


# Comparisons


def leads(
    label: str, table: str, model: str, columns: Sequence[str], exceptions: Sequence[str] = ()
) -> Check:
    """RECAP above every other method of the paper, column by column, but for the exceptions."""

    def run(data: Data) -> Outcome:
        counted = [c for c in columns if c not in exceptions]
        won = [_wins(data, table, model, column) for column in counted]
        found = [result for result in won if result is not None]
        if not found:
            return NOTHING
        text = f"in {sum(found)} of {len(found)}"
        if len(found) < len(counted):
            return Outcome(f"{text} measured", None)
        return Outcome(text, all(found))

    return Check(label, run)


def _wins(data: Data, table: str, model: str, column: str) -> bool | None:
    values = {
        name: find_cell(data, table, model, {"Method": label}, column)
        for name, label in PAPER_METHODS.items()
    }
    shown = {name: c.value for name, c in values.items() if c is not None and c.value is not None}
    if len(shown) < len(PAPER_METHODS):
        return None
    return shown["recap"] == max(shown.values())


def ordered(label: str, table: str, tests: Iterable[tuple[str, dict[str, str], str, str]]) -> Check:
    """Columns of one row that must increase; each test is (model, row, smaller, larger)."""
    wanted = list(tests)

    def run(data: Data) -> Outcome:
        pairs = [
            (find_cell(data, table, m, row, low), find_cell(data, table, m, row, high))
            for m, row, low, high in wanted
        ]
        found = [
            low.value < high.value
            for low, high in pairs
            if low is not None
            and high is not None
            and low.value is not None
            and high.value is not None
        ]
        if len(found) < len(wanted):
            return NOTHING
        return Outcome(f"in {sum(found)} of {len(found)}", all(found))

    return Check(label, run, timed=False)


# Counts


def count(
    label: str,
    expected: float,
    counter: Callable[[Data], float | None],
    tolerance: float = 0.0,
    general: bool = False,
) -> Check:
    """A size of the setup: equal, or within a relative tolerance."""

    def run(data: Data) -> Outcome:
        found = counter(data)
        cell = Cell(found, paper=expected, digits=0)
        holds = None if found is None else abs(found - expected) <= tolerance * expected
        return Outcome(cell, holds)

    return Check(label, run, timed=False, general=general)


def untrained(label: str, paper: str) -> Check:
    """A number of the trained drafters, which this project does not run."""
    return Check(label, lambda data: Outcome(f"paper {paper}", None, UNTRAINED))
