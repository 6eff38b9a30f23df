"""The contract between evalsweep and what answers: what a backend must do, and what it can do.

Nothing heavy is imported here. `docs/extending.md` shows how a backend is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from evalsweep.config import DecodingConfig, JobConfig
from evalsweep.engine.models.requests import Answer, Request, Tell
from evalsweep.record import Alarm

SAMPLING = frozenset(f.name for f in fields(DecodingConfig))
GREEDY = frozenset({"do_sample", "num_beams", "repetition_penalty", "no_repeat_ngram_size"})


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do; None where nobody knows.

    Args:
        prompts: what a prompt is sent as.
        template: who applies a chat template: evalsweep ("here"), the server ("there"), or nobody.
        counts_tokens: whether the tokens of a prompt are counted before it is sent.
        knows_length: whether the length that prompt and answer share is known, so that a cut prompt is noticed.
        loglikelihoods: whether the log-likelihood of a given text can be had.
        seeds: whether every answer has a seed of its own, which is honoured.
        deterministic: whether equal requests at temperature 0 have equal answers.
        reports_endings: whether an answer that was cut at the token limit is known as such.
        sampling: the decoding settings that act above temperature 0.
        greedy: those that act at temperature 0.
        together: the key of `model` that says how many requests are answered at a time.
        missing: what is needed for a capability that this model lacks, by its name.
    """

    prompts: Literal["tokens", "text", "messages"] = "tokens"
    template: Literal["here", "there"] | None = "here"
    counts_tokens: bool = True
    knows_length: bool = True
    loglikelihoods: bool = True
    seeds: bool | None = True
    deterministic: bool | None = True
    reports_endings: bool = True
    sampling: frozenset[str] = SAMPLING
    greedy: frozenset[str] = GREEDY
    together: str = "batch_size"
    missing: Mapping[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """What answers requests, and what evalsweep asks beside them.

    `max_length` is the tokens that prompt and answer share, `loglikelihood_length` those that a context and its
    continuation share; None where that is not known. `rows` is how many answers grow at once, where the backend itself
    found what fits.
    """

    can: Capabilities

    @property
    def max_length(self) -> int | None: ...

    @property
    def loglikelihood_length(self) -> int | None: ...

    @property
    def rows(self) -> int | None: ...

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job, and give the part of the identity that belongs to it. Errors: BadInput."""

    def close(self) -> None:
        """Give back the memory that the model holds; called before another model is loaded into this process."""

    def answer(self, requests: Sequence[Request], tell: Tell) -> None:
        """Answer requests of one kind, no two of them equal, in any order; tell each answer as it comes.

        Errors: BadInput for what cannot be answered; what was told before stays.
        """

    def sent(self, request: Request) -> dict[str, Any]:
        """Give the settings of a request as they are sent: every one that acts, and nothing of its prompt or seed.

        Errors: BadInput for a setting that cannot act.
        """

    def look_at(self, prompt: str) -> None:
        """Compare the first prompt of a job with the tokens that it is sent as; `alarms` tells what differs."""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> Any:
        """Render a conversation as this backend sends it: text, or messages. Errors: BadInput."""

    def encode(self, text: str) -> list[int]:
        """Give the token ids that a prompt is sent as; only where `can.counts_tokens`."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Give the text of token ids, special tokens included; only where `can.counts_tokens`."""

    def begin_token(self) -> tuple[int | None, bool]:
        """Give the begin token (BOS), and whether this tokenizer puts one before a text; only where it counts."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, float | None]:
        """Add up what was counted, by the name of its metric (`tokens`, `near_ties`)."""

    def details(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Report what else a record should hold of how the answers came about."""

    def alarms(self, job: JobConfig, answers: Sequence[Answer]) -> list[Alarm]:
        """Report what a reader must know of a job's answers, and only this backend can tell."""


@dataclass(frozen=True)
class Loaded:
    """A backend that is ready to answer, and its identity: revision or content hash, dtype, device, template."""

    lm: Backend
    identity: dict[str, Any]
