"""The results of a run of lm_eval as records, one for each task or group that has a score."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalsweep.harness_logs.files import PREFERRED, named, numbers, parts_of, read, tops
from evalsweep.harness_logs.samples import hashes
from evalsweep.identity import config_hash, without_seed
from evalsweep.metrics import of_lm_eval
from evalsweep.provenance import value_hash
from evalsweep.record import FINISHED, Record
from evalsweep.redact import redact_tree


def read_records(file: Path) -> list[tuple[str, Record]]:
    """The task, or group of tasks, and the record of each score of one results file.

    Errors: ValueError with the path for a file that is broken or no such results; OSError.
    """
    with named(file):
        data = read(file)
        found = tops(data)
        if not found:
            raise ValueError("no task in it has a score")
        return [(task, _record(file, data, task)) for task in found]


def _record(file: Path, data: Mapping[str, Any], task: str) -> Record:
    about = data["config"]
    metrics: dict[str, float | None] = {
        f"{task}/{metric}": v for metric, v in numbers(data["results"][task]).items() if math.isfinite(v)
    }
    headline = next((f"{task}/{m}" for p in PREFERRED for m in _names(metrics, task) if m.partition(",")[0] == p), None)
    seeds = {
        k: about.get(f"{v}_seed") for k, v in (("generation", "torch"), ("fewshot", "fewshot"), ("python", "random"))
    }
    config = _config(data, task, seeds)
    started = data.get("date")
    versions = {"lm_eval": data.get("lm_eval_version"), "transformers": data.get("transformers_version")}
    parts = parts_of(data, task)
    responses_hash, shots_hash = hashes(file, parts)
    return Record(
        run_id=f"{file.name}-{task}",
        config_hash=config_hash({**config, "file": str(file)}),
        cell_hash=value_hash(without_seed(config)),
        status=FINISHED,
        config=config,
        decoding={"asked": about.get("gen_kwargs")},
        seeds={k: int(v) for k, v in seeds.items() if v is not None} | {"generation": int(seeds["generation"] or 0)},
        provenance={
            "versions": {k: v for k, v in versions.items() if v},
            "git_commit": data.get("git_hash"),
            "model": data.get("model_name"),
            "dtype": about.get("model_dtype"),
            "device": about.get("device"),
            "batch_size": about.get("batch_size"),
            "task_version": (data.get("versions") or {}).get(task),
            "shots_hash": shots_hash,
            "gpu_names": re.findall(r"^GPU \d+: (.+)$", str(data.get("pretty_env_info")), re.MULTILINE),
        },
        metrics=metrics,
        headline=headline or next(iter(metrics), None),
        responses_hash=responses_hash,
        documents=sum(int(((data.get("n-samples") or {}).get(p) or {}).get("effective", 0)) for p in parts),
        alarms=[],
        error=None,
        started=float(started) if isinstance(started, int | float) else _time_of(file),
        seconds=float(data.get("total_evaluation_time_seconds") or 0),
        metric_info=_metric_info(data, task, metrics),
    )


def _metric_info(data: Mapping[str, Any], task: str, metrics: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Give bounds, aggregation and direction of each metric, as far as the results and lm_eval's registry say."""
    better = (data.get("higher_is_better") or {}).get(task) or {}
    configs = data.get("configs") or {}
    listed = [m for part in (task, *parts_of(data, task)) for m in (configs.get(part) or {}).get("metric_list") or []]
    info = {}
    for key in metrics:
        name = key.removeprefix(f"{task}/")
        bare = name.partition(",")[0]
        said = next((m for m in listed if isinstance(m, dict) and m.get("metric") == bare), {})
        aggregation = said.get("aggregation") if isinstance(said.get("aggregation"), str) else None
        direction = better.get(bare, said.get("higher_is_better"))
        metric = of_lm_eval(name, aggregation, direction if isinstance(direction, bool) else None)
        info[key] = {k: v for k, v in asdict(metric).items() if k != "name"}
    return info


def _names(metrics: Mapping[str, Any], task: str) -> list[str]:
    return [name.removeprefix(f"{task}/") for name in metrics]


def _config(data: Mapping[str, Any], task: str, seeds: Mapping[str, Any]) -> dict[str, Any]:
    """What can move the score, in the words of evalsweep's own configuration."""
    about = data["config"]
    arguments = about.get("model_args") or {}
    if isinstance(arguments, str):
        arguments = dict(pair.partition("=")[::2] for pair in arguments.split(",") if pair)
    shots = (data.get("n-shot") or {}).get(parts_of(data, task)[0])
    asked = about.get("gen_kwargs") or {}
    if isinstance(asked, str):
        asked = dict(pair.partition("=")[::2] for pair in asked.split(",") if pair)
    config = {
        "model": {
            # whole: models of one name may lie in different folders
            "name": str(arguments.get("pretrained") or data.get("model_name") or about.get("model")),
            "kind": about.get("model"),
            **{k: v for k, v in arguments.items() if k != "pretrained"},
            "chat_template": data.get("chat_template_sha"),
            "multiturn": data.get("fewshot_as_multiturn"),
        },
        "task": {
            "name": task,
            "num_fewshot": shots,
            "limit": about.get("limit"),
            "version": (data.get("versions") or {}).get(task),
        },
        "prompt": {
            "name": "text" if data.get("system_instruction") else "none",
            "system": data.get("system_instruction"),
        },
        # another seed draws other examples, where there are any
        "fewshot": {"name": "resampled" if shots else "none", "seed": seeds["fewshot"] if shots else None},
        "temperature": _temperature(asked),
        "decoding": {k: v for k, v in asked.items() if k != "temperature"},
        "seed": seeds["generation"],
    }
    return dict(redact_tree(config))


def _temperature(asked: Mapping[str, Any]) -> float | None:
    try:
        return float(asked["temperature"])
    except (KeyError, TypeError, ValueError):
        return None


def _time_of(file: Path) -> float:
    """Seconds since the epoch, from the name of the file; 0 where it has none."""
    found = re.search(r"(\d{4}-\d\d-\d\dT\d\d)[-:](\d\d)[-:](\d\d)", file.name)
    if not found:
        return 0.0
    return datetime.fromisoformat(":".join(found.groups())).replace(tzinfo=UTC).timestamp()
