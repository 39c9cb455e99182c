"""The run's target: loaded from the model settings, with what a manifest says about it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from experiments.errors import UserError, unknown_name
from experiments.plan import check_flag, check_positive
from recap.targets.load import LoadedModel, load

_OPTIONS = tuple(name for name in inspect.signature(load).parameters if name != "weights")


def load_target(settings: Mapping[str, Any], *, weights: bool = True) -> LoadedModel:
    """Load the model that ``conf/model`` and the command line describe.

    weights: False for everything but the weights, see `recap.targets.load.load`.

    Raises UserError when it is not there, or when an option does not exist.
    """
    options = {key: value for key, value in settings.items() if key != "name"}
    for key in options:
        if key not in _OPTIONS:
            raise unknown_name("option of model", key, _OPTIONS)
    for key in ("min_pixels", "max_pixels"):
        if options.get(key) is not None:
            check_positive(f"model.{key}", options[key])
    check_flag("model.pad_rows", options.get("pad_rows"))
    try:
        return load(**options, weights=weights)
    except ValueError as error:
        raise UserError(f"model={settings['name']}: {error}") from error


class LastTarget:
    """Loads targets and keeps the last one, for runs of one model after another."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] | None = None
        self._loaded: LoadedModel | None = None

    def load(self, settings: Mapping[str, Any]) -> LoadedModel:
        """As `load_target`; the earlier target is let go before another one is loaded."""
        if self._loaded is None or self._settings != settings:
            self._loaded = None
            self._loaded = load_target(settings)
            self._settings = dict(settings)
        return self._loaded


def weights_fingerprint(model: nn.Module) -> str:
    """sha256 over every tensor's name, shape and 64 evenly spaced values."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        places = torch.arange(64) * (len(flat) - 1) // 63
        values = flat[places.to(flat.device)].double().cpu().numpy()
        digest.update(f"{name}{tuple(tensor.shape)}".encode() + values.tobytes())
    return digest.hexdigest()
