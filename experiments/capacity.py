"""How long MMSpec's prompts are for both 7B targets, and which of them LLaVA's context cannot hold.

    python -m experiments.capacity --data-root FOLDER

Image tokens need no checkpoint: processors with the published settings count them. Text tokens need
the tokenizers: with ``--qwen25vl FOLDER`` and ``--llava16 FOLDER`` (checkpoint folders; weights are
not read) everything is counted anew, without them the recorded counts are taken. Either way the
result is compared with the recorded table, and printed as the tables of docs/capacity.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image
from tokenizers import Tokenizer, models
from transformers import (
    LlavaNextImageProcessorPil,
    LlavaNextProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessorPil,
)

from experiments import benches, compose
from experiments.errors import UserError
from experiments.plan import REPOSITORY, BenchSettings
from experiments.prompts import turn_messages
from experiments.targets import load_target
from experiments.units import Unit, list_units
from recap.targets.full_size import llava16_7b_config, qwen25vl_7b_config
from recap.targets.hf import HFTarget

TABLE = REPOSITORY / "data_manifests" / "capacity_mmspec.csv"
MODELS = ("qwen25vl", "llava16")
ANSWER = 200
"""Output tokens per turn: the longest answer that a later turn's prompt can contain."""
# Any picture: what is left of a prompt without its image tokens does not depend on it.
_STAND_IN = Image.new("RGB", (56, 56))


@dataclass(frozen=True)
class Row:
    """One unit's prompt.

    *_image:   image tokens.
    *_prompt:  all tokens, with nothing where earlier answers stand.
    *_longest: the same with `ANSWER` tokens for each earlier answer.
    """

    id: str
    turn: int
    topic: str
    width: int
    height: int
    qwen25vl_image: int
    qwen25vl_prompt: int
    qwen25vl_longest: int
    llava16_image: int
    llava16_prompt: int
    llava16_longest: int

    @property
    def unit_id(self) -> str:
        """As in records."""
        return f"{self.id}:{self.turn}"


# Counting


def image_counters() -> dict[str, Any]:
    """For each model, a processor with its published settings that counts image tokens.

    Qwen's pixel bounds are those of conf/model/qwen25vl.yaml.
    """
    bounds = compose.compose_cfg("model=qwen25vl").model
    qwen = Qwen2VLImageProcessorPil(min_pixels=bounds.min_pixels, max_pixels=bounds.max_pixels)
    config = llava16_7b_config()
    side = config.vision_config.image_size
    tiles = LlavaNextImageProcessorPil(
        size={"shortest_edge": side},
        crop_size={"height": side, "width": side},
        image_grid_pinpoints=config.image_grid_pinpoints,
    )
    # The processor wants a tokenizer; counting image tokens does not ask it for anything.
    wordless = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<image>": 0})))
    llava = LlavaNextProcessor(
        tiles,
        wordless,
        patch_size=config.vision_config.patch_size,
        vision_feature_select_strategy=config.vision_feature_select_strategy,
        num_additional_image_tokens=1,
    )
    return {"qwen25vl": qwen, "llava16": llava}


def image_tokens(counters: Mapping[str, Any], width: int, height: int) -> dict[str, int]:
    """Image tokens of a picture, by model, with `image_counters`."""
    qwen, llava = counters["qwen25vl"], counters["llava16"]
    patches = qwen.get_number_of_image_patches(height, width)
    tiled = llava._get_num_multimodal_tokens([[height, width]])["num_image_tokens"]
    return {"qwen25vl": patches // qwen.merge_size**2, "llava16": tiled[0]}


def text_tokens(target: HFTarget, bench: BenchSettings, unit: Unit) -> int:
    """Prompt tokens of a unit that are no image tokens, earlier answers empty."""
    messages = turn_messages(bench.system, unit.item.turns, [""] * unit.turn)
    request = target.encode(messages, [_STAND_IN])
    return len(request.prompt_ids) - request.num_image_tokens


def count(
    bench: BenchSettings, targets: Mapping[str, HFTarget], recorded: Mapping[str, Row]
) -> list[Row]:
    """Every unit's row; text tokens of a model without a target are the recorded ones."""
    counters = image_counters()
    rows = []
    for unit in list_units(benches.load(bench).inputs):
        width, height = unit.item.image_size()
        texts = {
            model: text_tokens(targets[model], bench, unit)
            if model in targets
            else _recorded_text(recorded, unit.unit_id, model)
            for model in MODELS
        }
        counts = _counts(image_tokens(counters, width, height), texts, unit.turn)
        item = unit.item
        rows.append(Row(item.input_id, unit.turn, item.category, width, height, **counts))
    return rows


def _recorded_text(recorded: Mapping[str, Row], unit_id: str, model: str) -> int:
    if unit_id not in recorded:
        raise UserError(f"{TABLE.name} has no row for {unit_id}: count it with --{model} FOLDER.")
    values = asdict(recorded[unit_id])
    text: int = values[f"{model}_prompt"] - values[f"{model}_image"]
    return text


def _counts(images: Mapping[str, int], texts: Mapping[str, int], turn: int) -> dict[str, int]:
    """The columns of both models."""
    columns = {}
    for model in MODELS:
        prompt = images[model] + texts[model]
        columns[f"{model}_image"] = images[model]
        columns[f"{model}_prompt"] = prompt
        columns[f"{model}_longest"] = prompt + ANSWER * turn
    return columns


# The table


def read_table(path: Path = TABLE) -> list[Row]:
    """The recorded rows; none where nothing is recorded."""
    if not path.is_file():
        return []
    texts = {field.name for field in fields(Row) if field.type == "str"}
    rows = []
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            values: dict[str, Any] = {
                name: value if name in texts else int(value) for name, value in line.items()
            }
            rows.append(Row(**values))
    return rows


def table_text(rows: Sequence[Row]) -> str:
    """The rows as CSV."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return buffer.getvalue()


# The report


@cache
def contexts() -> dict[str, int]:
    """Each model's context in tokens."""
    configs = {"qwen25vl": qwen25vl_7b_config(), "llava16": llava16_7b_config()}
    return {
        name: config.get_text_config().max_position_embeddings for name, config in configs.items()
    }


def topic_table(rows: Sequence[Row], model: str) -> str:
    """Markdown: prompt lengths per topic."""
    lines = [
        "| topic | units | image tokens: mean | min | median | max | prompt: min | median | max "
        "| longest prompt |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    topics = [*dict.fromkeys(row.topic for row in rows)]
    for topic in [*topics, "all"]:
        chosen = [asdict(row) for row in rows if topic in (row.topic, "all")]
        # A picture counts once, however many turns ask about it.
        images = [row[f"{model}_image"] for row in chosen if row["turn"] == 0]
        prompts = [row[f"{model}_prompt"] for row in chosen]
        longest = max(row[f"{model}_longest"] for row in chosen)
        figures = [
            len(chosen),
            round(statistics.mean(images)),
            *_spread(images),
            *_spread(prompts),
            longest,
        ]
        lines.append(f"| {topic} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")
    return "\n".join(lines)


def _spread(values: Sequence[int]) -> tuple[int, int, int]:
    return min(values), round(statistics.median(values)), max(values)


def fits_up_to(row: Row, model: str) -> int:
    """The largest ``max_new_tokens`` at which the unit fits, however long earlier answers are."""
    prompt: int = asdict(row)[f"{model}_prompt"]
    return (contexts()[model] - prompt) // (row.turn + 1)


def overlong(rows: Sequence[Row], model: str, new_tokens: int) -> list[Row]:
    """Units that may exceed the model's context, the tightest first."""
    tightest_first = sorted(rows, key=lambda row: fits_up_to(row, model))
    return [row for row in tightest_first if fits_up_to(row, model) < new_tokens]


def unit_table(rows: Sequence[Row], model: str) -> str:
    """Markdown: units with what leaves them little room."""
    lines = [
        "| unit | picture | image tokens | prompt without answers | fits up to max_new_tokens |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        values = asdict(row)
        lines.append(
            f"| {row.unit_id} | {row.width} x {row.height} | {values[f'{model}_image']:,} "
            f"| {values[f'{model}_prompt']:,} | {fits_up_to(row, model)} |"
        )
    return "\n".join(lines)


def report(rows: Sequence[Row], new_tokens: int = ANSWER) -> str:
    """The tables of docs/capacity.md."""
    parts = []
    for model in MODELS:
        parts += [f"{model}, context {contexts()[model]:,} tokens", topic_table(rows, model)]
        beyond = overlong(rows, model, new_tokens)
        parts.append(
            f"{len(beyond)} of {len(rows)} units may exceed the context at "
            f"max_new_tokens={new_tokens}; all fit up to "
            f"{min(fits_up_to(row, model) for row in rows):,}."
        )
        if beyond:
            parts.append(unit_table(beyond, model))
    parts += ["The tightest units of llava16:", unit_table(tightest(rows, "llava16"), "llava16")]
    return "\n\n".join(parts)


def tightest(rows: Sequence[Row], model: str, number: int = 5) -> list[Row]:
    """The units with the least room."""
    return sorted(rows, key=lambda row: fits_up_to(row, model))[:number]


# The command


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, compare with the record, print; 0 when they agree or the record was written."""
    options = _options(arguments)
    try:
        return _run(options)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    bench = compose.plan_from_cfg(compose.compose_cfg("bench=mmspec")).bench
    bench = replace(bench, data_root=options.data_root)
    recorded = {row.unit_id: row for row in read_table()}
    rows = count(bench, _targets(options), recorded)
    print(report(rows, options.max_new_tokens))
    if options.write:
        TABLE.write_text(table_text(rows), encoding="utf-8")
        print(f"\n{TABLE}")
        return 0
    different = [row.unit_id for row in rows if recorded.get(row.unit_id) != row]
    if different or len(rows) != len(recorded):
        shown = ", ".join(different[:5])
        print(
            f"{len(different)} units differ from {TABLE.name}, which has {len(recorded)}: {shown}; "
            "--write records them anew.",
            file=sys.stderr,
        )
        return 1
    print(f"\nAll {len(rows)} units are as recorded in {TABLE.name}.")
    return 0


def _targets(options: argparse.Namespace) -> dict[str, HFTarget]:
    targets = {}
    for model in MODELS:
        folder = getattr(options, model)
        if folder is not None:
            # Composed like a run's, so that pixel bounds and image backend are a run's.
            plan = compose.plan_from_cfg(compose.compose_cfg(f"model={model}"))
            settings = {**plan.model, "path": folder}
            targets[model] = load_target(settings, weights=False).target
    return targets


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.capacity",
        description="Prompt lengths of MMSpec for both 7B targets.",
    )
    parser.add_argument("--data-root", required=True, help="folder of MMSpec, with test/")
    for model in MODELS:
        parser.add_argument(
            f"--{model}", metavar="FOLDER", help="checkpoint folder: counts its text tokens anew"
        )
    parser.add_argument(
        "--max-new-tokens", type=int, default=ANSWER, help="list the units that exceed with these"
    )
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
