"""How good the model is on questions like these: intervals whose target is new questions."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from evalsweep.stats.components import Components, components
from evalsweep.stats.estimate import Estimate, check_level, new_questions_target

SHARES = "Beta with effective n"
MEANS = "Student's t over documents"
# Chosen by simulation (`make coverage`, docs/statistics.md), not by theory:
QUARTER = 0.25  # Clopper and Pearson's interval is 0, Jeffreys' is 0.5: the first is long, the second too short
DOCUMENT_DOUBT = 0.75  # how many informative answers the assumption that documents are all or nothing counts for
CLUSTER_DOUBT, CLUSTER_ICC = 0.25, 0.3  # the same for groups, and the intraclass correlation assumed of them
# What groups and resampled shots differ by at least, where chance could hide it: a variance over p (1 - p)
CLUSTER_FLOOR, RUN_FLOOR = 0.005, 0.02**2
CLOSE = 1e-6  # how far outside [0, 1] rounding may put a share


def new_questions(
    scores_DR: ArrayLike,
    *,
    groups_D: ArrayLike | None = None,
    weights_D: ArrayLike | None = None,
    resampled: bool = False,
    shares: bool = True,
    level: float = 0.95,
) -> Estimate:
    """The mean score on new questions of the same kind, with its interval.

    For scores in [0, 1] the mean is treated as the share of right answers among `effective_n` independent yes-or-no
    questions, with an interval between those of Clopper and Pearson and of Jeffreys (see `share_interval`). Other
    scores get Student's t over the documents' means.

    Args:
        scores_DR: shape (D, R), one score a document and run, each document in every run.
        groups_D: group of each document, where documents come in groups (subjects, passages) that would be new too.
        weights_D: weight of each document in the mean; equal where not given.
        resampled: each run has few-shot examples of its own, which would be new too (crossed random effects). With one
            run their effect cannot be seen, and the target says so.
        shares: the scores lie in [0, 1].
        level: share of such intervals that hold the truth.

    Degenerate cases: no interval for one document, nor for scores without bounds that are all equal. All right or all
    wrong has an interval: with no failure in 20 questions the truth may still be 0.86.

    Errors: ValueError as for `components`, for shares outside [0, 1], or for a level outside (0, 1).
    """
    check_level(level)
    found = components(np.clip(scores_DR, 0, 1) if shares else scores_DR, groups_D, weights_D)
    if shares and (np.min(scores_DR) < -CLOSE or np.max(scores_DR) > 1 + CLOSE):
        raise ValueError("a score lies outside [0, 1]")
    target = new_questions_target(found.G < found.D, resampled, found.R)
    method = SHARES if shares else MEANS
    if found.G < found.D:
        method += f", {found.G} groups"
    value = float(found.mean)
    if found.D == 1:
        return Estimate(value, None, None, level, method, target, 1, "one document: no interval for new questions")
    if not shares and float(found.spread) == 0:
        reason = "all documents have the same score, which has no bounds: no spread to estimate from"
        return Estimate(value, None, None, level, method, target, found.D, reason)
    low, high = (share_interval if shares else mean_interval)(found, resampled=resampled, level=level)
    return Estimate(value, float(low), float(high), level, method, target, found.D)


def effective_n(found: Components, *, resampled: bool = False, level: float = 0.95) -> np.ndarray:
    """How many independent yes-or-no questions, asked once, would tell as much about the mean of such scores.

    p (1 - p) over the variance of the mean. The variance is that of the documents' means over D; with groups and
    resampled shots the variance between groups and between runs is added, each with Student's t in place of the normal
    quantile, as few were seen (squares of half-widths added up: Howe 1974, "Approximate confidence limits on the mean
    of X + Y", JASA 69). What few informative answers cannot tell is assumed for the worse: documents are then taken
    to be all or nothing, groups to be alike within. Where chance could hide it, groups and shots are taken to differ
    a little.

    Effective sizes in intervals of shares: Korn and Graubard (1998), "Confidence intervals for proportions with small
    expected number of positive counts estimated from survey data", Survey Methodology 24.
    """
    p = found.mean
    single = np.maximum(p * (1 - p), 1e-12)  # variance of a single yes or no
    informative = 4 * found.D * p * (1 - p)
    doubt = DOCUMENT_DOUBT / (DOCUMENT_DOUBT + informative)
    spread = np.where(p * (1 - p) > 0, found.spread / single, 1.0)
    documents = (spread * (1 - doubt) + doubt) / found.D_effective
    square = student(level) ** 2 * documents
    if found.G < found.D:
        doubt = CLUSTER_DOUBT / (CLUSTER_DOUBT + informative * found.G_effective / found.D)
        icc = _between(found, single) / single
        icc = icc * (1 - doubt) + np.maximum(icc, CLUSTER_ICC) * doubt
        square = square + _of_groups(found, icc, level)
    if resampled:
        square = square + runs_square(found, single, level) / single
    return np.asarray(student(level) ** 2 / square)


def share_interval(found: Components, *, resampled: bool = False, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper end for the mean of scores in [0, 1], of each set of scores.

    With x = p n right of n = `effective_n`, quantiles of Beta(x + 1/4, n - x + 3/4) and Beta(x + 3/4, n - x + 1/4):
    half way between Clopper and Pearson (1934) and Jeffreys (Brown, Cai and DasGupta 2001, "Interval estimation for a
    binomial proportion", Statistical Science 16). For plain binomial counts it holds the truth at least 93.8% of the
    time at D = 20, 50, 164 and 1319 and every share from 0.02 to 0.98, where Wilson's falls to 90.6% and Jeffreys' to
    88.5%.
    """
    from scipy import special  # its import is slow, and a typo should be answered at once

    n = effective_n(found, resampled=resampled, level=level)
    right = found.mean * n
    wrong = n - right
    tail = (1 - level) / 2
    low = special.betaincinv(right + QUARTER, wrong + 1 - QUARTER, tail)
    high = special.betaincinv(right + 1 - QUARTER, wrong + QUARTER, 1 - tail)
    return np.where(right > 1e-6, low, 0.0), np.where(wrong > 1e-6, high, 1.0)


def mean_interval(found: Components, *, resampled: bool = False, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper end for the mean of scores without bounds: Student's t over the documents' means.

    Groups and resampled shots add to it as in `effective_n`. Degenerate case: where all documents have the same mean
    the two ends are that mean.
    """
    single = found.spread * found.D / max(found.D - 1, 1)
    square = student(level, found.D - 1) ** 2 * single / found.D_effective + groups_square(found, single, level)
    if resampled:
        square = square + runs_square(found, single, level)
    half = np.sqrt(square)
    return found.mean - half, found.mean + half


def groups_square(found: Components, single: np.ndarray, level: float) -> np.ndarray:
    """What the variance between groups adds to the square of a half-width; `single` is the variance of one document."""
    return _of_groups(found, _between(found, single), level) if found.G < found.D else np.zeros_like(single)


def runs_square(found: Components, single: np.ndarray, level: float) -> np.ndarray:
    """What the variance between runs adds to the square of a half-width; nothing where there is one run."""
    if found.R == 1:
        return np.zeros_like(single)
    runs = np.maximum(found.runs, np.minimum(RUN_FLOOR * single, found.run_noise / 2))
    return np.asarray(student(level, found.R - 1) ** 2 * runs / found.R)


def _between(found: Components, single: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(found.clusters, np.minimum(CLUSTER_FLOOR * single, found.cluster_noise / 2)))


def _of_groups(found: Components, between: np.ndarray, level: float) -> np.ndarray:
    alike = max(1 / found.G_effective - 1 / found.D_effective, 0.0)  # what independent documents have is in already
    return np.asarray(student(level, found.G_degrees) ** 2 * between * alike)


def student(level: float, degrees: float = math.inf) -> float:
    """The quantile of Student's t, or of the normal distribution, that a share `level` lies within, both signs."""
    from scipy import special

    upper = (1 + level) / 2
    return float(special.ndtri(upper) if math.isinf(degrees) else special.stdtrit(degrees, upper))
