"""All pairs of cells along each axis of a sweep, on the documents that both answered."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evalsweep.identity import flat
from evalsweep.stats.compare import difference, flipped, holm, mcnemar, sign_flip
from evalsweep.stats.components import components
from evalsweep.stats.power import Noise
from evalsweep.stats.questions import SHARES
from evalsweep.summary.documents import Table
from evalsweep.summary.types import Cell, Comparison

# What must not differ for a comparison to be of like with like, unless it is what is compared.
_PROVENANCE = ("os", "cpu", "gpu_names", "gpu_count", "device", "dtype", "batch_size", "git_commit", "task_version")
_DATA = "dataset_fingerprint"
_CONFIG = ("model.apply_chat_template", "model.multiturn", "model.max_length")  # hidden where the models' names differ


def comparisons(cells: Sequence[Cell], tables: Sequence[Table | None]) -> tuple[Comparison, ...]:
    """Each two cells of one task that differ in one axis only; p values are adjusted over all of them (Holm)."""
    found = []
    for i, j in itertools.combinations(range(len(cells)), 2):
        a, b = cells[i], cells[j]
        axes = [key for key in a.differs if a.differs[key] != b.differs.get(key)]
        if (a.task, a.metric) == (b.task, b.metric) and len(axes) == 1:
            found.append(_compared(axes[0], i, j, cells, tables))
    tested = [c for c in found if c.p is not None]
    adjusted = dict(zip(map(id, tested), holm([c.p for c in tested if c.p is not None]), strict=True))
    return tuple(replace(c, p_adjusted=adjusted.get(id(c))) for c in found)


def _compared(axis: str, i: int, j: int, cells: Sequence[Cell], tables: Sequence[Table | None]) -> Comparison:
    a, b, left, right = cells[i], cells[j], tables[i], tables[j]
    nothing = Comparison(axis, i, j, None, None, None, None, unlike=_unlike(a, b, axis))
    if left is None or right is None or left.reason or right.reason:
        return replace(nothing, reason="not compared: the score is no mean over documents that are known")
    shared, x, y = _paired(left, right)
    if not shared:
        return replace(nothing, reason="not compared: the two sides have no document in common")
    unlike = list(nothing.unlike)
    if len(shared) < max(len(left.documents), len(right.documents)):
        unlike.append(f"documents: {len(left.documents)} and {len(right.documents)}, of which {len(shared)} are shared")
    keep = {document: k for k, document in enumerate(left.documents)}
    groups = np.array([left.groups[keep[d]] for d in shared]) if left.grouped else None
    weights = None if left.weights_D is None else np.array([left.weights_D[keep[d]] for d in shared])
    resampled = a.resampled or b.resampled
    order = _same_shots(a, b, axis) if a.resampled and b.resampled else None
    if order is not None:
        y = y[:, order]
    estimate = difference(
        x,
        y,
        groups_D=groups,
        weights_D=weights,
        resampled=resampled,
        same_runs=order is not None,
        shares=a.questions.method.startswith(SHARES),
    )
    once = [side[:, 0] for side, cell in ((x, a), (y, b)) if side.shape[1] == 1 or cell.identical]
    if len(once) == 2 and groups is None and weights is None and np.isin(once, (0, 1)).all():
        test = mcnemar(int((once[0] > once[1]).sum()), int((once[1] > once[0]).sum()))
    else:
        test = sign_flip((y.mean(1) - x.mean(1)) * (1 if weights is None else weights * len(weights)), groups)
    rose, fell = flipped(x, y)
    return replace(
        nothing,
        difference=estimate,
        p=test.p,
        method=test.method,
        rose=tuple(shared[k] for k in rose),
        fell=tuple(shared[k] for k in fell),
        noise=_noise(x, y, a.identical and b.identical),
        unlike=tuple(unlike),
    )


def _noise(x: np.ndarray, y: np.ndarray, identical: bool) -> Noise:
    """Variances of the difference of one document and run; runs are paired as they come, the rest is left out."""
    runs = 1 if identical else min(x.shape[1], y.shape[1])
    found = components(y[:, :runs] - x[:, :runs])
    return Noise(float(found.documents), float(found.runs), float(found.rest))


def _paired(left: Table, right: Table) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The shared documents, the same question under the same name, and the scores of both sides in their order."""
    at = {key: k for k, key in enumerate(zip(right.documents, right.hashes, strict=True))}
    pairs = [(k, at[key]) for k, key in enumerate(zip(left.documents, left.hashes, strict=True)) if key in at]
    kept, others = [k for k, _ in pairs], [k for _, k in pairs]
    return [left.documents[k] for k in kept], left.scores_DR[kept], right.scores_DR[others]


def _same_shots(a: Cell, b: Cell, axis: str) -> list[int] | None:
    """The order in which b's runs have the shots of a's, run by run; None where they had others."""
    shots: tuple[list[Any], list[Any]] = [run.shots for run in a.runs], [run.shots for run in b.runs]
    seeds: tuple[list[Any], list[Any]] = [run.seed for run in a.runs], [run.seed for run in b.runs]
    for left, right in (shots, ([], []) if axis.startswith(("fewshot", "task")) else seeds):
        if (
            left
            and None not in left
            and len(set(left)) == len(left)
            and {*left} == {*right}
            and len(right) == len(left)
        ):
            return [right.index(value) for value in left]
    return None


def _unlike(a: Cell, b: Cell, axis: str) -> tuple[str, ...]:
    """What differs beside the axis, as `key: this and that`."""
    keys = [*_PROVENANCE, *(() if axis.startswith("task.") else (_DATA,))]
    pairs = [(key, a.provenance.get(key), b.provenance.get(key)) for key in keys if f"model.{key}" != axis]
    left, right = flat(a.config), flat(b.config)
    pairs += [(key, left.get(key), right.get(key)) for key in _CONFIG if key != axis]
    one, other = versions(a.provenance), versions(b.provenance)
    pairs += [(f"version of {name}", one.get(name), other.get(name)) for name in dict.fromkeys([*one, *other])]
    return tuple(f"{key}: {x} and {y}" for key, x, y in pairs if json.dumps(x) != json.dumps(y))


def versions(provenance: Mapping[str, Any]) -> dict[str, Any]:
    found = provenance.get("versions", {})
    return dict(found) if isinstance(found, Mapping) else {}
