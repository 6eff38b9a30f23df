"""The scores of a cell's runs as one table, documents x runs, and what kept a document out of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from evalsweep.record import Scores

NAMED = 3  # documents that a line names
CLOSE = 1e-6


@dataclass(frozen=True)
class Scored:
    """A run and its documents: the metric that was recorded of them, and how many there were (0: not known)."""

    scores: Scores
    recorded: float
    documents: int


@dataclass(frozen=True)
class Table:
    """Documents that every run answered and scored: their names, questions' hashes, groups and scores (D, R).

    `weights_D` is None where the metric is their plain mean; `reason` says why a metric is no mean over documents.
    """

    documents: tuple[str, ...]
    hashes: tuple[str, ...]
    groups: tuple[str, ...]
    scores_DR: np.ndarray
    weights_D: np.ndarray | None = None
    reason: str | None = None

    @property
    def grouped(self) -> bool:
        return 1 < len(set(self.groups)) < len(self.documents)


def table(runs: Sequence[Scored], metric: str) -> tuple[Table | None, list[str]]:
    """The table of a metric over runs, and a line for whatever is not in it.

    Returns no table where no document is in every run.
    """
    lines: list[str] = []
    columns = []
    for run in runs:
        column, complaints = _column(run, metric)
        columns.append(column)
        lines += complaints
    shared = [key for key in columns[0] if all(key in column for column in columns)]
    for run, column in zip(runs, columns, strict=True):
        others = dict.fromkeys(key for c in columns for key in c if key not in column)
        if others:
            lines.append(_unshared(others, column, run.scores))
    if not shared:
        return None, lines
    first = runs[0].scores
    group = dict(zip(zip(first.documents, first.hashes, strict=True), first.groups, strict=True))
    found = Table(
        documents=tuple(document for document, _ in shared),
        hashes=tuple(digest for _, digest in shared),
        groups=tuple(group[key] for key in shared),
        scores_DR=np.array([[column[key] for column in columns] for key in shared], dtype=float),
    )
    return _weighted(found, runs, metric), lines


def _column(run: Scored, metric: str) -> tuple[dict[tuple[str, str], float], list[str]]:
    """Document and hash to score, and what is wrong with the rest."""
    lines = []
    scores, name = run.scores, run.scores.source
    values = scores.values.get(metric, [])
    covered = {_task(document) for document, value in zip(scores.documents, values, strict=False) if value is not None}
    twice = [document for document, n in Counter(scores.documents).items() if n > 1]
    if twice:
        lines.append(f"{name}: {_some(twice)} more than once; the first is taken")
    found: dict[tuple[str, str], float] = {}
    without = []
    seen: set[str] = set()
    for document, digest, value in zip(scores.documents, scores.hashes, values, strict=False):
        if document in seen or _task(document) not in covered:  # a metric that a whole task lacks is none of its own
            continue
        seen.add(document)
        if value is None or not math.isfinite(value):
            without.append(document)
        else:
            found[document, digest] = float(value)
    if without:
        lines.append(f"{name}: {_some(without)} without a score of {metric}")
    return found, lines


def _task(document: str) -> str:
    return document.rpartition("/")[0]


def _unshared(others: Mapping[tuple[str, str], None], own: Mapping[tuple[str, str], float], scores: Scores) -> str:
    known = set(scores.documents)
    changed = [document for document, _ in others if document in known and any(document == d for d, _ in own)]
    missing = [document for document, _ in others if document not in known]
    parts = [f"{_some(missing)} of the other runs missing"] if missing else []
    parts += [f"{_some(changed)} with another question than in other runs"] if changed else []
    parts = parts or [f"{_some([document for document, _ in others])} without a score"]
    return f"{scores.source}: {'; '.join(parts)}; left out of what is told of documents"


def _some(documents: Sequence[str]) -> str:
    names = ", ".join(documents[:NAMED]) + (", ..." if len(documents) > NAMED else "")
    return f"{len(documents)} document{'s' if len(documents) > 1 else ''} ({names})"


def _weighted(found: Table, runs: Sequence[Scored], metric: str) -> Table:
    """The table with the weights that give the recorded metric: equal, or equal for each group; or why none do.

    Runs of which documents or scores are missing cannot tell; where no run can, weights are taken to be equal.
    """
    equal = by_group = True
    for run in runs:
        values = np.array([np.nan if v is None else v for v in run.scores.values.get(metric, [])], dtype=float)
        if len(values) != run.documents or not np.isfinite(values).all():
            continue
        equal &= abs(float(values.mean()) - run.recorded) < CLOSE
        by_group &= abs(float(np.mean([v.mean() for v in _split(values, run.scores.groups)])) - run.recorded) < CLOSE
    if equal:
        return found
    if by_group and found.grouped:
        return replace(found, weights_D=macro_weights(found.groups))
    reason = f"{metric} is no mean over documents: only another run of the same questions has an interval"
    return replace(found, reason=reason)


def _split(values: np.ndarray, groups: Sequence[str]) -> list[np.ndarray]:
    index = np.unique(np.array(groups), return_inverse=True)[1]
    order = np.argsort(index, kind="stable")
    return np.split(values[order], np.cumsum(np.bincount(index))[:-1])


def macro_weights(groups: Sequence[str]) -> np.ndarray:
    """Weights under which each group counts the same."""
    index, sizes = np.unique(np.array(groups), return_inverse=True, return_counts=True)[1:]
    weights: np.ndarray = 1 / sizes[index] / len(sizes)
    return weights
