"""Where a score's variance comes from: documents, runs, groups of documents, and the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Components:
    """The moments of scores of D documents in R runs, and the variances that they estimate.

    Each number may also be an array, one entry for each of several sets of scores (the simulation works so).

    mean: weighted mean of all scores.
    spread: weighted variance of the documents' means about it (no correction for D).
    documents, runs, rest: components of the variance of a single score, estimated without bias and then cut at 0
        (crossed random effects, one answer a document and run: Searle, Casella and McCulloch 1992, "Variance
        Components", ch. 4). With one run, `documents` holds the rest too, and `runs` and `rest` are 0.
    run_noise: variance that `runs` would have by chance alone: that of a run's mean, from `rest`.
    clusters: component between groups of documents, of the documents' means; 0 without groups (one-way random
        effects with unequal sizes, ibid. ch. 3), not cut at 0; cluster_noise is its size by chance alone.
    D, R, G: documents, runs, groups (G = D without groups).
    D_effective, G_effective: 1 / sum of squared weights of the documents, of the groups; D and at most G.
    G_degrees: degrees of freedom of the variance between groups, G - 1 for groups of one size, fewer for others
        (Satterthwaite 1946, Biometrics Bulletin 2, for the groups' parts in it).
    """

    mean: np.ndarray
    spread: np.ndarray
    documents: np.ndarray
    runs: np.ndarray
    rest: np.ndarray
    run_noise: np.ndarray
    clusters: np.ndarray
    cluster_noise: np.ndarray
    D: int
    R: int
    G: int
    D_effective: float
    G_effective: float
    G_degrees: float

    def shares(self) -> dict[str, float]:
        """The parts of the variance of the mean that come from documents, runs and the rest; they add up to 1.

        Degenerate case: all 0 where nothing varies. Only for a single set of scores.
        """
        parts = {
            "documents": float(self.documents) / self.D_effective,
            "runs": float(self.runs) / self.R,
            "rest": float(self.rest) / (self.D_effective * self.R),
        }
        total = sum(parts.values())
        return {name: part / total if total > 0 else 0.0 for name, part in parts.items()}


def components(
    scores_DR: ArrayLike, groups_D: ArrayLike | None = None, weights_D: ArrayLike | None = None
) -> Components:
    """Split the variance of scores.

    Args:
        scores_DR: shape (D, R), or (N, D, R) for N sets at once; one score a document and run.
        groups_D: what group each document belongs to; documents of one group may be alike. One group is none.
        weights_D: weight of each document in the mean; equal where not given.

    Errors: ValueError for another shape, no document or run, a score that is not finite, or weights that are none.
    """
    x = np.asarray(scores_DR)
    if x.ndim not in (2, 3) or 0 in x.shape[-2:]:
        raise ValueError("scores are needed as documents x runs, at least one of each")
    if not np.isfinite(x).all():
        raise ValueError("a score is not finite")
    D, R = x.shape[-2:]
    w = np.full(D, 1 / D) if weights_D is None else np.asarray(weights_D, dtype=float)
    if w.shape != (D,) or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise ValueError("weights are needed as one number a document, none below 0 and not all 0")
    w = w / w.sum()
    means_D = x.mean(-1, dtype=float)
    plain = means_D.mean(-1)
    mean = plain if weights_D is None else means_D @ w
    ss_D = ((means_D - plain[..., None]) ** 2).sum(-1)
    documents, runs, rest = _crossed(x, plain, ss_D)
    group = None if groups_D is None else np.unique(np.asarray(groups_D), return_inverse=True)[1]
    G = D if group is None else int(group.max()) + 1
    clusters, cluster_noise, G_effective = np.zeros_like(mean), np.zeros_like(mean), 1 / (w**2).sum()
    G_degrees = D - 1.0
    if group is not None and 1 < G < D:
        parts = (sizes := np.bincount(group)) * (1 - sizes / D)
        G_degrees = float(parts.sum() ** 2 / (parts**2).sum() * (G - 1) / G)
        clusters, cluster_noise = _between(means_D - plain[..., None], ss_D, group, G)
        G_effective = 1 / (np.bincount(group, weights=w) ** 2).sum()
    return Components(
        mean=mean,
        spread=((means_D - mean[..., None]) ** 2) @ w,
        documents=documents,
        runs=np.maximum(runs, 0.0),
        rest=rest,
        run_noise=rest / D,
        clusters=clusters,
        cluster_noise=cluster_noise,
        D=D,
        R=R,
        G=G if 1 < G < D else D,
        D_effective=float(1 / (w**2).sum()),
        G_effective=float(G_effective),
        G_degrees=G_degrees,
    )


def _crossed(x: np.ndarray, plain: np.ndarray, ss_D: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Variance of documents, of runs (may be negative) and of the rest."""
    D, R = x.shape[-2:]
    ms_D = R * ss_D / max(D - 1, 1)
    if R == 1:
        return ms_D, np.zeros_like(plain), np.zeros_like(plain)
    means_R = x.mean(-2, dtype=float)
    ss_R = D * ((means_R - plain[..., None]) ** 2).sum(-1)
    if x.dtype == bool:  # many sets of right and wrong: their squares are known
        total = D * R * plain * (1 - plain)
    else:
        off = x - plain[..., None, None]
        total = np.einsum("...dr,...dr->...", off, off)
    ss_rest = np.maximum(total - R * ss_D - ss_R, 0.0)
    ss_rest = np.where(ss_rest > 1e-9 * np.maximum(total, 1e-300), ss_rest, 0.0)  # what rounding left
    rest = ss_rest / max((D - 1) * (R - 1), 1)
    runs = np.where(ss_R > 0, (ss_R / (R - 1) - rest) / D, 0.0)
    return np.maximum((ms_D - rest) / R, 0.0), runs, rest


def _between(off_D: np.ndarray, ss_D: np.ndarray, group: np.ndarray, G: int) -> tuple[np.ndarray, np.ndarray]:
    """Variance between groups (may be negative), and what it would be by chance alone."""
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    sums = np.add.reduceat(off_D[..., order], np.r_[0, np.cumsum(sizes)[:-1]], axis=-1)
    ss_between = (sums**2 / sizes).sum(-1)
    D = int(sizes.sum())
    within = np.maximum(ss_D - ss_between, 0.0) / (D - G)
    size = (D - (sizes**2).sum() / D) / (G - 1)
    return (ss_between / (G - 1) - within) / size, within / size
