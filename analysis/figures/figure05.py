"""Figure 5: how many rows the persistent U comes to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import paper, style
from analysis.artefact import Figure, Missing
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.load import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot

ID = "figure05"
TITLE = "Figure 5: persistent U over a cyclic replay of the same trajectories"
STUDIES = ("growth",)
CAPTION = (
    "Keys of U while the captured AR trajectories of the four diagnostic sets are replayed in a "
    "new order on every pass: mean and range over three orders. The right axis is what the "
    "occupied rows take. A fixed pool shows replacement, not what unseen inputs would add."
)
_FILE = "figure05_memory_growth"
_JSON = "growth.json"
_FIRST = "chartqa"  # whose capture's folder holds the file
_MIB = 1 << 20
LABELS = {"with_prompt": "prompt and output tokens", "outputs_only": "output tokens alone"}


def build(data: Data) -> Figure:
    """One panel per model that has been replayed."""
    found: dict[str, Any] = {}
    runs: list[Run | None] = []
    notes: list[str] = []
    missing: list[Missing] = []
    for model in data.models_with(("qwen25vl",), STUDIES):
        run = data.run("replay", _FIRST, model)
        document = data.derived(run, _JSON)
        gaps = data.missing("growth", [model])
        if document is not None:
            found[model] = document
            runs.append(run)
            notes += _notes(model, document)
        elif not gaps:
            gaps = [Missing(f"{_JSON} of {model}", data.command("growth", model))]
        missing += gaps
    plot = _plot(found) if found else None
    return Figure(ID, TITLE, CAPTION, plot, (*notes, *source_notes(runs)), missing)


def keys_after(document: Any, requests: int, which: str = "with_prompt") -> float:
    """Keys after so many requests, the mean over orders."""
    place = document["requests"].index(requests)
    return float(np.mean([curve[place] for curve in document["keys"][which]]))


def _notes(model: str, document: Any) -> list[str]:
    size, last = document["trajectories"], document["requests"][-1]
    row = document["bytes_per_row"]
    parts = []
    for which, label in LABELS.items():
        keys = [keys_after(document, requests, which) for requests in (size, last)]
        parts.append(f"{keys[0]:,.0f} and {keys[1]:,.0f} keys ({label})")
    mib = keys_after(document, last) * row / _MIB
    notes = [
        f"{model}, after {size} and {last:,} requests: {'; '.join(parts)}. {row} bytes per row: "
        f"{mib:.3f} MiB occupied, of {document['allocated_bytes'] / _MIB:.2f} MiB that are set "
        "aside for the whole vocabulary from the start.",
        f"{model}: captures {', '.join(document['runs'])}.",
    ]
    if paper_model(model) == "qwen25vl":
        published = paper.rows(_FILE)[-1]
        notes.insert(
            1,
            f"The paper: {int(published['keys']):,} keys and {published['host_mib']} MiB of Python "
            "objects after 400 requests and after 10,000.",
        )
    return notes


def _plot(found: dict[str, Any]) -> Plot:
    plot, axes = style.panels(len(found), width=4.2)
    for panel, (model, document) in zip(axes, found.items(), strict=True):
        for (which, label), colour in zip(LABELS.items(), (style.BLUE, style.ORANGE), strict=True):
            curves = np.array(document["keys"][which])
            requests = document["requests"]
            panel.plot(requests, curves.mean(axis=0), color=colour, label=label)
            panel.fill_between(
                requests, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.25, lw=0
            )
        _finish(panel, document)
        panel.set_title(model)
    handles, labels = axes[0].get_legend_handles_labels()
    plot.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return plot


def _finish(panel: style.Axes, document: Any) -> None:
    size, scale = document["trajectories"], document["bytes_per_row"] / _MIB
    panel.axvline(size, color=style.GREY, linestyle=":", label="every input visited once")
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.set_xlabel(f"Replayed requests ({size} distinct inputs)")
    panel.set_ylabel("Keys in U")
    mib = panel.secondary_yaxis(
        "right", functions=(lambda keys: keys * scale, lambda value: value / scale)
    )
    mib.set_ylabel("Host MiB, occupied rows")
