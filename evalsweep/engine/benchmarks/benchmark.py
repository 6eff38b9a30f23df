"""The type that a benchmark is, and the ones that there are.

Any task of lm_eval runs without being one: a file here adds what a definition cannot say.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

DEFINITIONS = Path(__file__).parent / "definitions"


@dataclass(frozen=True)
class Packaged:
    """Rows of a benchmark that an installed package carries: the file, and the package's name and version."""

    path: Path
    source: str


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Args:
        name: of its task or group of tasks.
        documents: how many its test split has.
        scorer: how its answers are scored: see `scorers`.
        folder: of lm_eval, below its tasks, where that differs from the name; evalsweep's own definitions lie in
            `definitions/`.
        packaged: finds its test split in an installed package; None where it is not installed.
        selected_by: the column whose value tells the rows of one of its tasks from those of the others.
        dataset: the hub's name of the dataset that `selected_by` is a column of.
        drops_stops: whether its stop strings are for text that goes on from the prompt, and would cut a chat's answer.
    """

    name: str
    documents: int | None = None
    scorer: str = "lm_eval"
    folder: str | None = None
    packaged: Callable[[], Packaged | None] | None = None
    selected_by: str | None = None
    dataset: str | None = None
    drops_stops: bool = False


@functools.cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Give the benchmarks by name: each module beside this one has one or several in `BENCHMARKS`."""
    package = __name__.rpartition(".")[0]
    modules = [info.name for info in pkgutil.iter_modules([str(Path(__file__).parent)]) if not info.ispkg]
    found: dict[str, Benchmark] = {}
    for module in sorted(modules):
        for benchmark in getattr(importlib.import_module(f"{package}.{module}"), "BENCHMARKS", ()):
            found[benchmark.name] = benchmark
    return found


def benchmark_of(task: str) -> Benchmark:
    """Give the benchmark that a task is, or that it is a variant of (`NAME_cot`); a plain one where there is none."""
    known = benchmarks()
    if task in known:
        return known[task]
    parent = next((b for b in known.values() if b.scorer == "numeric" and task.startswith(f"{b.name}_")), None)
    return Benchmark(task, scorer=parent.scorer if parent else "lm_eval")


def selecting_column(dataset: str) -> str | None:
    """Give the column that selects a task's rows of a dataset of the hub, or None."""
    return next((b.selected_by for b in benchmarks().values() if b.dataset == dataset), None)
