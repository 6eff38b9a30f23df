"""What a report is made from: the folder of a sweep or of a single run, or what lm_eval itself wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evalsweep import store
from evalsweep.errors import BadInput, first_line
from evalsweep.harness_logs import files
from evalsweep.harness_logs import records as harness_records
from evalsweep.harness_logs import samples as harness_samples
from evalsweep.record import Record, Sample, Scores
from evalsweep.summary.sweep import summarise
from evalsweep.summary.types import Job, Summary


@dataclass(frozen=True)
class Inputs:
    """A summary and what it was made of.

    `samples` are those of a run by its directory's name; `command` is None where it is not known; `own` says that
    evalsweep wrote the runs.
    """

    summary: Summary
    samples: Callable[[str], Iterator[Sample]]
    command: str | None
    own: bool


def load(path: Path, asked: Sequence[Job] | None = None, group_by: str | None = None) -> Inputs:
    """Read and summarise whatever lies at `path`.

    Args:
        asked: the jobs of the grid, where they are known better than from sweep.json.
        group_by: the field that names the group of a document, for what lm_eval wrote.

    Errors: BadInput where there is nothing to summarise.
    """
    if path.is_file():
        raise BadInput(str(path), "is a file; give the folder that it lies in", f"evalsweep report {path.parent}")
    if not path.is_dir():
        raise BadInput(
            str(path), "is no folder; give that of a sweep, or one that lm_eval wrote", "multirun/<day>/<time>"
        )
    if (path / store.SWEEP).exists() or any(path.glob(f"*/{store.RECORD}")) or (path / store.RECORD).exists():
        if group_by is not None:
            raise BadInput(
                f"--group-by {group_by}", "is for what lm_eval wrote; a sweep says it with", f"task.group_by={group_by}"
            )
        return _sweep(path, asked)
    found = files.find(path)
    if not found:
        raise BadInput(
            str(path),
            "holds neither a sweep (sweep.json, record.json) nor lm_eval's results_*.json",
            "evalsweep report multirun/<day>/<time>",
        )
    return _harness(path, found, group_by)


def title(path: Path) -> str:
    """What a report of `path` is called: its last two folders, which for a sweep are day and time."""
    return "/".join(path.resolve().parts[-2:])


def _sweep(path: Path, asked: Sequence[Job] | None) -> Inputs:
    problems: list[str] = []
    about: dict[str, Any] = {}
    try:
        about = store.read_sweep(path) or {}
    except ValueError as e:
        problems.append(f"{first_line(e)}; what was asked is not known")
    if asked is None:
        asked = [Job(j["name"], j["directory"], j["config_hash"]) for j in about.get("jobs", [])]
    if not about.get("multirun", True):
        asked = [replace(job, directory=".") for job in asked]
    records, broken = store.read_records(path)
    if not (asked or records or broken or problems):
        problems.append(f"{path / store.SWEEP}: asks for no job, and no record lies beside it")
    scores, unread = _scores(records, lambda name: store.read_scores(path / name))
    return Inputs(
        summarise(records, asked, broken, scores, [*problems, *unread]),
        lambda name: store.read_samples(path / name),
        about.get("command"),
        True,
    )


def _harness(path: Path, files: Sequence[Path], group_by: str | None) -> Inputs:
    records: list[tuple[str, Record]] = []
    broken: dict[str, str] = {}
    place: dict[str, tuple[Path, str]] = {}
    for file in files:
        name = str(file.relative_to(path))
        try:
            for task, record in harness_records.read_records(file):
                records.append((f"{name} {task}", record))
                place[f"{name} {task}"] = (file, task)
        except (ValueError, OSError) as e:
            broken[name] = first_line(e)
    scores, unread = _scores(records, lambda name: harness_samples.read_scores(*place[name], group_by))
    return Inputs(
        summarise(records, (), broken, scores, [*unread, *_sweeps_below(path)]),
        lambda name: harness_samples.read_samples(*place[name]),
        None,
        False,
    )


def _sweeps_below(path: Path) -> list[str]:
    """A line for sweeps that lie below a folder of lm_eval's results: they are not of one summary."""
    found = sorted({str(p.parent) for p in path.glob(f"**/{store.SWEEP}")})
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [f"{found[0]}{more}: a sweep of evalsweep's own, not read here; report it by itself"] if found else []


def _scores(
    records: Sequence[tuple[str, Record]], read: Callable[[str], Scores]
) -> tuple[dict[str, Scores], list[str]]:
    """Scores by directory, and a line for each finished run whose samples cannot be read."""
    scores, problems = {}, []
    for name, record in records:
        if record.headline is None:
            continue
        try:
            scores[name] = read(name)
        except (ValueError, OSError) as e:
            problems.append(f"the samples of {name} cannot be read, only its score counts ({first_line(e)})")
    return scores, problems
