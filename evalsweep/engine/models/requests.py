"""What is asked of a model: an answer's number, its prompt, its tokens as they come, how it ends, what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance

from evalsweep.engine.models.text import cut
from evalsweep.engine.models.thinking import part, quiet_regions

STOPPED, ENDED, CAPPED = "stop string", "end token", "length"


@dataclass(frozen=True)
class Request:
    """The `sample`-th answer (from 0) to `prompt`, which is `tokens` to the model; `position` is the asker's own.

    `opened` tells that the prompt ends within the thinking part.
    """

    prompt: str
    tokens: tuple[int, ...]
    sample: int
    position: int
    opened: bool = False


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


class Answers:
    """What is known of the answers of a run beside their texts.

    `sent` holds the distinct generation settings as they were sent. `endings` and `thinking` map (task, document,
    number of the answer) to how it ended and to its thinking part; `unfinished` holds those whose thinking never ended.
    """

    def __init__(self, tags: Sequence[str] = ()) -> None:
        self.tags = list(tags)
        self.sent: list[dict[str, Any]] = []
        self.endings: dict[tuple[str, int, int], str] = {}
        self.thinking: dict[tuple[str, int, int], str] = {}
        self.unfinished: set[tuple[str, int, int]] = set()

    def note_sent(self, settings: dict[str, Any]) -> None:
        """Keep the settings of a request where they are new."""
        if settings not in self.sent:
            self.sent.append(settings)

    def quiet(self, text: str, asked: Mapping[str, Any], opened: bool) -> list[tuple[int, int]]:
        """Find where the stop strings of a request do not count: in thought, and in fenced code where it says so."""
        return quiet_regions(text, self.tags, opened, not asked.get("stop_in_fences", True))

    def cut(self, text: str, asked: Mapping[str, Any], opened: bool) -> str:
        """Cut an answer before its first stop string that counts."""
        return cut(text, stops(asked), lambda said: self.quiet(said, asked, opened))

    def is_within_quiet(self, text: str, asked: Mapping[str, Any], opened: bool) -> bool:
        """Tell whether an answer that was stopped elsewhere ends where stop strings do not count."""
        mark = "\N{REPLACEMENT CHARACTER}"  # one letter more: is it still within?
        return any(end == len(text) + 1 for _, end in self.quiet(text + mark, asked, opened))

    def keep(
        self, instance: Instance, sample: int, text: str, ended: str, opened: bool = False, thought: str | None = None
    ) -> str:
        """Note how an answer ended and what was thought; give the part of it that is scored.

        `thought` is the thinking part where a server gives it apart; it never ended where it was cut and nothing
        follows it.
        """
        key = (str(instance.task_name), int(instance.doc_id), sample)
        self.endings[key] = ended
        parted = part(text, self.tags, opened)
        thinking = "\n".join(filter(None, (thought, parted.thinking)))
        if thinking:
            self.thinking[key] = thinking
        if not parted.finished or (thought and ended == CAPPED and not parted.answer.strip()):
            self.unfinished.add(key)
        return parted.answer


def stops(asked: Mapping[str, Any]) -> list[str]:
    """Give the stop strings of a request's settings."""
    until = asked.get("until") or []
    return [until] if isinstance(until, str) else [word for word in until if word]


def sample_numbers(requests: Sequence[Instance]) -> list[int]:
    """Number the requests of each document, from 0: lm_eval repeats a request for each further answer."""
    seen: Counter[int] = Counter()
    numbers = []
    for request in requests:
        numbers.append(seen[id(request)])
        seen[id(request)] += 1
    return numbers
