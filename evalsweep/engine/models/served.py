"""What completions and chat endpoints share: seeds, settings as sent, answers as they come back."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from evalsweep.config import DecodingConfig, JobConfig
from evalsweep.engine.models.client import Client
from evalsweep.engine.models.contract import Capabilities
from evalsweep.engine.models.requests import CAPPED, ENDED, GENERATE, Answer, Request, Tell, stops
from evalsweep.engine.models.thinking import Thinking
from evalsweep.errors import BadInput
from evalsweep.provenance import text_hash
from evalsweep.record import Alarm

SEEDS = "SHA-256 of seed|sample|prompt, first 64 bits modulo 2**31"
_NOT_SENT = ("until", "max_gen_toks", "stop_in_fences", "do_sample", "num_beams")
_PER_REQUEST = ("prompt", "messages", "seed")


@dataclass(frozen=True)
class Choice:
    """What a server answered: the text, its thinking part where that comes apart, and why it ended."""

    text: str
    thought: str | None
    ended: str


class Served(abc.ABC):
    """Generation by an endpoint. Every answer is a request of its own, with a seed of its own.

    A server that honours seeds would otherwise answer the n samples of a document with n times the same text.
    """

    can: Capabilities
    thinking: Thinking
    max_length: int | None
    rows: int | None = None

    def __init__(self, job: JobConfig, can: Capabilities) -> None:
        super().__init__()
        self.model, self.can = job.model, can
        self.client = Client(job.model)
        self.max_length = job.model.max_length or self._length()

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job; see `contract.Backend`."""
        self.thinking_toks = job.model.max_thinking_toks or 0
        self.thinking = Thinking(tuple(job.model.thinking))
        return {}

    @abc.abstractmethod
    def prompt_of(self, request: Request) -> dict[str, Any]:
        """Give the field of a request's body that holds its prompt."""

    @abc.abstractmethod
    def choice_of(self, choice: dict[str, Any]) -> Choice:
        """Read one choice of an answer. Errors: KeyError, TypeError, ValueError for another form."""

    @abc.abstractmethod
    def opens_thinking(self, prompt: str, tags: Sequence[str]) -> bool:
        """Tell whether the prompt, as it is sent, ends within the thinking part."""

    def close(self) -> None:  # noqa: B027  most endpoints need nothing here
        """Do nothing: no model is held here."""

    def look_at(self, prompt: str) -> None:  # noqa: B027  as above
        """Do nothing: the server makes the tokens; see `contract.Backend`."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, float | None]:
        """Add up the tokens that the server says it has written."""
        return {"tokens": self._usage(answers).get("completion_tokens")}

    def details(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Report the tokens that the server says it has read and written."""
        return {"usage": self._usage(answers) or None, "request_seeds": SEEDS}

    def alarms(self, job: JobConfig, answers: Sequence[Answer]) -> list[Alarm]:
        """Report nothing of its own; see `contract.Backend`."""
        return []

    def answer(self, requests: Sequence[Request], tell: Tell) -> None:
        """Answer requests of one kind; see `contract.Backend`."""
        if requests[0].kind != GENERATE:
            self.score(requests, tell)
            return
        bodies = [self._body(request) for request in requests]
        again: list[int] = []
        spent: dict[int, dict[str, float]] = {}  # the usage of answers that were stopped too early

        def done(position: int, answer: dict[str, Any]) -> None:
            found = self._read(answer)
            if self._stopped_too_early(requests[position], found):
                again.append(position)
                spent[position] = usage_of(answer)
            else:
                keep(position, answer, found)

        def keep(position: int, answer: dict[str, Any], found: Choice) -> None:
            request = requests[position]
            opened = self.opens_thinking(request.prompt, self.thinking.tags)
            text = self.thinking.cut(found.text, request.settings, opened)
            usage = usage_of(answer)
            before = spent.get(position, {})
            usage = {k: usage.get(k, 0) + before.get(k, 0) for k in usage | before}
            tell(request, self.thinking.answer(text, found.ended, opened, found.thought, usage))

        self.client.ask(bodies, done)
        free = [{k: v for k, v in bodies[i].items() if k != "stop"} for i in again]
        self.client.ask(free, lambda n, answer: keep(again[n], answer, self._read(answer)))

    @abc.abstractmethod
    def score(self, requests: Sequence[Request], tell: Tell) -> None:
        """Answer requests for log-likelihoods. Errors: BadInput where the endpoint gives none."""

    def sent(self, request: Request) -> dict[str, Any]:
        """Give the settings of a request as they are sent; see `contract.Backend`."""
        return {k: v for k, v in self._body(request).items() if k not in _PER_REQUEST}

    def _body(self, request: Request) -> dict[str, Any]:
        """Make the body of a request: every setting that acts, stated."""
        asked = request.settings
        neutral: dict[str, Any] = {f: getattr(DecodingConfig(), f) for f in DecodingConfig.__dataclass_fields__}
        # what every such interface knows is always stated; further settings only where they were asked for
        more = {k: v for k, v in asked.items() if k not in _NOT_SENT and v != neutral.get(k)}
        stop = stops(asked)
        return {
            "model": self.model.pretrained,
            **self.prompt_of(request),
            "max_tokens": int(asked["max_gen_toks"]) + self.thinking_toks,
            "temperature": float(asked["temperature"]) if asked["do_sample"] else 0.0,
            "top_p": 1.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            **{k: v for k, v in more.items() if k != "temperature"},
            **({"stop": stop} if stop else {}),
            "seed": int(text_hash(f"{request.seed or 0}|{request.sample}|{request.prompt}"), 16) % 2**31,
            **self.model.extra_body,
        }

    def _read(self, answer: dict[str, Any]) -> Choice:
        try:
            return self.choice_of(answer["choices"][0])
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise BadInput(
                f"model.base_url={self.client.url}",
                f"this is no answer of such an endpoint ({type(e).__name__}: {e}): {str(answer)[:200]}",
            ) from e

    def _stopped_too_early(self, request: Request, found: Choice) -> bool:
        if found.ended == CAPPED or not stops(request.settings):
            return False
        if found.thought and not found.text.strip():
            return True  # stopped within what the server calls its reasoning
        opened = self.opens_thinking(request.prompt, self.thinking.tags)
        return self.thinking.is_within_quiet(found.text, request.settings, opened)

    def _usage(self, answers: Sequence[Answer]) -> dict[str, float]:
        found: dict[str, float] = {}
        for answer in answers:
            for name, value in answer.counts.items():
                found[name] = found.get(name, 0) + value
        return found

    def _length(self) -> int | None:
        """Ask the server for the model's length, which vLLM and some others tell in their list of models."""
        path = urlsplit(self.client.url).path
        for ending in ("/chat/completions", "/completions"):
            path = path.removesuffix(ending)
        found = self.client.get(f"{path}/models")
        listed = found.get("data") if isinstance(found, dict) else None
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and entry.get("id") == self.model.pretrained:
                length = entry.get("max_model_len")
                return length if isinstance(length, int) else None
        return None


def identity_of(served: Served, where: str) -> dict[str, Any]:
    """Give what is known of a served model."""
    return {
        "model": served.model.pretrained,
        "model_revision": served.model.revision,
        "model_hash": None,
        "dtype": "unknown: the server decides",
        "device": f"server {where}",
        "max_length": served.max_length,
        "request_seeds": SEEDS,
        "cuda": None,
    }


def usage_of(answer: dict[str, Any]) -> dict[str, float]:
    """Give the tokens that a server says it has read and written for an answer; empty where it does not say."""
    usage = answer.get("usage")
    found: dict[str, float] = {}
    for name, value in (usage if isinstance(usage, dict) else {}).items():
        details = value if isinstance(value, dict) else {"": value}  # completion_tokens_details: {reasoning_tokens: 7}
        found |= {f"{name}.{k}".removesuffix("."): v for k, v in details.items() if isinstance(v, int)}
    return found


def ended_by(reason: Any) -> str:
    """Tell how an answer ended from a server's finish_reason."""
    return CAPPED if reason == "length" else ENDED
