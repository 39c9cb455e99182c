"""From the composed configuration to a `RunPlan`. Only `run.py` knows Hydra besides."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from experiments.errors import UserError, closest_first, unknown_name
from experiments.plan import (
    NULL_ARM,
    REFERENCE_ARM,
    REPOSITORY,
    RESETS,
    Arm,
    BenchSettings,
    Protocol,
    RunPlan,
    Study,
    check_choice,
    settings_from,
)
from recap.core.interfaces import Drafter

CONF = REPOSITORY / "conf"
ALL_ARMS = "all"
_ARM_KEYS = ("name", "method", "config", "reset")
_PROTOCOL_KEYS = (
    "max_new_tokens",
    "timing",
    "reset",
    "history",
    "null",
    "order_seed",
    "repeat",
    "warmup",
)
_TOP_LEVEL = (
    *_PROTOCOL_KEYS,
    "model",
    "bench",
    "method",
    "arms",
    "dtype",
    "device",
    "dry_run",
    "results_root",
    "study",
)
# Any vocabulary: a drafter is built once at composition, so that bad settings are refused before a
# model is loaded.
_TRIAL_VOCABULARY = 1024

# Paths of what ships with the repository, whatever folder the command is run from.
OmegaConf.register_new_resolver("repository", lambda path: str(REPOSITORY / path), replace=True)


def plan_from_cfg(cfg: DictConfig) -> RunPlan:
    """The plan of one run. Raises UserError for values that cannot work."""
    resolved = _plain(cfg)
    for key in resolved:
        if key not in _TOP_LEVEL:
            raise unknown_name("option", str(key), _TOP_LEVEL)
    if "name" not in resolved["bench"]:
        names = ", ".join(config_names("bench"))
        raise UserError(f"This is a shared part of the benchmarks. Valid for bench: {names}.")
    study = _study(resolved)
    values = {key: resolved[key] for key in _PROTOCOL_KEYS}
    values["study"] = "" if study is None else study.name
    protocol = settings_from(Protocol, "the run", values)
    methods = [_arm(entry, cfg.method, protocol) for entry in _entries(resolved)]
    arms = _with_references(methods, protocol)
    return RunPlan(
        model=_model(resolved),
        bench=bench_settings(cfg.bench),
        arms=arms,
        protocol=protocol,
        results_root=Path(resolved["results_root"]),
        label=ALL_ARMS if resolved["arms"] == ALL_ARMS else _label(methods),
        resolved=resolved,
        after=() if study is None else tuple(study.after),
    )


def study_of(cfg: DictConfig) -> Study | None:
    """The study that the configuration names, if any."""
    return _study(_plain(cfg))


def _study(resolved: Mapping[str, Any]) -> Study | None:
    return settings_from(Study, "study", resolved["study"]) if resolved.get("study") else None


def bench_settings(node: DictConfig) -> BenchSettings:
    """A benchmark's settings; a mixed one's parts are composed under its own selection."""
    values = _plain(node)
    parts = [_part(name, values) for name in values["parts"]]
    return settings_from(BenchSettings, "bench", {**values, "parts": parts})


def _part(name: str, mixed: Mapping[str, Any]) -> BenchSettings:
    if name not in config_names("bench"):
        raise unknown_name("part of the benchmark", name, config_names("bench"))
    values = _plain(compose_cfg(f"bench={name}").bench)
    selection = ("num_inputs", "per_topic", "max_turns", "input_seed", "manifests")
    values |= {key: mixed[key] for key in selection}
    if mixed["data_root"] is not None:
        values["data_root"] = str(Path(mixed["data_root"]) / name)
    return settings_from(BenchSettings, "bench", values)


def plans_from_cfg(cfg: DictConfig, overrides: Sequence[str] = ()) -> list[RunPlan]:
    """The run of a plain configuration, or all runs of the study that it names.

    overrides: what the command line set, which wins over the study's own benchmarks and sweeps.
    """
    study = study_of(cfg)
    if study is None:
        return [plan_from_cfg(cfg)]
    overrides = _with_method(cfg, study, overrides)
    return [
        plan_from_cfg(compose_cfg(*options, *overrides))
        for options in study_runs(study, str(cfg.model.name), overrides)
    ]


def _with_method(cfg: DictConfig, study: Study, overrides: Sequence[str]) -> Sequence[str]:
    """What ``method=`` means in a study: that method alone where the study has all as arms.

    Raises UserError where the study's arms are its own.
    """
    named = {item.partition("=")[0] for item in overrides}
    if "method" not in named or "arms" in named or cfg.arms is None:
        return overrides
    if cfg.arms == ALL_ARMS:
        return ["arms=null", "null=true", *overrides]
    raise UserError(
        f"study={study.name} compares arms of its own, and method= would change none of them: "
        "leave it out, or set arms= too."
    )


def study_runs(study: Study, model: str, overrides: Sequence[str]) -> list[list[str]]:
    """Options of each run of a study on a model, without what ``overrides`` sets already."""
    fixed = {item.partition("=")[0] for item in overrides}
    tiny = model.startswith("tiny_")
    benches = [f"tiny_{name}" if tiny else name for name in study.benches]
    sweep = {key: values for key, values in study.sweep.items() if key not in fixed}
    combinations = [
        dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())
    ]
    combinations += [{**combinations[0], **extra} for extra in study.also if not fixed & set(extra)]
    runs = []
    for bench in benches if "bench" not in fixed else [None]:
        for combination in combinations:
            chosen = {"bench": bench, **(study.tiny if tiny else {}), **combination}
            runs.append([f"{key}={_shown(v)}" for key, v in chosen.items() if key not in fixed])
    return runs


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _plain(node: Any) -> dict[str, Any]:
    """A configuration node as plain dicts and lists, interpolations resolved."""
    container = OmegaConf.to_container(node, resolve=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _model(resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The model's settings, with the run's dtype and device put in."""
    model = dict(resolved["model"])
    for key in ("dtype", "device"):
        if resolved[key] is not None:
            model[key] = resolved[key]
    return model


def _entries(resolved: Mapping[str, Any]) -> list[dict[str, Any]]:
    """``arms`` as a list of mappings with a name and a method."""
    selected = resolved["method"]["name"]
    entries = resolved["arms"] if resolved["arms"] is not None else [selected]
    if entries == ALL_ARMS:
        entries = config_names("method")
    if not isinstance(entries, list):
        raise UserError(f"arms must be a list such as arms=[{selected}], or all, got {entries!r}.")
    normalised = []
    for entry in entries:
        arm = dict(entry) if isinstance(entry, dict) else {"method": str(entry)}
        for key in arm:
            if key not in _ARM_KEYS:
                raise unknown_name("arm option", key, _ARM_KEYS)
        arm.setdefault("method", selected)
        arm.setdefault("name", arm["method"])
        normalised.append(arm)
    _check_names([arm["name"] for arm in normalised])
    return [arm for arm in normalised if arm["name"] != REFERENCE_ARM]


def _check_names(names: list[str]) -> None:
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise UserError(f"Arm name {name!r}: use letters, digits, '_', '-' and '.' only.")
        if names.count(name) > 1:
            raise UserError(f"Two arms are named '{name}': give one of them another name=.")
    if NULL_ARM in names:
        raise UserError(f"'{NULL_ARM}' names the null arm: use null=true, or another name.")


def _arm(entry: Mapping[str, Any], selected: DictConfig, protocol: Protocol) -> Arm:
    """An arm; one of the selected method inherits the command line's ``method.*`` overrides."""
    method = entry["method"]
    node = selected if method == selected.name else _method_node(method)
    config = _plain(_with_overrides(node, entry.get("config", {})))
    reset = entry.get("reset", protocol.reset)
    check_choice(f"reset of arm '{entry['name']}'", reset, RESETS)
    make = functools.partial(_make_drafter, config)
    make(_TRIAL_VOCABULARY)
    return Arm(entry["name"], method, reset, config, make)


def _with_overrides(node: DictConfig, overrides: Mapping[str, Any]) -> Any:
    """An arm's ``config`` on top of its method's options."""
    if not isinstance(overrides, Mapping):
        raise UserError(f"An arm's config is a mapping such as {{width: 4}}, got {overrides!r}.")
    nested = _option_names(node.config) if isinstance(node.get("config"), DictConfig) else []
    valid = [*nested, *(name for name in _option_names(node) if name != "config")]
    for key in overrides:
        if key not in valid:
            raise unknown_name(f"option of method {node.name}", key, valid)
    inner = {key: value for key, value in overrides.items() if key in nested}
    outer: dict[Any, Any] = {key: v for key, v in overrides.items() if key not in nested}
    return OmegaConf.merge(node, outer | {"config": inner} if nested else outer)


def _option_names(node: DictConfig) -> list[str]:
    """Keys a user may override: neither a class nor the node's own name."""
    return [str(key) for key in node if not str(key).startswith("_") and key != "name"]


def compose_cfg(*overrides: str) -> DictConfig:
    """The configuration that ``python run.py`` with these overrides would see."""
    if GlobalHydra.instance().is_initialized():
        return hydra.compose("config", overrides=list(overrides))
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


@functools.cache  # a study composes the same methods for each of its runs
def _method_node(method: str) -> DictConfig:
    names = config_names("method")
    if method not in names:
        raise unknown_name("method", method, names)
    node = compose_cfg(f"method={method}").method
    assert isinstance(node, DictConfig)
    return node


def config_names(group: str) -> list[str]:
    """Every choice of a configuration group; files with a leading underscore are shared parts."""
    names = (path.stem for path in (CONF / group).glob("*.yaml"))
    return sorted(name for name in names if not name.startswith("_"))


def _make_drafter(config: Mapping[str, Any], vocab_size: int) -> Drafter:
    """The one place where classes are built from configuration."""
    node = {key: value for key, value in config.items() if key != "name"}
    try:
        drafter: Drafter = instantiate(node, vocab_size=vocab_size, _convert_="all")
    except InstantiationException as error:
        # Settings are validated by the classes themselves; anything else is a bug and keeps its
        # traceback.
        cause = error.__cause__
        if isinstance(cause, ValueError | TypeError):
            raise UserError(f"method={config['name']}: {cause}") from error
        raise
    return drafter


def _with_references(methods: list[Arm], protocol: Protocol) -> tuple[Arm, ...]:
    """AR first; the null arm last, where it is asked for or is all there is to compare."""
    wanted = protocol.null if protocol.null is not None else len(methods) != 1
    if not methods and not wanted:
        raise UserError("null=false leaves nothing to compare: name a method, or leave null out.")
    node = _plain(_method_node("ar"))
    make = functools.partial(_make_drafter, node)
    reference = Arm(REFERENCE_ARM, "ar", "stream", node, make)
    null = (Arm(NULL_ARM, "ar", "stream", node, make),) if wanted else ()
    return (reference, *methods, *null)


def _label(methods: list[Arm]) -> str:
    """The run folder's name for its arms."""
    label = "+".join(arm.name for arm in methods) or REFERENCE_ARM
    return label if len(label) <= 80 else f"{len(methods)}_arms"


def explain(error: Exception, overrides: Sequence[str] = ()) -> str:
    """One sentence for an error of Hydra or OmegaConf, with the valid names for an unknown one."""
    text = str(error)
    group = re.search(r"Could not find '([^'/]+)/([^']+)'", text)
    if group:
        kind, word = group.groups()
        return str(unknown_name(kind, word, config_names(kind)))
    override = re.search(r"Could not override '([^']+)'", text)
    key = re.search(r"Key '([^']+)' is not in struct", text)
    if key and override is None:
        override = re.search(r"full_key: (\S+)", text)
    if override:
        chosen = [
            item for item in overrides if re.fullmatch(r"(model|bench|method|study)=\w+", item)
        ]
        return _explain_key(override.group(1), chosen)
    return " ".join(text.split())


def _explain_key(full_key: str, chosen: Sequence[str]) -> str:
    """The valid keys beside an unknown one, looked up under the chosen model, bench and method."""
    parent, _, word = full_key.rpartition(".")
    cfg = compose_cfg(*chosen)
    node = OmegaConf.select(cfg, parent) if parent else cfg
    if not isinstance(node, DictConfig):
        return f"Unknown option '{full_key}': run `python run.py --help` for the valid ones."
    names = closest_first(word, _option_names(node))
    return f"Unknown option '{full_key}'. Valid: {', '.join(names)}."
