"""The scores of a cell's runs as one table, documents x runs, and what kept a document out of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evalsweep.record import Scores

NAMED = 3  # documents that a line names
CLOSE = 1e-6


@dataclass(frozen=True)
class Table:
    """Documents that every run answered and scored: their names, groups and scores (D, R).

    `weights_D` is None where the metric is their plain mean; `reason` says why a metric is no mean over documents.
    """

    documents: tuple[str, ...]
    groups: tuple[str, ...]
    scores_DR: np.ndarray
    weights_D: np.ndarray | None = None
    reason: str | None = None

    @property
    def grouped(self) -> bool:
        return 1 < len(set(self.groups)) < len(self.documents)


def table(runs: Sequence[tuple[str, Scores, float]], metric: str) -> tuple[Table | None, list[str]]:
    """The table of a metric over runs, and a line for whatever is not in it.

    Args:
        runs: name, scores and recorded metric of each run.

    Returns no table where no document is in every run.
    """
    lines: list[str] = []
    columns = []
    for name, scores, _ in runs:
        column, complaints = _column(name, scores, metric)
        columns.append(column)
        lines += complaints
    shared = [key for key in columns[0] if all(key in column for column in columns)]
    for (name, scores, _), column in zip(runs, columns, strict=True):
        others = dict.fromkeys(key for c in columns for key in c if key not in column)
        if others:
            lines.append(_unshared(name, others, column, scores))
    if not shared:
        return None, lines
    group = dict(zip(zip(runs[0][1].documents, runs[0][1].hashes, strict=True), runs[0][1].groups, strict=True))
    found = Table(
        documents=tuple(document for document, _ in shared),
        groups=tuple(group[key] for key in shared),
        scores_DR=np.array([[column[key] for column in columns] for key in shared], dtype=float),
    )
    return _weighted(found, runs, metric), lines


def _column(name: str, scores: Scores, metric: str) -> tuple[dict[tuple[str, str], float], list[str]]:
    """Document and hash to score, and what is wrong with the rest."""
    lines = []
    values = scores.values.get(metric, [])
    twice = [document for document, n in Counter(scores.documents).items() if n > 1]
    if twice:
        lines.append(f"{name}: {_some(twice)} more than once; the first is taken")
    found: dict[tuple[str, str], float] = {}
    without = []
    seen: set[str] = set()
    for document, digest, value in zip(scores.documents, scores.hashes, values, strict=False):
        if document in seen:
            continue
        seen.add(document)
        if value is None or not math.isfinite(value):
            without.append(document)
        else:
            found[document, digest] = float(value)
    if without:
        lines.append(f"{name}: {_some(without)} without a score of {metric}")
    return found, lines


def _unshared(
    name: str, others: Mapping[tuple[str, str], None], own: Mapping[tuple[str, str], float], scores: Scores
) -> str:
    known = set(scores.documents)
    changed = [document for document, _ in others if document in known and any(document == d for d, _ in own)]
    missing = [document for document, _ in others if document not in known]
    parts = [f"{_some(missing)} of the other runs missing"] if missing else []
    parts += [f"{_some(changed)} with another question than in other runs"] if changed else []
    parts = parts or [f"{_some([document for document, _ in others])} without a score"]
    return f"{name}: {'; '.join(parts)}; left out of what is told of documents"


def _some(documents: Sequence[str]) -> str:
    names = ", ".join(documents[:NAMED]) + (", ..." if len(documents) > NAMED else "")
    return f"{len(documents)} document{'s' if len(documents) > 1 else ''} ({names})"


def _weighted(found: Table, runs: Sequence[tuple[str, Scores, float]], metric: str) -> Table:
    """The table with the weights that give the recorded metric: equal, or equal for each group; or why none do."""
    equal = by_group = True
    for _, scores, recorded in runs:
        values = np.array([np.nan if v is None else v for v in scores.values.get(metric, [])], dtype=float)
        if not np.isfinite(values).any():
            continue
        equal &= abs(float(np.nanmean(values)) - recorded) < CLOSE
        means = [np.nanmean(v) for v in _split(values, scores.groups) if np.isfinite(v).any()]
        by_group &= abs(float(np.mean(means)) - recorded) < CLOSE
    if equal:
        return found
    if by_group and found.grouped:
        return Table(found.documents, found.groups, found.scores_DR, macro_weights(found.groups))
    reason = f"{metric} is no mean over documents: only another run of the same questions has an interval"
    return Table(found.documents, found.groups, found.scores_DR, None, reason)


def _split(values: np.ndarray, groups: Sequence[str]) -> list[np.ndarray]:
    index = np.unique(np.array(groups), return_inverse=True)[1]
    order = np.argsort(index, kind="stable")
    return np.split(values[order], np.cumsum(np.bincount(index))[:-1])


def macro_weights(groups: Sequence[str]) -> np.ndarray:
    """Weights under which each group counts the same."""
    index, sizes = np.unique(np.array(groups), return_inverse=True, return_counts=True)[1:]
    weights: np.ndarray = 1 / sizes[index] / len(sizes)
    return weights
