"""The model of a job; one stays in memory between the jobs of a process."""

from __future__ import annotations

import gc
import importlib
import json
from dataclasses import asdict, replace

from evalsweep.config import JobConfig
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.contract import Loaded

_resident: dict[str, Loaded] = {}


def load(job: JobConfig) -> Loaded:
    """Give the model of a job; the next job of the process that asks for the same one starts at once.

    Errors: BadInput for a folder, hub id or server that cannot serve.
    """
    kind = kind_of(job.model)
    module = importlib.import_module(f"evalsweep.engine.models.{kind.module}")
    if not kind.resident:
        loaded: Loaded = module.load(job)
        return replace(loaded, identity={**loaded.identity, **loaded.lm.begin(job)})
    shared = {k: v for k, v in asdict(job.model).items() if k not in kind.of_the_job}
    key = json.dumps(shared, sort_keys=True)
    if key not in _resident:
        drop()
        _resident[key] = module.load(job)
    loaded = _resident[key]
    return replace(loaded, identity={**loaded.identity, **loaded.lm.begin(job)})


def drop() -> None:
    """Give back the memory of the model that is kept: the next one needs the room."""
    while _resident:
        _resident.popitem()[1].lm.close()
    gc.collect()  # a model's parts refer to each other
