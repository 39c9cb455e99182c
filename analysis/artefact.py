"""What a table or figure is, before it is rendered: plain values, no files.

Every module in `analysis.tables` and `analysis.figures` is one artefact, found by its place:

    ID = "table05"                      # file name without its ending
    TITLE = "Table 5: ..."
    STUDIES = ("replay",)               # the studies that feed it, as in conf/study/
    def build(data: Data) -> Table: ... # or Figure

`build` gets the runs of one scope (`analysis.data.Data`). It renders what is there, leaves a
`Cell` without a value for what is not, and names the gap in ``missing`` with the command that
would fill it. The scope's label, file names and formats are `analysis.build`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

    from analysis.data import Data
    from analysis.metrics import Interval


@dataclass(frozen=True)
class Cell:
    """One number of a table: ours with its 95 % interval, and the paper's beside it.

    value, low, high: ours; None where it is not measured. An interval is optional.
    paper:            the published number; None where there is none.
    digits:           decimals of all of them.
    unit:             "%", "ms", ...; shown in the column's heading or the title, not in the cell.
    signed:           whether a plus sign is shown.
    mark:             a short remark behind the number, such as "noise".
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    digits: int = 2
    unit: str = ""
    signed: bool = False
    mark: str = ""

    @classmethod
    def of(
        cls,
        interval: Interval | None,
        paper: float | None = None,
        digits: int = 2,
        signed: bool = False,
        mark: str = "",
    ) -> Cell:
        """A cell from an interval of `analysis.metrics`; nan stands for what there is not."""
        if interval is None or interval.mean != interval.mean:
            return cls(paper=paper, digits=digits, signed=signed)
        bounded = interval.low == interval.low
        low, high = (interval.low, interval.high) if bounded else (None, None)
        return cls(interval.mean, low, high, paper, digits, signed=signed, mark=mark)

    @property
    def measured(self) -> bool:
        """Whether the cell has a number of ours."""
        return self.value is not None


Entry = Cell | str  # a number, or text that is shown as it is


@dataclass(frozen=True)
class Missing:
    """A gap, in words, and the command that would fill it."""

    what: str
    command: str


@dataclass(frozen=True)
class Table:
    """A table before it is rendered. Each row has one entry per heading."""

    id: str
    title: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    footnotes: Sequence[str] = ()
    missing: Sequence[Missing] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headings):
                raise ValueError(f"{self.id}: {len(row)} entries for {len(self.headings)} headings")

    @property
    def measured(self) -> bool:
        """Whether any number of ours is in it."""
        return any(isinstance(entry, Cell) and entry.measured for row in self.rows for entry in row)


@dataclass(frozen=True)
class Figure:
    """A figure before it is saved. ``plot`` is None where nothing is measured."""

    id: str
    title: str
    caption: str
    plot: Plot | None
    footnotes: Sequence[str] = ()
    missing: Sequence[Missing] = field(default_factory=tuple)

    @property
    def measured(self) -> bool:
        """Whether anything of ours is in it."""
        return self.plot is not None


class Artefact(Protocol):
    """What a module of `analysis.tables` or `analysis.figures` offers."""

    ID: str
    TITLE: str
    STUDIES: tuple[str, ...]

    def build(self, data: Data) -> Table | Figure:
        """The artefact from the runs of one scope."""
