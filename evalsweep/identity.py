"""When two configurations are the same job or the same cell, where they differ, and what they are called.

Configurations are nested mappings here, as they are on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

HARMLESS = ("tracking", "engine")  # groups of keys that can move no score


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that can move a score, as far as its keys tell."""
    return {k: v for k, v in config.items() if k not in HARMLESS}


def without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the runs of one cell share: the identity without the seed and what is tied to it."""
    shared = {k: v for k, v in identity(config).items() if k != "seed"}
    if shared["fewshot"]["name"] == "resampled":
        shared["fewshot"] = {k: v for k, v in shared["fewshot"].items() if k != "seed"}
    return shared


def config_hash(config: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of SHA-256 over the canonical JSON of the identity."""
    text = json.dumps(identity(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def directory_name(config: Mapping[str, Any]) -> str:
    """Name the folder of a job from the keys that act: two jobs share it only where they are the same job."""
    t, seed, task = config["temperature"], config["seed"], str(config["task"]["name"])
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in task)[:60]
    return f"t={t:g},seed={seed},{safe}-{config_hash(config)[:8]}"


def varying(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The dotted keys in which configurations differ, as few as tell them apart.

    A group whose option differs shows as its name (`model`, `task`, ...); its other keys show only where they
    differ under the same name. `temperature` speaks for the decoding in the same way.
    """
    flats = [flat(identity(c)) for c in configs]
    found: list[str] = []
    for key in dict.fromkeys(k for f in flats for k in f):
        group = key.partition(".")[0]
        spokesman = {"decoding": "temperature"}.get(group, f"{group}.name" if f"{group}.name" in flats[0] else key)
        by_name: dict[Any, set[str]] = {}
        for f in flats:
            by_name.setdefault(f.get(spokesman) if spokesman != key else None, set()).add(json.dumps(f.get(key)))
        if any(len(values) > 1 for values in by_name.values()):
            found.append(key)
    return found


def describe(config: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The values of dotted `keys`, under the short names that people use (`model` for `model.name`)."""
    values = flat(config)
    return {k.removesuffix(".name"): values.get(k) for k in keys}


def run_name(config: Mapping[str, Any], keys: Iterable[str]) -> str:
    """What differs comes first, for tables that cut names: `t=0.2 s=42 sample`."""
    short = {"temperature": "t", "seed": "s"}
    values = describe(config, keys)
    rank = {"temperature": 0, "seed": 1}
    words = []
    for key in sorted((k for k in values if k != "task"), key=lambda k: rank.get(k, 2)):
        value = values[key]
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(shown if key == "model" else f"{short.get(key, key.rpartition('.')[2])}={shown}")
    return " ".join([*words, str(config["task"]["name"])])


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys to values."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
