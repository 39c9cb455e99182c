"""Run folders with invented tokens and times, one per slot of every study. For tests only.

Seeded, so that goldens hold. Numbers are of plausible size and mean nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from analysis import paper, studies
from analysis.arms import METHODS
from analysis.studies import Slot
from experiments.records import RunRecord, write_records

TINY, CPU, CUDA = "tiny_qwen25vl", "cpu", "cuda"
ONLINE = (
    *("main", "mmspec", "components", "suffix", "backoff", "fusion", "streams", "fallback"),
    *("null_control", "prompts", "timing", "equal_rows"),
)
# How good each arm is at drafting; all others accept one candidate per step on average.
SKILL = {"ar": 0.0, "null": 0.0, "recap": 2.0, "token_recycling": 1.7, "pld": 0.2}


def write_all(root: Path, model: str = TINY, device: str = CPU, units: int = 5) -> None:
    """Every run of every online study, and the replayed captures."""
    for name in ONLINE:
        write_study(root, name, model, device, units)
    for bench in paper.DIAGNOSTIC:
        write_capture(root, bench, model, device, units)


def write_study(
    root: Path, study: str, model: str = TINY, device: str = CPU, units: int = 5
) -> None:
    """Every run of a study."""
    described = studies.study(study)
    assert described is not None
    for slot in described.slots:
        write_slot(root, study, slot, model, device, units)


def write_slot(
    root: Path, study: str, slot: Slot, model: str = TINY, device: str = CPU, units: int = 5
) -> Path:
    """The run of one slot of a study."""
    bench = plain_bench(model, slot.bench)
    config = run_config(model, device, bench, study)
    for key, value in (*studies.sizes(study).items(), *slot.settings):
        set_path(config, key, value)
    return write_run(root, config, study_arms(study), units)


def plain_bench(model: str, bench: str) -> str:
    return f"tiny_{bench}" if model.startswith("tiny_") else bench


def run_config(model: str, device: str, bench: str, study: str = "") -> dict[str, Any]:
    """What ``config.yaml`` holds, as far as analysis reads it."""
    config: dict[str, Any] = {
        "model": {"name": model, "device": device, "dtype": "float32"},
        "bench": {"name": bench, "prompt_style": "question_only"},
        "max_new_tokens": 200,
        "timing": "generation",
        "reset": "stream",
        "history": "ar",
        "repeat": 0,
    }
    return {**config, "study": {"name": study}} if study else config


def set_path(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    node = config
    for key in parents:
        node = node.setdefault(key, {})
    node[last] = value


def study_arms(study: str) -> list[dict[str, Any]]:
    """The arms of a study's file as mappings; all methods where it says so."""
    path = studies.CONF / "study" / f"{study}.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if content["arms"] == "all":
        return [{"name": method, "method": method} for method in METHODS]
    entries = [{"method": arm} if isinstance(arm, str) else arm for arm in content["arms"]]
    arms = [{"name": entry["method"], **entry} for entry in entries]
    return [arm for arm in arms if arm["name"] != "ar"]


def write_run(
    root: Path,
    config: dict[str, Any],
    arms: Sequence[dict[str, Any]],
    units: int,
    label: str = "",
    accelerator: str = "NVIDIA A100-SXM4-80GB",
) -> Path:
    """A finished run: AR, the arms, and AR again."""
    text = identity(config)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    study = config.get("study", {}).get("name", "")
    label = study or label or "+".join(arm["name"] for arm in arms)
    folder = root / config["model"]["name"] / config["bench"]["name"] / label / digest
    folder.mkdir(parents=True)
    everyone = [{"name": "ar", "method": "ar"}, *arms, {"name": "null", "method": "ar"}]
    records = [
        invent(random.Random(f"{text} {unit_id} {arm['name']}"), config, unit_id, category, arm)
        for unit_id, category in unit_ids(config["bench"]["name"], units)
        for arm in everyone
    ]
    write_records(folder / "records.jsonl", records)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    (folder / "manifest.json").write_text(json.dumps(manifest(config, everyone, accelerator)))
    (folder / "summary.json").write_text(json.dumps({"schema": 1}))
    return folder


def identity(config: dict[str, Any]) -> str:
    """What seeds a run's numbers and names its folder: not how large a study happens to be."""
    sizes = ("num_inputs", "per_topic", "max_turns")
    bench = {key: value for key, value in config["bench"].items() if key not in sizes}
    swept = config.get("study", {}).get("name") == "timing"
    kept = {key: value for key, value in config.items() if key != "timing" or swept}
    return json.dumps({**kept, "bench": bench}, sort_keys=True)


def manifest(
    config: dict[str, Any], arms: Sequence[dict[str, Any]], accelerator: str
) -> dict[str, Any]:
    cuda = config["model"]["device"] == CUDA
    settings = [
        {"name": a["name"], "method": a["method"], "reset": a.get("reset", "stream"), "config": {}}
        for a in arms
    ]
    environment = {
        "git": {"commit": "0123456789abcdef", "dirty": False},
        "processor": "a processor",
        "threads": 2,
        "accelerator": {"name": accelerator} if cuda else None,
    }
    return {
        "arms": settings,
        "target": {"device": config["model"]["device"], "dtype": "float32"},
        "sessions": [{"started": "2026-01-01T00:00:00+00:00", "environment": environment}],
    }


def unit_ids(bench: str, units: int) -> list[tuple[str, str]]:
    """Ids with their categories; every third MMSpec input has a second turn."""
    prefix = "tiny_" if bench.startswith("tiny_") else ""
    plain = bench.removeprefix(prefix)
    if plain == "mixed4":
        return [
            (f"{prefix}{part}_{index:05d}:0", "default")
            for part in paper.DIAGNOSTIC
            for index in range(units)
        ]
    if plain != "mmspec":
        return [(f"{bench}_{index:05d}:0", "default") for index in range(units)]
    topics = list(paper.TOPICS)
    ids = []
    for index in range(2 * units):
        topic = topics[index % len(topics)]
        turns = 2 if topic == "multi-turn conversation" else 1
        ids += [(f"mmspec_{index:03d}:{turn}", topic) for turn in range(turns)]
    return ids


def invent(
    rng: random.Random, config: dict[str, Any], unit_id: str, category: str, arm: dict[str, Any]
) -> RunRecord:
    """One record: every arm of a unit has the same output, at its own speed."""
    output = random.Random(unit_id).choices(range(500), k=random.Random(unit_id).randint(6, 40))
    accepted = invent_steps(rng, len(output), SKILL.get(arm["name"], 1.0))
    drafting = arm["method"] != "ar"
    reset = arm.get("reset", config["reset"])
    step_ms = (2.0 if not drafting else 2.5) * rng.uniform(0.97, 1.03)
    decode_ns = int(1e6 * step_ms * len(accepted))
    return RunRecord(
        study=config.get("study", {}).get("name", ""),
        model=config["model"]["name"],
        bench=config["bench"]["name"],
        unit_id=unit_id,
        turn=int(unit_id.rpartition(":")[2]),
        category=category,
        cluster_id=f"picture-{unit_id.rpartition(':')[0]}",
        prompt_sha256=f"prompt-{unit_id}",
        arm=arm["name"],
        method=arm["method"],
        repeat=config.get("repeat", 0),
        session="2026-01-01T00:00:00+00:00",
        order_index=0,
        output_ids=output,
        finish_reason="stop",
        num_accepted=accepted,
        num_candidates=[63 if drafting else 0] * len(accepted),
        prefill_ns=int(1e7 * rng.uniform(0.97, 1.03)),
        decode_ns=decode_ns,
        step_ns=[decode_ns // max(len(accepted), 1)] * len(accepted),
        state_lifetime={"stream": "persistent"}.get(reset, reset),
        trace=invent_trace(rng, accepted) if arm.get("config", {}).get("trace") else None,
    )


def invent_steps(rng: random.Random, num_outputs: int, skill: float) -> list[int]:
    """Accepted candidates per step until the output is complete."""
    accepted, produced = [], 1
    while produced < num_outputs:
        step = min(int(rng.expovariate(1 / skill)) if skill else 0, num_outputs - produced - 1)
        accepted.append(step)
        produced += step + 1
    return accepted


def invent_trace(rng: random.Random, accepted: Sequence[int]) -> list[dict[str, Any]]:
    return [
        {
            "fusion_weights": {
                "2": {"calls": 4, "weights": [3.1, 0.9]},
                "3": {"calls": 2, "weights": [1.4, 0.4, 0.2]},
            },
            "root_fallback": rng.random() < 0.1,
        }
        for _ in accepted
    ]


def write_capture(root: Path, bench: str, model: str, device: str, units: int) -> Path:
    """A captured run with the counts that replaying it gave."""
    config = run_config(model, device, plain_bench(model, bench), "replay")
    for key, value in studies.sizes("replay").items():
        set_path(config, key, value)
    folder = write_run(root, config, [{"name": "capture", "method": "ar"}], units)
    rng = random.Random(bench)
    states = [rng.randint(10, 60) for _ in range(units)]
    document = {
        "schema": 1,
        "units": [f"u{i}" for i in range(units)],
        "clusters": [f"picture-{i}" for i in range(units)],
        "states": states,
        "empty": invent_counts(rng, states),
        "seeded": invent_counts(rng, states),
    }
    (folder / "replay.json").write_text(json.dumps(document))
    return folder


COUNTED = {
    "covered": ("U", "C", "G"),
    "hits": ("U", "C", "G"),
    "joint": ("states", "U", "G"),
    "rules": (
        *("recap", "without_confidence", "without_prior", "uniform", "confidence_gate"),
        *("backoff", "soft_prior", "sharp_prior"),
    ),
    "disagreement": (
        *("states", "recap", "without_confidence", "without_prior", "uniform", "confidence_gate"),
        *("backoff", "soft_prior", "sharp_prior"),
    ),
    "matched": ("nodes", "U", "UC_backoff", "UCG_backoff", "uniform", "fixed_prior"),
    "suffix": (
        *("nodes", "fusion", "fusion_suffix"),
        *("first_fusion", "first_fusion_suffix", "first_gained", "first_lost"),
    ),
}


def invent_counts(rng: random.Random, states: Sequence[int]) -> dict[str, dict[str, list[int]]]:
    return {
        group: {name: [rng.randint(1, n) for n in states] for name in names}
        for group, names in COUNTED.items()
    }
