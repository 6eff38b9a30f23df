"""What a report is made from: the folder of a sweep or of a single run, or what lm_eval itself wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evalsweep import harness_logs, store
from evalsweep.errors import BadInput, first_line
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


def load(path: Path, asked: Sequence[Job] | None = None) -> Inputs:
    """Read and summarise whatever lies at `path`.

    Args:
        asked: the jobs of the grid, where they are known better than from sweep.json.

    Errors: BadInput where there is nothing to summarise.
    """
    if not path.is_dir():
        raise BadInput(
            str(path), "is no folder; give that of a sweep, or one that lm_eval wrote", "multirun/<day>/<time>"
        )
    if (path / store.SWEEP).exists() or any(path.glob(f"*/{store.RECORD}")) or (path / store.RECORD).exists():
        return _sweep(path, asked)
    found = harness_logs.find(path)
    if not found:
        raise BadInput(
            str(path),
            "holds neither a sweep (sweep.json, record.json) nor lm_eval's results_*.json",
            "evalsweep report multirun/<day>/<time>",
        )
    return _harness(path, found)


def title(path: Path) -> str:
    """What a report of `path` is called: its last two folders, which for a sweep are day and time."""
    return "/".join(path.resolve().parts[-2:])


def _sweep(path: Path, asked: Sequence[Job] | None) -> Inputs:
    about = store.read_sweep(path) or {}
    if asked is None:
        asked = [Job(j["name"], j["directory"], j["config_hash"]) for j in about.get("jobs", [])]
    records, broken = store.read_records(path)
    folder = {
        name: path if name == path.name and (path / store.RECORD).exists() else path / name for name, _ in records
    }
    scores, problems = _scores(records, lambda name: store.read_scores(folder[name]), lambda name: folder[name])
    return Inputs(
        summarise(records, asked, broken, scores, problems),
        lambda name: store.read_samples(folder[name]),
        about.get("command"),
        True,
    )


def _harness(path: Path, files: Sequence[Path]) -> Inputs:
    records: list[tuple[str, Record]] = []
    broken: dict[str, str] = {}
    place: dict[str, tuple[Path, str]] = {}
    for file in files:
        name = str(file.relative_to(path))
        try:
            for task, record in harness_logs.read_records(file):
                records.append((f"{name} {task}", record))
                place[f"{name} {task}"] = (file, task)
        except (ValueError, OSError) as e:
            broken[name] = first_line(e)
    scores, problems = _scores(
        records, lambda name: harness_logs.read_scores(*place[name]), lambda name: place[name][0]
    )
    return Inputs(
        summarise(records, (), broken, scores, problems),
        lambda name: harness_logs.read_samples(*place[name]),
        None,
        False,
    )


def _scores(
    records: Sequence[tuple[str, Record]], read: Callable[[str], Scores], where: Callable[[str], Path]
) -> tuple[dict[str, Scores], list[str]]:
    """Scores by directory, and a line for each finished run whose samples cannot be read."""
    scores, problems = {}, []
    for name, record in records:
        if record.headline is None:
            continue
        try:
            scores[name] = read(name)
        except (ValueError, OSError, EOFError) as e:
            problems.append(
                f"{where(name)}: the samples cannot be read ({first_line(e)}); their run has its score alone"
            )
    return scores, problems
