"""A `Table` as Markdown, LaTeX (booktabs) and CSV.

A number is shown as "ours [low, high]", the paper's beside it, and the difference where both are of
the same model. A dash is what nobody has measured. CSV has each of these in a column of its own.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.artefact import Cell, Entry, Figure, Missing, Table
from analysis.data import Scope

DASH = "-"
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True)
class Parts:
    """A cell in words; empty strings for what it has not."""

    ours: str
    interval: str
    paper: str
    difference: str
    mark: str


def parts(cell: Cell, comparable: bool) -> Parts:
    """A cell's numbers at its digits. ``comparable``: whether a difference means something."""
    if cell.value is None:
        return Parts("", "", number(cell.paper, cell), "", cell.mark)
    interval = ""
    if cell.low is not None and cell.high is not None:
        interval = f"[{number(cell.low, cell)}, {number(cell.high, cell)}]"
    difference = ""
    if comparable and cell.paper is not None:
        difference = number(cell.value - cell.paper, cell, signed=True)
    return Parts(
        number(cell.value, cell), interval, number(cell.paper, cell), difference, cell.mark
    )


def number(value: float | None, cell: Cell, signed: bool = False) -> str:
    """A number at the cell's digits; "n/a" for what is not defined."""
    if value is None:
        return ""
    if value != value:
        return "n/a"
    text = f"{value:+,.{cell.digits}f}" if signed or cell.signed else f"{value:,.{cell.digits}f}"
    return re.sub(r"^-(0(?:\.0*)?)$", r"+\1" if signed or cell.signed else r"\1", text)


def one_line(entry: Entry, comparable: bool) -> str:
    """An entry for tests and for the command line."""
    if isinstance(entry, str):
        return entry
    return _join(parts(entry, comparable), " | ")


def _join(shown: Parts, separator: str) -> str:
    ours = " ".join(part for part in (shown.ours or DASH, shown.interval) if part)
    if shown.mark:
        ours += f" ({shown.mark})"
    if not shown.paper:
        return ours
    difference = f" ({shown.difference})" if shown.difference else ""
    return f"{ours}{separator}paper {shown.paper}{difference}"


def caption(artefact: Table | Figure, scope: Scope) -> str:
    """The caption with what the numbers were measured on."""
    note = scope_note(scope) if artefact.measured else "Nothing of this is measured yet."
    if not scope.comparable:
        drawn = "not drawn" if isinstance(artefact, Figure) else "for reference, no difference"
        note = f"{note} Published values: {drawn}."
    return f"{artefact.caption} {note}"


def scope_note(scope: Scope) -> str:
    """Which models and device."""
    if scope.is_paper:
        return "Measured in the paper's setting: its two 7B models on an A100."
    if scope.comparable:
        return f"Measured on {scope.label}: not the paper's device, an A100."
    return f"Measured on {scope.label}: NOT the paper's models."


def markdown(table: Table, scope: Scope) -> str:
    """The whole page: title, caption, table, notes and what is missing."""
    heading = f"{table.title} ({scope.label})" if not scope.is_paper else table.title
    lines = [f"# {heading}", "", caption(table, scope), ""]
    lines += ["| " + " | ".join(_escape(h) for h in table.headings) + " |"]
    lines += ["|" + "|".join(_alignment(table, i) for i in range(len(table.headings))) + "|"]
    lines += [
        "| " + " | ".join(_escape(_markdown_entry(entry, scope)) for entry in row) + " |"
        for row in table.rows
    ]
    return "\n".join([*lines, *notes(table.footnotes, table.missing)]) + "\n"


def notes(footnotes: Sequence[str], missing: Sequence[Missing]) -> list[str]:
    """Footnotes and gaps as Markdown lists."""
    lines: list[str] = []
    if footnotes:
        lines += ["", "Notes:", "", *(f"- {note}" for note in footnotes)]
    if missing:
        lines += ["", "Missing, and what would measure it:", ""]
        lines += [f"- {gap.what}: `{gap.command}`" for gap in missing]
    return lines


def _alignment(table: Table, column: int) -> str:
    return "---:" if _numeric(table, column) else "---"


def _numeric(table: Table, column: int) -> bool:
    return any(isinstance(row[column], Cell) for row in table.rows)


def _markdown_entry(entry: Entry, scope: Scope) -> str:
    return entry if isinstance(entry, str) else _join(parts(entry, scope.comparable), "<br>")


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def latex(table: Table, scope: Scope) -> str:
    """A booktabs table; gaps and notes are comments and small print."""
    columns = "".join("r" if _numeric(table, i) else "l" for i in range(len(table.headings)))
    label = ".".join(part for part in (table.id, scope.slug) if part)
    lines = [
        f"% {table.title}; needs \\usepackage{{booktabs}}",
        *(f"% missing: {gap.what}: {gap.command}" for gap in table.missing),
        r"\begin{table*}[t]",
        r"\centering\small",
        f"\\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(tex(heading) for heading in table.headings) + r" \\",
        r"\midrule",
        *(" & ".join(_latex_entry(e, scope) for e in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        f"\\caption{{{tex(caption(table, scope))}}}",
        f"\\label{{tab:{label}}}",
        *(f"\\par{{\\footnotesize {tex(note)}}}" for note in table.footnotes),
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _latex_entry(entry: Entry, scope: Scope) -> str:
    if isinstance(entry, str):
        return tex(entry)
    shown = parts(entry, scope.comparable)
    lines = [tex(" ".join(part for part in (shown.ours or DASH, shown.interval) if part))]
    if shown.mark:
        lines.append(f"({tex(shown.mark)})")
    if shown.paper:
        difference = f" ({shown.difference})" if shown.difference else ""
        lines.append(f"paper {shown.paper}{difference}")
    if len(lines) == 1:
        return lines[0]
    first, *rest = lines
    return r"\shortstack[r]{" + r"\\".join([first, *(rf"\scriptsize {r}" for r in rest)]) + "}"


def tex(text: str) -> str:
    """Plain text for LaTeX."""
    escaped = "".join(_LATEX.get(character, character) for character in text)
    escaped = re.sub(r"`([^`]*)`", r"\\texttt{\1}", escaped)
    return re.sub(r"\btau\b", r"$\\tau$", escaped)


def csv_text(table: Table, scope: Scope) -> str:
    """One line per row; a numeric column becomes ours, low, high, paper, difference and remark."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    numeric = [_numeric(table, i) for i in range(len(table.headings))]
    suffixes = ("", " low", " high", " paper", " difference", " remark")
    writer.writerow(
        [
            heading + suffix
            for heading, is_number in zip(table.headings, numeric, strict=True)
            for suffix in (suffixes if is_number else ("",))
        ]
    )
    for row in table.rows:
        values: list[str] = []
        for entry, is_number in zip(row, numeric, strict=True):
            values += _csv_entry(entry, is_number, scope)
        writer.writerow(values)
    return out.getvalue()


def _csv_entry(entry: Entry, is_number: bool, scope: Scope) -> list[str]:
    if isinstance(entry, str):
        return [entry, "", "", "", "", ""] if is_number else [entry]
    difference = None
    if scope.comparable and entry.value is not None and entry.paper is not None:
        difference = entry.value - entry.paper
    values = (entry.value, entry.low, entry.high, entry.paper, difference)
    return [*("" if v is None else f"{v:.6g}" for v in values), entry.mark]


def figure_page(figure: Figure, scope: Scope, stem: str) -> str:
    """A figure's caption, notes and gaps."""
    heading = f"{figure.title} ({scope.label})" if not scope.is_paper else figure.title
    image = f"![{figure.title}]({stem}.png)" if figure.measured else "Nothing is measured yet."
    lines = [f"# {heading}", "", image, "", caption(figure, scope)]
    return "\n".join([*lines, *notes(figure.footnotes, figure.missing)]) + "\n"
