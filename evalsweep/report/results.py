"""results_summary.json: one entry a task, in a shape that a script reads in one line."""

from __future__ import annotations

from typing import Any

from evalsweep.stats.estimate import Estimate
from evalsweep.stats.runs import Spread
from evalsweep.summary.types import Cell, Summary


def results(summary: Summary) -> dict[str, Any]:
    """`{"sample": {"mean", "std", "median", "runs", "ci_low", "ci_high", ...}}`.

    An entry shows the task's first cell; where the sweep has more cells of a task, `cells` lists them all and `cell`
    says which one the entry shows. Runs of different cells are never pooled: a mean over two temperatures is a score of
    neither.
    """
    entries: dict[str, Any] = {}
    for task, cells in summary.by_task().items():
        entry = _entry(cells[0])
        if len(cells) > 1:
            entry["cells"] = [_entry(cell) for cell in cells]
        entries[task] = entry
    return entries


def _entry(cell: Cell) -> dict[str, Any]:
    others = {name: _numbers(numbers.spread, numbers.interval) for name, numbers in cell.per_metric.items()}
    return {
        "metric": cell.metric,
        "cell": cell.differs,
        **_numbers(cell.spread, cell.interval),
        "runs": [run.score for run in cell.runs],
        "seeds": [run.seed for run in cell.runs],
        "identical": cell.identical,
        "ci_level": cell.interval.level,
        "ci_method": cell.interval.method,
        "ci_target": cell.interval.target,
        "ci_note": cell.interval.reason,
        "new_questions_low": cell.questions.low,
        "new_questions_high": cell.questions.high,
        "new_questions_method": cell.questions.method,
        "new_questions_note": cell.questions.reason,
        "documents": cell.documents,
        "median_low": cell.median.low,
        "median_high": cell.median.high,
        "metrics": others,
    }


def _numbers(spread: Spread, interval: Estimate) -> dict[str, Any]:
    return {
        "mean": spread.mean,
        "std": spread.sd,
        "median": spread.median,
        "min": spread.min,
        "max": spread.max,
        "n": spread.n,
        "ci_low": interval.low,
        "ci_high": interval.high,
    }
