"""The paper's claims, sentence by sentence, with what we measured and a verdict."""

from __future__ import annotations

from collections import Counter

from analysis import counterfactuals, profiles, replays
from analysis.artefact import Entry, Missing, Table
from analysis.checks import Check, verdict
from analysis.claims import CLAIMS, Claim
from analysis.data import Data
from analysis.paper import QWEN

ID = "claims"
TITLE = "Claims of the paper's abstract and sections 4 and 5"
STUDIES = tuple(sorted({claim.study for claim in CLAIMS if claim.study != "-"}))
CAPTION = (
    "Every sentence that holds a number, with those of the captions of Tables 2 to 4 and Figure 3. "
    "Reproduced: the printed number lies in our 95 % interval, given that it was rounded, and a "
    "gain is distinguishable from none; a comparison holds in every case. An interval covers the "
    "choice of inputs, not other machines or prompts. Not testable on this hardware: other models "
    "than the paper's, or a speed on another device than its A100."
)
FILES = {
    replays.STUDY: (replays.FILE, counterfactuals.RECALL_FILE),
    profiles.STUDY: (profiles.FILE,),
}
QWEN_ONLY = ("backoff", "components", "replay", "suffix")  # studies the paper has for one model
HEADINGS = ("Section", "Sentence", "Study", "Quantity", "Ours", "Verdict")


def build(data: Data) -> Table:
    """One row per number; the sentence stands in the first of its rows."""
    rows: list[list[Entry]] = []
    verdicts: Counter[str] = Counter()
    for claim in CLAIMS:
        for place, check in enumerate(claim.checks):
            row = _row(claim, check, data, first=place == 0)
            rows.append(row)
            verdicts[str(row[-1])] += 1
    notes = ["; ".join(f"{name}: {number}" for name, number in sorted(verdicts.items())) + "."]
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, notes, _missing(data))


def _row(claim: Claim, check: Check, data: Data, first: bool) -> list[Entry]:
    outcome = check.run(data)
    word = verdict(check, outcome, data)
    sentence = claim.sentence if first else ""
    return [claim.place, sentence, claim.study, check.label, outcome.entry, word]


def _missing(data: Data) -> list[Missing]:
    """The gaps of every study that a claim needs, and of what is derived from its runs."""
    gaps: list[Missing] = []
    for study in STUDIES:
        models = data.models_with((QWEN,), (study,)) if study in QWEN_ONLY else data.models
        gaps += data.missing(study, models)
        for file in FILES.get(study, ()):
            gaps += data.missing_files(study, models, file)
    return list(dict.fromkeys(gaps))
