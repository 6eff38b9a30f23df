"""Before money is spent: the smallest difference that a comparison would find, and what a target needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

POWER = 0.8


@dataclass(frozen=True)
class Noise:
    """Variances of the difference of two cells, for a single document and run of each.

    documents: of the difference of a document's expected scores: 2 var_D (1 - correlation). runs: of the runs' effects,
    0 where both sides share them or shots are pinned. rest: twice the variance left in a single answer.
    """

    documents: float
    runs: float
    rest: float

    def standard_error(self, documents: int, runs: int) -> float:
        """Of the difference of two means: sqrt(var_D / D + var_R / R + var_DR / (D R)).

        Errors: ValueError for fewer than one document or run.
        """
        if documents < 1 or runs < 1:
            raise ValueError("at least one document and one run are needed")
        return math.sqrt(self.documents / documents + self.runs / runs + self.rest / (documents * runs))


def noise_of(var_documents: float, var_runs: float, var_rest: float, correlation: float = 0.0) -> Noise:
    """The noise of a difference of two cells alike, from the components of one.

    Args:
        correlation: of the documents' expected scores between the sides; 0 for cells on different documents.

    Errors: ValueError for a negative variance or a correlation outside [0, 1].
    """
    if min(var_documents, var_runs, var_rest) < 0 or not 0 <= correlation <= 1:
        raise ValueError("variances cannot be negative, and the correlation lies in [0, 1]")
    return Noise(2 * var_documents * (1 - correlation), 2 * var_runs, 2 * var_rest)


def detectable(noise: Noise, documents: int, runs: int, *, power: float = POWER, level: float = 0.95) -> float:
    """The smallest difference that a two-sided test at 1 - level finds with the given power.

    (z(1 - (1 - level) / 2) + z(power)) times the standard error: Miller (2024), "Adding error bars to evals",
    arXiv:2411.00640, section 5. Normal theory: for planning, not for judging.

    Errors: ValueError for a level or power outside (0, 1), or fewer than one document or run.
    """
    return _quantiles(power, level) * noise.standard_error(documents, runs)


def documents_needed(
    noise: Noise, difference: float, runs: int, *, power: float = POWER, level: float = 0.95
) -> int | None:
    """The fewest documents with which a difference is found; None where none suffice: the runs alone are too noisy.

    Errors: ValueError as for `detectable`, and for a difference that is not above 0.
    """
    allowed = _allowed(difference, power, level) - noise.runs / runs
    needed = noise.documents + noise.rest / runs
    if allowed <= 0:
        return None
    return max(1, math.ceil(needed / allowed * (1 - 1e-12)))


def runs_needed(
    noise: Noise, difference: float, documents: int, *, power: float = POWER, level: float = 0.95
) -> int | None:
    """The fewest runs of each side with which a difference is found; None where the documents are too few.

    Errors: ValueError as for `documents_needed`.
    """
    allowed = _allowed(difference, power, level) - noise.documents / documents
    needed = noise.runs + noise.rest / documents
    if allowed <= 0:
        return None
    return max(1, math.ceil(needed / allowed * (1 - 1e-12)))


def _allowed(difference: float, power: float, level: float) -> float:
    if difference <= 0:
        raise ValueError(f"a difference of {difference} cannot be looked for: it must be above 0")
    return (difference / _quantiles(power, level)) ** 2


def _quantiles(power: float, level: float) -> float:
    if not (0 < power < 1 and 0 < level < 1):
        raise ValueError("power and level must lie between 0 and 1")
    from scipy import special

    return float(special.ndtri((1 + level) / 2) + special.ndtri(power))
