"""Whatever has been measured, as the paper's tables and figures.

    python -m analysis.build tables              # results/tables/: Markdown, LaTeX and CSV
    python -m analysis.build figures             # results/figures/: PDF and PNG
    python -m analysis.build tables --strict     # or STRICT=1: exit status 1 unless complete
    python -m analysis.build tables --model tiny_qwen25vl --strict

Every module in `analysis.tables` and `analysis.figures` is one artefact. It is built for every
scope that has runs: the paper's setting under its plain name, others with model and device in file
name and caption. What is missing is printed with the command that would measure it.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from analysis import data as scopes
from analysis import render
from analysis.arms import merged, unlike_study
from analysis.artefact import Figure, Missing, Table
from analysis.data import RESULTS, Data
from analysis.main_results import BY_METHOD

KINDS = ("tables", "figures")
_SHOWN = 6  # gaps printed per artefact; the artefact's own file lists all


@functools.cache
def modules(kind: str) -> tuple[ModuleType, ...]:
    """The artefacts of a kind, in the paper's order, our own pages last."""
    package = importlib.import_module(f"analysis.{kind}")
    names = [m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")]
    found = [importlib.import_module(f"analysis.{kind}.{name}") for name in names]
    order = sorted(found, key=lambda m: (not re.search(r"\d", m.ID), m.ID == "claims", m.ID))
    return tuple(order)


def make(name: str, data: Data) -> Table | Figure:
    """One artefact by its identifier, for artefacts that read others."""
    kind = "figures" if name.startswith("figure") else "tables"
    for module in modules(kind):
        if name == module.ID:
            return _built(module, data)
    raise ValueError(f"there is no artefact {name}")


def _built(module: ModuleType, data: Data) -> Table | Figure:
    artefact = module.build(data)
    assert isinstance(artefact, Table | Figure)
    studies = [study for study in module.STUDIES if study not in BY_METHOD]
    aside = [run for study in studies for m in data.models for run in data.unused(study, m)]
    notes = list(artefact.footnotes)
    if aside:
        names = ", ".join(f"`{run.name}`" for run in dict.fromkeys(aside))
        notes.append(f"Left aside, because a larger or newer run has the same settings: {names}.")
    caption = " ".join(part for part in (artefact.caption, unlike_study(notes)) if part)
    return replace(artefact, caption=caption, footnotes=merged(notes))


def state(artefact: Table | Figure) -> str:
    """Complete, partial or nothing."""
    if not artefact.measured:
        return "nothing"
    return "partial" if artefact.missing else "complete"


def file_stem(artefact: Table | Figure, data: Data) -> str:
    """The artefact's file name without its ending."""
    return ".".join(part for part in (artefact.id, data.scope.slug) if part)


def write(artefact: Table | Figure, data: Data, out: Path) -> list[Path]:
    """The artefact's files."""
    stem = file_stem(artefact, data)
    if isinstance(artefact, Table):
        texts = {
            "md": render.markdown(artefact, data.scope),
            "tex": render.latex(artefact, data.scope),
            "csv": render.csv_text(artefact, data.scope),
        }
    else:
        texts = {"md": render.figure_page(artefact, data.scope, stem)}
    written = []
    for ending, text in texts.items():
        written.append(out / f"{stem}.{ending}")
        written[-1].write_text(text, encoding="utf-8")
    return written + (_plots(artefact, data, out, stem) if isinstance(artefact, Figure) else [])


def _plots(figure: Figure, data: Data, out: Path, stem: str) -> list[Path]:
    if figure.plot is None:
        return []
    from analysis import style  # matplotlib is slow to import

    return style.save(figure.plot, data.scope, out / stem)


def build(kind: str, root: Path, out: Path, model: str | None = None) -> bool:
    """Build every artefact of a kind for every scope; whether nothing was missing.

    model: only scopes with this model; files of others are left as they are. Raises ValueError
    where no run is of it.
    """
    found, problems = scopes.load(root, make)
    if model is not None:
        found = [data for data in found if any(run.model == model for run in data.found)]
        if not found:
            raise ValueError(f"{root} holds no run of model {model}.")
    out.mkdir(parents=True, exist_ok=True)
    for problem in problems:
        print(f"left out: {problem}")
    written: list[Path] = []
    whole = not problems
    for data in found:
        data.name_root = root != RESULTS
        print(f"{kind.capitalize()} of {data.scope.label}, from {root}:")
        for module in modules(kind):
            artefact = data.artefact(module.ID)
            written += write(artefact, data, out)
            whole = whole and state(artefact) == "complete"
            print(report(artefact))
    if model is None:
        _remove_stale(kind, out, written)
    print(f"{len(written)} files in {out}")
    return whole


def report(artefact: Table | Figure) -> str:
    """What the command line says of an artefact."""
    lines = [f"  {artefact.id:<14} {state(artefact)}"]
    lines += [_gap(gap) for gap in artefact.missing[:_SHOWN]]
    if len(artefact.missing) > _SHOWN:
        lines.append(f"      and {len(artefact.missing) - _SHOWN} more, see its .md file")
    return "\n".join(lines)


def _gap(gap: Missing) -> str:
    return f"      {gap.what}: {gap.command}"


def _remove_stale(kind: str, out: Path, written: Sequence[Path]) -> None:
    """Remove what an earlier build left and this one did not make: nothing else in the folder."""
    ids = "|".join(re.escape(module.ID) for module in modules(kind))
    pattern = re.compile(rf"({ids})(\..*)?\.(md|tex|csv|pdf|png)")
    for path in out.iterdir():
        if path not in written and pattern.fullmatch(path.name):
            path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the runs lie")
    parser.add_argument("--out", type=Path, help="default: results/tables or results/figures")
    parser.add_argument("--model", help="only this model's; default: whatever has runs")
    parser.add_argument("--strict", action="store_true", help="exit status 1 unless complete")
    options = parser.parse_args(arguments)
    out = options.out or Path("results") / options.kind
    try:
        whole = build(options.kind, options.results, out, options.model or None)
    except ValueError as error:
        parser.error(str(error))
    strict = options.strict or os.environ.get("STRICT", "0") not in ("", "0")
    if strict and not whole:
        print("STRICT: not complete.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    gc.disable()  # all that is read stays to the end: looking for garbage took half the time
    sys.exit(main())
