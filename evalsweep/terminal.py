"""What a person sees while jobs run: a bar on a terminal, a line a job everywhere."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from evalsweep.redact import redact

MAX_WIDTH = 120


class Progress:
    """Shows how far a job is: a bar that redraws on a terminal, else a line every half minute."""

    EVERY_S = 30.0

    def __init__(self, name: str, out: TextIO) -> None:
        self.name = name
        self.out, self.lines = out, sys.stdout
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
            _print(line, self.out)

    def tell(self, line: str) -> None:
        """Print a line that stays, though what is printed now goes to a log."""
        self.clear()
        _print(redact(f"evalsweep: {line}"), self.lines)

    def clear(self) -> None:
        if self.live:
            self._draw("")

    def _draw(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.out.write("\r" + line.ljust(self.width) + ("" if line else "\r"))
            self.out.flush()
        self.width = len(line)


@contextlib.contextmanager
def progress(name: str) -> Iterator[Progress]:
    """A progress display that is taken away at the end, also after an error."""
    shown = Progress(name, sys.stderr)
    try:
        yield shown
    finally:
        shown.clear()


def say(line: str) -> None:
    """A line for the person who waits."""
    _print(redact(line), sys.stdout)


def complain(line: str) -> None:
    """A line about what went wrong."""
    _print(f"evalsweep: {redact(line)}", sys.stderr)


def tolerate_any_encoding() -> None:
    """Letters that a terminal or file cannot show become `?`, instead of an error after hours of work."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print(line: str, out: TextIO) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads any more, as after `| head`; the files are still written
        print(line, file=out, flush=True)


def width() -> int:
    return min(MAX_WIDTH, shutil.get_terminal_size((100, 24)).columns)


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
