"""What the commands share: flags and refusals, in one line as everything else is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import wraps
from typing import NoReturn

from evalsweep.errors import BadInput
from evalsweep.terminal import complain, tolerate_any_encoding

BAD_INPUT = 2


class Parser(argparse.ArgumentParser):
    """Of `evalsweep COMMAND`; `example` is a command line that works."""

    def __init__(self, command: str, description: str | None, example: str) -> None:
        super().__init__(prog=f"evalsweep {command}", description=description)
        self.example = example

    def error(self, message: str) -> NoReturn:
        """Errors: BadInput, always."""
        raise BadInput(self.prog.removeprefix("evalsweep "), f"{message}; see {self.prog} --help", self.example)


def in_one_line(run: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    """A command whose BadInput is a line for the person who gave it, and exit code 2."""

    @wraps(run)
    def told(argv: Sequence[str]) -> int:
        tolerate_any_encoding()
        try:
            return run(argv)
        except BadInput as e:
            complain(str(e))
            return BAD_INPUT

    return told
