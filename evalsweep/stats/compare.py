"""Two cells on the same documents: the difference, its interval, and how likely chance alone is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evalsweep.stats.components import Components, components
from evalsweep.stats.estimate import Estimate, check_level, new_questions_target
from evalsweep.stats.questions import groups_square, runs_square, student

METHOD = "paired by document, two half-seen flips added"
EXACT, SAMPLED = "sign flips, exact", "sign flips, sampled"
FLIPS_DOUBT = 0.75  # how many flips the assumption that a flip is whole counts for
_LATTICE, _DRAWS, _WIDEST, _LEAST = 5040, 20_000, 4_000_000, 1e-12


@dataclass(frozen=True)
class Test:
    """The chance of a difference at least as large where neither side is better, and how it was found."""

    p: float
    method: str


def difference(
    a_DR: ArrayLike,
    b_DR: ArrayLike,
    *,
    groups_D: ArrayLike | None = None,
    weights_D: ArrayLike | None = None,
    resampled: bool = False,
    same_runs: bool = False,
    shares: bool = True,
    level: float = 0.95,
) -> Estimate:
    """The mean of b less the mean of a on new questions, paired by document.

    Student's t over the documents' differences, after two made-up documents are added, one that flips each way (Bonett
    and Price 2012, "Adjusted Wald confidence interval for a difference of binomial proportions based on paired data",
    JEBS 37): without them, two sides that agree on every document would differ by 0 with certainty. Where each document
    was asked several times, the two flips are as large as those that were seen. Groups and resampled shots add to the
    variance as they do for one cell.

    Args:
        a_DR, b_DR: shapes (D, R) and (D, Q): the same documents in the same order, in any number of runs.
        groups_D, weights_D, resampled, level: as for `questions.new_questions`.
        same_runs: run r of both sides has the same few-shot examples, so that their effect is shared.
        shares: the scores lie in [0, 1]; else no documents are made up.

    Degenerate cases: no interval for one document.

    Errors: ValueError as for `components`, for different documents, or for same_runs with different numbers of runs.
    """
    check_level(level)
    a, b = np.asarray(a_DR, dtype=float), np.asarray(b_DR, dtype=float)
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[0] or (same_runs and a.shape != b.shape):
        raise ValueError(f"the two sides are not the same documents and runs: {a.shape} and {b.shape}")
    sides = [components(b - a)] if same_runs else [components(a), components(b)]
    mean_D = (b.mean(1) - a.mean(1))[:, None]
    found = components(mean_D, groups_D, weights_D)
    value = float(found.mean)
    method = METHOD if shares else "paired by document, Student's t"
    target = new_questions_target(found.G < found.D, resampled, min(a.shape[1], b.shape[1]))
    if found.D == 1:
        return Estimate(value, None, None, level, method, target, 1, "one document: no interval for new questions")
    middle, half = difference_interval(found, mean_D[:, 0], sides if resampled else [], shares, level)
    ends = (middle - half, middle + half)
    low, high = (max(ends[0], -1.0), min(ends[1], 1.0)) if shares else ends
    return Estimate(value, float(low), float(high), level, method, target, found.D)


def difference_interval(
    found: Components, mean_D: np.ndarray, sides: Sequence[Components], shares: bool = True, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half-width of the interval for a difference; `mean_D` may have an axis of several sets before it.

    `sides` are those whose runs add to the variance: none, both sides, or their difference where runs are shared.
    """
    D = found.D
    flip = np.zeros_like(found.mean)
    if shares:
        absolute = np.abs(mean_D).sum(-1)
        flip = ((mean_D**2).sum(-1) + FLIPS_DOUBT) / (absolute + FLIPS_DOUBT)
    added = 2 if shares else 0
    middle = found.mean * D / (D + added)
    # the sum of squares about the new mean, with the made-up documents in it
    squares = found.spread * D + found.mean**2 * D + added * flip**2 - middle**2 * (D + added)
    single = squares / (D + added if shares else max(D - 1, 1))
    shrunk = found.D_effective * (D + added) / D
    square = student(level, D - 1) ** 2 * single / shrunk + groups_square(found, single, level)
    for side in sides:
        square = square + runs_square(side, single, level)
    return middle, np.sqrt(square)


def sign_flip(differences_D: ArrayLike, groups_D: ArrayLike | None = None, seed: int = 0) -> Test:
    """Two-sided permutation test of paired differences: under no difference each has either sign with chance 1/2.

    Exact where the differences are multiples of one small fraction, as counts of right answers are: the distribution of
    the sum of random signs is then a convolution of binomials, of any size. Else 20,000 random draws of signs, the
    observed one counted too (Phipson and Smyth 2010, "Permutation p-values should never be zero", SAGMB 9). Documents
    of one group change sign together. Fisher (1935), "The Design of Experiments", section 21.

    Degenerate case: p = 1 where no document differs. Below 1e-12, which rounding hides, 1e-12 is given.

    Errors: ValueError for no difference, or one that is not finite.
    """
    d = np.asarray(differences_D, dtype=float)
    if d.ndim != 1 or d.size == 0 or not np.isfinite(d).all():
        raise ValueError("differences are needed, one finite number a document")
    if groups_D is not None:
        d = np.bincount(np.unique(np.asarray(groups_D), return_inverse=True)[1], weights=d)
    d = d[np.abs(d) > 1e-12]
    if d.size == 0:
        return Test(1.0, EXACT)
    scaled = d * _LATTICE
    whole = np.rint(scaled).astype(np.int64)
    if np.abs(scaled - whole).max() < 1e-6:
        whole = np.abs(whole) // np.gcd.reduce(np.abs(whole)) * np.sign(whole)
        if np.abs(whole).sum() <= _WIDEST:
            return Test(_exact(whole), EXACT)
    rng = np.random.default_rng(seed)
    beyond, limit = 0, abs(d.sum()) * (1 - 1e-12)
    for _ in range(_DRAWS // 1000):
        signs = rng.integers(0, 2, size=(1000, d.size), dtype=np.int8) * 2.0 - 1
        beyond += int((np.abs(signs @ d) >= limit).sum())
    return Test((beyond + 1) / (_DRAWS + 1), SAMPLED)


def _exact(whole: np.ndarray) -> float:
    """The chance that a sum with random signs is as far from 0 as it is."""
    from scipy import signal, stats

    sizes, counts = np.unique(np.abs(whole), return_counts=True)
    law = np.ones(1)
    for size, count in zip(sizes, counts, strict=True):
        steps = np.zeros(count * size + 1)  # the sum is 2 size k - count size: only k counts, each step is `size`
        steps[::size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        law = np.maximum(signal.fftconvolve(law, steps), 0.0)
    total = int(np.abs(whole).sum())
    sums = 2 * np.arange(law.size) - total
    p = float(law[np.abs(sums) >= abs(int(whole.sum()))].sum())
    return min(max(p, _LEAST), 1.0)


def mcnemar(only_a: int, only_b: int) -> Test:
    """McNemar's exact test for one run of yes-or-no scores a side: `only_a` documents right in a alone, `only_b` in b.

    Two-sided binomial with chance 1/2 over the documents that differ (McNemar 1947, Psychometrika 12). The same as
    `sign_flip` without groups. Degenerate case: p = 1 where no document differs.

    Errors: ValueError for a negative count.
    """
    if only_a < 0 or only_b < 0:
        raise ValueError("counts of documents cannot be negative")
    if only_a + only_b == 0:
        return Test(1.0, "McNemar, exact")
    from scipy import stats

    return Test(float(stats.binomtest(only_b, only_a + only_b).pvalue), "McNemar, exact")


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted for a family of tests, in the same order.

    At most 5% of families in which nothing differs have an adjusted value of 0.05 or less (Holm 1979, "A simple
    sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6).

    Errors: ValueError for a value outside [0, 1].
    """
    p = np.asarray(p_values, dtype=float)
    if p.size and not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a p value lies outside [0, 1]")
    order = np.argsort(p, kind="stable")
    stepped = np.minimum(np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)), 1.0)
    adjusted = np.empty_like(p)
    adjusted[order] = stepped
    return [float(value) for value in adjusted]


def flipped(a_DR: ArrayLike, b_DR: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the documents whose mean score rose and fell by more than one half, the largest change first."""
    change = np.round(np.asarray(b_DR, dtype=float).mean(1) - np.asarray(a_DR, dtype=float).mean(1), 9)
    order = np.argsort(-np.abs(change), kind="stable")
    return order[change[order] > 0.5], order[change[order] < -0.5]
