"""Scorers by name, and the metrics that each yields beside lm_eval's own; checked before anything is loaded."""

from __future__ import annotations

import importlib.util

from evalsweep.config import JobConfig, samples_at
from evalsweep.engine.benchmarks.benchmark import benchmark_of
from evalsweep.errors import BadInput
from evalsweep.metrics import UNIT, Metric

LM_EVAL, NUMERIC, CODE, MATH_VERIFY = "lm_eval", "numeric", "code", "math_verify"
# Shares of answers, and whether more of them are better.
_READING = {
    NUMERIC: (("numeric_no_number", False), ("numeric_doubtful", None), ("numeric_disagrees", None)),
    MATH_VERIFY: (("math_verify_unread", False),),
}
PASS_AT = (1, 5, 10)  # where task.k does not say


def scorer_of(job: JobConfig) -> str:
    """Give the scorer of a job: the one that is asked for, else its benchmark's."""
    return job.task.scorer or benchmark_of(job.task.name).scorer


def sizes(job: JobConfig) -> list[int]:
    """Give the k of pass@k or maj@k; those above the number of answers (one, at temperature 0) are left out."""
    answers = samples_at(job)
    if scorer_of(job) == CODE:
        return [k for k in job.task.k or PASS_AT if k <= answers] or [1]
    return [k for k in (*job.task.k, answers) if 1 < k <= answers]


def metrics(job: JobConfig) -> list[Metric]:
    """Give the metrics that the job's scorer adds, the headline first."""
    scorer = scorer_of(job)
    if scorer == CODE:
        return [Metric(f"pass@{k}", UNIT, "mean", True) for k in sizes(job)]
    if scorer not in (NUMERIC, MATH_VERIFY):
        return []
    return [
        Metric(scorer, UNIT, "mean", True),
        *(Metric(f"maj@{k}", UNIT, "mean", True) for k in dict.fromkeys(sizes(job))),
        *(Metric(name, UNIT, "mean", better) for name, better in _READING[scorer]),
    ]


def check(job: JobConfig) -> None:
    """Refuse what the scorer cannot do. Errors: BadInput."""
    scorer = scorer_of(job)
    for k in job.task.k:
        if not 1 <= k <= job.task.samples:
            raise BadInput(
                f"task.k={job.task.k} task.samples={job.task.samples}",
                f"{'pass' if scorer == CODE else 'maj'}@{k} needs 1 <= k <= task.samples",
                f"task.k=[1] task.samples={max(job.task.samples, k)}",
            )
    if job.task.k and scorer not in (CODE, NUMERIC, MATH_VERIFY):
        raise BadInput(
            f"task.k={job.task.k}", "pass@k is for task.scorer=code, maj@k for task.scorer=numeric", "task.k=[]"
        )
    if scorer == MATH_VERIFY and importlib.util.find_spec("math_verify") is None:
        raise BadInput(
            "task.scorer=math_verify", "the package math-verify is not installed", "pip install 'evalsweep[math]'"
        )
