"""What a person sees while jobs run: a bar on a terminal, a line a job everywhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from evalsweep.redact import redact

MAX_WIDTH = 120


class Progress:
    """Shows how far a job is: a bar that redraws on a terminal, else a line every half minute."""

    EVERY_S = 30.0

    def __init__(self, name: str, out: TextIO) -> None:
        self.name = name
        self.out = out
        self.live = out.isatty()
        self.started = self.last = time.monotonic()
        self.width = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        pause = 0.1 if self.live else self.EVERY_S
        if now - self.last < pause and not (self.live and done in (0, total)):
            return
        self.last = now
        share = done / total if total else 0.0
        line = f"{self.name}: {what}"
        if total > 1:
            line += f" {done}/{total}"
            if 0.02 < share < 1:
                line += f", {_duration((now - self.started) * (1 - share) / share)} left"
        if self.live:
            bar = "━" * round(20 * share) + "─" * (20 - round(20 * share))
            self._draw(f"{bar} {line}"[: width() - 1])
        else:
            print(line, file=self.out, flush=True)

    def clear(self) -> None:
        if self.live:
            self._draw("")

    def _draw(self, line: str) -> None:
        self.out.write("\r" + line.ljust(self.width) + ("" if line else "\r"))
        self.out.flush()
        self.width = len(line)


@contextmanager
def progress(name: str) -> Iterator[Progress]:
    """A progress display that is taken away at the end, also after an error."""
    shown = Progress(name, sys.stderr)
    try:
        yield shown
    finally:
        shown.clear()


def say(line: str) -> None:
    """A line for the person who waits."""
    print(redact(line), flush=True)


def complain(line: str) -> None:
    """A line about what went wrong."""
    print(f"evalsweep: {redact(line)}", file=sys.stderr, flush=True)


def width() -> int:
    return min(MAX_WIDTH, shutil.get_terminal_size((100, 24)).columns)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
