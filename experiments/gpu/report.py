"""The report: what must hold in it, the JSON it is written as, the table it is printed as."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiments.gpu.device import Results

# What stays on the device when a model has gone: the libraries' workspaces.
LEFT_MIB = 512

MOST_COLUMNS = 6  # of a grid that is still read


def checks_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What must hold, and whether it does. Of a section that did not run nothing is said."""
    checks = []

    def check(name: str, passed: bool, detail: str) -> None:
        checks.append({"check": name, "passed": passed, "detail": detail})

    for name, section in report["sections"].items():
        if section["status"] == "failed":
            check(f"{name} ran", False, section["error"])
        elif section["status"] == "ok":
            check(f"{name} ran", True, f"{section['seconds']} s")
            kind = name.partition("_")[0]
            if kind == "identity":
                check(f"{name}: AR's tokens from every method", *_identical(section["results"]))
            if kind == "steps" and report["device"]["type"] == "cuda":
                check(f"{name}: no step reads faster than a copy", *_plausible(section["results"]))
    for name, facts in report["models"].items():
        left = facts.get("allocated_after_release_mib")
        if left is not None:
            check(f"{name} left the device", left < LEFT_MIB, f"{left:.0f} MiB still allocated")
    return checks


def _identical(results: Results) -> tuple[bool, str]:
    methods = results["methods"]
    bad = [method for method, row in methods.items() if row["equal"] != row["of"]]
    return not bad, f"differing: {', '.join(bad)}" if bad else f"{len(methods)} methods"


def _plausible(results: Results) -> tuple[bool, str]:
    """A share of the copy bandwidth above one would be a mistake in the measurement."""
    shares = [row["ar"]["share_of_copy_bandwidth"] for row in results.values()]
    known = [share for share in shares if share is not None]
    return max(known, default=0.0) <= 1.05, f"shares: {', '.join(map(str, known)) or 'unknown'}"


def slug(name: str) -> str:
    """A device's name as a file name: lower-case letters, digits and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "device"


def write(path: Path, report: dict[str, Any]) -> None:
    """Write JSON beside ``path``, then rename: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
    temporary.replace(path)


def table(report: dict[str, Any]) -> list[str]:
    """The report as lines of text."""
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [report["device"]["name"], versions]
    for title in ("device", "models"):
        lines += ["", f"== {title}", *_render(report[title])]
    for name, section in report["sections"].items():
        what = ", ".join(section[key] for key in ("status", "error") if key in section)
        lines += ["", f"== {name}: {what}", *_render(section.get("results", {}))]
    lines += ["", "== checks"]
    for check in report["checks"]:
        verdict = "pass" if check["passed"] else "FAIL"
        lines.append(f"{verdict}  {check['check']} ({check['detail']})")
    return [*lines, f"total {report['total_seconds']} s"]


def _render(content: dict[str, Any]) -> list[str]:
    """Single values one per line, flat mappings as rows of one grid, others under a heading."""
    cells = {name: value for name, value in content.items() if _is_cell(value)}
    rows = {name: value for name, value in content.items() if name not in cells}
    flat = {name: row for name, row in rows.items() if _is_row(row)}
    lines = [f"{name:<28} {_cell(value)}" for name, value in cells.items()]
    lines += _grid(flat) if flat else []
    for name, row in rows.items():
        lines += [] if name in flat else ["", f"-- {name}", *_render(row)]
    return lines


def _is_cell(value: Any) -> bool:
    """Whether it is shown in one place: anything but a mapping, and median with quartiles."""
    return not isinstance(value, dict) or next(iter(value), "").startswith("median_")


def _is_row(content: dict[str, Any]) -> bool:
    return len(content) <= MOST_COLUMNS and all(map(_is_cell, content.values()))


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        unit = next(iter(value)).removeprefix("median_")
        low, median, high = (value[f"{part}_{unit}"] for part in ("q1", "median", "q3"))
        return f"{median:.4g} {unit} [{low:.4g}, {high:.4g}]"
    if value is None:
        return "-"
    return f"{value:,.5g}" if isinstance(value, float) else str(value)


def _grid(rows: dict[str, dict[str, Any]]) -> list[str]:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    text = [["", *columns]]
    for name, row in rows.items():
        text.append([name, *(_cell(row[column]) if column in row else "" for column in columns)])
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in text
    ]
