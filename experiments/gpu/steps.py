"""What one forward costs: AR's step, verification of a tree, prefill with a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.gpu.device import MIB, Key, spread
from recap.core.interfaces import Needs
from recap.core.tree import TokenTree
from recap.targets.packing import bucket

if TYPE_CHECKING:
    from experiments.gpu.device import Results
    from experiments.gpu.models import RandomModel
    from experiments.gpu.sizes import Sizes
    from recap.core.interfaces import IntArray
    from recap.targets.hf import HFSession

TOPK = 8  # kept predictions per node of a method that asks for them


def random_tree(rows: int, seed: int = 0) -> TokenTree:
    """A tree of ``rows`` nodes, bushy like a draft: any earlier node may be a parent."""
    rng = np.random.default_rng(seed)
    parents = [-1, *(int(rng.integers(0, node)) for node in range(1, rows))]
    depths = [0] * rows
    for node in range(1, rows):
        depths[node] = depths[parents[node]] + 1
    return TokenTree(rng.integers(16, 900, rows), parents, depths)


def accepted_path(tree: TokenTree) -> IntArray:
    """The root and up to two candidates, which do not lie in place: about what a step accepts."""
    depth = min(2, int(tree.depths.max()))
    return tree.path(int(np.flatnonzero(tree.depths == depth)[-1]))


def step_times(model: RandomModel, sizes: Sizes, bytes_per_second: float | None) -> Results:
    """AR steps and verification of every row count, at every context.

    bytes_per_second: the copy bandwidth that an AR step's reading is held against, where known.
    """
    trees = {rows: random_tree(rows) for rows in sizes.rows}
    sessions: list[HFSession] = []
    work: dict[tuple[int, int | str], Callable[[], None]] = {}
    for context in sizes.contexts:
        plain, topk = (_behind(model, context, needs) for needs in (Needs(), Needs(topk=TOPK)))
        sessions += [plain, topk]
        work[context, "ar"] = _step(plain, TokenTree.root_only(16))
        work |= {(context, rows): _step(topk, tree) for rows, tree in trees.items()}
    times = _finished(model, work, sizes.rounds, sizes.warm_up)
    for session in sessions:
        session.close()
    results = {}
    for context in sizes.contexts:
        ar = times[context, "ar"]
        rows = {
            str(rows): {
                "packed_rows": bucket(rows, model.target.pad_rows),
                "step": spread(times[context, rows], "ms"),
                "over_ar": round(float(np.median(times[context, rows]) / np.median(ar)), 4),
            }
            for rows in sizes.rows
        }
        results[str(context)] = {
            "kv_cache_mib": round(context * model.kv_bytes_per_token / MIB, 3),
            "ar": _ar_results(model, context, ar, bytes_per_second),
            "rows": rows,
        }
    return results


def _behind(model: RandomModel, context: int, needs: Needs) -> HFSession:
    session = model.target.open(model.text(context), needs, 8)
    session.prefill()
    return session


def _step(session: HFSession, tree: TokenTree) -> Callable[[], None]:
    """Verify and commit as the loop does, then forget it: every run finds the same context."""
    path = accepted_path(tree)

    def step() -> None:
        session.verify(tree)
        session.commit(path)
        session._cache.crop(-len(path))

    return step


def _finished(
    model: RandomModel, work: Mapping[Key, Callable[[], Any]], rounds: int, warm_up: int
) -> dict[Key, list[int]]:
    """Nanoseconds until the device had finished each piece of work, measured in turn."""
    times = model.device.timed_in_turn(work, rounds, warm_up)
    return {name: [finished for _, finished in values] for name, values in times.items()}


def _ar_results(
    model: RandomModel, context: int, times_ns: list[int], bytes_per_second: float | None
) -> Results:
    read = model.step_weight_bytes + context * model.kv_bytes_per_token
    rate = read / (float(np.median(times_ns)) / 1e9)
    share = None if bytes_per_second is None else round(rate / bytes_per_second, 5)
    return {
        "step": spread(times_ns, "ms"),
        "read_mib": round(read / MIB, 3),
        "read_gb_per_s": round(rate / 1e9, 3),
        "share_of_copy_bandwidth": share,
    }


def picture_times(model: RandomModel, sizes: Sizes) -> Results:
    """Prefill with a large picture, beside a text as long, and with the rows some methods seed."""
    picture = model.picture(sizes)
    length = len(picture.prompt_ids)
    asked = {
        "picture_prefill": (picture, Needs()),
        "text_prefill": (model.text(length), Needs()),
        "picture_prefill_with_rows": (picture, Needs(topk=TOPK, prompt_rows=True)),
    }
    sessions = {name: model.target.open(*request, 8) for name, request in asked.items()}
    work = {name: session.prefill for name, session in sessions.items()}
    times = _finished(model, work, sizes.generate_rounds, 1)
    for session in sessions.values():
        session.close()
    results: Results = {"prompt_tokens": length, "image_tokens": picture.num_image_tokens}
    return results | {name: spread(values, "ms") for name, values in times.items()}
