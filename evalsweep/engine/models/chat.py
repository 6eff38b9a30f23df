"""Any OpenAI-compatible chat endpoint as the model: it gets messages with their roles and applies its own template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from evalsweep.config import JobConfig
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.client import Client, reach
from evalsweep.engine.models.contract import Loaded
from evalsweep.engine.models.requests import Answer, Request, Tell
from evalsweep.engine.models.served import Choice, Served, ended_by, identity_of
from evalsweep.engine.models.template import into_user
from evalsweep.errors import BadInput
from evalsweep.record import Alarm


class Chat(Served):
    """A chat endpoint. A prompt is its messages in JSON, as they are sent."""

    loglikelihood_length: int | None = None

    def begin(self, job: JobConfig) -> dict[str, Any]:
        found = super().begin(job)
        self.job = job
        self.placement = job.prompt.placement
        self.unsent: set[str] = set()
        self.systems: set[str] = set()  # the system prompts that are sent
        return {**found, "chat_template_hash": None, "chat_template": "the server's own"}

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Give a conversation as it is sent. Words that an answer should begin with cannot be: they are left out."""
        messages = into_user(chat_history) if self.placement == "user" else list(chat_history)
        if not add_generation_prompt and messages and messages[-1]["role"] == "assistant":
            self.unsent.add(messages.pop()["content"][:60])
        system = messages[0]["content"] if messages and messages[0]["role"] == "system" else None
        if system is not None and system not in self.systems:
            self.systems.add(system)
            if system != self.job.prompt.system:  # for which `look` has looked: a task says something of its own
                _check_system(self.job, system)
        return json.dumps(messages, ensure_ascii=False)

    def prompt_of(self, request: Request) -> dict[str, Any]:
        return {"messages": json.loads(request.prompt)}

    def choice_of(self, choice: dict[str, Any]) -> Choice:
        message = choice["message"]
        # vLLM and SGLang name it reasoning_content, newer versions reasoning
        thought = message.get("reasoning_content") or message.get("reasoning")
        text = message.get("content")
        cut = choice.get("finish_reason") == "length"  # some servers keep to themselves what was thought until then
        if text is None and not thought and not message.get("refusal") and not cut:
            raise TypeError("a message without content")
        text = message.get("refusal") or "" if text is None else text
        if not isinstance(text, str):
            raise TypeError(f"content is {type(text).__name__}")
        return Choice(text, str(thought) if thought else None, ended_by(choice.get("finish_reason")))

    def alarms(self, job: JobConfig, answers: Sequence[Answer]) -> list[Alarm]:
        """Report words that answers should have begun with, and a system prompt of which nobody knows."""
        found = []
        if self.unsent:
            line = (
                f"answers of {job.task.name} should begin with words of the task ('{min(self.unsent)}'), which a chat "
                "endpoint cannot be told: they were left out"
            )
            found.append(Alarm("begin_not_sent", line))
        if self.systems and not any("prompt_tokens" in answer.counts for answer in answers):
            line = (
                f"the server does not count the tokens that it reads, so that nobody knows whether the system prompt "
                f"of {job.task.name} reaches the model"
            )
            found.append(Alarm("system_unchecked", line))
        return found

    def opens_thinking(self, prompt: str, tags: Sequence[str]) -> bool:
        """Tell nothing: only the server sees the prompt as text."""
        return False

    def encode(self, text: str) -> list[int]:
        raise self._none("token ids")

    def decode(self, tokens: Sequence[int]) -> str:
        raise self._none("token ids")

    def begin_token(self) -> tuple[int | None, bool]:
        return None, False

    def score(self, requests: Sequence[Request], tell: Tell) -> None:
        raise self._none("log-likelihoods")

    def _none(self, what: str) -> BadInput:
        return BadInput(f"model={self.model.name}", f"a chat endpoint gives no {what}", "model=server")


def look(job: JobConfig) -> None:
    """Find whether the server answers, and whether a system prompt reaches the model. Errors: BadInput."""
    reach(job.model)
    if job.prompt.system and job.prompt.placement != "user":
        _check_system(job, job.prompt.system)


def _check_system(job: JobConfig, system: str) -> None:
    """Find whether a system prompt reaches the model; a server that does not count what it reads is believed.

    One that makes no prompt longer is dropped: two are sent, of which one is longer. Errors: BadInput.
    """
    counts = [_prompt_tokens(job, system + more) for more in ("", " and so on, and so forth, until the end" * 4)]
    if None not in counts and counts[0] == counts[1]:
        raise BadInput(
            f"prompt.system={system[:60]!r}" if job.prompt.system else f"task={job.task.name}",
            f"the server counts {counts[0]} tokens of a prompt with it and with a longer one, so that it drops system "
            f"prompts ({' '.join(system.split())[:60]!r}); put it into the user's turn, or go without it (prompt=none)",
            "prompt.placement=user",
        )


def _prompt_tokens(job: JobConfig, system: str) -> int | None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hello"}]
    body = {"model": job.model.pretrained, "messages": messages, "max_tokens": 1, "temperature": 0.0}
    usage = Client(job.model).post({**body, **job.model.extra_body}).get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def load(job: JobConfig) -> Loaded:
    """Connect to the server. Errors: BadInput where nobody answers."""
    where = reach(job.model)
    lm = Chat(job, kind_of(job.model).can)
    return Loaded(lm, identity_of(lm, where))
