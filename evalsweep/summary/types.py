"""The types of a summary: what summary.json holds."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from evalsweep.stats.estimate import Estimate
from evalsweep.stats.power import Noise
from evalsweep.stats.runs import Spread

SCHEMA = 1


@dataclass(frozen=True)
class Run:
    """One finished run of a cell; `tokens` were generated, None where that is not known; `shots` is a hash of them."""

    seed: int
    score: float
    directory: str
    seconds: float
    tokens: float | None
    shots: str | None


@dataclass(frozen=True)
class Metric:
    """A metric of a cell: over runs, and on new questions (None where it is no mean over documents)."""

    spread: Spread
    interval: Estimate
    questions: Estimate | None


@dataclass(frozen=True)
class Group:
    """A group of documents, such as a subject, in one cell."""

    name: str
    questions: Estimate


@dataclass(frozen=True)
class Variance:
    """Variance of a single score by where it comes from, and the share of each in the variance of the cell's mean."""

    documents: float
    runs: float
    rest: float
    shares: dict[str, float]


@dataclass(frozen=True)
class Cell:
    """All runs that differ only in their seed.

    `differs` names what tells this cell from the others of the sweep, by short names. `interval` is for another run of
    the same questions, `questions` for new ones, `median` for the median over runs, `macro` for the mean of the groups'
    means. `documents` were answered in every run; `per_metric` holds every metric of the task, the headline among them.
    `resampled` says that each run had shots of its own. `config` is without the seed, `provenance` that of the first
    run.
    """

    task: str
    metric: str
    differs: dict[str, Any]
    runs: tuple[Run, ...]
    identical: bool
    documents: int
    spread: Spread
    interval: Estimate
    questions: Estimate
    median: Estimate
    macro: Estimate | None
    groups: tuple[Group, ...]
    variance: Variance | None
    per_metric: dict[str, Metric]
    resampled: bool
    config: dict[str, Any]
    decoding: dict[str, Any]
    provenance: dict[str, Any]

    @property
    def name(self) -> str:
        """The task and what differs: `sample, temperature 0.2`."""
        return ", ".join([self.task, *(f"{k} {shown(v)}" for k, v in self.differs.items())])


@dataclass(frozen=True)
class Comparison:
    """Two cells that differ along one axis: b less a, on the same documents.

    `a` and `b` are positions in the summary's cells. `p` is that of a sign-flip test, `p_adjusted` Holm's over all
    comparisons of the summary. `rose` and `fell` are documents whose mean score changed by more than one half.
    `noise` is that of such a difference, for planning. `unlike` names what else differs between the sides; `reason`
    says why there is no difference to give.
    """

    axis: str
    a: int
    b: int
    difference: Estimate | None
    p: float | None
    p_adjusted: float | None
    method: str | None
    rose: tuple[str, ...] = ()
    fell: tuple[str, ...] = ()
    noise: Noise | None = None
    unlike: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Failure:
    """A job that has no score: its name, status (FAILED, KILLED, MISSING or UNREADABLE) and one line of why."""

    name: str
    status: str
    error: str
    directory: str


@dataclass(frozen=True)
class Summary:
    """What a sweep found: cells in the order of the grid, pairs of them, what failed, what is to be known.

    `problems` are what is missing though it was asked for, beside the jobs that failed; `warnings` are not.
    """

    cells: tuple[Cell, ...]
    comparisons: tuple[Comparison, ...]
    failed: tuple[Failure, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    jobs: int
    schema: int = SCHEMA

    @property
    def whole(self) -> bool:
        """Whether all that was asked for is there."""
        return bool(self.cells) and not self.failed and not self.problems

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Summary:
        """Errors: ValueError for another schema, a missing or an unknown field."""
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if schema != SCHEMA:
            raise ValueError(f"schema {schema!r} is not {SCHEMA}, the one this version reads")
        found = _read(Summary, data)
        assert isinstance(found, Summary)
        return found

    def by_task(self) -> dict[str, list[Cell]]:
        """The cells of each task, in order."""
        tasks: dict[str, list[Cell]] = {}
        for cell in self.cells:
            tasks.setdefault(cell.task, []).append(cell)
        return tasks


@dataclass(frozen=True)
class Job:
    """A job that was asked for: its name, its directory's name and its configuration's hash."""

    name: str
    directory: str
    config_hash: str


def shown(value: object) -> str:
    """A value of an axis as people write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _read(kind: Any, value: Any) -> Any:
    """A value of JSON as the type that a field has."""
    if is_dataclass(kind):
        names = {f.name for f in fields(kind)}
        if not isinstance(value, Mapping) or set(value) != names:
            raise ValueError(f"fields of {getattr(kind, '__name__', kind)} differ from schema {SCHEMA}")
        hints = typing.get_type_hints(kind)
        assert isinstance(kind, type)
        return kind(**{name: _read(hints[name], value[name]) for name in names})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return tuple(_read(arguments[0], v) for v in value)
    if origin is dict and is_dataclass(arguments[1]):
        return {k: _read(arguments[1], v) for k, v in value.items()}
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _read(arguments[0], value)
    return value
