"""``dry_run=true``: what a run would meet, found out without loading weights or running anything.

One row of the benchmark is read and encoded by the very code of a real run, around a model that has
shapes but no weights. Whatever is missing is named together, with how to get it. The report is one
screen that a user can send back.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from experiments import benches, provenance
from experiments.benches import Benchmark
from experiments.errors import UserError
from experiments.plan import BenchSettings, RunPlan
from experiments.targets import load_target
from experiments.units import UnreadableImage, encode_turn
from recap.core.interfaces import ContextExceeded, Needs
from recap.targets.cache import CacheShape, KVCache
from recap.targets.full_size import KNOWN
from recap.targets.hf import HEAD_CHUNK, HEADROOM, HFTarget
from recap.targets.load import LoadedModel, on_meta
from recap.targets.request import Request

WIDTH = 100
PROMPT_LINES = 15
_LABEL = 18

Found = TypeVar("Found")


def dry_run(plan: RunPlan) -> None:
    """Print the report.

    Raises UserError afterwards when something that a run needs is missing.
    """
    missing: list[str] = []
    row = replace(plan.bench, num_inputs=1)
    benchmark = _try(lambda: benches.load(row, fetch=False), missing)
    loaded = _try(lambda: load_target(plan.model, weights=False), missing)
    request = None
    if benchmark is not None and loaded is not None:
        request = _try(lambda: _encode(loaded.target, plan.bench, benchmark), missing)

    arms = ", ".join(arm.name for arm in plan.arms)
    print(f"Dry run of {arms} on {plan.model['name']}, {plan.bench.name}: no weights are loaded.")
    _section("Benchmark", benchmark_lines(plan, benchmark))
    if loaded is not None:
        _section("Model", model_lines(loaded.settings))
    if benchmark is not None and loaded is not None and request is not None:
        _section("Prompt", prompt_lines(plan, loaded.target, request))
    sizes = _sizes(plan.model, loaded)
    if sizes is not None:
        _section("Memory", memory_lines(plan, sizes, request))
    _section("Versions", version_lines())
    if missing:
        _section("Missing", [_bullet(text) for text in missing])
        raise UserError(
            f"A run would stop here: {_count(len(missing), 'thing')} missing, see above."
        )


def _try(find: Callable[[], Found], missing: list[str]) -> Found | None:
    """What ``find`` returns, or None after noting what is missing."""
    try:
        return find()
    except UserError as error:
        missing.append(str(error))
        return None


def _encode(target: HFTarget, bench: BenchSettings, benchmark: Benchmark) -> Request:
    item = benchmark.inputs[0]
    try:
        return encode_turn(target, bench, item, [])
    except (UnreadableImage, ValueError) as error:
        raise UserError(f"Input {item.input_id} cannot be encoded: {error}.") from error


# Sections: lines of "label  text"


def benchmark_lines(plan: RunPlan, benchmark: Benchmark | None) -> list[str]:
    """Where the rows come from, how many there are, and the first of them."""
    bench = plan.bench
    wanted = [f"split {bench.split}"]
    if bench.rows:
        wanted.append(f"{bench.rows:,} rows")
    if bench.sampled and bench.sampled < (bench.rows or bench.sampled + 1):
        wanted.append(f"{bench.sampled:,} of them sampled")
    if bench.licence:
        wanted.append(f"licence {bench.licence}")
    lines = [_line("expected", ", ".join(wanted))]
    if benchmark is None:
        return lines
    item = benchmark.inputs[0]
    width, height = item.image_size()
    units = _num_units(bench, benchmark.facts)
    tokens = units * len(plan.arms) * plan.protocol.max_new_tokens
    return [
        *lines,
        *_data_lines(benchmark),
        _line("first input", f"{item.input_id}, category {item.category}, {width} x {height}"),
        _line(
            "run",
            f"at most {units:,} units x {_count(len(plan.arms), 'arm')} x "
            f"{plan.protocol.max_new_tokens} new tokens = {tokens:,}",
        ),
    ]


def _data_lines(benchmark: Benchmark) -> list[str]:
    """What was read, for each part of a mixed benchmark."""
    if "files" not in benchmark.facts:
        parts = benchmark.facts
        frozen = benchmark.frozen or {}
        return [
            line
            for name in parts
            for line in _data_lines(Benchmark([], parts[name], frozen.get(name)))
        ]
    facts = benchmark.facts
    revision = f" at {facts['revision']}" if facts.get("revision") else ""
    files = ", ".join(facts["files"][:3]) + (", ..." if len(facts["files"]) > 3 else "")
    lines = [_line("found", f"{facts['id']}{revision}: {files} with {facts['rows']:,} rows")]
    if "columns" in facts:
        columns = ", ".join(f"{name}: {kind}" for name, kind in facts["columns"].items())
        lines.append(_line("columns", columns))
    return [*lines, _line("frozen inputs", _FROZEN[(benchmark.frozen or {}).get("hashes")])]


_FROZEN = {
    True: "verified: rows, texts and pictures",
    False: "the row list; `make freeze` fills in digests of texts and pictures",
    None: "none: not verified",
}


def model_lines(settings: Mapping[str, Any]) -> list[str]:
    """The settings a run's manifest would record."""
    revision = settings["revision"]
    images = settings.get("images")
    neutralised = " ".join(f"{key}={value}" for key, value in settings["neutralised"].items())
    lines = [
        _line("source", settings["source"] + (f" at {revision}" if revision else "")),
        _line(
            "class",
            f"{settings['model_class']}, {settings['parameters']:,} parameters, "
            f"{settings['dtype']}, {settings['attention']} attention",
        ),
        _line("device", settings["device"]),
        _line(
            "context",
            f"{settings['context']:,} tokens; vocabulary {settings['vocab_size']:,}; "
            f"stop ids {', '.join(map(str, settings['stop_ids']))}",
        ),
        _line("neutralised", neutralised or "nothing: no generation setting changes tokens"),
    ]
    if images:
        bounds = [images["min_pixels"], images["max_pixels"]]
        area = f", area {bounds[0]:,} to {bounds[1]:,} pixels" if all(bounds) else ""
        lines.append(_line("pictures", f"{images['backend']} backend{area}"))
    return lines


def prompt_lines(plan: RunPlan, target: HFTarget, request: Request) -> list[str]:
    """The rendered template, what it comes to in tokens, and whether that fits."""
    prompt, new = len(request.prompt_ids), plan.protocol.max_new_tokens
    text = prompt - request.num_image_tokens
    dropped = "; the picture is dropped" if target.text_only else ""
    try:
        target.open(request, Needs(), new).close()
        verdict = f"{prompt + new:,} of {target.context:,} with {new} new ones: fits"
    except ContextExceeded as error:
        verdict = f"does not fit, the unit would be skipped: {error}"
    return [
        *(f"| {line}" for line in _shown(request.prompt_text)),
        _line(
            "tokens",
            f"{prompt:,} = {request.num_image_tokens:,} image + {text:,} text{dropped}",
        ),
        _line("length", verdict),
    ]


def _shown(prompt_text: str) -> list[str]:
    """A prompt on few lines: line ends and unprintable characters visible, the middle left out."""
    lines = []
    for line in prompt_text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        visible = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in body
        )
        lines += textwrap.wrap(
            visible + "\u23ce" * (line != body),
            WIDTH - 4,
            drop_whitespace=False,
            replace_whitespace=False,
            break_on_hyphens=False,
        )
    if len(lines) <= PROMPT_LINES:
        return lines
    head = PROMPT_LINES * 2 // 3
    tail = PROMPT_LINES - head - 1
    left_out = len(lines) - head - tail
    return [*lines[:head], f"... {left_out} lines left out ...", *lines[-tail:]]


# Memory


@dataclass(frozen=True)
class Sizes:
    """What a model takes up, from its shapes.

    origin: where the shapes are from, when not from the checkpoint's own configuration.
    """

    parameters: int
    weights: int
    cache: CacheShape
    vocab_size: int
    dtype: torch.dtype
    context: int
    origin: str = ""

    @classmethod
    def of(cls, model: Any, origin: str = "") -> Sizes:
        """Of a model on torch's "meta" device."""
        config = model.config.get_text_config()
        tensors = [*model.parameters(), *model.buffers()]
        return cls(
            parameters=sum(weight.numel() for weight in model.parameters()),
            weights=sum(tensor.nbytes for tensor in tensors),
            cache=CacheShape.of(config, model.dtype, torch.device("meta")),
            vocab_size=config.vocab_size,
            dtype=model.dtype,
            context=config.max_position_embeddings,
            origin=origin,
        )

    @property
    def logits_row(self) -> int:
        """Bytes of one row of logits, as computed and in float32."""
        return self.vocab_size * (self.dtype.itemsize + 4)


def _sizes(settings: Mapping[str, Any], loaded: LoadedModel | None) -> Sizes | None:
    """Sizes of the model, known for the two 7B ones even where no checkpoint is."""
    if loaded is not None:
        return Sizes.of(loaded.target.model)
    known = KNOWN.get(str(settings.get("repo")))
    dtype = getattr(torch, str(settings["dtype"]), None)
    if known is None or not isinstance(dtype, torch.dtype):
        return None
    model = on_meta(known.model_class, known.config(), dtype=dtype, attn_implementation="sdpa")
    return Sizes.of(model, f"{settings['repo']}'s known configuration")


def memory_lines(plan: RunPlan, sizes: Sizes, request: Request | None) -> list[str]:
    """Weights, KV cache, logits and their sum, beside what the device has."""
    name = str(sizes.dtype).removeprefix("torch.")
    prompt = 0 if request is None else len(request.prompt_ids)
    rows = prompt + plan.protocol.max_new_tokens + HEADROOM
    cache = KVCache(sizes.cache, rows)
    counted = f"{prompt:,} prompt" if request is not None else "the prompt (unknown here)"
    parts = [
        ("weights", sizes.weights, f"{sizes.parameters:,} parameters in {name}"),
        (
            "KV cache",
            cache.storage.nbytes,
            f"{sizes.cache.allocate(1).nbytes:,} bytes per token; {cache.capacity:,} allocated for "
            f"{counted} + {plan.protocol.max_new_tokens} new + {HEADROOM} rows of a step",
        ),
        ("packed logits", HEADROOM * sizes.logits_row, _logits(HEADROOM, sizes, name)),
    ]
    if _reads_prompt_rows(plan, sizes.vocab_size):
        size = HEAD_CHUNK * sizes.logits_row
        parts.append(("prompt's logits", size, _logits(HEAD_CHUNK, sizes, name)))
    total = sum(size for _, size, _ in parts)
    lines = [_line(label, f"{_bytes(size):>9}  {text}") for label, size, text in parts]
    lines.append(_line("sum", f"{_bytes(total):>9}  activations of the prompt come on top"))
    lines.append(_line("available", _free_memory(plan.model["device"])))
    if sizes.origin:
        lines.insert(0, _line("sizes from", f"{sizes.origin}; context {sizes.context:,} tokens"))
    return lines


def _logits(rows: int, sizes: Sizes, name: str) -> str:
    return f"{rows} rows x {sizes.vocab_size:,} in {name} and in float32"


def _reads_prompt_rows(plan: RunPlan, vocab_size: int) -> bool:
    return any(arm.make(vocab_size).needs.prompt_rows for arm in plan.arms)


def _free_memory(device: str) -> str:
    if not device.startswith("cuda"):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return f"{_bytes(total):>9}  on this machine, for device={device}"
    if not torch.cuda.is_available():
        return f"none here: torch {torch.__version__} sees no CUDA device, a run needs one"
    free, total = torch.cuda.mem_get_info(torch.device(device))
    return f"{_bytes(free):>9}  free of {_bytes(total)} on {torch.cuda.get_device_name(device)}"


# Units, versions, form


def _num_units(bench: BenchSettings, facts: Mapping[str, Any]) -> int:
    """Units of a run, at most: a model may drop some of them."""
    if bench.layout == "mixed":
        return sum(_num_units(part, facts[part.name]) for part in bench.parts)
    if bench.layout == "mmspec":  # several turns per input, and cheap: pictures are not read
        return sum(len(item.turns) for item in benches.load(bench).inputs)
    limits = (facts["rows_after_filter"], bench.sampled, bench.num_inputs)
    return min(limit for limit in limits if limit is not None)


def version_lines() -> list[str]:
    """Code, packages and machine."""
    facts = provenance.environment()
    packages = " ".join(f"{name} {found}" for name, found in facts["packages"].items() if found)
    git = facts["git"]
    commit = f"commit {git['commit'][:12]}{' + changes' if git['dirty'] else ''}, " if git else ""
    device = facts["accelerator"]
    lines = [
        _line("code", f"{commit}python {facts['python']}, {facts['platform']}"),
        _line("packages", packages),
        _line("processor", f"{facts['processor']}, {facts['cpus']} cores"),
    ]
    if device:
        driver = f"CUDA {device['cuda']}, driver {device['driver']}"
        lines.append(_line("accelerator", f"{device['name']}, {driver}"))
    return lines


def _section(title: str, lines: list[str]) -> None:
    print(f"\n{title}")
    hanging = 2 + (2 if title == "Missing" else _LABEL)
    for line in [part for text in lines for part in text.splitlines()]:
        as_it_is = line.startswith(("|", "    "))  # wrapped already, or a command to copy
        print(f"  {line}" if as_it_is else _wrapped(line, hanging))


def _bullet(text: str) -> str:
    """An item of a list; further lines of it are set in."""
    return textwrap.indent(text, "  ").replace("  ", "- ", 1)


def _wrapped(line: str, hanging: int) -> str:
    """The line in the report's width; a command in backticks stays whole, to be copied."""
    whole = re.sub("`[^`]*`", lambda command: command.group().replace(" ", "\0"), line)
    wrapped = textwrap.fill(
        whole,
        WIDTH,
        initial_indent="  ",
        subsequent_indent=" " * hanging,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped.replace("\0", " ")


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _bytes(size: int) -> str:
    """Decimal units: what a device's data sheet counts in."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} B"
