"""What each memory would have proposed along AR's own outputs: replayed, without a model.

    python -m experiments.replay results/runs/qwen25vl/chartqa/replay/HASH ...

For every captured input the memories start anew. Every output token but the last is a *state*: the
memories are queried for what follows it, candidates are compared with what AR went on to say, and
then the target's prediction at this one token is written under its keys (no branches, no
persistence). Rows, fusion, search and suffix are the production code's, with other settings; counts
are exact and nothing is random (paper, Appendices B, C and I).

``replay.json`` in the run folder holds counts per input, so that means and intervals over clusters
can be made without replaying: see `replay_folder`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.capture import FinishedRun, Trajectory, read_trajectories
from experiments.derived import write_document
from experiments.errors import UserError
from recap.best_first import Prefix, build_tree, prefix_of, settings_of, workspace_of
from recap.config import Fusion, RecapConfig
from recap.core.accept import longest_accepted
from recap.core.interfaces import Predictions
from recap.core.memory import MISSING, PredictionMemory
from recap.core.suffix_automaton import SuffixAutomaton
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from recap.core.interfaces import IntArray
    from recap.core.kernels import Settings

FILE = "replay.json"
NO_TOKENS = np.empty(0, np.int32)
NOTHING_FOLLOWS = -1
TOP_K = 8

# ``U`` at the start of an input: without a row, or with those of the prompt. ``C`` and ``G`` are
# empty either way.
STARTS = {"empty": False, "seeded": True}
SOURCES = ("U", "C", "G")


def root_rule(fusion: Fusion, priors: tuple[float, ...] = (0.70, 0.20, 0.10)) -> RecapConfig:
    """The root's candidates under a fusion rule."""
    return RecapConfig(fusion=fusion, priors=priors, depth=1, max_candidates=TOP_K, suffix_tokens=0)


def _policy(fusion: Fusion, orders: int = 3) -> RecapConfig:
    return RecapConfig(fusion=fusion, orders=orders, suffix_tokens=0)


# Table 14, in its order.
RULES = {
    "recap": root_rule("entropy_confidence"),
    "without_confidence": root_rule("fixed_prior"),
    "without_prior": root_rule("no_prior"),
    "uniform": root_rule("uniform"),
    "confidence_gate": root_rule("confidence_gate"),
    "backoff": root_rule("backoff"),
    "soft_prior": root_rule("fixed_prior", (0.55, 0.30, 0.15)),
    "sharp_prior": root_rule("fixed_prior", (0.85, 0.10, 0.05)),
}
# Table 6.
POLICIES = {
    "U": _policy("backoff", orders=1),
    "UC_backoff": _policy("backoff", orders=2),
    "UCG_backoff": _policy("backoff"),
    "uniform": _policy("uniform"),
    "fixed_prior": _policy("fixed_prior"),
}
# Table 7, offline.
WITH_SUFFIX = {
    "fusion": _policy("fixed_prior"),
    "fusion_suffix": replace(_policy("fixed_prior"), suffix_tokens=4, suffix_in_cap=True),
}
LARGEST = RecapConfig(suffix_tokens=4)

# Everything that is counted, by group; `replay_folder` explains it.
NAMES = {
    "covered": [*SOURCES],
    "hits": [*SOURCES],
    "joint": ["states", "U", "G"],
    "rules": [*RULES],
    "disagreement": ["states", *RULES],
    "matched": ["nodes", *POLICIES],
    "suffix": [
        "nodes",
        *WITH_SUFFIX,
        *(f"first_{name}" for name in (*WITH_SUFFIX, "gained", "lost")),
    ],
}


@dataclass(frozen=True)
class State:
    """One query.

    prefix:       the last three tokens, the root last.
    suffix:       int32[<= 4], the path that suffix insertion would add.
    continuation: int32[<= 11], what AR said after the root, as deep as a tree can reach; ends with
                  `NOTHING_FOLLOWS`. Its first token is the one to recall.
    """

    prefix: Prefix
    suffix: IntArray
    continuation: IntArray

    @property
    def target(self) -> int:
        """The token AR said next."""
        return int(self.continuation[0])


class Replay:
    """The memories of one input after the other, and what is counted at its states."""

    def __init__(self, vocab_size: int) -> None:
        self._memory = PredictionMemory(vocab_size, LARGEST.top_k)
        self._automaton = SuffixAutomaton()
        self._work = workspace_of(LARGEST)
        self._blocked = NO_TOKENS
        groups = (RULES, POLICIES, WITH_SUFFIX)
        self._rules, self._policies, self._with_suffix = (
            {name: settings_of(config) for name, config in group.items()} for group in groups
        )

    def count(self, trajectory: Trajectory, seed_prompt: bool) -> Counter[str]:
        """Sums over the states of one input, named as in ``replay.json``: ``group.name``."""
        self._begin(trajectory, seed_prompt)
        counts: Counter[str] = Counter()
        text = np.concatenate((trajectory.prompt_ids, trajectory.output_ids))
        start = len(trajectory.prompt_ids)
        for index in range(len(trajectory.rows)):
            history = text[: start + index + 1]
            self._automaton.extend(history[start + index :])
            state = State(
                prefix_of(history),
                self._automaton.suffix_path(LARGEST.suffix_tokens),
                np.append(text[len(history) :][: LARGEST.depth], np.int32(NOTHING_FOLLOWS)),
            )
            counts.update(self._sources(state))
            counts.update(self._recalled(state))
            counts.update(self._matched(state))
            counts.update(self._suffix_added(state))
            learn(self._memory, state.prefix, trajectory.rows, index)
        return counts

    def _begin(self, trajectory: Trajectory, seed_prompt: bool) -> None:
        self._blocked = trajectory.blocked
        self._memory.reset_stream()
        if seed_prompt:
            self._memory.seed(
                trajectory.prompt_row_tokens, trajectory.prompt_rows, trajectory.blocked
            )
        self._automaton.reset(separators=trajectory.blocked.tolist())
        self._automaton.extend(trajectory.prompt_ids)

    # What is counted

    def _sources(self, state: State) -> Counter[str]:
        """Single sources: states covered, and targets recalled; G and U where both cover."""
        rows = self._rows(state.prefix)
        blocked = self._blocked.tolist()
        candidates = {
            source: [token for token in row if token not in blocked] for source, row in rows.items()
        }
        covering = [source for source in SOURCES if candidates.get(source)]
        hits = [source for source in covering if state.target in candidates[source]]
        counts = Counter(f"covered.{source}" for source in covering)
        counts.update(f"hits.{source}" for source in hits)
        if {"G", "U"} <= set(covering):
            counts["joint.states"] += 1
            counts.update(f"joint.{source}" for source in hits if source != "C")
        return counts

    def _rows(self, prefix: Prefix) -> dict[str, list[int]]:
        """The predicted ids of every source that holds a row, best first."""
        keys = {"U": prefix[2:], "C": prefix[1:], "G": prefix}
        found = {
            source: self._memory.lookup(*key) for source, key in keys.items() if MISSING not in key
        }
        return {source: row[0].tolist() for source, row in found.items() if row is not None}

    def _recalled(self, state: State) -> Counter[str]:
        """Fusion rules: targets recalled, and those of them where the rows' first ids differ."""
        hits = [
            name
            for name, settings in self._rules.items()
            if state.target in self._tree(state, settings).tokens[1:]
        ]
        counts = Counter(f"rules.{name}" for name in hits)
        if len({row[0] for row in self._rows(state.prefix).values()}) > 1:
            counts["disagreement.states"] += 1
            counts.update(f"disagreement.{name}" for name in hits)
        return counts

    def _matched(self, state: State) -> Counter[str]:
        """Matched length of the policies of Table 6 at equal node counts."""
        nodes, trees = self._equal_trees(state, self._policies)
        counts = Counter({"matched.nodes": nodes})
        for name, tree in trees.items():
            counts[f"matched.{name}"] += matched_length(tree, state.continuation)
        return counts

    def _suffix_added(self, state: State) -> Counter[str]:
        """Matched length and first tokens with and without the suffix at equal node counts."""
        nodes, trees = self._equal_trees(state, self._with_suffix)
        counts = Counter({"suffix.nodes": nodes})
        lengths = {name: matched_length(tree, state.continuation) for name, tree in trees.items()}
        for name, length in lengths.items():
            counts[f"suffix.{name}"] += length
            counts[f"suffix.first_{name}"] += length > 0
        gained = (lengths["fusion_suffix"] > 0) - (lengths["fusion"] > 0)
        counts["suffix.first_gained"] += gained == 1
        counts["suffix.first_lost"] += gained == -1
        return counts

    def _equal_trees(
        self, state: State, settings: Mapping[str, Settings]
    ) -> tuple[int, dict[str, TokenTree]]:
        """Every policy's tree with as many candidates as the smallest has, and that number.

        Larger ones are built again under the lower cap. Cutting them would not do: packed order is
        depth-first, not the order in which nodes were chosen.
        """
        trees = {name: self._tree(state, chosen) for name, chosen in settings.items()}
        nodes = min(tree.num_candidates for tree in trees.values())
        for name, chosen in settings.items():
            if trees[name].num_candidates > nodes:
                trees[name] = self._tree(state, chosen._replace(max_candidates=nodes))
            assert trees[name].num_candidates == nodes
        return nodes, trees

    def _tree(self, state: State, settings: Settings) -> TokenTree:
        # Suffix nodes count within the cap, so there can be no more of them than it allows.
        suffix = state.suffix[: settings.max_candidates] if settings.suffix_in_cap else NO_TOKENS
        return build_tree(self._memory, state.prefix, suffix, self._blocked, settings, self._work)


def learn(memory: PredictionMemory, prefix: Prefix, rows: Predictions, index: int) -> None:
    """Write one of ``rows``, the prediction after the root, as an AR step would."""
    row = Predictions(
        rows.next_token[index : index + 1],
        rows.topk_ids[index : index + 1],
        rows.topk_probs[index : index + 1],
    )
    memory.refresh(TokenTree.root_only(prefix.root), prefix.earlier, prefix.previous, row)


def matched_length(tree: TokenTree, continuation: IntArray) -> int:
    """Depth of the longest path that AR's continuation begins with; the root does not count.

    >>> tree = TokenTree([5, 6, 7, 7], [-1, 0, 1, 0], [0, 1, 2, 1])
    >>> matched_length(tree, np.array([6, 7, 9, NOTHING_FOLLOWS]))
    2
    """
    following = continuation[np.minimum(tree.depths, len(continuation) - 1)]
    return int(tree.depths[longest_accepted(tree, following)])


def replay_folder(folder: Path) -> dict[str, Any]:
    """All counts of a captured run, as ``replay.json`` holds them.

    ``units``, ``clusters`` and ``states`` are lists over inputs, and so is everything under
    ``empty`` and ``seeded`` (`STARTS`), by group and name:

    covered, hits:  U, C, G: states with a candidate; with the target among them (Table 5).
    joint:          states where U and G both have candidates; hits of either (section 5.2).
    rules:          hits of each of `RULES`, states without a row being misses (Table 14).
    disagreement:   states where two rows differ in their first id; hits of each rule (Table 16).
    matched:        candidates per tree; matched length of each of `POLICIES` (Table 6).
    suffix:         the same of `WITH_SUFFIX`; states whose target is a child of the root
                    (first_NAME), only with the suffix (first_gained), only without (first_lost).
    """
    trajectories = read_trajectories(folder)
    replay = Replay(trajectories[0].vocab_size)
    document: dict[str, Any] = {
        "units": [t.unit_id for t in trajectories],
        "clusters": [t.cluster_id for t in trajectories],
        "states": [len(t.rows) for t in trajectories],
    }
    for start, seed_prompt in STARTS.items():
        counts = [replay.count(trajectory, seed_prompt) for trajectory in trajectories]
        document[start] = _by_group(counts)
    return document


def _by_group(counts: Sequence[Counter[str]]) -> dict[str, dict[str, list[int]]]:
    return {
        group: {name: [int(count[f"{group}.{name}"]) for count in counts] for name in names}
        for group, names in NAMES.items()
    }


def write_replay(folder: Path) -> Path:
    """Replay a captured run into its folder; the file written."""
    return write_document(folder / FILE, replay_folder(folder))


def after_run(run: FinishedRun) -> None:
    """What study=replay does with a finished capture."""
    try:
        print(f"Replayed: {write_replay(run.folder)}")
    except UserError as error:  # every unit was bad, say; the run's own summary is still to come
        print(f"Not replayed. {error}", file=sys.stderr)


def main(arguments: Iterable[str] | None = None) -> None:
    """Replay run folders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a captured run")
    try:
        for folder in parser.parse_args(arguments).folders:
            print(write_replay(folder))
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
