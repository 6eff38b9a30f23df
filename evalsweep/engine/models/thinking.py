"""The thinking part of an answer: kept, shown, and not scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalsweep.engine.models.requests import CAPPED, Answer, stops
from evalsweep.engine.models.text import cut

FENCE = "```"


@dataclass(frozen=True)
class Parted:
    """An answer without its thinking part, that part, and whether it came to its end."""

    answer: str
    thinking: str = ""
    finished: bool = True


@dataclass(frozen=True)
class Thinking:
    """Makes answers of texts, given the tags of the thinking part; none leaves texts whole."""

    tags: tuple[str, ...] = ()

    def quiet(self, text: str, settings: Mapping[str, Any], opened: bool) -> list[tuple[int, int]]:
        """Find where the stop strings of a request do not count: in thought, and in fenced code where it says so."""
        return quiet_regions(text, self.tags, opened, not settings.get("stop_in_fences", True))

    def cut(self, text: str, settings: Mapping[str, Any], opened: bool) -> str:
        """Cut an answer before its first stop string that counts."""
        return cut(text, stops(settings), lambda said: self.quiet(said, settings, opened))

    def is_within_quiet(self, text: str, settings: Mapping[str, Any], opened: bool) -> bool:
        """Tell whether an answer that was stopped elsewhere ends where stop strings do not count."""
        mark = "\N{REPLACEMENT CHARACTER}"  # one letter more: is it still within?
        return any(end == len(text) + 1 for _, end in self.quiet(text + mark, settings, opened))

    def answer(
        self,
        text: str,
        ended: str,
        opened: bool = False,
        thought: str | None = None,
        counts: dict[str, float] | None = None,
    ) -> Answer:
        """Part the thinking from what is scored.

        `thought` is the thinking part where a server gives it apart; it never ended where it was cut and nothing
        follows it.
        """
        parted = part(text, self.tags, opened)
        finished = parted.finished and not (thought and ended == CAPPED and not parted.answer.strip())
        thinking = "\n".join(filter(None, (thought, parted.thinking)))
        return Answer(parted.answer, ended, thinking, finished, counts or {})


def part(text: str, tags: Sequence[str], opened: bool = False) -> Parted:
    """Part an answer from its thinking.

    Args:
        text: what the model wrote.
        tags: what opens and what closes the thinking part; none leaves the text whole.
        opened: whether the prompt has opened it, as the chat templates of some models do.

    A closing tag without an opening one closes what the prompt or the server has opened. Thinking that never ends
    leaves no answer.
    """
    if not tags:
        return Parted(text)
    regions, finished = _regions(text, tags, opened)
    if not regions:
        return Parted(text)
    open_tag, close_tag = tags
    kept, thoughts, last = [], [], 0
    for start, end in regions:
        kept.append(text[last:start])
        thoughts.append(text[start:end].removeprefix(open_tag).removesuffix(close_tag).strip())
        last = end
    if not finished:
        return Parted("", "\n".join(thoughts), False)
    answer = "".join([*kept, text[last:]])
    if not kept[0].strip():
        answer = answer.lstrip("\n")  # the empty lines that stand between a thought and its answer
    return Parted(answer, "\n".join(thoughts))


def quiet_regions(text: str, tags: Sequence[str], opened: bool, fences: bool) -> list[tuple[int, int]]:
    """Find where stop strings do not count: in the thinking part, and, where `fences` says so, within fenced code."""
    found = _regions(text, tags, opened)[0] if tags else []
    return found + (_fenced(text) if fences else [])


def _regions(text: str, tags: Sequence[str], opened: bool) -> tuple[list[tuple[int, int]], bool]:
    """Find the thinking parts, tags included, and whether the last of them is closed."""
    open_tag, close_tag = tags
    regions = []
    place = 0
    if not text.lstrip().startswith(open_tag):
        first_close = text.find(close_tag)
        first_open = text.find(open_tag)
        unopened = first_close >= 0 and not 0 <= first_open < first_close
        if opened or unopened:
            if first_close < 0:
                return [(0, len(text))], False
            place = first_close + len(close_tag)
            regions.append((0, place))
    while (start := text.find(open_tag, place)) >= 0:
        end = text.find(close_tag, start + len(open_tag))
        if end < 0:
            return [*regions, (start, len(text))], False
        place = end + len(close_tag)
        regions.append((start, place))
    return regions, True


def _fenced(text: str) -> list[tuple[int, int]]:
    found = []
    place = 0
    while (start := text.find(FENCE, place)) >= 0:
        end = text.find(FENCE, start + len(FENCE))
        place = len(text) if end < 0 else end + len(FENCE)
        found.append((start, place))
    return found
