"""The real command on a shipped model, killed with SIGKILL at random moments, then finished."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from experiments.plan import REPOSITORY
from experiments.records import RunRecord, read_records

COMMAND = [
    sys.executable,
    str(REPOSITORY / "run.py"),
    "model=tiny_qwen25vl",
    "bench=tiny_mmspec",
    "bench.per_topic=3",
    "max_new_tokens=40",
    "warmup=false",
    "arms=[recap,{name: fresh, reset: request}]",
]
KILLS = 3


def start(root: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*COMMAND, f"results_root={root}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def records_file(root: Path) -> Path | None:
    return next(root.glob("*/*/*/*/records.jsonl"), None)


def num_lines(root: Path) -> int:
    path = records_file(root)
    return len(path.read_bytes().splitlines()) if path else 0


def kill_midway(root: Path, rng: random.Random) -> bool:
    """Start the run, kill it a random while after it has written something; was it alive?"""
    process = start(root)
    before = num_lines(root)
    wanted = before + rng.randrange(1, 12)
    while process.poll() is None and num_lines(root) < wanted:
        time.sleep(0.005)
    time.sleep(rng.random() * 0.1)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return alive


def facts(records: list[RunRecord]) -> list[tuple[object, ...]]:
    return [
        (r.unit_id, r.arm, r.order_index, r.status, r.output_ids, r.num_accepted, r.prompt_sha256)
        for r in records
    ]


def test_a_run_killed_at_random_moments_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole).wait() == 0
    expected = records_file(whole)
    assert expected is not None
    rng = random.Random(5)
    assert sum(kill_midway(killed, rng) for _ in range(KILLS)) == KILLS
    assert start(killed).wait() == 0
    found = records_file(killed)
    assert found is not None
    assert facts(read_records(found)) == facts(read_records(expected))
    assert len(found.read_text().splitlines()) == len(read_records(found)), "every line is whole"
    sessions = {r.session for r in read_records(found)}
    assert len(sessions) >= 2, "finished units were kept, not run again"
