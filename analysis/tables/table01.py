"""Table 1: speedup and acceptance length on the seven single-turn benchmarks."""

from __future__ import annotations

from analysis import arms, main_results, paper
from analysis.arms import METHODS, NULL_LABEL
from analysis.artefact import Cell, Entry, Missing, Table
from analysis.data import Data, paper_model
from analysis.estimators import mean_of_means
from analysis.main_results import MAIN, Rows, acceptance, speed

ID = "table01"
TITLE = "Table 1: speedup and acceptance length on seven single-turn benchmarks"
STUDIES = (MAIN,)
CAPTION = (
    "S: mean over units of the paired throughput ratio against AR, end to end, with 95 % intervals "
    "over image clusters. tau: 1 + mean over units of the mean accepted per step. State: how long "
    "a method's memory lives. Average: plain mean of the seven benchmarks."
)
NOTES = (
    "One clock and one AR for all rows of a run; the paper timed PLD, Lookahead and SAM+ViSkip at "
    "generation boundaries and the others at target forwards.",
    "noise: inside the interval of the null arm (AR a second time) of the same run, or of the "
    "null arms' average.",
)
BENCHES = tuple(paper.SINGLE_TURN)


def build(data: Data) -> Table:
    """One row per model and method."""
    rows: list[list[Entry]] = []
    notes = list(NOTES)
    missing: list[Missing] = []
    for model in data.models:
        found = measured(data, model)
        rows += [_row(model, method, found) for method in main_results.shown_methods(found)]
        rows.append(_null_row(model, found))
        notes += main_results.notes(found, [paper.SINGLE_TURN[bench] for bench in BENCHES])
        notes += main_results.unused(data, MAIN, model, BENCHES, found)
        missing += main_results.missing(data, MAIN, model, BENCHES, found)
    return Table(ID, TITLE, CAPTION, _headings(), rows, notes, missing)


def measured(data: Data, model: str) -> list[Rows]:
    """Every method's run on each of the seven benchmarks."""
    return [arms.rows(data, MAIN, bench, model) for bench in BENCHES]


def _headings() -> list[str]:
    names = [*paper.SINGLE_TURN.values(), "Average"]
    figures = [f"{name} {what}" for name in names for what in ("S", "tau")]
    return ["Model", "Method", "State", *figures]


def _row(model: str, method: str, found: list[Rows]) -> list[Entry]:
    chosen = [rows.get(method) for rows in found]
    cells: list[Entry] = [model, METHODS[method], main_results.lifetime(found, method)]
    for bench, row in zip(BENCHES, chosen, strict=True):
        cells += main_results.speed_and_tau(row, published(model, method, paper.SINGLE_TURN[bench]))
    s, tau = (mean_of_means([sample(row) for row in chosen]) for sample in (speed, acceptance))
    values = published(model, method, "Average")
    own = [{m: row for m, row in rows.items() if m == method} for rows in found]
    null = mean_of_means([main_results.null_sample(rows) for rows in own])
    mark = arms.noise_mark(s, null, 1.0)
    return [*cells, Cell.of(s, values[0], mark=mark), Cell.of(tau, values[1])]


def published(model: str, method: str, bench: str) -> tuple[float | None, float | None]:
    """The paper's S and tau."""
    keys = {"model": paper_model(model), "method": method, "bench": bench}
    s, tau = (paper.value("table01_single_turn", what, **keys) for what in ("speedup", "tau"))
    return s, tau


def _null_row(model: str, found: list[Rows]) -> list[Entry]:
    """AR a second time: what this machine can tell apart."""
    samples = [main_results.null_sample(rows) for rows in found]
    cells: list[Entry] = [model, NULL_LABEL, "-"]
    for interval in (*(sample.mean for sample in samples), mean_of_means(samples)):
        cells += [Cell.of(interval), ""]
    return cells
