"""What is asked of a model: an answer's number, its prompt, its tokens as they come, and how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from lm_eval.api.instance import Instance

STOPPED, ENDED, CAPPED = "stop string", "end token", "length"


@dataclass(frozen=True)
class Request:
    """The `sample`-th answer (from 0) to `prompt`, which is `tokens` to the model; `position` is the asker's own."""

    prompt: str
    tokens: tuple[int, ...]
    sample: int
    position: int


@dataclass
class Row:
    """An answer as it grows: the key of its noise, its new tokens, and how it ended."""

    request: Request
    key: int
    new: list[int] = field(default_factory=list)
    ended: str = CAPPED

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer so far."""
        return [*self.request.tokens, *self.new]


def sample_numbers(requests: Sequence[Instance]) -> list[int]:
    """The sample number of each request, from 0: lm_eval repeats a request for each further answer to its document."""
    seen: Counter[int] = Counter()
    numbers = []
    for request in requests:
        numbers.append(seen[id(request)])
        seen[id(request)] += 1
    return numbers
