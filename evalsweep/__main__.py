"""The door: overrides go to the sweep, a word goes to its command."""

from __future__ import annotations

import importlib
import sys

from evalsweep.errors import did_you_mean

COMMANDS = ("audit", "plan", "report", "resume")


def main() -> None:
    """The console script and `python -m evalsweep`."""
    words = sys.argv[1:]
    command = words[0] if words and "=" not in words[0] and not words[0].startswith(("-", "+", "~")) else None
    if command is not None and command not in COMMANDS:
        print(
            f"evalsweep: {command}: is no command and no key=value{did_you_mean(command, COMMANDS)}; commands are "
            f"{', '.join(COMMANDS)}; see python -m evalsweep --help",
            file=sys.stderr,
        )
        sys.exit(2)
    try:
        run = importlib.import_module(f"evalsweep.commands.{command}" if command else "evalsweep.sweep").run
    except ModuleNotFoundError as e:
        print(
            f"evalsweep: {e.name} is not installed for {sys.executable}; see `make sweep`, then use .venv/bin/python",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(words[1:] if command else words))


if __name__ == "__main__":
    main()
