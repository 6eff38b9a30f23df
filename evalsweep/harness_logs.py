"""What `lm_eval run --log_samples` wrote (0.4.x), read as records and samples.

    <output>/<model>/results_<time>.json          scores and settings of a run
    <output>/<model>/samples_<task>_<time>.jsonl  a line a document and filter

Older versions have no time in their names, or the model's; some runs are named by their user. All are found by what
stands in them. Whatever is not as lm_eval writes it is a ValueError with the file's path.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evalsweep.errors import first_line
from evalsweep.identity import config_hash, without_seed
from evalsweep.provenance import text_hash, value_hash
from evalsweep.record import FINISHED, Record, Sample, Scores, group_of
from evalsweep.redact import redact_tree

_PREFERRED = ("exact_match", "acc", "acc_norm", "pass@1", "pass_at_1", "em", "f1")  # what people mean by a task's score


def find(path: Path) -> list[Path]:
    """The results files below a folder, links followed, oldest first."""
    found, seen = [], set()
    for folder, folders, files in os.walk(path, followlinks=True):
        here = os.path.realpath(folder)
        if here in seen:
            folders.clear()
            continue
        seen.add(here)
        found += [Path(folder) / name for name in files if name.endswith(".json") and _is_results(Path(folder) / name)]
    return sorted(found, key=lambda p: (p.name, str(p)))


def _is_results(file: Path) -> bool:
    """Whether a file is called as lm_eval calls its results, or begins as they do."""
    if file.name in ("results_summary.json", "summary.json"):  # evalsweep's own
        return False
    if re.fullmatch(r"results(_.*)?\.json", file.name):
        return True
    try:
        with file.open("rb") as f:
            return re.match(rb'\s*{\s*"results"\s*:', f.read(200)) is not None
    except OSError:
        return False


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Whatever goes wrong with what stands in a file becomes a ValueError with its path."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as e:
        text = first_line(e)
        raise ValueError(text if str(file.parent) in text else f"{file}: not as lm_eval writes it ({text})") from e


def read_records(file: Path) -> list[tuple[str, Record]]:
    """The task, or group of tasks, and the record of each score of one results file.

    Errors: ValueError with the path for a file that is broken or no such results; OSError.
    """
    with _named(file):
        data = _read(file)
        tops = _tops(data)
        if not tops:
            raise ValueError("no task in it has a score")
        return [(task, _record(file, data, task)) for task in tops]


def _read(file: Path) -> dict[str, Any]:
    data = json.loads(file.read_text(errors="replace"))
    if not isinstance(data, dict) or not all(isinstance(data.get(key), dict) for key in ("results", "config")):
        raise ValueError("results of lm_eval hold `results` and `config`")
    return data


def read_scores(file: Path, task: str, group_by: str | None = None) -> Scores:
    """The scores of the documents of a task or group.

    Errors: ValueError with the path for a file that is broken; OSError, FileNotFoundError where there is none.
    """
    with _named(file):
        parts = _parts(_read(file), task)
    return Scores.of(
        str(_samples_file(file, parts[0]) if len(parts) == 1 else file), read_samples(file, task, group_by)
    )


def read_samples(file: Path, task: str, group_by: str | None = None) -> Iterator[Sample]:
    """The documents of a task or group, each with its scores by all filters.

    Args:
        group_by: the field of the dataset's documents that names their group.

    Errors: as for `read_scores`; ValueError too where a document lacks the field.
    """
    with _named(file):
        parts = _parts(_read(file), task)
    for part in parts:
        samples = _samples_file(file, part)
        with _named(samples):
            yield from _merged(samples, part, group_by)


def _tops(data: Mapping[str, Any]) -> list[str]:
    """Tasks and groups that belong to no other group."""
    groups: Mapping[str, list[str]] = data.get("group_subtasks") or {}
    within = {part for group, parts in groups.items() for part in parts if part != group}
    scored = [name for name in data["results"] if name not in within and _numbers(data["results"][name])]
    # a group without a score of its own is as good as its parts
    bare = [name for name in groups if name not in within and not _numbers(data["results"].get(name, {}))]
    return scored + [p for name in bare for p in _parts(data, name) if p not in scored]


def _parts(data: Mapping[str, Any], task: str, above: tuple[str, ...] = ()) -> list[str]:
    """The tasks of a group, of its groups too; a task itself."""
    parts = [part for part in (data.get("group_subtasks") or {}).get(task) or [] if part not in (task, *above)]
    return [leaf for part in parts for leaf in _parts(data, part, (task, *above))] if parts else [task]


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Metric to number, as evalsweep names them: lm_eval's `,none` is dropped."""
    return {
        name.removesuffix(",none"): float(value)
        for name, value in values.items()
        if "," in name and "_stderr" not in name and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _record(file: Path, data: Mapping[str, Any], task: str) -> Record:
    about = data["config"]
    metrics = {f"{task}/{metric}": v for metric, v in _numbers(data["results"][task]).items() if math.isfinite(v)}
    headline = next(
        (f"{task}/{m}" for p in _PREFERRED for m in _names(metrics, task) if m.partition(",")[0] == p), None
    )
    seeds = {
        k: about.get(f"{v}_seed") for k, v in (("generation", "torch"), ("fewshot", "fewshot"), ("python", "random"))
    }
    config = _config(data, task, seeds)
    started = data.get("date")
    versions = {"lm_eval": data.get("lm_eval_version"), "transformers": data.get("transformers_version")}
    parts = _parts(data, task)
    responses_hash, shots_hash = _hashes(file, parts)
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
    )


def _names(metrics: Mapping[str, float], task: str) -> list[str]:
    return [name.removeprefix(f"{task}/") for name in metrics]


def _config(data: Mapping[str, Any], task: str, seeds: Mapping[str, Any]) -> dict[str, Any]:
    """What can move the score, in the words of evalsweep's own configuration."""
    about = data["config"]
    arguments = about.get("model_args") or {}
    if isinstance(arguments, str):
        arguments = dict(pair.partition("=")[::2] for pair in arguments.split(",") if pair)
    shots = (data.get("n-shot") or {}).get(_parts(data, task)[0])
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


def _samples_file(file: Path, task: str) -> Path:
    """The samples beside a results file.

    Errors: FileNotFoundError where there are none, as without --log_samples.
    """
    time = re.search(r"_?(\d{4}-\d\d-\d\dT.*)$", file.stem)
    names = (
        [f"samples_{task}_{time.group(1)}.jsonl"] if time else [f"samples_{task}.jsonl", f"{file.stem}_{task}.jsonl"]
    )
    found = [file.parent / name for name in names if (file.parent / name).exists()]
    if not found and not time:  # version 0.4.0 put the model's arguments first
        found = sorted(p for p in file.parent.glob("*.jsonl") if p.name.endswith(f"_{task}.jsonl"))
    if not found:
        raise FileNotFoundError(f"no {names[0]} beside {file}: lm_eval writes it with --log_samples")
    return found[0]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as f:
        for number, line in enumerate(f, 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as e:
                raise ValueError(f"{path}: line {number}: {first_line(e)}") from e
            if not isinstance(row, dict) or not isinstance(row.get("doc_id"), int):
                raise ValueError(f"{path}: line {number}: no sample of lm_eval, which has a doc_id")
            yield row


def _merged(path: Path, task: str, group_by: str | None) -> Iterator[Sample]:
    """One sample a document: lm_eval writes a line for each filter, not always side by side.

    A document that is there again is given again: whoever counts them tells it.
    """
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
    times: dict[tuple[int, Any], int] = {}
    for row in _lines(path):
        number, flavour = row["doc_id"], str(row.get("filter"))
        again = times[number, flavour] = times.get((number, flavour), -1) + 1
        rows.setdefault((again, number), []).append(row)
    for _, same in sorted(rows.items(), key=lambda item: item[0][0]):
        yield _sample(task, same, group_by)


def _sample(task: str, rows: list[dict[str, Any]], group_by: str | None) -> Sample:
    first = rows[0]
    scores: dict[str, float] = {}
    for row in rows:
        suffix = "" if row.get("filter") in (None, "none") else f",{row['filter']}"
        names = row.get("metrics") or [k for k, v in row.items() if k in _PREFERRED and isinstance(v, int | float)]
        for metric in names:
            value = row.get(metric)
            if isinstance(value, int | float):
                scores[f"{metric}{suffix}"] = float(value)
    doc_id = int(first["doc_id"])
    prompt = _prompt(first.get("arguments"))
    digest = first.get("doc_hash") or hashlib.sha256(json.dumps(first.get("doc"), sort_keys=True).encode()).hexdigest()
    return Sample(
        task=task,
        doc_id=doc_id,
        doc_hash=str(digest)[:16],
        prompt=prompt,
        prompt_hash=text_hash(prompt),
        shots=[],
        target=str(first.get("target")),
        responses=_responses(first.get("resps")),
        scores=scores,
        group=group_of(first.get("doc") or {}, group_by),
    )


def _prompt(arguments: Any) -> str:
    """The first argument of the first request, in either of the forms that lm_eval has written."""
    if isinstance(arguments, Mapping):
        arguments = list(arguments.values())
    first = arguments[0] if isinstance(arguments, list) and arguments else arguments
    if isinstance(first, Mapping):
        first = first.get("arg_0")
    elif isinstance(first, list):
        first = first[0] if first else ""
    return str(first)


def _responses(resps: Any) -> list[Any]:
    """One string an answer; for multiple choice, where a request is a choice, its log-likelihood."""
    if not isinstance(resps, list):
        return [str(resps)]
    if len(resps) == 1 and isinstance(resps[0], list) and all(isinstance(r, str) for r in resps[0]):
        return list(resps[0])
    firsts = [r[0] if isinstance(r, list) and r else r for r in resps]
    return [float(r[0]) if isinstance(r, list) and r else str(r) for r in firsts]


def _hashes(file: Path, parts: list[str]) -> tuple[str | None, str | None]:
    """Of all answers and of all prompts, equal for runs in which these are; None where the samples cannot be read."""
    try:
        rows = [(part, row) for part in parts for row in _lines(_samples_file(file, part))]
    except (OSError, ValueError):
        return None, None  # told where the scores are read
    answers = [[part, row["doc_id"], row.get("resps")] for part, row in rows]
    prompts = [[part, row["doc_id"], _prompt(row.get("arguments"))] for part, row in rows]
    return value_hash(answers), value_hash(prompts)


def _time_of(file: Path) -> float:
    """Seconds since the epoch, from the name of the file; 0 where it has none."""
    found = re.search(r"(\d{4}-\d\d-\d\dT\d\d)[-:](\d\d)[-:](\d\d)", file.name)
    if not found:
        return 0.0
    return datetime.fromisoformat(":".join(found.groups())).replace(tzinfo=UTC).timestamp()
