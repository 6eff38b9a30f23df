"""The door: overrides go to the sweep."""

from __future__ import annotations

import sys


def main() -> None:
    """The console script and `python -m evalsweep`."""
    words = sys.argv[1:]
    if words and "=" not in words[0] and not words[0].startswith(("-", "+", "~")):
        print(f"evalsweep: {words[0]}: is no command and no key=value; see python -m evalsweep --help", file=sys.stderr)
        sys.exit(2)
    try:
        from evalsweep.sweep import run
    except ModuleNotFoundError as e:
        print(
            f"evalsweep: {e.name} is not installed for {sys.executable}; see `make sweep`, then use .venv/bin/python",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(words))


if __name__ == "__main__":
    main()
