"""Answers that are code: each is run in the sandbox, and pass@k is made of how many pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from evalsweep.config import JobConfig
from evalsweep.engine.answers.programs import program_of
from evalsweep.engine.benchmarks import scorers
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.kept import Progress
from evalsweep.engine.tasks.harness import Built
from evalsweep.errors import BadInput
from evalsweep.record import Sample
from evalsweep.sandbox import run as sandbox
from evalsweep.stats.passk import pass_at_k

LIMITS = sandbox.Limits()
EMPTY = sandbox.Verdict(False, "empty completion")
_ENDED = ("timed out", "used more than")  # reasons with which the sandbox ends a program itself
_UNPARSABLE = ("SyntaxError", "IndentationError", "TabError")


def score(
    job: JobConfig, built: Built, samples: list[Sample], progress: Progress
) -> tuple[list[Sample], dict[str, float], dict[str, Any]]:
    """Give the samples with their scores and outcomes, metrics by `task/pass@k`, and how the code was run.

    Nothing changes where the scorer is another one. Errors: BadInput where a document has fewer answers than
    k, or no tests; sandbox.NoIsolation where the code cannot be shut in, sandbox.MissingPackage where a
    package is not there.
    """
    if scorers.scorer_of(job) != scorers.CODE:
        return samples, {}, {}
    how = _isolation(job)
    packages = tuple(job.task.sandbox_packages)
    sends_begin = kind_of(job.model).can.prompts != "messages"
    programs = [_programs(built, sample, sends_begin) for sample in samples]
    # the same code is run once: its verdict is the same
    distinct = list(dict.fromkeys(p for of_sample in programs for p in of_sample if p is not None))
    progress("running the code", 0, len(distinct))
    judged = sandbox.run(distinct, how, LIMITS, packages, done=lambda n: progress("running the code", n, len(distinct)))
    verdicts = dict(zip(distinct, judged, strict=True))
    outcomes = [[EMPTY if p is None else verdicts[p] for p in of_sample] for of_sample in programs]
    ks = scorers.sizes(job)
    try:
        by_k = {f"pass@{k}": _pass_at(outcomes, k) for k in ks}
    except ValueError as e:
        raise BadInput(f"task.k={ks} task.samples={job.task.samples}", str(e), "task.k=[1]") from e
    scored = [
        replace(
            sample,
            scores={name: values[i] for name, values in by_k.items()},
            outcomes=[verdict.reason for verdict in found],
            flags=sample.flags + _flags(found),
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


def _programs(built: Built, sample: Sample, sends_begin: bool) -> list[sandbox.Program | None]:
    task = built.tasks[sample.task]
    document = task.eval_docs[sample.doc_id]
    begun = str(task.resolve_field(document, task.config.gen_prefix) or "") if sends_begin else ""
    return [program_of(document, str(text), begun) for text in sample.responses]


def _flags(found: Sequence[sandbox.Verdict]) -> list[str]:
    flags = ["ended"] if any(v.reason.startswith(_ENDED) for v in found) else []
    return flags + (["unparsable"] if any(v.reason.startswith(_UNPARSABLE) for v in found) else [])


def _isolation(job: JobConfig) -> str:
    try:
        return sandbox.isolation()
    except sandbox.NoIsolation:
        if job.task.unsafe_code == "allow":
            return "none"
        raise  # preflight has refused it in a line


def _pass_at(outcomes: Sequence[Sequence[sandbox.Verdict]], k: int) -> list[float]:
    correct = [sum(verdict.passed for verdict in found) for found in outcomes]
    values: list[float] = pass_at_k(correct, [len(found) for found in outcomes], k).tolist()
    return values
