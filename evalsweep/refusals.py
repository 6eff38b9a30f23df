"""What Hydra refuses, in one line: what was given, what is allowed, something that works."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import yaml
from hydra.conf import HydraConf
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException, ValidationError

from evalsweep.config import JobConfig
from evalsweep.errors import BadInput, did_you_mean, first_line


@contextmanager
def in_words(overrides: Sequence[str]) -> Iterator[None]:
    """Hydra's refusals of `overrides` become BadInput, one line each."""
    try:
        yield
    except yaml.YAMLError as e:
        raise BadInput("a file of options", f"is not valid YAML ({first_line(e)})") from e
    except (HydraException, OmegaConfBaseException, ValueError) as e:  # Hydra raises ValueError for task=null
        raise _in_words(e, overrides) from e


def _in_words(error: Exception, overrides: Sequence[str]) -> BadInput:
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    text = str(error)
    if isinstance(error, MissingConfigException):
        if error.options is not None:
            return _unknown_option(error, overrides)
        return BadInput(f"--config-name {error.missing_cfg_file}", "there is no such configuration; leave the flag out")
    if match := re.search(r"Could not (?:override|find) '?([\w./@]+)'?", text):
        return unknown_key(match.group(1), _given(match.group(1), overrides))
    if match := re.search(r"Key '[^']*' (?:is )?not in .*full_key: (\S+)", str(cause), re.DOTALL):
        return unknown_key(match.group(1), _given(match.group(1), overrides))
    key = str(getattr(cause, "full_key", "") or "")
    if "issing mandatory value" in str(cause):
        key = match.group(1) if (match := re.search(r"full_key: (\S+)", str(cause))) else key
        return BadInput(" ".join(overrides), f"{key} must be given", f"{key}=...")
    if isinstance(cause, ValidationError) and key and (given := _given(key, overrides)):
        kind = _kind(key)
        return BadInput(given, f"must be {kind[0]}", f"{key}={kind[1]}")
    if "requires --multirun" in text or "Ambiguous value" in text:
        given = next((o for o in overrides if o in text), " ".join(overrides))
        return BadInput(given, "several values are a sweep, which takes the flag -m", f"-m {given}")
    if match := re.search(r"Config group override must be a string or a list", text):
        given = next(
            (o for o in overrides if o.endswith(("=null", "=true", "=false")) or _is_number(o)), " ".join(overrides)
        )
        return BadInput(given, "names no option of a group", f"{given.partition('=')[0]}=... (--help lists them)")
    if re.search(r"mismatched input|no viable alternative|token recognition|Error parsing override", text):
        given = next((o for o in overrides if f"'{o}'" in text), " ".join(overrides))
        return BadInput(
            given, "is not key=value; quote values with spaces, commas or brackets", "'prompt.system=\"Be brief\"'"
        )
    return BadInput(" ".join(overrides) or "configuration", first_line(cause if str(cause) else error))


def _unknown_option(error: MissingConfigException, overrides: Sequence[str]) -> BadInput:
    group, _, option = str(error.missing_cfg_file).rpartition("/")
    options = sorted(o for o in error.options or () if not o.startswith("_"))
    more = "; any task of lm_eval: task=lm_eval task.name=NAME" if group == "task" else ""
    if group in ("model", "prompt", "tracking", "fewshot", "task", "experiment"):
        more += "; your own: --config-dir DIR"
    close = did_you_mean(option, options)
    best = re.search(r"'(.+)'", close)
    example = f"{group}={best.group(1) if best else options[0]}" if options else None
    return BadInput(f"{group}={option}", f"no such {group}{close}; there are {', '.join(options)}{more}", example)


def unknown_key(key: str, given: str | None = None) -> BadInput:
    """Refuse a dotted key that the schema, evalsweep's or Hydra's, does not have; `given` is the whole override."""
    given = given or key
    own = key.startswith("hydra.")
    node: Any = HydraConf if own else JobConfig
    parent, name = "hydra." if own else "", key
    for part in key.removeprefix(parent).split("."):
        known = {f.name: f for f in fields(node)}
        if part not in known:
            name = part
            break
        parent = f"{parent}{part}."
        factory = known[part].default_factory
        if not is_dataclass(factory):
            free = factory is dict or "dict" in str(known[part].type).lower()
            if free:
                return BadInput(given, f"{parent[:-1]} takes new keys with a plus", f"+{key}={given.partition('=')[2]}")
            return BadInput(given, f"{parent[:-1]} has no keys of its own", f"{parent[:-1]}=...")
        node = factory
    options = [f.name for f in fields(node)]
    if not parent:
        options.append("experiment")
    close = did_you_mean(name, options)
    best = re.search(r"'(.+)'", close)
    value = given.partition("=")[2] or "..."
    where = f"{parent[:-1]} has no '{name}'" if parent else f"there is no '{name}'"
    return BadInput(
        given,
        f"{where}{close}; allowed: {', '.join(options)}",
        f"{parent}{best.group(1)}={value}" if best else None,
    )


def _is_number(override: str) -> bool:
    return override.partition("=")[2].replace(".", "", 1).isdigit()


def _given(key: str, overrides: Sequence[str]) -> str | None:
    return next((o for o in overrides if o.lstrip("+~").partition("=")[0] == key), None)


def _kind(key: str) -> tuple[str, str]:
    """What a key takes, in words, and an example."""
    node: Any = JobConfig
    for part in key.split(".")[:-1]:
        node = next((f.default_factory for f in fields(node) if f.name == part), None)
        if not is_dataclass(node):
            return "a value of another type", "..."
    kind = str(next((f.type for f in fields(node) if f.name == key.split(".")[-1]), ""))
    null = " or null" if "None" in kind else ""
    for name, words, example in (
        ("list[int]", "a list of whole numbers", "[1,5]"),
        ("dict", "a mapping", "{top_k:-1}"),
        ("bool", "true or false", "true"),
        ("int", "a whole number", "10"),
        ("float", "a number", "0.5"),
        ("str", "text", "name"),
    ):
        if name in kind:
            return words + null, example
    return "one value, not a group of them", "..."
