"""Flags of a command, refused in one line as everything else is."""

from __future__ import annotations

import argparse
from typing import NoReturn

from evalsweep.errors import BadInput


class Parser(argparse.ArgumentParser):
    """Of `evalsweep COMMAND`; `example` is a command line that works."""

    def __init__(self, command: str, description: str | None, example: str) -> None:
        super().__init__(prog=f"evalsweep {command}", description=description)
        self.example = example

    def error(self, message: str) -> NoReturn:
        """Errors: BadInput, always."""
        raise BadInput(self.prog.removeprefix("evalsweep "), f"{message}; see {self.prog} --help", self.example)
