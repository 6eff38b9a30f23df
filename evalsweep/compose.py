"""Overrides to jobs: composes and checks the whole grid with Hydra before any job starts; refusals take one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import hydra as hydra_package
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.conf import HydraConf
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from evalsweep import groups
from evalsweep.config import JobConfig, PromptConfig, validate
from evalsweep.engine.benchmarks import scorers
from evalsweep.engine.models import backends, checks
from evalsweep.errors import BadInput, did_you_mean, first_line
from evalsweep.identity import config_hash, directory_name, run_name, varying, without_seed
from evalsweep.refusals import in_words, unknown_key

CONFIG_NAME = "config"
SUBDIR = "${evalsweep_directory:}"
VERSION_BASE = "1.3"


@dataclass(frozen=True)
class PlannedJob:
    """A job of the grid."""

    name: str
    directory: str
    config_hash: str
    config: JobConfig


@dataclass(frozen=True)
class Plan:
    """What will run: the jobs in order, and where.

    `jobs` is empty where a sweeper chooses its points as it goes. `overrides` are Hydra's, with the directory pinned.
    """

    multirun: bool
    directory: Path
    jobs: tuple[PlannedJob, ...]
    first: JobConfig
    overrides: tuple[str, ...]


def conf_folder() -> Path:
    """`conf/` of the installed package, or of the checkout."""
    inside = Path(__file__).parent / "conf"
    return inside if (inside / "config.yaml").exists() else Path(__file__).parent.parent / "conf"


def task_options() -> list[str]:
    """The tasks with an option file of their own."""
    return [path.stem for path in (conf_folder() / "task").glob("*.yaml")]


def prepare() -> None:
    """Teach Hydra and OmegaConf what conf/ leans on; safe to call again."""
    hydra_package.version.setbase(VERSION_BASE)
    groups.register()
    ConfigStore.instance().store(name="schema", node=JobConfig)
    OmegaConf.register_new_resolver("evalsweep_directory", _directory, replace=True)


def open_hydra(config_dir: str | None) -> Hydra:
    """A Hydra over conf/ and the user's own folder of options; close it with `close_hydra`.

    Errors: BadInput where `config_dir` is no folder.
    """
    prepare()
    # not Path.as_uri: Hydra does not decode %20
    path = create_config_search_path(f"file://{conf_folder()}")
    if config_dir is not None:
        own = Path(config_dir).absolute()
        if not own.is_dir():
            raise BadInput(f"--config-dir {config_dir}", "is not a folder; it holds options such as model/mine.yaml")
        path.prepend(provider="command-line", path=f"file://{own}", anchor=SearchPathQuery(provider=groups.PROVIDER))
    close_hydra()
    return Hydra.create_main_hydra2(task_name="evalsweep", config_search_path=path)


def close_hydra() -> None:
    GlobalHydra.instance().clear()


def plan(hydra: Hydra, args: argparse.Namespace) -> Plan:
    """Compose and check every job.

    Errors: BadInput, one line, for the first thing that is wrong.
    """
    with in_words(args.overrides):
        return _plan(hydra, args.config_name or CONFIG_NAME, list(args.overrides), args.multirun)


def job_config(config: DictConfig) -> JobConfig:
    """A composed configuration as plain data.

    Errors: BadInput for keys that the schema does not know; OmegaConf's for values that are missing.
    """
    known = [f.name for f in fields(JobConfig)]
    _refuse_unknown(config)
    values: dict[str, Any] = {name: config[name] for name in known}
    for name, value in values.items():
        if OmegaConf.is_config(value):
            values[name] = OmegaConf.to_object(value)
    job = JobConfig(**values)
    if job.prompt.file is not None:
        job.prompt.system = _prompt_text(job.prompt)
    job.task.samples = job.task.samples_of.get(job.task.name, job.task.samples)
    job.task.samples_of = {}
    return job


def _refuse_unknown(config: DictConfig, schema: Any = JobConfig, parent: str = "") -> None:
    """Refuse keys that the schema does not have, at any depth; Hydra lets them in with a `+`.

    A mapping that is a field of its own (`model.args`) is free. Errors: BadInput, with the nearest known key.
    """
    known = {f.name: f for f in fields(schema)}
    for key in map(str, config):
        if key not in known and not (key == "hydra" and not parent):
            value = OmegaConf.select(config, key)
            raise unknown_key(f"{parent}{key}", f"+{parent}{key}={value}")
        if key in known and is_dataclass(known[key].default_factory) and OmegaConf.is_dict(config[key]):
            _refuse_unknown(config[key], known[key].default_factory, f"{parent}{key}.")


def check(job: JobConfig) -> None:
    """Refuse a configuration of which a part cannot be, or cannot act. Errors: BadInput."""
    validate(job)
    checks.check(job)
    scorers.check(job)


def _prompt_text(prompt: PromptConfig) -> str:
    """The text of prompt.file, so that record and hash hold what is sent and not where it lay."""
    given = f"prompt.file={prompt.file}"
    if prompt.system is not None:
        raise BadInput(
            f"{given} prompt.system={prompt.system}", "are both given; keep one", "prompt=file prompt.file=x.txt"
        )
    try:
        return Path(str(prompt.file)).expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(given, "there is no such file", "prompt.file=system.txt") from None
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(given, f"cannot be read ({first_line(e)})") from e


def _plan(hydra: Hydra, config_name: str, overrides: list[str], flag: bool) -> Plan:
    chosen = hydra.get_mode(config_name=config_name, overrides=overrides)
    multirun = flag or (chosen is not None and RunMode[str(getattr(chosen, "name", chosen))] == RunMode.MULTIRUN)
    mode = RunMode.MULTIRUN if multirun else RunMode.RUN
    overrides = [*overrides, f"hydra.mode={mode.name}"]
    master = hydra.compose_config(
        config_name=config_name, overrides=overrides, run_mode=mode, with_log_configuration=False
    )
    _check_hydra(master)
    directory = Path(master.hydra.sweep.dir if multirun else master.hydra.run.dir)
    points = _grid(hydra, master) if multirun else [master]
    configs = [job_config(point) for point in points or []]
    if points is not None:
        _check_samples_of(points)
    for config in configs:
        check(config)
    dicts = [asdict(config) for config in configs]
    keys = _naming(dicts)
    jobs = tuple(_planned(d, c, keys) for d, c in zip(dicts, configs, strict=True))
    _refuse_twins(jobs)
    pinned = f"hydra.{'sweep' if multirun else 'run'}.dir={quoted(str(directory))}"
    first = configs[0] if configs else job_config(master)
    return Plan(multirun, directory, jobs, first, (*overrides, pinned))


def _check_samples_of(points: Sequence[DictConfig]) -> None:
    """Refuse numbers of samples for tasks that the sweep does not have. Errors: BadInput."""
    tasks = list(dict.fromkeys(str(point.task.name) for point in points))
    for name, count in (item for point in points for item in point.task.samples_of.items()):
        if name not in tasks:
            raise BadInput(
                f"task.samples_of={{{name}: {count}}}",
                f"the sweep has no such task{did_you_mean(str(name), tasks)}; it has {', '.join(tasks)}",
                f"task.samples_of={{{tasks[0]}: {count}}}",
            )


def _planned(values: dict[str, Any], config: JobConfig, keys: list[str]) -> PlannedJob:
    acting = backends.acting(config)
    return PlannedJob(run_name(values, keys), directory_name(acting), config_hash(acting), config)


def _check_hydra(master: DictConfig) -> None:
    """Refuse settings of Hydra that it does not have, or that would take a job's record away from its sweep."""
    # hydra.env is Hydra's own, though its schema lacks it
    _refuse_unknown(OmegaConf.masked_copy(master.hydra, [k for k in master.hydra if k != "env"]), HydraConf, "hydra.")
    sweep: Any = OmegaConf.to_container(master.hydra.sweep, resolve=False)
    if sweep["subdir"] != SUBDIR:
        raise BadInput("hydra.sweep.subdir", "is evalsweep's own: jobs are named from their values; leave it out")
    if master.hydra.job.chdir:
        raise BadInput("hydra.job.chdir=true", "would move relative paths and mlflow.db from job to job; leave it out")


def _naming(configs: list[dict[str, Any]]) -> list[str]:
    """The keys that name the jobs of a grid: those that differ; temperature and seed where none does."""
    seed = ["seed"] if len({c["seed"] for c in configs}) > 1 else []
    return [*seed, *varying([without_seed(c) for c in configs])] or ["temperature", "seed"]


def _grid(hydra: Hydra, master: DictConfig) -> list[DictConfig] | None:
    """The composed points of Hydra's own sweeper; None for sweepers that choose as they go."""
    if not str(master.hydra.sweeper._target_).endswith(".BasicSweeper"):
        return None
    params = [f"{k}={v}" for k, v in (master.hydra.sweeper.params or {}).items()]
    parser = OverridesParser.create(config_loader=hydra.config_loader)
    parsed = parser.parse_overrides([*params, *master.hydra.overrides.task])
    (points,) = BasicSweeper.split_arguments(parsed, None)
    return [hydra.config_loader.load_sweep_config(master, list(point)) for point in points]


def _refuse_twins(jobs: Sequence[PlannedJob]) -> None:
    seen: dict[str, PlannedJob] = {}
    for job in jobs:
        if job.config_hash in seen:
            raise BadInput(
                job.directory.rpartition("-")[0],
                "the grid has this job twice; name each value once (0.2 and 0.20 are one)",
            )
        seen[job.config_hash] = job


def _directory(*, _root_: DictConfig) -> str:
    return directory_name(backends.acting(job_config(_root_)))


def quoted(text: str) -> str:
    """Text as Hydra's quoted string, in which backslashes count only before a quote and at the end."""
    text = re.sub(r"(\\*)'", lambda match: match.group(1) * 2 + "\\'", text)
    return "'" + re.sub(r"\\+$", lambda match: match.group() * 2, text) + "'"
