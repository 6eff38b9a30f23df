"""pass@k: the chance that at least one of k answers, drawn from the n that there are, is right."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def pass_at_k(correct_D: ArrayLike, n_D: ArrayLike, k: int) -> np.ndarray:
    """The unbiased estimate for each document, shape (D,).

    1 - C(n - c, k) / C(n, k), as a product that does not overflow (Chen et al. 2021, arXiv:2107.03374, equation 1). The
    plain 1 - (1 - c/n)**k is biased low. With n = k it is 1 where any answer is right, with k = 1 it is c / n.

    Args:
        correct_D: right answers of each document, whole numbers from 0 to n.
        n_D: answers of each document; one number where all have as many.
        k: at least 1.

    Errors: ValueError where k exceeds an n, or a count is out of range: it cannot be estimated from fewer answers.
    """
    correct = np.asarray(correct_D, dtype=int)
    n = np.broadcast_to(np.asarray(n_D, dtype=int), correct.shape)
    if k < 1 or (n < k).any():
        raise ValueError(f"pass@{k} needs at least k = {k} answers to each document; the fewest are {n.min(initial=k)}")
    if (correct < 0).any() or (correct > n).any():
        raise ValueError("a document has more right answers than answers, or fewer than none")
    missed = [
        np.prod(1.0 - k / np.arange(m - c + 1, m + 1)) if m - c >= k else 0.0 for c, m in zip(correct, n, strict=True)
    ]
    return 1.0 - np.asarray(missed, dtype=float)
