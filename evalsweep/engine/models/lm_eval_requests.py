"""Requests in lm_eval's form and back, and lm_eval's own models as backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook

from evalsweep.engine.models.requests import GENERATE, LOGLIKELIHOOD, Answer, Request, Tell


def instance_of(request: Request) -> Instance:
    """Give a request as lm_eval's."""
    arguments: tuple[Any, ...] = (request.prompt,)
    if request.kind == GENERATE:
        arguments = (request.prompt, dict(request.settings))
    elif request.kind == LOGLIKELIHOOD:
        arguments = (request.prompt, request.continuation)
    return Instance(request.kind, {}, arguments, 0, metadata=(request.task, request.doc_id, 1))


def request_of(instance: Instance) -> Request:
    """Give one of lm_eval's requests as evalsweep's, without seed and number of a sample: lm_eval's have none."""
    kind = str(instance.request_type)
    return Request(
        kind,
        str(instance.args[0]),
        dict(instance.args[1]) if kind == GENERATE else {},
        str(instance.args[1]) if kind == LOGLIKELIHOOD else "",
        task=str(instance.task_name),
        doc_id=int(instance.doc_id),
    )


def told(lm: Any, requests: Sequence[Request], tell: Tell) -> None:
    """Have lm_eval's own method answer requests for log-likelihoods; tell each answer as lm_eval's cache would be."""
    hook, lm.cache_hook = lm.cache_hook, _Hook(requests, tell)
    try:
        found = getattr(lm, requests[0].kind)([instance_of(r) for r in requests], disable_tqdm=True)
        lm.cache_hook.rest(requests, found)
    finally:
        lm.cache_hook = hook


class _Hook(CacheHook):
    """lm_eval tells its cache of each answer as it comes, though not on every path: the rest is told at the end."""

    def __init__(self, requests: Sequence[Request], tell: Tell) -> None:
        super().__init__(None)
        self.tell = tell
        self.open = {instance_of(request).args: request for request in requests}

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        request = self.open.pop(tuple(req), None)
        if request is not None:
            self.tell(request, _answer(res))

    def rest(self, requests: Sequence[Request], found: Sequence[Any]) -> None:
        for request, answer in zip(requests, found, strict=True):
            if self.open.pop(instance_of(request).args, None) is not None:
                self.tell(request, _answer(answer))


def _answer(found: Any) -> Answer:
    if isinstance(found, tuple | list):
        return Answer((float(found[0]), bool(found[1])))
    return Answer(float(found))
