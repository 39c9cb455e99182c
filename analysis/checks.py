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
FIXED = "not testable from runs: fixed in the code, no run records it"

Counter = Callable[[Data], float | None]  # None where there is nothing to count
Place = tuple[dict[str, str], str]  # a row by the texts of its columns, and a heading


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


def share(
    label: str,
    table: str,
    model: str,
    row: dict[str, str],
    column: str,
    whole: float,
    paper: float,
) -> Check:
    """A cell in per cent of a printed number; ``paper`` is the printed share, a whole number."""

    def run(data: Data) -> Outcome:
        cell = find_cell(data, table, model, row, column)
        found = (None, None, None) if cell is None else (cell.value, cell.low, cell.high)
        value, low, high = (None if part is None else 100 * part / whole for part in found)
        return judged(Cell(value, low, high, paper, digits=0))

    return Check(label, run, timed=False)


def once(ready: Callable[[Data], bool], check: Check) -> Check:
    """A check of a number that averages runs, not measured before all of them are there."""

    def run(data: Data) -> Outcome:
        outcome = check.run(data)
        if ready(data):
            return outcome
        entry = outcome.entry
        return Outcome(_without_ours(entry) if isinstance(entry, Cell) else "-", None)

    return replace(check, run=run)


def _without_ours(cell: Cell) -> Cell:
    return replace(cell, value=None, low=None, high=None, mark="")


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
    label: str,
    table: str,
    model: str,
    columns: Sequence[str],
    exceptions: Sequence[str] = (),
    timed: bool = True,
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

    return Check(label, run, timed)


def _wins(data: Data, table: str, model: str, column: str) -> bool | None:
    values = {
        name: find_cell(data, table, model, {"Method": label}, column)
        for name, label in PAPER_METHODS.items()
    }
    shown = {name: c.value for name, c in values.items() if c is not None and c.value is not None}
    if len(shown) < len(PAPER_METHODS):
        return None
    return shown["recap"] == max(shown.values())


def ordered(
    label: str,
    table: str,
    model: str,
    pairs: Iterable[tuple[Place, Place]],
    timed: bool = False,
) -> Check:
    """Pairs of cells of which the second must be larger."""
    wanted = list(pairs)

    def run(data: Data) -> Outcome:
        values = [[_value(data, table, model, place) for place in pair] for pair in wanted]
        found = [low < high for low, high in values if low is not None and high is not None]
        if len(found) < len(wanted):
            return NOTHING
        return Outcome(f"in {sum(found)} of {len(found)}", all(found))

    return Check(label, run, timed)


def _value(data: Data, table: str, model: str, place: Place) -> float | None:
    cell = find_cell(data, table, model, *place)
    return None if cell is None else cell.value


# Counts


def count(
    label: str,
    expected: float,
    counter: Counter,
    tolerance: float = 0.0,
    general: bool = False,
    to_come: bool = False,
) -> Check:
    """A size of the setup: equal, or within a relative tolerance.

    to_come: whether fewer only mean that runs are still to come.
    """

    def run(data: Data) -> Outcome:
        found = counter(data)
        cell = Cell(found, paper=expected, digits=0)
        if found is None or (to_come and found < expected):
            return Outcome(cell, None)
        return Outcome(cell, abs(found - expected) <= tolerance * expected)

    return Check(label, run, timed=False, general=general)


def fewer(label: str, counter: Counter, other: Counter) -> Check:
    """A size of the setup that must be smaller than another one, on any model and device."""

    def run(data: Data) -> Outcome:
        found, larger = counter(data), other(data)
        if found is None or larger is None:
            return NOTHING
        return Outcome(f"{found:g} against {larger:g}", found < larger)

    return Check(label, run, timed=False, general=True)


# Words


def named(label: str, expected: str, names: Callable[[Data], set[str]]) -> Check:
    """What all runs of the paper's setting must say alike."""

    def run(data: Data) -> Outcome:
        found = names(data)
        return Outcome(", ".join(sorted(found)), found == {expected}) if found else NOTHING

    return Check(label, run)


def untestable(label: str, text: str, reason: str) -> Check:
    """A number that no run can confirm, and why."""
    return Check(label, lambda data: Outcome(text, None, reason))


def untrained(label: str, paper: str) -> Check:
    """A number of the trained drafters, which this project does not run."""
    return untestable(label, f"paper {paper}", UNTRAINED)
