"""Table 9: where a decoding step's time goes."""

from __future__ import annotations

from analysis import paper, profiles
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.bootstrap import NOTHING, FloatArray, Interval
from analysis.contrasts import source_notes
from analysis.data import Data, paper_model
from analysis.load import Run
from analysis.profiles import VERIFICATION, Arm, Profile

ID = "table09"
TITLE = "Table 9: wall and CPU time of a decoding step, by stage"
STUDIES = (profiles.STUDY,)
CAPTION = (
    "63 candidates, fixed priors, suffix insertion. Exclusive phases, the device synchronised at "
    "the end of each, pooled over all decoding steps of both input orders; prefill is left out and "
    "the clock's own time taken off. %: of the step's wall time, where nothing else is said. CPU: "
    "all threads of the process. Device: kernels and memory operations, from traces of 64 tokens. "
    "U lives for a data set, all else for a request. No speed is measured in this setting."
)
HEADINGS = ("Model", "Stage", "Wall ms", "CPU ms", "%", "Device us")
_FILE = "table09_phases_ms"
_PLACE = "App. G"
_COLUMNS = {"qwen25vl": "qwen", "llava16": "llava"}

# Sums over stages, and what the paper calls them in its text.
PREPARATION = "preparation"
WITH_UPKEEP = "preparation + refresh + suffix index"
OUTSIDE = "all stages outside verification"
SUMS = {
    "Preparation": PREPARATION,
    "Preparation, refresh, suffix index": WITH_UPKEEP,
    "All but verification": OUTSIDE,
}
NOTES = (
    "Packing: mask, positions and their way to the device. Verification: the forward, the head, "
    "and the predictions' way back. Commitment: the cache's gather and the loop's bookkeeping. "
    "Other: acceptance, and whatever of the step's wall time is in no phase.",
    "The paper's drafter was written in Python; this one is compiled.",
)


def build(data: Data) -> Table:
    """Per model the paper's stages, their sums, and what measuring them costs."""
    rows: list[list[Entry]] = []
    notes = list(NOTES)
    runs: list[Run] = []
    missing: list[Missing] = []
    for model in data.models:
        profile = profiles.find(data, model)
        rows += _rows(model, profile)
        missing += data.missing_files(profiles.STUDY, [model], profiles.FILE)
        if profile is not None:
            runs += profile.runs
            notes += _notes(model, profile)
    return Table(ID, TITLE, CAPTION, HEADINGS, rows, (*notes, *source_notes(runs)), missing)


def _rows(model: str, profile: Profile | None) -> list[list[Entry]]:
    arm = None if profile is None else profile.arm(profiles.MAIN_ARM)
    device = {} if profile is None else profile.device_us()
    rows: list[list[Entry]] = []
    for stage in profiles.STAGES:
        rows.append([model, stage, *_stage(model, stage, arm), _on_device(model, stage, device)])
    for label, text in SUMS.items():
        rows.append([model, label, *_sum(model, text, arm), ""])
    whole, clock = (None, None) if arm is None else (arm.total, arm.timer)
    rows.append([model, "Whole step", _ms(arm, whole), "", "", ""])
    rows.append([model, "Clock, taken off", _ms(arm, clock), "", "", ""])
    rows.append([model, f"{VERIFICATION}, % of device time", "", "", _busy(model, device), ""])
    rows.append([model, "Profiling, % of median latency", "", "", _overhead(model, profile), ""])
    return rows


def _stage(model: str, stage: str, arm: Arm | None) -> list[Entry]:
    prefix = _COLUMNS.get(paper_model(model) or "")
    wall, cpu = (
        paper.value(_FILE, f"{prefix}_{clock}", stage=stage) if prefix else None
        for clock in ("wall", "cpu")
    )
    if arm is None:
        return [_ms(None, None, wall), _ms(None, None, cpu), Cell()]
    return [
        _ms(arm, arm.stage(stage), wall),
        _ms(arm, arm.stage_cpu(stage), cpu),
        Cell.of(arm.share(arm.stage(stage))),
    ]


def _sum(model: str, text: str, arm: Arm | None) -> list[Entry]:
    known = paper_model(model)
    ms = paper.text_value(_PLACE, f"{text}, ms", known)
    if text == PREPARATION:  # stands in Table 10
        ms = paper.value("table10_budget", "prep_ms", model=known, cap="63")
    percent = paper.text_value(_PLACE, f"{text}, % of decoding", known)
    wall = None if arm is None else sum_of(arm, text)
    share = NOTHING if arm is None or wall is None else arm.share(wall)
    return [_ms(arm, wall, ms), "", Cell.of(share, percent)]


def sum_of(arm: Arm, text: str) -> FloatArray:
    """Nanoseconds of one of the `SUMS`."""
    if text == OUTSIDE:
        return arm.total - arm.stage(VERIFICATION)
    upkeep = profiles.UPKEEP if text == WITH_UPKEEP else ()
    return arm.wall_of((*profiles.PREPARATION, *upkeep))


def _ms(arm: Arm | None, nanoseconds: FloatArray | None, published: float | None = None) -> Cell:
    found: Interval | None = None
    if arm is not None and nanoseconds is not None:
        found = arm.per_step(nanoseconds)
    return Cell.of(found, published, digits=3)


def _on_device(model: str, stage: str, device: dict[str, float]) -> Entry:
    """Device time of a stage; "other" stands for every phase that has no stage."""
    known = paper_model(model)
    published = {"Packing": paper.text_value(_PLACE, "device time of packing", known)}
    if stage == VERIFICATION:
        ms = paper.text_value(_PLACE, "device time of verification", known)
        published[stage] = None if ms is None else 1000 * ms
    rest = [phase for phase in device if phase not in profiles.NAMED]
    phases = profiles.STAGES[stage] or rest
    value = sum(device.get(phase, 0.0) for phase in phases) if device else None
    return Cell(value, paper=published.get(stage))


def _busy(model: str, device: dict[str, float]) -> Cell:
    published = paper.text_value(_PLACE, "verification share of device time", paper_model(model))
    total = sum(device.values())
    return Cell(100 * device.get("verify", 0.0) / total if total else None, paper=published)


def _overhead(model: str, profile: Profile | None) -> Cell:
    published = paper.text_value(_PLACE, "instrumentation overhead", paper_model(model))
    found = None if profile is None else profile.overhead()
    return Cell.of(found, published, signed=True)


def _notes(model: str, profile: Profile) -> list[str]:
    """What was measured how often, and what was not."""
    arm = profile.arm(profiles.MAIN_ARM)
    steps = 0 if arm is None else int(arm.steps.sum())
    laps = [document["lap_cost"] for document in profile.documents]
    cost = sum(lap["wall_ns"] for lap in laps) / len(laps) / 1e3
    notes = [f"{model}: {steps:,} decoding steps; one lap of the clock costs {cost:.2f} us."]
    reasons = {reason for document in profile.documents for reason in document["not_measured"]}
    return notes + [f"{model}: not measured: {reason}." for reason in sorted(reasons)]
