"""Spread over runs that differ only in their seed: "the same questions, another run"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evalsweep.stats.estimate import SAME_QUESTIONS, Estimate, check_level, finite_vector


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation (ddof = 1; None for one run), median, least and largest of scores over runs."""

    mean: float
    sd: float | None
    median: float
    min: float
    max: float
    n: int


def spread(scores_R: Sequence[float]) -> Spread:
    """Describe the scores of R runs.

    Errors: ValueError for no run, or for a score that is not finite.
    """
    x = finite_vector(scores_R, "run")
    return Spread(
        mean=float(x.mean()),
        sd=float(x.std(ddof=1)) if x.size > 1 else None,
        median=float(np.median(x)),
        min=float(x.min()),
        max=float(x.max()),
        n=int(x.size),
    )


def run_interval(
    scores_R: Sequence[float],
    *,
    identical: bool = False,
    level: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Estimate:
    """Student's t interval for the mean over runs: mean +- t(1 - (1 - level) / 2, R - 1) * sd / sqrt(R).

    Source: Student (1908), "The probable error of a mean", Biometrika 6. Target: the mean of further runs on the same
    questions. It says nothing of other questions.

    Args:
        scores_R: one score a run, R of them.
        identical: every answer of every run is the same, so that R runs carry what one carries.
        level: share of such intervals that hold the mean.
        bounds: what the score cannot leave; the interval is cut there.

    Degenerate cases: no interval (`low` and `high` None) for one run, for identical runs (`n` is 1), and where all
    scores are equal: a spread of 0 that was seen R times is no proof of certainty.

    Errors: ValueError for no run, a score that is not finite, or a level outside (0, 1).
    """
    x = finite_vector(scores_R, "run")
    check_level(level)
    reason = None
    if x.size == 1:
        reason = "one run: no run-to-run interval"
    elif identical:
        reason = f"{x.size} identical runs count as one"
    elif bool(np.all(x == x[0])):
        reason = f"{x.size} runs with different answers and the same score: no spread to estimate from"
    if reason:
        n = 1 if identical else int(x.size)
        return Estimate(float(x.mean()), None, None, level, "Student's t over runs", SAME_QUESTIONS, n, reason)

    from scipy import special  # its import is slow, and a typo should be answered at once

    half = float(special.stdtrit(x.size - 1, (1 + level) / 2)) * float(x.std(ddof=1)) / math.sqrt(x.size)
    mean = float(x.mean())
    low, high = max(mean - half, bounds[0]), min(mean + half, bounds[1])
    return Estimate(mean, low, high, level, "Student's t over runs", SAME_QUESTIONS, int(x.size))


def median_interval(scores_R: Sequence[float], *, level: float = 0.95) -> Estimate:
    """The median over runs, between two of the scores themselves: the narrowest such pair that holds it at `level`.

    The chance that the k-th smallest and the k-th largest of R hold the median is 1 - 2 P(Binomial(R, 1/2) < k),
    whatever the distribution (Conover 1999, "Practical Nonparametric Statistics", section 3.2); k is the largest that
    suffices.

    Degenerate case: no interval below 6 runs for 95%, as even the least and the largest score hold it less often.

    Errors: ValueError for no run, a score that is not finite, or a level outside (0, 1).
    """
    x = np.sort(finite_vector(scores_R, "run"))
    check_level(level)
    from scipy import stats

    method, value, n = "order statistics", float(np.median(x)), int(x.size)
    k = int(stats.binom.ppf((1 - level) / 2, n, 0.5))  # P(X < k) <= (1 - level) / 2 < P(X <= k)
    if k == 0:
        reason = f"{n} run{'s' if n > 1 else ''}: too few to hold the median at {level:.0%}"
        return Estimate(value, None, None, level, method, SAME_QUESTIONS, n, reason)
    return Estimate(value, float(x[k - 1]), float(x[n - k]), level, method, SAME_QUESTIONS, n)
