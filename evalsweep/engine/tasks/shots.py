"""Few-shot examples that are pinned: chosen from the options, the seed and the document, never from what ran before."""

from __future__ import annotations

import abc
import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.samplers import ContextSampler, FirstNSampler

from evalsweep.config import FewshotConfig
from evalsweep.engine.tasks.data import read_split
from evalsweep.engine.tasks.likeness import SEEN, frame, is_near_copy, normalised
from evalsweep.errors import BadInput
from evalsweep.provenance import text_hash, value_hash
from evalsweep.record import Shot


class Shots(ContextSampler, abc.ABC):
    """A sampler that remembers, for the document whose prompt is being made, which examples it gave.

    Prompts tell it that document with `begin`; lm_eval itself tells it only where the few-shot split is the test split
    by name, and so shows documents their own answers elsewhere. `given` holds positions in the pool.
    """

    def __init__(self, task: Any, pool: Sequence[dict[str, Any]]) -> None:
        super().__init__(list(pool), rnd=0)
        self.task = task
        self.own: str | None = None  # the scored document's question
        self.given: list[int] = []
        self._again = False
        self._questions: dict[int, str] = {}
        self._shots: dict[int, Shot] = {}

    def begin(self, scored: dict[str, Any]) -> None:
        """The next shots are for this document."""
        self.own, self.given, self._again = question(self.task, scored), [], False

    def fewer(self) -> None:
        """The next shots are the first of those that were given, for the same document."""
        self._again = True

    def sample(
        self,
        n: int,
        eval_doc: dict[str, Any] | None = None,
        df: Sequence[dict[str, Any]] | None = None,
        **_: Any,
    ) -> Sequence[dict[str, Any]]:
        self.given = self.given[:n] if self._again else self.positions(n, eval_doc)
        return [self.df[i] for i in self.given]

    @abc.abstractmethod
    def positions(self, n: int, left_out: dict[str, Any] | None) -> list[int]:
        """Positions in the pool of the n shots for the scored document; lm_eval may name one that it leaves out."""

    def fewshot_docs(self) -> list[dict[str, Any]]:
        return list(self.df)

    def question(self, position: int) -> str:
        """The normalised question at a position of the pool."""
        if position not in self._questions:
            self._questions[position] = question(self.task, self.df[position])
        return self._questions[position]

    def shot(self, position: int) -> Shot:
        """The shot at a position of the pool, its text as it stands in a prompt without a chat template."""
        if position not in self._shots:
            self._shots[position] = Shot(
                position, "".join(turn.to_text() for turn in _turns(self.task, self.df[position]))
            )
        return self._shots[position]

    def pieces(self, position: int) -> list[str]:
        """Question and answer of a shot, as any template writes them."""
        return [turn.to_text().strip() for turn in _turns(self.task, self.df[position])]

    def copies(self, scored: dict[str, Any]) -> list[str]:
        """What the last shots give away of the scored document: itself, answer and all (`leaked`), or one like it."""
        own = self.own or ""
        same = [i for i in self.given if self.question(i) == own]
        target = str(self.task.doc_to_target(scored))
        flags = ["leaked"] if any(str(self.task.doc_to_target(self.df[i])) == target for i in same) else []
        near = (same and not flags) or any(is_near_copy(own, self.question(i), self._frame) for i in self.given)
        return flags + (["near_copy"] if near else [])

    @functools.cached_property
    def _frame(self) -> tuple[int, int]:
        return frame([self.question(i) for i in range(min(SEEN, len(self.df)))])


class Pinned(Shots):
    """The first n of an order; where the scored document is among them, the next takes its place.

    The order is one for all documents, or, with `seed`, one for each, drawn from the seed and the document's question.
    A pool of n examples runs out for a document that is one of them, which then gets fewer.
    """

    def __init__(
        self,
        task: Any,
        pool: Sequence[dict[str, Any]],
        order: Sequence[int] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(task, pool)
        self.order = order
        self.seed = seed

    def positions(self, n: int, left_out: dict[str, Any] | None) -> list[int]:
        return list(itertools.islice((i for i in self._order() if self.question(i) != self.own), n))

    def _order(self) -> Iterator[int]:
        if self.order is not None:
            return iter(self.order)
        drawn = list(range(len(self.df)))
        _random("document", self.task.task_name, self.seed, self.own).shuffle(drawn)
        return iter(drawn)

    def set_rnd(self, rnd: int | None) -> Pinned:
        return self  # the order is pinned; lm_eval's few-shot seed has no say


class Harness(Shots):
    """lm_eval's own draw, which depends on the documents before, on the limit and on the number of processes."""

    def __init__(self, task: Any, pool: Sequence[dict[str, Any]], drawer: ContextSampler) -> None:
        super().__init__(task, pool)
        self.drawer = drawer
        self.places = {value_hash(doc): i for i, doc in reversed(list(enumerate(pool)))}

    def positions(self, n: int, left_out: dict[str, Any] | None) -> list[int]:
        return [self.places[value_hash(doc)] for doc in self.drawer.sample(n, eval_doc=left_out)]

    def set_rnd(self, rnd: int | None) -> Harness:
        self.drawer.set_rnd(rnd)
        return self


def pin(task: Any, fewshot: FewshotConfig, num_fewshot: int | None) -> None:
    """Replace the sampler of an lm_eval task.

    `fixed` keeps the order of tasks that publish one (`first_n`) and draws once with `fewshot.seed`
    for the others; `resampled` draws with the job's seed for all; `per_document` draws for each document; `file` takes
    the file's lines in order; `harness` leaves the draw to lm_eval.

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
    given = f"task.num_fewshot={n} for {name}"
    if fewshot.name == "file":
        pool = _from_file(Path(str(fewshot.path)).expanduser(), task)
        n = len(pool) if num_fewshot is None else num_fewshot
        task.set_config("num_fewshot", n)
        given = f"fewshot.path={fewshot.path}"
    else:
        if fewshot.split is not None:
            _choose_split(task, fewshot.split)
        pool = list(task.fewshot_docs())
    if len(pool) < n:
        raise BadInput(given, f"the few-shot pool holds {len(pool)} examples", f"task.num_fewshot={len(pool)}")
    task.sampler = _sampler(task, fewshot, pool)


def _sampler(task: Any, fewshot: FewshotConfig, pool: list[dict[str, Any]]) -> Shots:
    if fewshot.name == "harness":
        return Harness(task, pool, task.sampler)
    if fewshot.name == "per_document":
        return Pinned(task, pool, seed=fewshot.seed)
    order = list(range(len(pool)))
    published = fewshot.name == "file" or (fewshot.name == "fixed" and isinstance(task.sampler, FirstNSampler))
    if not published:
        # A stream for each task and seed: other tasks of a run, and their order, do not move the draw.
        _random("shots", task.task_name, fewshot.seed).shuffle(order)
    return Pinned(task, pool, order)


def _random(*key: Any) -> random.Random:
    return random.Random(int(text_hash("|".join(map(str, key))), 16))


def question(task: Any, doc: dict[str, Any]) -> str:
    """What a document asks, normalised; tasks whose question is not a text are compared by the whole document."""
    text = task.doc_to_text(doc)
    return normalised(text if isinstance(text, str) and text.strip() else value_hash(doc))


def _turns(task: Any, doc: dict[str, Any]) -> list[Any]:
    settings = task.fewshot_cfg
    q = task.doc_to_text(doc, settings.doc_to_text)
    choices: Any = task.doc_to_choice(doc, settings.doc_to_choice) if settings.doc_to_choice else None
    if task.multiple_input:
        q, choices = choices[q], None
    turns: list[Any] = task.build_qa_turn(
        q=q,
        c=choices,
        a=task.doc_to_target(doc, settings.doc_to_target),
        gen_prefix=task.resolve_field(doc, settings.gen_prefix),
        tgt_delim=settings.target_delimiter,
        few_delim="",
    )
    return turns


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
