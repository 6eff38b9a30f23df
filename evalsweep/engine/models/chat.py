"""Any OpenAI-compatible chat endpoint as the model: it gets messages with their roles and applies its own template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from evalsweep.config import JobConfig
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.client import reach
from evalsweep.engine.models.contract import Loaded
from evalsweep.engine.models.served import Choice, Served, ended_by, identity_of
from evalsweep.engine.models.template import into_user
from evalsweep.errors import BadInput
from evalsweep.record import Alarm


class Chat(Served, LM):
    """A chat endpoint. A prompt is its messages in JSON, as they are sent."""

    tokenizer = None
    tokenizer_name = ""

    def begin(self, job: JobConfig) -> dict[str, Any]:
        found = super().begin(job)
        self.placement = job.prompt.placement
        self.unsent: set[str] = set()
        return {**found, "chat_template_hash": None, "chat_template": "the server's own"}

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Give a conversation as it is sent. Words that an answer should begin with cannot be: they are left out."""
        messages = into_user(chat_history) if self.placement == "user" else list(chat_history)
        if not add_generation_prompt and messages and messages[-1]["role"] == "assistant":
            self.unsent.add(messages.pop()["content"][:60])
        return json.dumps(messages, ensure_ascii=False)

    def prompt_of(self, request: Instance) -> dict[str, Any]:
        return {"messages": json.loads(request.args[0])}

    def choice_of(self, choice: dict[str, Any]) -> Choice:
        message = choice["message"]
        # vLLM and SGLang name it reasoning_content, newer versions reasoning
        thought = message.get("reasoning_content") or message.get("reasoning")
        text = message.get("content")
        if text is None and not thought and not message.get("refusal"):
            raise TypeError("a message without content")
        text = message.get("refusal") or "" if text is None else text
        if not isinstance(text, str):
            raise TypeError(f"content is {type(text).__name__}")
        return Choice(text, str(thought) if thought else None, ended_by(choice.get("finish_reason")))

    def alarms(self, job: JobConfig) -> list[Alarm]:
        """Report words that answers should have begun with."""
        if not self.unsent:
            return []
        line = (
            f"answers of {job.task.name} should begin with words of the task ('{min(self.unsent)}'), which a chat "
            "endpoint cannot be told: they were left out"
        )
        return [Alarm("begin_not_sent", line)]

    def encode(self, text: str) -> list[int]:
        raise self._none("token ids")

    def decode(self, tokens: Sequence[int]) -> str:
        raise self._none("token ids")

    def begin_token(self) -> tuple[int | None, bool]:
        return None, False

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        raise self._none("log-likelihoods")

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        raise self._none("log-likelihoods")

    def _none(self, what: str) -> BadInput:
        return BadInput(f"model={self.model.name}", f"a chat endpoint gives no {what}", "model=server")


def look(job: JobConfig) -> None:
    """Find whether the server answers. Errors: BadInput."""
    reach(job.model)


def load(job: JobConfig) -> Loaded:
    """Connect to the server. Errors: BadInput where nobody answers."""
    where = reach(job.model)
    lm = Chat(job, kind_of(job.model).can)
    return Loaded(lm, identity_of(lm, where))
