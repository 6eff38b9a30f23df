"""Few-shot examples that are pinned: one set, chosen once, the same for every document."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.samplers import ContextSampler, FirstNSampler

from evalsweep.config import FewshotConfig
from evalsweep.engine.data import read_split
from evalsweep.errors import BadInput
from evalsweep.provenance import text_hash, value_hash


class PinnedSampler(ContextSampler):
    """Gives the first n documents of one fixed order; where the scored one is among them, the next takes its place.

    `scored` is the document that the next prompt is for. lm_eval itself tells it only where the few-shot split is the
    test split by name, and so shows documents their own answers elsewhere.
    """

    def __init__(self, pool: Sequence[dict[str, Any]], order: Sequence[int]) -> None:
        super().__init__(list(pool), rnd=0)
        self.order = list(order)
        self.scored: dict[str, Any] | None = None

    def positions(self, n: int, scored: dict[str, Any] | None = None) -> list[int]:
        """Positions in the pool of the n shots for the scored document."""
        others = (i for i in self.order if scored is None or self.df[i] != scored)
        return list(itertools.islice(others, n))

    def sample(
        self,
        n: int,
        eval_doc: dict[str, Any] | None = None,
        df: Sequence[dict[str, Any]] | None = None,
        **_: Any,
    ) -> Sequence[dict[str, Any]]:
        documents: list[dict[str, Any]] = list(self.df)
        return [documents[i] for i in self.positions(n, self.scored)]

    def set_rnd(self, rnd: int | None) -> PinnedSampler:
        return self  # the order is pinned; lm_eval's few-shot seed has no say

    def fewshot_docs(self) -> list[dict[str, Any]]:
        return list(self.df)


def pin(task: Any, fewshot: FewshotConfig, num_fewshot: int | None) -> None:
    """Replace the sampler of an lm_eval task.

    `fixed` keeps the order of tasks that publish one (`first_n`, as MMLU does) and draws once with `fewshot.seed`
    for the others; `resampled` draws with the job's seed for all; `file` takes the file's lines in order.

    Errors: BadInput where the pool is too small, the split does not exist, or the task draws in a way of its own.
    """
    name = task.task_name
    n = task.config.num_fewshot if num_fewshot is None else num_fewshot
    n = n or 0
    task.set_config("num_fewshot", n)
    if n == 0 and fewshot.name != "file":
        return
    if not hasattr(task, "sampler"):
        raise BadInput(
            f"task.name={name}", "draws its own shots in Python, which cannot be pinned", "task.num_fewshot=0"
        )
    if fewshot.name == "file":
        pool = _from_file(Path(str(fewshot.path)).expanduser(), task)
        n = len(pool) if num_fewshot is None else num_fewshot
        task.set_config("num_fewshot", n)
        order, spare = list(range(len(pool))), 0
        given = f"fewshot.path={fewshot.path}"
    else:
        if fewshot.split is not None:
            _choose_split(task, fewshot.split)
        pool = list(task.fewshot_docs())
        order = _order(len(pool), fewshot, name, published=isinstance(task.sampler, FirstNSampler))
        spare = _most_copies(pool, task)
        given = f"task.num_fewshot={n} for {name}"
    if len(pool) < n + spare:
        why = ", of which the scored document is left out" if spare else ""
        most = max(0, len(pool) - spare)
        raise BadInput(given, f"the few-shot pool holds {len(pool)} examples{why}", f"task.num_fewshot={most}")
    task.sampler = PinnedSampler(pool, order)
    _tell_scored(task)


def _most_copies(pool: Sequence[dict[str, Any]], task: Any) -> int:
    """How many examples of the pool a scored document can take away: its copies there."""
    scored = {value_hash(doc) for doc in task.eval_docs}
    copies = Counter(value_hash(doc) for doc in pool)
    return max((n for doc, n in copies.items() if doc in scored), default=0)


def _tell_scored(task: Any) -> None:
    """Tell the sampler whose prompt is being made."""
    original = task.fewshot_context

    def fewshot_context(doc: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        task.sampler.scored = doc
        return original(doc, *args, **kwargs)

    task.fewshot_context = fewshot_context


def _order(size: int, fewshot: FewshotConfig, task: str, published: bool) -> list[int]:
    order = list(range(size))
    if fewshot.name == "fixed" and published:
        return order
    # A stream for each task and seed: other tasks of a run, and their order, do not move the draw.
    random.Random(int(text_hash(f"shots|{task}|{fewshot.seed}"), 16)).shuffle(order)
    return order


def _choose_split(task: Any, split: str) -> None:
    available = list(task.dataset.keys()) if hasattr(task.dataset, "keys") else []
    if split not in available:
        raise BadInput(
            f"fewshot.split={split}",
            f"task {task.task_name} has no such split; it has {', '.join(map(str, available))}",
            f"fewshot.split={available[0] if available else 'train'}",
        )
    task.fewshot_cfg.split = split


def _from_file(path: Path, task: Any) -> list[dict[str, Any]]:
    if not path.is_file():
        raise BadInput(f"fewshot.path={path}", "is not a file; give JSON Lines, one example a line")
    return read_split(path, task.features)
