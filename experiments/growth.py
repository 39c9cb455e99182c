"""How many rows ``U`` comes to hold over a long stream: a cyclic replay of captured trajectories.

    python -m experiments.growth FOLDER FOLDER ...

One persistent ``U`` sees the trajectories of all folders again and again, in a new order on every
pass, until it has served 10,000 requests. A request writes its prompt's rows and then those of its
output; a token's newest row replaces the older one, so the vocabulary bounds ``U``. The pool is
fixed: this shows replacement, not what unseen requests would add (paper, Appendix G.2, Figure 5).

``growth.json`` goes to the first folder, see `grow`. After a run of study=growth it is written as
soon as all four benchmarks are captured, to the folder of ChartQA's capture.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from experiments import replay
from experiments.capture import FinishedRun, Trajectory, read_trajectories
from experiments.derived import write_document
from experiments.errors import UserError
from recap.core.interfaces import Predictions
from recap.core.memory import PredictionMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

Value = TypeVar("Value", bound=np.generic)
FILE = "growth.json"
BENCHES = ("chartqa", "textvqa", "ocrbench", "mmt_bench")
SEEDS = (17, 29, 43)
REQUESTS = 10_000
EVERY = 100
FIRST = (1, 2, 5, 10, 20, 50)  # where most tokens are new, looked at more often


def grow(folders: Sequence[Path]) -> dict[str, Any]:
    """Rows of ``U`` along the stream, as ``growth.json`` holds them.

    runs:            the captures, as model/benchmark/study/hash.
    trajectories:    how many there are: the stream's first pass.
    bytes_per_row:   of `PredictionMemory`; times the keys, what the rows take.
    allocated_bytes: what it sets aside for the whole vocabulary, from the start.
    requests:        after how many requests keys were counted.
    keys:            per seed of `SEEDS` the keys at each of them, with prompt seeding, as RECAP
                     does, and for ``outputs_only`` without.
    """
    pool = [trajectory for folder in folders for trajectory in read_trajectories(folder)]
    sizes = {trajectory.vocab_size for trajectory in pool}
    if len(sizes) > 1:
        raise UserError(f"Captures of models with different vocabularies: {sorted(sizes)} tokens.")
    memory = PredictionMemory(sizes.pop(), replay.TOP_K, orders=1)
    requests = sorted({*FIRST, len(pool), *range(EVERY, REQUESTS + 1, EVERY)})
    return {
        "runs": ["/".join(folder.resolve().parts[-4:]) for folder in folders],
        "trajectories": len(pool),
        "bytes_per_row": memory.unigram_bytes() // memory.vocab_size,
        "allocated_bytes": memory.unigram_bytes(),
        "seeds": list(SEEDS),
        "requests": requests,
        "keys": {
            "with_prompt": curves(memory, [Writes(t, True) for t in pool], requests),
            "outputs_only": curves(memory, [Writes(t, False) for t in pool], requests),
        },
    }


class Writes:
    """What one request writes to ``U``, the newest row first."""

    def __init__(self, trajectory: Trajectory, with_prompt: bool) -> None:
        outputs, prompt = trajectory.rows, trajectory.prompt_rows
        num_prompt = len(prompt) if with_prompt else 0

        def newest_first(written: NDArray[Value], before: NDArray[Value]) -> NDArray[Value]:
            return np.concatenate((written[: len(outputs)][::-1], before[:num_prompt]))

        self.tokens = newest_first(trajectory.output_ids, trajectory.prompt_row_tokens)
        self.rows = Predictions(
            newest_first(outputs.next_token, prompt.next_token),
            newest_first(outputs.topk_ids, prompt.topk_ids),
            newest_first(outputs.topk_probs, prompt.topk_probs),
        )


def curves(
    memory: PredictionMemory, pool: Sequence[Writes], requests: Sequence[int]
) -> list[list[int]]:
    """Per seed, the rows in ``U`` after each of these ascending numbers of requests."""
    nothing_blocked = np.empty(0, np.int32)
    curves = []
    for seed in SEEDS:
        memory.reset_stream()
        curve: list[int] = []
        for served, writes in enumerate(stream(pool, seed, requests[-1]), start=1):
            # Of equal tokens the first row is written: newest first, that is the newest.
            memory.seed(writes.tokens, writes.rows, nothing_blocked)
            if served == requests[len(curve)]:
                curve.append(memory.num_unigram_rows)
        curves.append(curve)
    return curves


def stream(pool: Sequence[Writes], seed: int, length: int) -> Iterator[Writes]:
    """The pool over and over, in a new order on every pass."""
    rng = random.Random(seed)
    served = 0
    while served < length:
        order = list(pool)
        rng.shuffle(order)
        yield from order[: length - served]
        served += len(order)


def write_growth(folders: Sequence[Path]) -> Path:
    """Replay the captures of these folders; the file written, in the first of them."""
    return write_document(folders[0] / FILE, grow(folders))


def companions(folder: Path) -> list[Path]:
    """The captures of `BENCHES` that belong with this one, itself among them, in that order.

    Finished captures of the same model, weights, arms, protocol and selection of inputs; of several
    for one benchmark the newest. A benchmark without one is left out.
    """
    _, bench, study, _ = folder.resolve().parts[-4:]
    prefix = "tiny_" if bench.startswith("tiny_") else ""
    found = []
    for name in BENCHES:
        others = folder.resolve().parents[2].glob(f"{prefix}{name}/{study}/*/{replay.FILE}")
        fitting = [path.parent for path in others if _setting(path.parent) == _setting(folder)]
        found += sorted(fitting, key=_started)[-1:]
    return found


def _manifest(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return content


def _setting(folder: Path) -> list[Any]:
    """What captures must share to be one pool."""
    manifest = _manifest(folder)
    selection = [manifest["bench"].get(key) for key in ("num_inputs", "input_seed", "prompt_style")]
    return [*(manifest.get(key) for key in ("model", "weights", "arms", "protocol")), selection]


def _started(folder: Path) -> tuple[str, str]:
    return max(session["started"] for session in _manifest(folder)["sessions"]), folder.name


def after_run(run: FinishedRun) -> None:
    """What study=growth does once all benchmarks are captured."""
    folders = companions(run.folder)
    if len(folders) < len(BENCHES):
        print(f"Growth of U: {len(folders)} of the {len(BENCHES)} captures it needs are there.")
        return
    print(f"Growth of U: {write_growth(folders)}")


def main(arguments: Iterable[str] | None = None) -> None:
    """Replay the captures of some folders as one stream."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a captured run")
    try:
        print(write_growth(parser.parse_args(arguments).folders))
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
