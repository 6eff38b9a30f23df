"""Any OpenAI-compatible completions endpoint as the model; a chat template is applied on this side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evalsweep.config import JobConfig
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.client import reach
from evalsweep.engine.models.contract import Capabilities, Loaded
from evalsweep.engine.models.lm_eval_requests import told
from evalsweep.engine.models.requests import Answer, Request, Tell
from evalsweep.engine.models.served import Choice, Served, ended_by, identity_of
from evalsweep.engine.models.template import tokenizer_of
from evalsweep.engine.models.tokenized import Tokenized
from evalsweep.errors import BadInput, first_line
from evalsweep.provenance import value_hash
from evalsweep.record import Alarm


class Completions(Served, Tokenized):
    """A completions endpoint. Prompts are text; for log-likelihoods they are token ids, which no server adds to."""

    def __init__(self, job: JobConfig, can: Capabilities, tokenizer: Any) -> None:
        super().__init__(job, can)
        self.tokenizer = tokenizer
        known = tokenizer is not None
        self.can = replace(
            can,
            template="here" if known else None,
            counts_tokens=known,
            knows_length=known and self.max_length is not None,
            loglikelihoods=known,
            missing={"loglikelihoods": "model.tokenizer must name its tokenizer, a folder or a hub id"},
        )

    def begin(self, job: JobConfig) -> dict[str, Any]:
        return {**super().begin(job), **self.begin_template(job)}

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation as the text that is sent: without the begin token, where the server puts one."""
        text = super().apply_chat_template(chat_history, add_generation_prompt)
        bos = self.tokenizer.bos_token
        return text.removeprefix(bos) if bos and self.begin_token()[1] else text

    def look_at(self, prompt: str) -> None:
        """Compare a prompt with its tokens; see `contract.Backend`."""
        if self.template is not None:
            self.template.compare(prompt, self.encode)

    def alarms(self, job: JobConfig, answers: Sequence[Answer]) -> list[Alarm]:
        """Report prompts whose tokens are not those of the template."""
        return self.template.alarms(job.task.name) if self.template else []

    def opens_thinking(self, prompt: str, tags: Sequence[str]) -> bool:
        return Tokenized.opens_thinking(self, prompt, tags)

    def prompt_of(self, request: Request) -> dict[str, Any]:
        """Give the prompt as text; as token ids where it is too long, and cut as the record says."""
        if self.can.knows_length and self.max_length is not None:
            room = self.max_length - int(request.settings["max_gen_toks"]) - self.thinking_toks
            if len(request.prompt.encode("utf-8", "surrogatepass")) + 2 > room:  # a token is a byte at least
                ids = self.encode(request.prompt)
                if len(ids) > room:
                    return {"prompt": ids[-room:]}
        return {"prompt": request.prompt}

    def score(self, requests: Sequence[Request], tell: Tell) -> None:
        told(self, requests, tell)

    def choice_of(self, choice: dict[str, Any]) -> Choice:
        if not isinstance(choice["text"], str):
            raise TypeError("an answer without text")
        return Choice(choice["text"], None, ended_by(choice.get("finish_reason")))

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Score continuations: each request is (its texts, ids of the context, ids of the continuation)."""
        bodies = []
        for _texts, context, continuation in requests:
            ids = [*context, *continuation]
            if self.loglikelihood_length is not None:
                ids = ids[-self.loglikelihood_length :]
            bodies.append(
                {
                    "model": self.model.pretrained,
                    "prompt": ids,
                    "echo": True,
                    "logprobs": 1,
                    "max_tokens": 1,  # of which many servers want one at least
                    "temperature": 0.0,
                    **self.model.extra_body,
                }
            )
        answers: list[Any] = [None] * len(requests)

        def done(position: int, answer: dict[str, Any]) -> None:
            count = len(requests[position][2])
            answers[position] = self._score(answer, len(bodies[position]["prompt"]), count)
            self.cache_hook.add_partial("loglikelihood", requests[position][0], answers[position])

        self.client.ask(bodies, done)
        return answers

    def _score(self, answer: dict[str, Any], length: int, count: int) -> tuple[float, bool]:
        """Sum the log-probabilities of the last `count` of `length` tokens, and say whether each is the likeliest."""
        logprobs = answer["choices"][0].get("logprobs") or {}
        values, tops = logprobs.get("token_logprobs") or [], logprobs.get("top_logprobs") or []
        if len(values) not in (length, length + 1) or any(v is None for v in values[length - count : length]):
            raise BadInput(
                f"model.base_url={self.client.url}",
                f"the server gave {len(values)} log-probabilities for a prompt of {length} tokens, so that they cannot "
                "be told apart: it does not echo prompts given as token ids",
                "model=vllm or model=hf for tasks of log-likelihoods",
            )
        scored = values[length - count : length]
        likeliest = [max(top.values()) for top in tops[length - count : length] if top]
        greedy = len(likeliest) == count and all(v >= top for v, top in zip(scored, likeliest, strict=True))
        return float(sum(scored)), greedy


def look(job: JobConfig) -> None:
    """Find whether the server answers. Errors: BadInput."""
    reach(job.model)


def load(job: JobConfig) -> Loaded:
    """Connect to the server.

    Errors: BadInput where nobody answers, or the tokenizer cannot be loaded.
    """
    where = reach(job.model)
    tokenizer = None
    if job.model.tokenizer:
        try:
            tokenizer = tokenizer_of(job)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError) as e:
            raise BadInput(
                f"model.tokenizer={job.model.tokenizer}", f"cannot be loaded ({type(e).__name__}: {first_line(e)})"
            ) from e
    lm = Completions(job, kind_of(job.model).can, tokenizer)
    identity = identity_of(lm, where)
    if tokenizer is not None:
        identity["tokenizer_hash"] = value_hash(tokenizer.get_vocab())
    return Loaded(lm, identity)
