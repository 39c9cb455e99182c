"""Freeze a benchmark's inputs: read the data once, write down which rows it has and their hashes.

python -m experiments.freeze chartqa                      # from the hub, or its cache
python -m experiments.freeze mmspec --data-root FOLDER    # from a local copy
python -m experiments.freeze --row-lists                  # every row list, without any data
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from experiments import benches, manifests
from experiments.compose import bench_settings, compose_cfg, config_names, explain
from experiments.errors import UserError
from experiments.plan import BenchSettings
from experiments.sources import sources_of


def settings_of(bench: str, *overrides: str) -> BenchSettings:
    """A benchmark's settings, as `run.py` would see them."""
    return bench_settings(compose_cfg(f"bench={bench}", *overrides).bench)


def freeze(settings: BenchSettings) -> str:
    """Read the data and write its manifest; returns a sentence about what was written."""
    path = manifests.manifest_path(settings)
    if path is None:
        raise UserError("bench.manifests is null: there is nowhere to write frozen inputs to.")
    earlier = manifests.read(settings)
    loaded = benches.load(replace(settings, manifests=None))
    entries = manifests.full_entries(loaded.inputs)
    manifests.write(path, manifests.make_rule(settings, loaded.facts, hashes=True), entries)
    rows = [entry.source_index for entry in entries]
    same = earlier is not None and rows == [entry.source_index for entry in earlier.entries]
    remark = "" if same or earlier is None else "; the list of rows differs from the earlier one"
    return f"{path}: {len(entries)} inputs of {loaded.facts['id']}{remark}"


def write_row_list(settings: BenchSettings) -> str:
    """Write the row list alone, which follows from the row count."""
    path = manifests.manifest_path(settings)
    assert path is not None and settings.rows is not None
    facts = {"source": sources_of(settings)[0].name, "rows_after_filter": settings.rows}
    entries = manifests.index_entries(settings.rows, settings.sampled)
    manifests.write(path, manifests.make_rule(settings, facts, hashes=False), entries)
    return f"{path}: {len(entries)} rows of {settings.rows}"


def write_row_lists() -> None:
    """Every row list that no data is needed for and no data has been frozen into yet."""
    for bench in config_names("bench"):
        settings = settings_of(bench)
        manifest = manifests.read(settings)
        if settings.layout == "table" and (manifest is None or not manifest.rule["hashes"]):
            print(write_row_list(settings))


def main() -> int:
    """Freeze the benchmark named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bench", nargs="?", help="a name from conf/bench")
    parser.add_argument("--data-root", help="folder or file with a local copy of the data")
    parser.add_argument("--hub-id", help="one of the benchmark's hub ids; default: the first")
    parser.add_argument("--split", help="another split than the benchmark's first")
    parser.add_argument("--row-lists", action="store_true", help="row lists only, without data")
    args = parser.parse_args()
    if args.row_lists == (args.bench is not None):
        parser.error("name a benchmark, or pass --row-lists")
    if args.row_lists:
        write_row_lists()
        return 0
    given = {"data_root": args.data_root, "hub_id": args.hub_id, "split": args.split}
    overrides = [f"bench.{name}={value}" for name, value in given.items() if value is not None]
    try:
        print(freeze(settings_of(args.bench, *overrides)))
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("hydra", "omegaconf"):
            raise
        print(f"Error: {explain(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
