"""What must be there before the first job starts: folders, files, servers, tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evalsweep import store
from evalsweep.compose import task_options
from evalsweep.config import JobConfig
from evalsweep.engine.benchmarks import scorers
from evalsweep.engine.models import checks
from evalsweep.errors import BadInput
from evalsweep.sandbox import run as sandbox


def check(jobs: Sequence[JobConfig]) -> None:
    """Refuse a sweep whose jobs could not but fail.

    Errors: BadInput for the first folder, file or task that is not there.
    """
    for job in jobs:
        if job.engine.reuse:
            _need_answers(job.engine.reuse)
        if job.task.data:
            _need("task.data", job.task.data, "folder", "task.data=data/my-task, a folder that holds <split>.jsonl")
        if job.task.include_path:
            _need("task.include_path", job.task.include_path, "folder", "task.include_path=my_tasks")
        if job.fewshot.path:
            _need("fewshot.path", job.fewshot.path, "file", "fewshot.path=shots.jsonl")
        if job.prompt.file:
            _need("prompt.file", job.prompt.file, "file", "prompt.file=system.txt")
    checks.look(jobs)
    code = [job for job in jobs if scorers.scorer_of(job) == scorers.CODE]
    for job in code:
        _need_packages(job)
    for job in code[:1]:
        _need_sandbox(job)
    for name, folder in dict.fromkeys((job.task.name, job.task.include_path) for job in jobs):
        if name not in task_options():
            from evalsweep.engine.tasks.harness import check_name  # seconds of imports, for lm_eval's own names alone

            check_name(name, folder)


def _need(key: str, path: str, what: str, example: str) -> None:
    there = Path(path).expanduser()
    if not (there.is_dir() if what == "folder" else there.is_file()):
        raise BadInput(f"{key}={path}", f"there is no such {what}", example)


def _need_answers(path: str) -> None:
    folder = Path(path).expanduser()
    if not any((folder / store.RESPONSES).glob("*")):
        raise BadInput(
            f"engine.reuse={path}",
            f"is not the folder of a sweep that keeps answers (it has no {store.RESPONSES}/)",
            "engine.reuse=multirun/<day>/<time>",
        )


def _need_packages(job: JobConfig) -> None:
    names = job.task.sandbox_packages
    try:
        sandbox.package_versions(tuple(names))
    except sandbox.MissingPackage as e:
        raise BadInput(
            f"task.sandbox_packages=[{','.join(names)}]",
            f"{e}; name only packages that are installed beside evalsweep",
            "task.sandbox_packages=[numpy]",
        ) from e


def _need_sandbox(job: JobConfig) -> None:
    if job.task.unsafe_code == "allow":
        return
    try:
        sandbox.isolation()
    except sandbox.NoIsolation as e:
        raise BadInput(
            f"task={job.task.name}",
            f"runs code that the model wrote, and this machine cannot shut it in ({e}); install bubblewrap, or, in a "
            "container that you can lose, run it unprotected",
            "task.unsafe_code=allow",
        ) from e
