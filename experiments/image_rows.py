"""Whether stored rows keep what their picture said: rows of the own picture against a swapped one's
(section 5.2, Appendix C).

After a run of study=replay the target reads every AR output twice, under the input's picture and
under another input's (`experiments.views`). Two memories are then replayed along the output, as in
`experiments.replay`: keys, source positions, queries and targets are those of the own picture, rows
are of the one picture or of the other. At every state a source's two candidate lists are cut to the
shorter one's length; states where one of them is empty do not count. A target is what AR said next.

Rows are fused with fixed priors, as in the paper and in the authors' code; entropy confidence and
other rules are counted beside them. The authors seed ``U`` from the prompt, the paper's replay
starts empty: both are counted. Donors come from the run's inputs.

``image_rows.json`` lies beside the captures, see `compare`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from experiments.derived import read_document, write_document
from experiments.replay import STARTS, TOP_K, learn, root_rule
from experiments.swaps import columns, swaps
from experiments.units import UnreadableImage, encode_turn
from experiments.views import prediction_rows, read_along, wrong_view
from recap.best_first import Prefix, build_tree, prefix_of, settings_of, workspace_of
from recap.core.interfaces import Predictions
from recap.core.memory import MISSING, PredictionMemory
from recap.drafter import NO_TOKENS
from recap.targets.hf import first_occurrences

if TYPE_CHECKING:
    from experiments.records import RunRecord
    from experiments.runner import FinishedRun
    from experiments.swaps import Swap
    from recap.core.interfaces import IntArray
    from recap.targets.request import Request

FILE = "image_rows.json"
ARM = "ar"
PAIR_SEED = 42
PICTURES = ("matching", "swapped")
# One source alone, by how many of the last tokens are its key; and fused ones.
SINGLE = {"U": 1, "C": 2, "G": 3}
FUSED = {
    "backoff": root_rule("backoff"),
    "uniform": root_rule("uniform"),
    "fixed_prior": root_rule("fixed_prior"),
    "fusion": root_rule("entropy_confidence"),
}
SOURCES = (*SINGLE, *FUSED)


@dataclass(frozen=True)
class Rows:
    """Predictions under one picture.

    prompt: after the first occurrence of each distinct prompt token that is not blocked.
    output: after every output token but the last.
    """

    prompt: Predictions
    output: Predictions


@dataclass(frozen=True)
class Text:
    """What both memories are replayed along: prompt int32[p], output int32[n], ids that are never
    proposed int32[b], and the prompt tokens int32[m] that have rows.
    """

    prompt_ids: IntArray
    output_ids: IntArray
    blocked: IntArray
    prompt_row_tokens: IntArray


class Bank:
    """A memory that is replayed with the rows of one picture."""

    def __init__(self, vocab_size: int) -> None:
        self._memory = PredictionMemory(vocab_size, TOP_K)
        self._work = workspace_of(root_rule("backoff"))
        self._rules = {name: settings_of(config) for name, config in FUSED.items()}
        self._blocked = NO_TOKENS

    def begin(self, text: Text, rows: Rows, seed_prompt: bool) -> None:
        """Start anew, with ``U`` from the prompt's rows where that is asked for."""
        self._memory.reset_stream()
        self._blocked = text.blocked
        if seed_prompt:
            self._memory.seed(text.prompt_row_tokens, rows.prompt, text.blocked)

    def candidates(self, prefix: Prefix) -> dict[str, list[int]]:
        """By source, what it would propose behind the last three tokens, best first."""
        found = {name: self._single(prefix[-length:]) for name, length in SINGLE.items()}
        for name, settings in self._rules.items():
            tree = build_tree(self._memory, prefix, NO_TOKENS, self._blocked, settings, self._work)
            found[name] = tree.tokens[1:].tolist()
        return found

    def _single(self, key: Sequence[int]) -> list[int]:
        row = None if MISSING in key else self._memory.lookup(*key)
        blocked = self._blocked.tolist()
        return [] if row is None else [token for token in row[0].tolist() if token not in blocked]

    def learn(self, prefix: Prefix, rows: Predictions, index: int) -> None:
        """Write the prediction after the root, as an AR step would."""
        learn(self._memory, prefix, rows, index)


class Comparison:
    """Replays pairs of memories, one pair per input."""

    def __init__(self, vocab_size: int) -> None:
        self._banks = {picture: Bank(vocab_size) for picture in PICTURES}

    def count(self, text: Text, rows: Mapping[str, Rows], seed_prompt: bool) -> Counter[str]:
        """Sums over the states of one input: ``SOURCE.states``, ``.matching`` and ``.swapped``."""
        counts: Counter[str] = Counter()
        for picture, bank in self._banks.items():
            bank.begin(text, rows[picture], seed_prompt)
        whole = np.concatenate((text.prompt_ids, text.output_ids))
        for index, target in enumerate(text.output_ids[1:].tolist()):
            prefix = prefix_of(whole[: len(text.prompt_ids) + index + 1])
            found = {picture: bank.candidates(prefix) for picture, bank in self._banks.items()}
            counts.update(_hits(found, target))
            for picture, bank in self._banks.items():
                bank.learn(prefix, rows[picture].output, index)
        return counts


def _hits(found: Mapping[str, Mapping[str, Sequence[int]]], target: int) -> Counter[str]:
    """At one state, per source: whether both pictures' lists, equally long, hold the target."""
    counts: Counter[str] = Counter()
    for source in SOURCES:
        lists = {picture: found[picture][source] for picture in PICTURES}
        length = min(len(ids) for ids in lists.values())
        if length:
            counts[f"{source}.states"] += 1
            for picture, ids in lists.items():
                counts[f"{source}.{picture}"] += target in ids[:length]
    return counts


# A run


def compare(run: FinishedRun) -> dict[str, Any]:
    """Everything about a run, as ``image_rows.json`` holds it.

    units, clusters, donors, same_category, reused: per input, see `experiments.swaps.columns`.

    left_out:      inputs that could not be read under both pictures, and why.
    empty, seeded: by source, lists over inputs: states where both pictures give it candidates
                   (``states``), and those whose target is among them, with rows of the own picture
                   (``matching``) and of the donor's (``swapped``).
    """
    comparison = Comparison(run.target.vocab_size)
    kept: list[Swap] = []
    counted: dict[str, list[Counter[str]]] = {start: [] for start in STARTS}
    left_out: dict[str, str] = {}
    found = swaps(run, ARM, run.inputs, PAIR_SEED)
    for swap in tqdm(found, desc="swapped pictures", unit="input"):
        try:
            text, rows = _read(run, swap)
        except (UnreadableImage, ValueError) as error:
            left_out[swap.record.unit_id] = str(error)
            continue
        for start, seed_prompt in STARTS.items():
            counted[start].append(comparison.count(text, rows, seed_prompt))
        kept.append(swap)
    counts = {start: _by_source(of_inputs) for start, of_inputs in counted.items()}
    return {**columns(kept), "left_out": left_out, **counts}


def _by_source(counts: Sequence[Counter[str]]) -> dict[str, dict[str, list[int]]]:
    return {
        source: {
            name: [count[f"{source}.{name}"] for count in counts] for name in ("states", *PICTURES)
        }
        for source in SOURCES
    }


def _read(run: FinishedRun, swap: Swap) -> tuple[Text, dict[str, Rows]]:
    """The text and its rows under both pictures."""
    target, bench = run.target, run.plan.bench
    request = encode_turn(target, bench, swap.item, [])
    swapped = wrong_view(target, bench, swap.item, swap.donor, request)
    places = first_occurrences(request.prompt_ids, target.blocked_ids)
    text = Text(
        request.prompt_ids,
        np.array(swap.record.output_ids, np.int32),
        np.array(sorted(target.blocked_ids), np.int32),
        request.prompt_ids[places],
    )
    views = zip(PICTURES, (request, swapped), strict=True)
    return text, {picture: _rows(run, view, swap.record, places) for picture, view in views}


def _rows(run: FinishedRun, view: Request, record: RunRecord, places: Any) -> Rows:
    hidden = read_along(run.target, view, record.output_ids)
    start = len(view.prompt_ids)
    outputs = np.arange(start, start + len(record.output_ids) - 1)
    return Rows(
        prediction_rows(run.target, hidden, places, TOP_K),
        prediction_rows(run.target, hidden, outputs, TOP_K),
    )


def after_run(run: FinishedRun) -> None:
    """What study=replay does with a finished run; nothing where the model sees no pictures, the run
    is of several benchmarks, or it has been done.
    """
    path = run.folder / FILE
    if run.target.text_only or run.plan.bench.layout == "mixed":
        print("Swapped pictures: only for a model that sees them, on one benchmark.")
    elif read_document(path) is not None:  # of a complete run, which changes no more
        print(f"Swapped pictures: {path} is complete.")
    else:
        print(f"Swapped pictures: {write_document(path, compare(run))}")
