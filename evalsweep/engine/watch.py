"""Watches a model at work: how many answers have come, and which generation settings reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import CacheHook

Progress = Callable[[str, int, int], None]  # what is being done, how many are done, of how many


class _Counter(CacheHook):
    """lm_eval tells its cache hook of each answer as it comes; this one counts."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(None)
        self.progress = progress
        self.what, self.done, self.total = "", 0, 0

    def start(self, what: str, total: int) -> None:
        self.what, self.done, self.total = what, 0, total
        self.progress(what, 0, total)

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        self.done = min(self.done + 1, self.total)
        self.progress(self.what, self.done, self.total)


# What differs from document to document
_CONTENT = ("context", "attention_mask", "max_length", "prompt", "messages", "seed")
_REQUESTS = {
    "generate_until": "generating",
    "loglikelihood": "log-likelihoods",
    "loglikelihood_rolling": "rolling log-likelihoods",
}


@contextmanager
def watched(lm: Any, progress: Progress) -> Iterator[list[dict[str, Any]]]:
    """Tell progress as answers arrive; gives the distinct generation settings that reach the engine, as they come."""
    sent: list[dict[str, Any]] = []
    counter = _Counter(progress)
    wrapped = {name: _counted(getattr(lm, name), what, counter) for name, what in _REQUESTS.items()}
    # where the settings leave lm_eval: for transformers' generate, and for a server
    wrapped |= {n: _noted(getattr(lm, n), sent) for n in ("_model_generate", "_create_payload") if hasattr(lm, n)}
    hook, lm.cache_hook = lm.cache_hook, counter
    for name, method in wrapped.items():
        setattr(lm, name, method)
    try:
        yield sent
    finally:
        lm.cache_hook = hook
        for name in wrapped:
            delattr(lm, name)  # the class's own method comes back


def _counted(original: Callable[..., Any], what: str, counter: _Counter) -> Callable[..., Any]:
    def call(requests: list[Instance], *args: Any, **kwargs: Any) -> Any:
        counter.start(what, len(requests))
        return original(requests, *args, **kwargs)

    return call


def _noted(original: Callable[..., Any], sent: list[dict[str, Any]]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        settings = {k: v for k, v in kwargs.items() if k not in _CONTENT}
        if "context" in kwargs:
            settings["max_gen_toks"] = kwargs["max_length"] - kwargs["context"].shape[1]
        result = original(*args, **kwargs)
        if isinstance(result, dict):  # a server's payload
            settings = {k: v for k, v in result.items() if k not in _CONTENT}
        if settings not in sent:
            sent.append(settings)
        return result

    return call
