"""Records to a Summary: runs that differ only in their seed become one cell."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evalsweep.identity import describe, identity, varying, without_seed
from evalsweep.record import FINISHED, Alarm, Record
from evalsweep.stats.runs import Estimate, Spread, run_interval, spread


@dataclass(frozen=True)
class Run:
    """One finished run of a cell."""

    seed: int
    score: float
    directory: str


@dataclass(frozen=True)
class Cell:
    """All runs that differ only in their seed.

    `differs` names what tells this cell from the others of the sweep, by short names. `per_metric` holds the spread and
    interval of every metric of the task, the headline among them.
    """

    task: str
    metric: str
    differs: dict[str, Any]
    runs: tuple[Run, ...]
    identical: bool
    spread: Spread
    interval: Estimate
    per_metric: dict[str, tuple[Spread, Estimate]]


@dataclass(frozen=True)
class Failure:
    """A job that has no score: its name, status (FAILED, KILLED, MISSING or UNREADABLE) and one line of why."""

    name: str
    status: str
    error: str
    directory: str


@dataclass(frozen=True)
class Summary:
    """What a sweep found: cells in the order of the grid, what failed, what is to be known."""

    cells: tuple[Cell, ...]
    failed: tuple[Failure, ...]
    warnings: tuple[str, ...]
    jobs: int


@dataclass(frozen=True)
class Job:
    """A job that was asked for: its name, its directory's name and its configuration's hash."""

    name: str
    directory: str
    config_hash: str


def summarise(
    records: Sequence[tuple[str, Record]], asked: Sequence[Job] = (), broken: Mapping[str, str] | None = None
) -> Summary:
    """Summarise the records of one sweep.

    Args:
        records: directory name and record of each run that left one.
        asked: the jobs of the grid; those without a record are reported as missing. Empty where it is not known.
        broken: directory name to one line of why its record cannot be read.
    """
    names = {job.config_hash: job.name for job in asked}
    rank = {job.config_hash: i for i, job in enumerate(asked)}
    ordered = sorted(records, key=lambda pair: rank.get(pair[1].config_hash, len(rank)))
    finished = [(d, r) for d, r in ordered if _has_score(r)]
    failed = [
        Failure(names.get(r.config_hash, d), r.status, r.error or "no score", d)
        for d, r in ordered
        if not _has_score(r)
    ]
    broken = broken or {}
    failed += [Failure(d, "UNREADABLE", line, d) for d, line in broken.items()]
    left = {r.config_hash for _, r in ordered}
    failed += [
        Failure(job.name, "MISSING", "the job left no record: it never started, or was killed", job.directory)
        for job in asked
        if job.config_hash not in left and job.directory not in broken
    ]
    keys = [k for k in varying([without_seed(r.config) for _, r in finished]) if k != "task.name"] if finished else []
    groups: dict[str, list[tuple[str, Record]]] = {}
    for directory, record in finished:
        groups.setdefault(record.cell_hash, []).append((directory, record))
    return Summary(
        cells=tuple(_cell(members, keys) for members in groups.values()),
        failed=tuple(failed),
        warnings=(*_alarms([r for _, r in finished]), *_dead_axes([r for _, r in finished], keys)),
        jobs=len(asked) or len(records) + len(broken),
    )


def _alarms(records: Sequence[Record]) -> list[str]:
    """One line for each kind of alarm of a task: the worst of its runs, and how many have it where not all do."""
    runs = Counter(str(r.config["task"]["name"]) for r in records)
    found: dict[tuple[str, str, str], list[Alarm]] = {}
    for record in records:
        for alarm in record.alarms:
            what = "" if alarm.total else alarm.message  # where nothing is counted, another model has another line
            found.setdefault((str(record.config["task"]["name"]), alarm.kind, what), []).append(alarm)
    lines = []
    for (task, *_), alarms in found.items():
        worst = max(alarms, key=lambda alarm: alarm.count)
        partly = worst.total and len(alarms) < runs[task]
        some = f" (the worst of {len(alarms)} runs with such, of {runs[task]})" if partly else ""
        lines.append(worst.message + some)
    return list(dict.fromkeys(lines))


def _dead_axes(records: Sequence[Record], keys: Sequence[str]) -> list[str]:
    """The axes of the sweep, other than the seed, that changed not one answer of a task."""
    lines = []
    for key in keys:
        option = key.removesuffix(".name")
        for task in dict.fromkeys(str(r.config["task"]["name"]) for r in records):
            own = [r for r in records if r.config["task"]["name"] == task]
            if option == "temperature" and any(a.kind == "dead_temperature" for r in own for a in r.alarms):
                continue  # said already
            alike: dict[str, list[Record]] = {}
            for record in own:
                alike.setdefault(json.dumps(_without(record.config, option), sort_keys=True), []).append(record)
            groups = [group for group in alike.values() if len({_at(r.config, option) for r in group}) > 1]
            if groups and all(len({r.responses_hash or r.run_id for r in group}) == 1 for group in groups):
                lines.append(f"{option} changed no answer of {task}")
    return lines


def _without(config: Mapping[str, Any], option: str) -> dict[str, Any]:
    """The identity of a run without an option (`temperature`, `prompt`, `task.samples`) and what belongs to it."""
    group, _, key = option.partition(".")
    kept = {k: v for k, v in identity(config).items() if k != (None if key else group)}
    if key:
        kept[group] = {k: v for k, v in kept[group].items() if k != key}
    if option == "temperature":
        kept.pop("decoding")
    return kept


def _at(config: Mapping[str, Any], option: str) -> str:
    group, _, key = option.partition(".")
    return json.dumps(config[group][key] if key else config[group], sort_keys=True)


def _has_score(record: Record) -> bool:
    return record.status == FINISHED and _is_number(record.metrics.get(str(record.headline)))


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)  # JSON's null stands for what was not finite


def _cell(members: Sequence[tuple[str, Record]], keys: Sequence[str]) -> Cell:
    first = members[0][1]
    metric = str(first.headline)
    hashes = {r.responses_hash for _, r in members}
    identical = len(members) > 1 and len(hashes) == 1 and None not in hashes
    per_metric = {}
    for name in first.metrics:
        scores = [r.metrics[name] for _, r in members if _is_number(r.metrics.get(name))]
        if len(scores) == len(members):
            low, high = (0.0, 1.0) if _is_share(name) else (float("-inf"), float("inf"))
            per_metric[name] = (spread(scores), run_interval(scores, identical=identical, bounds=(low, high)))
    interval = per_metric[metric][1]
    if identical and interval.reason:
        same_shots = len({r.provenance.get("shots_hash") for _, r in members}) == 1
        what = "changed neither shots nor samples" if same_shots else "changed the shots, but no answer"
        interval = replace(interval, reason=f"the seed {what}: {interval.reason}")
    return Cell(
        task=str(first.config["task"]["name"]),
        metric=metric.partition("/")[2],
        differs=describe(first.config, keys),
        runs=tuple(Run(r.seeds["generation"], r.metrics[metric], d) for d, r in members),
        identical=identical,
        spread=per_metric[metric][0],
        interval=interval,
        per_metric=per_metric,
    )


def _is_share(metric: str) -> bool:
    """Whether a metric is a share of documents, which cannot leave [0, 1]."""
    name = metric.partition("/")[2].partition(",")[0]
    return name in ("acc", "acc_norm", "exact_match", "em") or name.startswith(("pass@", "pass_at_", "numeric", "maj@"))


def cells_by_task(summary: Summary) -> Mapping[str, list[Cell]]:
    """The cells of each task, in order."""
    tasks: dict[str, list[Cell]] = {}
    for cell in summary.cells:
        tasks.setdefault(cell.task, []).append(cell)
    return tasks
