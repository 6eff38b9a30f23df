"""The model as lm_eval sees it: each request is answered once, and every answer is kept as it arrives."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lm_eval
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from evalsweep.config import JobConfig
from evalsweep.engine.models.backends import acting
from evalsweep.engine.models.contract import Backend, Loaded
from evalsweep.engine.models.lm_eval_requests import request_of
from evalsweep.engine.models.requests import GENERATE, LOGLIKELIHOOD, ROLLING, Answer, Request
from evalsweep.errors import BadInput
from evalsweep.identity import config_hash
from evalsweep.provenance import folder_hash, value_hash
from evalsweep.responses import Earlier, Responses

Progress = Callable[[str, int, int], None]  # what is being done, how many are done, of how many

DOING = {GENERATE: "generating", LOGLIKELIHOOD: "log-likelihoods", ROLLING: "rolling log-likelihoods"}
# What tells where a model came from, and not what it is, where the hash of its content is known.
_PLACES = ("model", "model_revision", "adapter")


class Kept(LM):
    """A backend whose answers are kept: those that are there already are read, each of the others is asked for once.

    Args:
        loaded: the backend and its identity.
        job: whose requests these are.
        responses: where the answers are kept.
        earlier: an earlier sweep, from which answers to equal requests are taken over.
        progress: told as answers arrive.
        backwards: asks the last request first, which should change nothing.
    """

    def __init__(
        self,
        loaded: Loaded,
        job: JobConfig,
        responses: Responses,
        progress: Progress,
        earlier: Earlier | None = None,
        backwards: bool = False,
    ) -> None:
        super().__init__()
        self.backend: Backend = loaded.lm
        self.job, self.responses, self.progress, self.backwards = job, responses, progress, backwards
        self.earlier = earlier
        self.whose = ""  # whose requests these are, where they are not this job's alone
        self.sent: list[dict[str, Any]] = []  # the distinct generation settings, as they are sent
        self.given: dict[tuple[str, int, int], Answer] = {}  # by task, document, and number of the choice or the answer
        self.apply_chat_template = loaded.lm.apply_chat_template
        self.origins: dict[tuple[str, int, int], str] = {}  # of those that were taken over: from which sweep
        self._model = _model_key(loaded.identity, job)
        self._settings: dict[str, tuple[str, dict[str, Any]]] = {}

    @property
    def tokenizer_name(self) -> str:
        """Give lm_eval no name: its caches are not used."""
        return ""

    @property
    def answers(self) -> list[Answer]:
        """The answers of this job, in the order in which they were asked for."""
        return list(self.given.values())

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Give lm_eval no name: its caches are not used."""
        return None

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return self._answered(GENERATE, requests)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return self._answered(LOGLIKELIHOOD, requests)

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return self._answered(ROLLING, requests)

    def ask(self, requests: Sequence[Request]) -> dict[str, Request]:
        """Answer what has no answer yet; give the requests by their keys, equal ones once.

        Errors: BadInput as of the backend; what was answered before stays kept.
        """
        by_key = {self.key(request): request for request in requests}
        keys = {id(request): key for key, request in by_key.items()}
        by_kind: dict[str, list[Request]] = {}
        for key, request in by_key.items():
            if not self.has(key):
                by_kind.setdefault(request.kind, []).append(request)
        for missing in by_kind.values():
            self._ask(missing, keys)
        return by_key

    def has(self, key: str) -> bool:
        """Give whether there is an answer, after it was taken over from an earlier sweep that has it."""
        if key in self.responses:
            return True
        if self.earlier is None or key not in self.earlier.responses:
            return False
        answer = self.earlier.responses.get(key)
        self.responses.put(key, {"from": self.earlier.name, **answer})  # it may itself have taken it over
        return True

    def _ask(self, requests: list[Request], keys: dict[int, str]) -> None:
        doing, done = f"{DOING[requests[0].kind]}{self.whose}", 0

        def tell(request: Request, answer: Answer) -> None:
            nonlocal done
            _check_finite(request, answer)
            whose = {"document": f"{request.task}/{request.doc_id}", "sample": request.sample}  # for people
            self.responses.put(keys[id(request)], whose | answer.to_json())
            done += 1
            self.progress(doing, done, len(requests))

        self.progress(doing, 0, len(requests))
        self.backend.answer(requests[::-1] if self.backwards else requests, tell)

    def key(self, request: Request) -> str:
        """Give what an answer depends on, as 32 hexadecimal digits: equal requests have equal keys."""
        settings = self._sent(request)[0] if request.kind == GENERATE else ""
        parts = (request.kind, request.prompt, request.continuation, settings, request.seed, request.sample)
        text = json.dumps([self._model, *parts])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _requests(self, instances: Sequence[Instance]) -> Iterator[Request]:
        """Number lm_eval's requests: it repeats one for each further answer to it."""
        seen: Counter[int] = Counter()
        for instance in instances:
            request = request_of(instance)
            if request.settings.get("do_sample"):
                request = replace(request, sample=seen[id(instance)], seed=self.job.seed)
            seen[id(instance)] += 1
            yield request

    def _answered(self, kind: str, instances: list[Instance]) -> list[Any]:
        requests = list(self._requests(instances))
        for request in requests[:1]:
            self.backend.look_at(request.prompt)
        if kind == GENERATE:
            for request in requests:
                sent = self._sent(request)[1]
                if sent not in self.sent:
                    self.sent.append(sent)
        self.ask(requests)
        seen: Counter[int] = Counter()
        found = []
        for instance, request in zip(instances, requests, strict=True):
            kept = self.responses.get(self.key(request))
            answer = Answer.from_json(kept)
            number = seen[id(instance)] if kind == GENERATE else instance.idx
            seen[id(instance)] += 1
            self.given[request.task, request.doc_id, number] = answer
            if "from" in kept:
                self.origins[request.task, request.doc_id, number] = str(kept["from"])
            found.append(answer.value)
        return found

    def _sent(self, request: Request) -> tuple[str, dict[str, Any]]:
        asked = repr(sorted(request.settings.items()))
        if asked not in self._settings:
            sent = self.backend.sent(request)
            self._settings[asked] = (value_hash([sent, self.job.model.thinking]), sent)
        return self._settings[asked]


def _model_key(identity: dict[str, Any], job: JobConfig) -> str:
    """Give what an answer depends on besides its request: the model's content, dtype and kind of device, the code."""
    known = {k: v for k, v in identity.items() if not (k in _PLACES and identity.get("model_hash"))}
    known["device"] = str(known.get("device")).partition(":")[0] if identity.get("model_hash") else known.get("device")
    known["template_args"] = job.model.template_args
    whose = None if job.engine.share else config_hash(acting(job))
    return value_hash([known, code_version(), whose])


@functools.cache
def code_version() -> str:
    """Give a hash of the code that makes answers, and of the libraries that it stands on."""
    libraries = (torch.__version__, transformers.__version__, lm_eval.__version__)
    return value_hash([folder_hash(Path(__file__).parent), *libraries])


def _check_finite(request: Request, answer: Answer) -> None:
    """Stop at a log-likelihood that is no number. Errors: BadInput that says of which document."""
    value = answer.value[0] if isinstance(answer.value, tuple) else answer.value
    if isinstance(value, float) and not math.isfinite(value):
        choice = f", choice '{' '.join(request.continuation.split())[:40]}'" if request.continuation else ""
        raise BadInput(
            f"{request.task}/{request.doc_id}{choice}",
            f"the model's log-likelihood is {value}: no score can be made of it; the weights may be broken, or their "
            "dtype too narrow",
            "model.dtype=float32",
        )
