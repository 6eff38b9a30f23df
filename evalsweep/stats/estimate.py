"""What every estimate says: a number, its interval, and the question that the interval answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

SAME_QUESTIONS = "same questions, another run"
NEW_QUESTIONS, NEW_GROUPS, NEW_SHOTS, THESE_SHOTS = "new questions", "new groups", "new shots", "these shots"


@dataclass(frozen=True)
class Estimate:
    """A number and the interval that holds it; `target` is the question that the interval answers.

    `low` and `high` are None where no interval is defined; `reason` then says why. `n` counts what was sampled: runs
    where the target is another run, documents where it is new questions.
    """

    value: float
    low: float | None
    high: float | None
    level: float
    method: str
    target: str
    n: int
    reason: str | None = None


def new_questions_target(grouped: bool, resampled: bool, runs: int) -> str:
    """What is new beside the questions: their groups, and the shots where more than one set of them was seen."""
    shots = [] if not resampled else [NEW_SHOTS if runs > 1 else THESE_SHOTS]
    return ", ".join([NEW_QUESTIONS, *([NEW_GROUPS] if grouped else []), *shots])


def check_level(level: float) -> None:
    """Errors: ValueError for a level outside (0, 1)."""
    if not 0 < level < 1:
        raise ValueError(f"level={level} must lie between 0 and 1")


def finite_vector(scores: ArrayLike, of: str) -> np.ndarray:
    """`scores` as numbers, shape (n,).

    Errors: ValueError for none, for another shape, or for one that is not finite.
    """
    x = np.asarray(scores, dtype=float)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"scores of at least one {of} are needed, one number a {of}")
    if not np.all(np.isfinite(x)):
        raise ValueError("a score is not finite")
    return x
