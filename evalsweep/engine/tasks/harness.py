"""Builds lm_eval's task objects: its own definitions, local or hub data, pinned shots, decoding stated in full."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import datasets
import lm_eval
import lm_eval.utils
import numpy as np
import torch
import yaml
from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask, Task
from lm_eval.tasks import TaskManager
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Entry
from lm_eval.tasks._yaml_loader import load_yaml

from evalsweep.config import JobConfig, samples_at
from evalsweep.engine.benchmarks import scorers
from evalsweep.engine.benchmarks.benchmark import DEFINITIONS, benchmark_of
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.tasks import data, shots
from evalsweep.errors import BadInput, did_you_mean, first_line
from evalsweep.provenance import value_hash

HARNESS = Path(lm_eval.__file__).parent / "tasks"
# lm_eval compiles the same few templates anew for every field of every document, which is most of what a prompt costs.
lm_eval.utils.env.from_string = lru_cache(maxsize=256)(lm_eval.utils.env.from_string)
# Some tasks draw while they read their documents, the order of choices for one: the same for every seed, and not what
# another program drew, which the hub's library keeps on disk.
DOCUMENTS_SEED = 0  # lm_eval's own default
datasets.disable_caching()
DEFAULT_MAX_GEN_TOKS = 256  # lm_eval's own, stated so that a model's generation_config cannot set another


@dataclass(frozen=True)
class Built:
    """What lm_eval is given: a task or a group, and its leaf tasks by name."""

    root: Task | Group
    tasks: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.root.name if isinstance(self.root, Group) else self.root.task_name)

    @property
    def generates(self) -> bool:
        """Whether any of the tasks has the model write text."""
        return any(task.OUTPUT_TYPE == "generate_until" for task in self.tasks.values())


def build(job: JobConfig) -> Built:
    """The tasks of a job, loaded anew: lm_eval changes task objects while it runs them.

    Errors: BadInput for an unknown task, unreadable or absent data, shots or a metric that cannot be had.
    """
    name = job.task.name
    fix_seeds(DOCUMENTS_SEED)
    manager = _manager(name, job.task.include_path)
    factory = _Factory(job)
    manager._factory = factory
    try:
        loaded = manager._load_spec(name)
    except BadInput:
        raise
    except (yaml.YAMLError, TypeError, AttributeError, ValueError) as e:
        if Path(name).suffix not in (".yaml", ".yml"):
            raise
        raise BadInput(f"task.name={name}", f"is no definition of one task of lm_eval ({first_line(e)})") from e
    except (OSError, datasets.exceptions.DatasetsError) as e:
        raise BadInput(
            f"task.name={name}",
            f"what it needs is not in the hub's cache here, and the hub does not answer ({type(e).__name__}: "
            f"{first_line(e)})" + ("" if job.task.data else "; give its data as a folder with <split>.jsonl"),
            None if job.task.data else f"task.data=data/{name}",
        ) from e
    if isinstance(loaded, list):
        tasks = [str(t.task_name) for t in loaded]
        raise BadInput(
            f"task.name={name}",
            f"is a tag of {len(tasks)} tasks, with no score of its own; sweep over its tasks",
            f"-m task=lm_eval task.name={','.join(tasks[:3])}",
        )
    leaves = manager.load([loaded])["tasks"]
    for task in leaves.values():
        _check_kind(task, job)
        _pin_documents(task)
        shots.pin(task, job.fewshot, job.task.num_fewshot)
        _check_votes(task)
        _check_group(task, job.task.group_by)
        if task.OUTPUT_TYPE == "generate_until":
            task.set_config("generation_kwargs", _generation(task.config.generation_kwargs, job))
            task.set_config("repeats", samples_at(job))
        else:
            task.set_config("repeats", 1)  # a log-likelihood is the same every time
    _check_metric(loaded, leaves, job)
    return Built(loaded, leaves, _provenance(leaves, factory))


def fix_seeds(seed: int) -> None:
    """Set every global generator: lm_eval's tasks draw from them, some of them while they read their documents."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  tasks draw from the global generator
    torch.manual_seed(seed)


def check_name(name: str, include_path: str | None = None) -> None:
    """Refuse a task that neither evalsweep, nor lm_eval, nor the user's own folder knows. Errors: BadInput."""
    _manager(name, include_path)


def decoding_sent(job: JobConfig) -> dict[str, Any]:
    """Give the generation settings: every one that acts, stated, so that no default can act instead."""
    can = kind_of(job.model).can
    acting = can.sampling if job.decoding.do_sample else can.greedy
    return {"temperature": job.temperature} | {k: v for k, v in asdict(job.decoding).items() if k in acting}


def _generation(own: dict[str, Any] | None, job: JobConfig) -> dict[str, Any]:
    own = own or {}
    aliases = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
    length = job.task.max_gen_toks or next((own[k] for k in aliases if own.get(k)), DEFAULT_MAX_GEN_TOKS)
    sent = {"until": own.get("until") or [], "max_gen_toks": int(length), **decoding_sent(job)}
    if scorers.scorer_of(job) == scorers.CODE:
        sent["stop_in_fences"] = False  # a stop string such as a new function is a part of fenced code
        if job.model.apply_chat_template and benchmark_of(job.task.name).drops_stops:
            sent["until"] = []
    return sent


@cache
def _whole_index() -> TaskManager:
    return TaskManager()


def _manager(name: str, include_path: str | None = None) -> TaskManager:
    if include_path is not None:
        manager = TaskManager(include_defaults=False, include_path=str(Path(include_path).expanduser()))
        if name in manager.task_index:
            return manager
    # Reading the whole index of lm_eval takes 8 to 24 s; the folder of a task takes milliseconds.
    for folder in (DEFINITIONS / name, HARNESS / (benchmark_of(name).folder or name)):
        if folder.is_dir():
            manager = TaskManager(include_defaults=False, include_path=str(folder))
            if name in manager.task_index:
                return manager
    if Path(name).suffix in (".yaml", ".yml") and Path(name).is_file():
        return TaskManager(include_defaults=False)
    manager = _whole_index()
    if name not in manager.task_index:
        raise BadInput(
            f"task.name={name}",
            f"lm_eval has no such task{did_you_mean(name, manager.all_tasks)}; it knows {len(manager.all_tasks)} "
            "(`lm-eval ls tasks`)",
            "task=lm_eval task.name=arc_easy",
        )
    return manager


class _Factory(TaskFactory):
    """lm_eval's loader of task definitions; local data takes the place of the hub, and each definition is hashed."""

    def __init__(self, job: JobConfig) -> None:
        super().__init__()
        self.job = job
        self.config_hashes: dict[str, str] = {}
        self.source: str | None = None  # of data that is not the hub's

    def _load_full_config(self, entry: Entry, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        raw = load_yaml(entry.yaml_path, resolve_func=False) if entry.yaml_path else {}
        if raw.get("unsafe_code") and self.job.task.unsafe_code != "allow":
            # before the definition is loaded: that alone runs the task's own Python
            raise BadInput(
                f"task.name={entry.name}",
                "has lm_eval run code that the model wrote, with nothing around it; a definition of your own without "
                "unsafe_code runs in evalsweep's sandbox (task.scorer=code), or, in a container that you can lose, "
                "allow it",
                "task.unsafe_code=allow",
            )
        config: dict[str, Any] = super()._load_full_config(entry, overrides)
        if not isinstance(config.get("task"), str):
            return config  # a group
        if raw:
            text = json.dumps(raw, sort_keys=True, default=str)
            self.config_hashes[config["task"]] = value_hash(text.replace(str(HARNESS), ""))
        if self.job.task.gen_prefix:
            config["gen_prefix"] = self.job.task.gen_prefix
        splits = self._local(config)
        if splits is not None:
            config["custom_dataset"] = _dataset(splits, config)
        elif Path(str(config.get("dataset_path"))).exists() and not Path(str(config["dataset_path"])).is_absolute():
            raise BadInput(
                f"./{config['dataset_path']}",
                f"this folder would silently take the place of the hub's dataset of that name for task {config['task']}"
                "; rename it, or say that it is meant",
                f"task.data=./{config['dataset_path']}",
            )
        return config

    def _local(self, config: dict[str, Any]) -> dict[str, list[dict[str, Any]]] | None:
        """The task's splits from local files; None where they come from the hub."""
        task, n, fewshot = config["task"], self.job.task.num_fewshot, self.job.fewshot
        wanted = n if n is not None else config.get("num_fewshot") or 0
        if fewshot.name == "file":
            wanted = 0  # its examples are all that is needed
        elif fewshot.split is not None and self.job.task.data:
            config["fewshot_split"] = fewshot.split
        if self.job.task.data:
            self.source = "local files"
            return data.load(Path(self.job.task.data).expanduser(), config, wanted)
        packaged = benchmark_of(task).packaged
        if packaged is not None:
            found = packaged()
            if found is None:
                return None
            self.source = found.source
            return {"test": data.read_split(found.path, data.columns_of(config))}
        if any((DEFINITIONS / task).glob("*.jsonl")):
            self.source = "local files"
            return data.load(DEFINITIONS / task, config, wanted)
        return None


def _dataset(splits: dict[str, list[dict[str, Any]]], config: dict[str, Any]) -> Callable[..., datasets.DatasetDict]:
    if config.get("training_split") not in splits:
        config.pop("training_split", None)  # optional, and absent
    if config.get("fewshot_split") not in splits:
        config.pop("fewshot_split", None)
    if config.get("validation_split") not in splits:
        config.pop("validation_split", None)

    def load(**_: Any) -> datasets.DatasetDict:
        try:
            return datasets.DatasetDict({split: datasets.Dataset.from_list(rows) for split, rows in splits.items()})
        except UnicodeEncodeError as e:
            raise BadInput(
                f"data of {config['task']}", f"holds half a letter, a lone surrogate ({first_line(e)})"
            ) from e
        except (ValueError, TypeError) as e:  # what pyarrow raises
            raise BadInput(f"data of {config['task']}", f"a column mixes types ({first_line(e)})") from e

    return load


def _pin_documents(task: Any) -> None:
    """Make a task's documents once: lm_eval does so each time it is asked, and GPQA's shuffle their choices then."""
    documents = task.eval_docs
    setattr(task, "test_docs" if task.has_test_docs() else "validation_docs", lambda: documents)


def _check_kind(task: Any, job: JobConfig) -> None:
    if isinstance(task, ConfigurableTask):
        return
    if task.OUTPUT_TYPE == "generate_until" or (job.task.num_fewshot or task.config.num_fewshot or 0) > 0:
        raise BadInput(
            f"task.name={task.task_name}",
            "is written in Python and sets its own shots and decoding, so that neither can be pinned",
            "task=sample",
        )


def _check_group(task: Any, field: str | None) -> None:
    """Refuse a field that the documents lack before any is answered."""
    fields = list(next(iter(task.eval_docs), {}))
    if field is not None and field not in fields:
        near = did_you_mean(field, fields)
        raise BadInput(
            f"task.group_by={field}",
            f"is no field of the documents of {task.task_name}{near}; they have {', '.join(fields)}",
            f"task.group_by={fields[0]}" if fields else None,
        )


def _check_votes(task: Any) -> None:
    """Refuse tasks that vote over several answers themselves: each answer is scored alone here."""
    steps = [step.get("function") for f in task.config.filter_list or [] for step in f.get("filter", [])]
    if "take_first_k" in steps:
        raise BadInput(
            f"task.name={task.task_name}",
            "takes a vote over several answers of its own, and evalsweep scores each answer by itself",
            "task.scorer=numeric task.samples=5 temperature=0.7 (maj@5 beside the mean; a task of its own)",
        )


def _check_metric(root: Task | Group, leaves: dict[str, Any], job: JobConfig) -> None:
    """Refuse a headline that the task will not yield, before hours are spent."""
    if isinstance(root, Group):
        if not root.aggregate_metric_list:
            names = list(leaves)
            raise BadInput(
                f"task.name={root.name}",
                f"is a group of {len(names)} tasks with no score of its own; sweep over its tasks",
                f"-m task=lm_eval task.name={','.join(names[:3])}",
            )
        metrics: list[Any] = [m.metric for m in root.aggregate_metric_list]
        filters = list(dict.fromkeys(f.name for t in leaves.values() for f in t._filters))
    else:
        task = next(iter(leaves.values()))
        metrics = list(getattr(task, "_metric_fn_list", {}))
        filters = [f.name for f in task._filters]
        listed = task.config.metric_list or []
        if any(callable(m.get("metric")) for m in listed) or not metrics:
            return  # named by the task's own code
    expected = [f"{m},{f}".removesuffix(",none") for m in metrics for f in filters]
    if not isinstance(root, Group):
        own = [m.name for m in scorers.metrics(job) if m.higher_is_better]
        expected = own if scorers.scorer_of(job) == scorers.CODE else [*expected, *own]
    metric = job.task.metric
    if metric is not None and metric not in expected:
        raise BadInput(
            f"task.metric={metric}",
            f"the task yields {' and '.join(expected)}{did_you_mean(metric, expected)}",
            f"task.metric='{expected[0]}'",
        )


def _provenance(leaves: dict[str, Any], factory: _Factory) -> dict[str, Any]:
    versions = {name: str(task.VERSION) for name, task in leaves.items()}
    prints = {name: value_hash(list(task.eval_docs)) for name, task in leaves.items()}
    sources = {
        name: factory.source
        if task.config.custom_dataset
        else "/".join(filter(None, (task.DATASET_PATH, task.DATASET_NAME)))
        for name, task in leaves.items()
    }
    return {
        "task_version": _same(versions),
        "task_config_hash": _same(
            {k: factory.config_hashes.get(k, "none: written in Python") for k in leaves}, combine=True
        ),
        "dataset_fingerprint": _same(prints, combine=True),
        "dataset_source": _same(sources, combine=False),
        "num_fewshot": _same({name: task.config.num_fewshot or 0 for name, task in leaves.items()}),
    }


def _same(by_task: dict[str, Any], combine: bool = False) -> Any:
    """The one value that all tasks share; else one hash over all (`combine`), or the values by task."""
    values = list(by_task.values())
    if all(v == values[0] for v in values):
        return values[0]
    return value_hash(by_task) if combine else by_task
