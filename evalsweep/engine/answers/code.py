"""Answers that are code: each is run in the sandbox, and pass@k is made of how many pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from evalsweep.config import JobConfig, is_code
from evalsweep.engine.tasks.harness import Built
from evalsweep.engine.watch import Progress
from evalsweep.errors import BadInput
from evalsweep.record import Sample
from evalsweep.sandbox import run as sandbox
from evalsweep.stats.passk import pass_at_k

LIMITS = sandbox.Limits()
EMPTY = sandbox.Verdict(False, "empty completion")
_ENDED = ("timed out", "used more than")  # reasons with which the sandbox ends a program itself


def score(
    job: JobConfig, built: Built, samples: list[Sample], progress: Progress
) -> tuple[list[Sample], dict[str, float], dict[str, Any]]:
    """The samples with their scores and outcomes, metrics by `task/pass@k`, and how the code was run.

    Nothing changes for tasks whose answers are no code. Errors: BadInput where a document has fewer answers than
    k; sandbox.NoIsolation where the code cannot be shut in, sandbox.MissingPackage where a package is not there.
    """
    if not is_code(job.task.name):
        return samples, {}, {}
    how = _isolation(job)
    packages = tuple(job.task.sandbox_packages)
    (task,) = built.tasks.values()
    programs = [[_program(job.task.name, task.eval_docs[s.doc_id], str(text)) for text in s.responses] for s in samples]
    # the same code is run once: its verdict is the same
    distinct = list(dict.fromkeys(p for of_sample in programs for p in of_sample if p is not None))
    progress("running the code", 0, len(distinct))
    judged = sandbox.run(distinct, how, LIMITS, packages, done=lambda n: progress("running the code", n, len(distinct)))
    verdicts = dict(zip(distinct, judged, strict=True))
    outcomes = [[EMPTY if p is None else verdicts[p] for p in of_sample] for of_sample in programs]
    ks = [k for k in (1, 5, 10) if k <= job.task.samples] if not job.task.k else job.task.k
    try:
        by_k = {f"pass@{k}": _pass_at(outcomes, k) for k in ks}
    except ValueError as e:
        raise BadInput(f"task.k={ks} task.samples={job.task.samples}", str(e), "task.k=[1]") from e
    scored = [
        replace(
            sample,
            scores={name: values[i] for name, values in by_k.items()},
            outcomes=[verdict.reason for verdict in found],
            flags=sample.flags + (["ended"] if any(v.reason.startswith(_ENDED) for v in found) else []),
        )
        for i, (sample, found) in enumerate(zip(samples, outcomes, strict=True))
    ]
    metrics = {f"{built.name}/{name}": sum(values) / len(values) for name, values in by_k.items()}
    metrics[f"{built.name}/answers_scored"] = float(sum(map(len, outcomes)))
    provenance = {
        "code_isolation": how,
        "code_syscall_filter": how != "none" and sandbox.filtered(),
        "code_limits": asdict(LIMITS),
        "code_packages": sandbox.package_versions(packages),
    }
    return scored, metrics, provenance


def _isolation(job: JobConfig) -> str:
    try:
        return sandbox.isolation()
    except sandbox.NoIsolation:
        if job.task.unsafe_code == "allow":
            return "none"
        raise  # preflight has refused it in a line


def _program(task: str, doc: dict[str, Any], text: str) -> sandbox.Program | None:
    """The answer as a program; None where it is empty."""
    if task == "humaneval_instruct":
        text = text.partition("```")[0]  # the code block's end
    if not text.strip():
        return None
    return sandbox.Program(doc["prompt"] + text, doc["entry_point"], doc["test"], doc["prompt"])


def _pass_at(outcomes: Sequence[Sequence[sandbox.Verdict]], k: int) -> list[float]:
    correct = [sum(verdict.passed for verdict in found) for found in outcomes]
    values: list[float] = pass_at_k(correct, [len(found) for found in outcomes], k).tolist()
    return values
