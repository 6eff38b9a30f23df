"""Config groups whose options are numbers: seed=7 and temperature=0.35 work with no option file.

Hydra 1.3 refuses bare numbers for a config group ("Config group override must be a string or a list"). A config source
serves every number, and a small patch of Hydra's override parser hands it the number's text. Files in conf/seed and
conf/temperature win over the source. The same patch lets mappings that are the user's own take any key without a +.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from evalsweep.config import JobConfig, decoding_at, parse_seed, parse_temperature
from evalsweep.errors import BadInput

SCHEME = "evalsweep-number"
PROVIDER = "evalsweep"


@dataclass(frozen=True)
class NumericGroup:
    """How the text of an option becomes configuration."""

    options: Callable[[str], dict[str, Any]]
    example: str


GROUPS = {
    "seed": NumericGroup(lambda text: {"seed": parse_seed(text)}, "seed=7 or, for a sweep, -m seed=0,42,123"),
    "temperature": NumericGroup(
        lambda text: decoding_at(parse_temperature(text)), "temperature=0.2 or, for a sweep, -m temperature=0,0.2,0.7"
    ),
}


class NumberConfigSource(ConfigSource):
    """Serves `seed/<whole number>` and `temperature/<number>`."""

    @staticmethod
    def scheme() -> str:
        return SCHEME

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path.strip("/") in GROUPS or config_path == ""

    def is_config(self, config_path: str) -> bool:
        group, _, option = config_path.strip("/").partition("/")
        return group in GROUPS and bool(option)  # every option: load_config judges it, in words

    def load_config(self, config_path: str) -> ConfigResult:
        group, _, option = config_path.strip("/").removesuffix(".yaml").partition("/")
        try:
            values = GROUPS[group].options(option)
        except ValueError as e:
            raise BadInput(f"{group}={option}", str(e), GROUPS[group].example) from None
        return ConfigResult(
            provider=self.provider,
            path=self.full_path(),
            config=OmegaConf.create(values),
            header={"package": "_global_"},
        )

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        if config_path.strip("/") == "" and results_filter in (None, ObjectType.GROUP):
            return sorted(GROUPS)
        return []


class NumberSearchPath(SearchPathPlugin):
    """Puts the source last, so that a file of that name wins."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append(provider=PROVIDER, path=f"{SCHEME}://")


# Mappings of the schema whose keys are the user's own; Hydra would have each new one written with a +.
FREE = tuple(
    f"{group.name}.{key.name}"
    for group in fields(JobConfig)
    if is_dataclass(kind := group.default_factory)
    for key in fields(kind)  # type: ignore[arg-type]
    if str(key.type).startswith("dict[")
)


def _is_free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


class _Patch:
    applied: ClassVar[bool] = False


def register() -> None:
    """Make Hydra accept numeric options; once per process, also in the processes that launchers start."""
    if _Patch.applied:
        return
    for plugin in (NumberConfigSource, NumberSearchPath):
        Plugins.instance().register(plugin)
    original = OverridesParser.parse_overrides

    def parse_overrides(self: OverridesParser, overrides: list[str]) -> list[Override]:
        parsed = original(self, overrides)
        for override in parsed:
            if override.key_or_group in GROUPS and not override.is_sweep_override() and not override.is_delete():
                value = override.value()
                if isinstance(value, list | dict):
                    group = str(override.key_or_group)
                    raise BadInput(
                        f"{group}={override.get_value_string()}",
                        "is a list, which Hydra takes for one value; a sweep has commas and no brackets",
                        f"-m {group}={','.join(map(str, value))}",
                    )
                if not isinstance(value, str):
                    override._value = override.get_value_string().strip()
            if override.type == OverrideType.CHANGE and _is_free(str(override.key_or_group)):
                override.type = OverrideType.FORCE_ADD
        return parsed

    OverridesParser.parse_overrides = parse_overrides  # type: ignore[method-assign]
    _Patch.applied = True
