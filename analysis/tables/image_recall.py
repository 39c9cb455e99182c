"""Image-conditioned rows (section 5.2, Appendix C), fused by the paper's rule and by others."""

from __future__ import annotations

from analysis import counterfactuals, paper
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING
from analysis.contrasts import source_notes
from analysis.counterfactuals import Derived, find_all, pair_note, recall_gain
from analysis.data import Data, paper_model

ID = "image_recall"
TITLE = "Image-conditioned rows: Recall@8 with rows of the own picture minus a swapped one's"
STUDIES = (counterfactuals.RECALL_STUDY,)
CAPTION = (
    "Points of Recall@8 at the root, at the same keys, source positions, queries and targets, with "
    "candidate lists of equal length, on the states where both pictures' rows give candidates "
    "(States: of the rows fused by fixed priors). The paper's analyses fuse by fixed priors "
    "(Appendix B), so its numbers stand there. Memories start anew at each input, U with the "
    "prompt's rows, as in the authors' code; in the column that says so it starts empty, as in the "
    "paper's replay. 95 % intervals over image clusters."
)
MAIN = "Fixed priors"
# Headings with source and start, and how the paper names the change of a single source.
COLUMNS = (
    (MAIN, "fixed_prior", "seeded", ""),
    ("Fixed priors, U empty", "fixed_prior", "empty", ""),
    ("Entropy confidence", "fusion", "seeded", ""),
    ("Uniform", "uniform", "seeded", ""),
    ("Backoff", "backoff", "seeded", ""),
    ("U alone", "U", "seeded", ""),
    ("C alone", "C", "seeded", "context only"),
    ("G alone", "G", "seeded", "trigram only"),
)
HEADINGS = ("Model", "Dataset", "States", *(heading for heading, *_ in COLUMNS))
_FILE = "image_conditioned_recall"


def build(data: Data) -> Table:
    """One row per model and diagnostic set."""
    study, file = counterfactuals.RECALL_STUDY, counterfactuals.RECALL_FILE
    rows: list[list[Entry]] = []
    found: list[Derived] = []
    missing: list[Missing] = []
    notes: list[str] = []
    for model in data.models_with(("qwen25vl",), STUDIES):
        of_model = find_all(data, study, file, model, list(paper.DIAGNOSTIC))
        rows += [_row(model, bench, of_model.get(bench)) for bench in paper.DIAGNOSTIC]
        missing += data.missing_files(study, [model], file)
        if of_model:
            notes.append(f"{model}: {pair_note(list(of_model.values()))}.")
            found += of_model.values()
    notes += source_notes([one.run for one in found])
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, tuple(notes), missing)


def _row(model: str, bench: str, derived: Derived | None) -> list[Entry]:
    name = paper.DIAGNOSTIC[bench]
    states = "-"
    if derived is not None:
        states = f"{sum(derived.document['seeded']['fixed_prior']['states']):,}"
    cells = [_cell(model, name, derived, *column) for column in COLUMNS]
    return [model, name, states, *cells]


def _cell(
    model: str, name: str, derived: Derived | None, heading: str, source: str, start: str, key: str
) -> Cell:
    known = paper_model(model) == "qwen25vl"
    published = None
    if known and heading == MAIN:
        published = paper.value(_FILE, "matching_minus_swapped_points", dataset=name)
    elif known and key:
        quantity = f"image-conditioned change, {key}"
        published = paper.text_value("App. C", quantity, "qwen25vl", name)
    gain = NOTHING if derived is None else recall_gain(derived.document, source, start)
    return Cell.of(gain, published, signed=True)
