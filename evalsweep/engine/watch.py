"""Watches a model at work: how many answers have come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook

from evalsweep.engine.models.contract import Backend
from evalsweep.errors import BadInput

Progress = Callable[[str, int, int], None]  # what is being done, how many are done, of how many
Arrived = tuple[str, Any, Any]  # the kind of a request, its arguments, its answer


class _Counter(CacheHook):
    """lm_eval tells its cache hook of each answer as it comes; this one counts."""

    def __init__(self, progress: Progress, arrived: list[Arrived]) -> None:
        super().__init__(None)
        self.progress, self.arrived = progress, arrived
        self.what, self.done, self.total = "", 0, 0

    def start(self, what: str, total: int) -> None:
        self.what, self.done, self.total = what, 0, total
        self.progress(what, 0, total)

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        self.arrived.append((attr, req, res))
        self.done = min(self.done + 1, self.total)
        self.progress(self.what, self.done, self.total)


_REQUESTS = {
    "generate_until": "generating",
    "loglikelihood": "log-likelihoods",
    "loglikelihood_rolling": "rolling log-likelihoods",
}


@contextmanager
def watched(
    lm: Backend, progress: Progress, backwards: bool = False, arrived: list[Arrived] | None = None
) -> Iterator[None]:
    """Tell progress as answers arrive, and add them to `arrived`; `backwards` asks in the documents' reverse order."""
    counter = _Counter(progress, [] if arrived is None else arrived)
    wrapped = {name: _counted(getattr(lm, name), what, counter, backwards) for name, what in _REQUESTS.items()}
    hook, lm.cache_hook = lm.cache_hook, counter
    for name, method in wrapped.items():
        setattr(lm, name, method)
    try:
        yield
    finally:
        lm.cache_hook = hook
        for name in wrapped:
            delattr(lm, name)  # the class's own method comes back


def _counted(original: Callable[..., Any], what: str, counter: _Counter, backwards: bool) -> Callable[..., Any]:
    def call(requests: list[Instance], *args: Any, **kwargs: Any) -> Any:
        counter.start(what, len(requests))
        if not backwards:
            return _finite(requests, original(requests, *args, **kwargs))
        order = _reversed(requests)
        answers = original([requests[i] for i in order], *args, **kwargs)
        by_position = dict(zip(order, answers, strict=True))
        return _finite(requests, [by_position[i] for i in range(len(requests))])

    return call


def _finite(requests: list[Instance], answers: list[Any]) -> list[Any]:
    """Stop at a log-likelihood that is no number. Errors: BadInput that says of which document and choice."""
    for request, answer in zip(requests, answers, strict=True):
        value = answer[0] if isinstance(answer, tuple | list) else answer
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(
                f"{request.task_name}/{request.doc_id}, choice {request.idx}",
                f"the model's log-likelihood is {value}: no score can be made of it; the weights may be broken, or "
                "their dtype too narrow",
                "model.dtype=float32",
            )
    return answers


def _reversed(requests: list[Instance]) -> list[int]:
    """Positions from the last request to the first; the repeats of one stay in their order, which numbers samples."""
    repeats: dict[int, list[int]] = {}
    for i, request in enumerate(requests):
        repeats.setdefault(id(request), []).append(i)
    return [i for positions in reversed(repeats.values()) for i in positions]
