"""What must be there before the first job starts: folders, files, servers, tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evalsweep.compose import task_options
from evalsweep.config import JobConfig, is_code
from evalsweep.errors import BadInput
from evalsweep.sandbox import run as sandbox


def check(jobs: Sequence[JobConfig]) -> None:
    """Refuse a sweep whose jobs could not but fail.

    Errors: BadInput for the first folder, file or task that is not there.
    """
    for job in jobs:
        pretrained = job.model.pretrained or ""
        looks_local = pretrained.startswith(("/", "./", "../", "~"))
        if job.model.kind == "hf" and looks_local:
            _need("model.pretrained", pretrained, "folder", "model.pretrained=/models/my-model")
        if job.task.data:
            _need("task.data", job.task.data, "folder", "task.data=data/gsm8k, a folder that holds <split>.jsonl")
        if job.fewshot.path:
            _need("fewshot.path", job.fewshot.path, "file", "fewshot.path=shots.jsonl")
        if job.prompt.file:
            _need("prompt.file", job.prompt.file, "file", "prompt.file=system.txt")
    for url in dict.fromkeys(str(job.model.base_url) for job in jobs if job.model.kind == "server"):
        from evalsweep.engine.models.server import reach  # seconds of imports, which the first job would need anyway

        reach(url)
    code = [job for job in jobs if is_code(job.task.name)]
    for job in code:
        _need_packages(job)
    for job in code[:1]:
        _need_sandbox(job)
    for name in dict.fromkeys(job.task.name for job in jobs):
        if name not in task_options():
            from evalsweep.engine.tasks.harness import check_name  # seconds of imports, for lm_eval's own names alone

            check_name(name)


def _need(key: str, path: str, kind: str, example: str) -> None:
    there = Path(path).expanduser()
    if not (there.is_dir() if kind == "folder" else there.is_file()):
        raise BadInput(f"{key}={path}", f"there is no such {kind}", example)


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
