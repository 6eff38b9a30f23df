"""The model that answers a job; one stays in memory between the jobs of a process."""

from __future__ import annotations

import gc
import json
from dataclasses import asdict, dataclass
from typing import Any

from evalsweep.config import ModelConfig
from evalsweep.engine.models import causal, server
from evalsweep.errors import BadInput


@dataclass(frozen=True)
class Loaded:
    """A model ready to answer (lm_eval's `LM`), and who it is: revision or content hash, dtype, device, template."""

    lm: Any
    identity: dict[str, Any]


OF_THE_JOB = ("batch_size", "name", "apply_chat_template", "tie_tolerance")  # the same weights serve all of them

_resident: dict[str, Loaded] = {}


def load(model: ModelConfig, seed: int) -> Loaded:
    """The model of a job; the next job of the process that asks for the same one starts at once.

    Errors: BadInput for a folder, hub id or server that cannot serve.
    """
    if model.kind == "server":
        return Loaded(*server.connect(model, seed))
    shared = {k: v for k, v in asdict(model).items() if k not in OF_THE_JOB}
    key = json.dumps(shared, sort_keys=True)
    if key not in _resident:
        _resident.clear()
        gc.collect()  # a model's parts refer to each other, and the next one needs the room
        _resident[key] = Loaded(*causal.load(model))
    loaded = _resident[key]
    loaded.lm.begin(seed, model.batch_size, model.tie_tolerance)
    if model.apply_chat_template and not loaded.identity["chat_template_hash"]:
        raise BadInput("model.apply_chat_template=true", f"{model.pretrained or model.name} has no chat template")
    return loaded
