"""Records to a Summary: runs that differ only in their seed become one cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalsweep.identity import describe, varying, without_seed
from evalsweep.record import FINISHED, Record
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
        warnings=tuple(dict.fromkeys(alarm for _, r in finished for alarm in r.alarms)),
        jobs=len(asked) or len(records) + len(broken),
    )


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
    return Cell(
        task=str(first.config["task"]["name"]),
        metric=metric.partition("/")[2],
        differs=describe(first.config, keys),
        runs=tuple(Run(r.seeds["generation"], r.metrics[metric], d) for d, r in members),
        identical=identical,
        spread=per_metric[metric][0],
        interval=per_metric[metric][1],
        per_metric=per_metric,
    )


def _is_share(metric: str) -> bool:
    """Whether a metric is a share of documents, which cannot leave [0, 1]."""
    name = metric.partition("/")[2].partition(",")[0]
    return name in ("acc", "acc_norm", "exact_match", "em") or name.startswith(("pass@", "pass_at_", "numeric"))


def cells_by_task(summary: Summary) -> Mapping[str, list[Cell]]:
    """The cells of each task, in order."""
    tasks: dict[str, list[Cell]] = {}
    for cell in summary.cells:
        tasks.setdefault(cell.task, []).append(cell)
    return tasks
