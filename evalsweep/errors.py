"""The one error that a user can mend: what was given, what is allowed, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(Exception):
    """Input that evalsweep refuses, told in one line.

    Args:
        given: what the user gave, as they would recognise it (``temperature=-1``, a path).
        problem: what is wrong and what is allowed.
        example: something that works.
    """

    def __init__(self, given: str, problem: str, example: str | None = None) -> None:
        text = f"{given}: {problem}" + (f"; for example {example}" if example else "")
        super().__init__(" ".join(text.split()))

    def __reduce__(self) -> tuple[object, ...]:
        # Launchers pickle errors; rebuilding from the finished line keeps the text as it is.
        return _rebuild, (str(self),)


def _rebuild(line: str) -> BadInput:
    error = BadInput("", "")
    error.args = (line,)
    return error


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the closest allowed word, or an empty string."""
    close = difflib.get_close_matches(word, list(allowed), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def first_line(error: BaseException) -> str:
    """The message of any exception on one line, never empty, at most 400 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else text[:397] + "..."
