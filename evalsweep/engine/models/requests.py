"""What is asked of a model, and what comes back: a request with its number and seed, an answer and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

STOPPED, ENDED, CAPPED = "stop string", "end token", "length"
GENERATE, LOGLIKELIHOOD, ROLLING = "generate_until", "loglikelihood", "loglikelihood_rolling"  # as lm_eval calls them


@dataclass(frozen=True, eq=False)
class Request:
    """What a document of a task asks of a model.

    Args:
        kind: text (`GENERATE`), the log-likelihood of a continuation, or that of a whole text (`ROLLING`).
        prompt: as it is sent; of a rolling log-likelihood the text itself.
        settings: the generation settings as they were asked for; empty where nothing is generated.
        continuation: the text whose log-likelihood is asked for.
        sample: the number of the answer among those to the same prompt, from 0; 0 where nothing is drawn.
        seed: what the draw of this answer hangs on; None where nothing is drawn.
        task, doc_id: of which document it is, for messages.
    """

    kind: str
    prompt: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    continuation: str = ""
    sample: int = 0
    seed: int | None = None
    task: str = ""
    doc_id: int = 0


@dataclass(frozen=True)
class Answer:
    """What a model answered.

    Args:
        value: the text that is scored; or (log-likelihood, whether greedy decoding would give it); or a log-likelihood.
        ended: how a text came to its end; None for log-likelihoods.
        thinking: what was thought before, which is not scored.
        finished: False where the thinking never ended, so that there is no answer.
        counts: what was counted on the way: tokens, near-ties, what a server says of its usage.
    """

    value: Any
    ended: str | None = None
    thinking: str = ""
    finished: bool = True
    counts: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Give the fields that differ from their defaults."""
        default = asdict(Answer(None))
        return {k: v for k, v in asdict(self).items() if v != default[k]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Answer:
        """Read what `to_json` gave; further keys are passed over."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        value = data.get("value")
        return cls(**{**known, "value": tuple(value) if isinstance(value, list) else value})


Tell = Callable[[Request, Answer], None]  # gets each answer as it arrives


def stops(settings: Mapping[str, Any]) -> list[str]:
    """Give the stop strings of generation settings."""
    until = settings.get("until") or []
    return [until] if isinstance(until, str) else [word for word in until if word]
