"""Any OpenAI-compatible completions endpoint as the model; a chat template is applied on this side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM

from evalsweep.config import JobConfig
from evalsweep.engine.models.backends import Capabilities, Loaded, kind_of
from evalsweep.engine.models.client import reach
from evalsweep.engine.models.served import Choice, Served, ended_by, identity_of
from evalsweep.engine.models.template import Template, tokenizer_of
from evalsweep.errors import BadInput, first_line
from evalsweep.provenance import value_hash


class Completions(Served, TemplateLM):
    """A completions endpoint. Prompts are text; for log-likelihoods they are token ids, which no server adds to."""

    def __init__(self, job: JobConfig, can: Capabilities, tokenizer: Any) -> None:
        super().__init__(job, can)
        self.tokenizer = tokenizer
        self.template: Template | None = None
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
        found = super().begin(job)
        if self.tokenizer is None:
            return {**found, "chat_template_hash": None}
        self.template = Template(self.tokenizer, job.model.template_args, job.prompt.placement)
        if job.model.apply_chat_template:
            if not self.template.source:
                raise BadInput("model.apply_chat_template=true", f"the tokenizer {job.model.tokenizer} has no template")
            self.template.check_system(job.prompt.system, str(job.model.pretrained))
        return {**found, **self.template.identity()}

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation as the text that is sent: without the begin token, where the server puts one."""
        assert self.template is not None  # backends.check has refused it
        text = self.template.render(chat_history, add_generation_prompt)
        bos = self.tokenizer.bos_token
        return text.removeprefix(bos) if bos and self.begin_token()[1] else text

    def opens_thinking(self, prompt: str) -> bool:
        return self.template is not None and self.template.opens_thinking(prompt, self.answers.tags)

    def prompt_of(self, request: Instance) -> dict[str, Any]:
        return {"prompt": str(request.args[0])}

    def choice_of(self, choice: dict[str, Any]) -> Choice:
        if not isinstance(choice["text"], str):
            raise TypeError("an answer without text")
        return Choice(choice["text"], None, ended_by(choice.get("finish_reason")))

    def encode(self, text: str) -> list[int]:
        """Give the token ids that a prompt is to the server."""
        return self.tok_encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Give the text of token ids, special tokens included."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def begin_token(self) -> tuple[int | None, bool]:
        """Give the begin token, and whether the tokenizer puts one before a text."""
        bos = self.tokenizer.bos_token_id
        return bos, bos is not None and list(self.tokenizer("a")["input_ids"])[:1] == [bos]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        bos = self.tokenizer.bos_token
        if add_special_tokens is None and bos and string.startswith(bos):
            add_special_tokens = False
        given = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return list(self.tokenizer.encode(string, **given))

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        found = self.tokenizer.bos_token_id
        found = self.tokenizer.eos_token_id if found is None else found
        if found is None:
            raise BadInput(
                f"model.tokenizer={self.model.tokenizer}",
                "has neither a begin nor an end token, so that nothing stands before the first token of a text",
            )
        return int(found)

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Score continuations: each request is (its texts, ids of the context, ids of the continuation)."""
        bodies = []
        for _texts, context, continuation in requests:
            ids = [*context, *continuation]
            if self.max_length is not None:
                ids = ids[-self.max_length :]
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

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        if self.max_length is None:
            raise BadInput(
                f"task={requests[0].task_name}",
                "goes through texts window by window, for which the model's length is needed",
                "model.max_length=4096",
            )
        found = []
        for request in requests:
            windows = [
                utils.make_disjoint_window(window)
                for window in utils.get_rolling_token_windows(
                    token_list=self.tok_encode(request.args[0], add_special_tokens=False),
                    prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length - 1,
                    context_len=1,
                )
            ]
            scores = self._loglikelihood_tokens([((None, None), *window) for window in windows])
            found.append(sum(value for value, _ in scores))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found


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
