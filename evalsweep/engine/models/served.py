"""What completions and chat endpoints share: seeds, settings as sent, answers as they come back."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from lm_eval.api.instance import Instance

from evalsweep.config import DecodingConfig, JobConfig
from evalsweep.engine.models.client import Client
from evalsweep.engine.models.contract import Capabilities
from evalsweep.engine.models.requests import CAPPED, ENDED, Answers, sample_numbers, stops
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
    answers: Answers
    cache_hook: Any
    max_length: int | None

    def __init__(self, job: JobConfig, can: Capabilities) -> None:
        super().__init__()
        self.model, self.can = job.model, can
        self.client = Client(job.model)
        self.max_length = job.model.max_length or self._length()

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job; see `contract.Backend`."""
        self.seed = job.seed
        self.thinking_toks = job.model.max_thinking_toks or 0
        self.answers = Answers(job.model.thinking)
        return {}

    @abc.abstractmethod
    def prompt_of(self, request: Instance) -> dict[str, Any]:
        """Give the field of a request's body that holds its prompt."""

    @abc.abstractmethod
    def choice_of(self, choice: dict[str, Any]) -> Choice:
        """Read one choice of an answer. Errors: KeyError, TypeError, ValueError for another form."""

    def opens_thinking(self, prompt: str, tags: Sequence[str]) -> bool:
        """Tell whether the prompt, as it is sent, ends within the thinking part."""
        return False

    def close(self) -> None:
        """Forget what was counted: no model is held here."""
        self.client.usage.clear()

    def numbers(self) -> dict[str, float | None]:
        """Report the tokens that the server says it has written."""
        found = self.client.usage.get("completion_tokens")
        return {"tokens": None if found is None else float(found)}

    def details(self) -> dict[str, Any]:
        """Report the tokens that the server says it has read and written."""
        return {"usage": dict(self.client.usage) or None, "request_seeds": SEEDS}

    def alarms(self, job: JobConfig) -> list[Alarm]:
        """Report nothing of its own; see `contract.Backend`."""
        return []

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        answers = [""] * len(requests)
        samples = sample_numbers(requests)
        bodies = [self._body(request, sample) for request, sample in zip(requests, samples, strict=True)]
        again: list[int] = []

        def done(position: int, answer: dict[str, Any]) -> None:
            found = self._read(answer)
            if self._stopped_too_early(requests[position], found):
                again.append(position)
            else:
                keep(position, found)

        def keep(position: int, found: Choice) -> None:
            request = requests[position]
            opened = self.opens_thinking(str(request.args[0]), self.answers.tags)
            text = self.answers.cut(found.text, request.args[1], opened)
            answers[position] = self.answers.keep(request, samples[position], text, found.ended, opened, found.thought)
            self.cache_hook.add_partial("generate_until", request.args, answers[position])

        self.client.ask(bodies, done)
        free = [{k: v for k, v in bodies[i].items() if k != "stop"} for i in again]
        self.client.ask(free, lambda n, answer: keep(again[n], self._read(answer)))
        return answers

    def _body(self, request: Instance, sample: int) -> dict[str, Any]:
        """Make the body of a request: every setting that acts, stated; note the settings as sent."""
        asked = dict(request.args[1])
        neutral: dict[str, Any] = {f: getattr(DecodingConfig(), f) for f in DecodingConfig.__dataclass_fields__}
        # what every such interface knows is always stated; further settings only where they were asked for
        more = {k: v for k, v in asked.items() if k not in _NOT_SENT and v != neutral.get(k)}
        stop = stops(asked)
        body = {
            "model": self.model.pretrained,
            **self.prompt_of(request),
            "max_tokens": int(asked["max_gen_toks"]) + self.thinking_toks,
            "temperature": float(asked["temperature"]) if asked["do_sample"] else 0.0,
            "top_p": 1.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            **{k: v for k, v in more.items() if k != "temperature"},
            **({"stop": stop} if stop else {}),
            "seed": int(text_hash(f"{self.seed}|{sample}|{request.args[0]}"), 16) % 2**31,
            **self.model.extra_body,
        }
        self.answers.note_sent({k: v for k, v in body.items() if k not in _PER_REQUEST})
        return body

    def _read(self, answer: dict[str, Any]) -> Choice:
        try:
            return self.choice_of(answer["choices"][0])
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise BadInput(
                f"model.base_url={self.client.url}",
                f"this is no answer of such an endpoint ({type(e).__name__}: {e}): {str(answer)[:200]}",
            ) from e

    def _stopped_too_early(self, request: Instance, found: Choice) -> bool:
        if found.ended == CAPPED or not stops(request.args[1]):
            return False
        opened = self.opens_thinking(str(request.args[0]), self.answers.tags)
        return self.answers.is_within_quiet(found.text, request.args[1], opened)

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


def ended_by(reason: Any) -> str:
    """Tell how an answer ended from a server's finish_reason."""
    return CAPPED if reason == "length" else ENDED
