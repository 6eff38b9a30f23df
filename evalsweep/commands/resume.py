"""`evalsweep resume DIR`: does what is missing of a sweep; finished jobs and every answer that came are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evalsweep import store, sweep
from evalsweep.commands.arguments import Parser, in_one_line
from evalsweep.compose import quoted
from evalsweep.errors import BadInput


@in_one_line
def run(argv: Sequence[str]) -> int:
    """Run the jobs of a sweep that are missing or were ended; gives the exit code, as of the sweep itself."""
    parser = Parser("resume", __doc__, "evalsweep resume multirun/<day>/<time>")
    parser.add_argument("path", type=Path, help="folder of a sweep or a single run (multirun/<day>/<time>)")
    parser.add_argument("--failed", action="store_true", help="run the jobs that failed again, too")
    args = parser.parse_args(list(argv))
    try:
        asked = store.read_sweep(args.path)
    except ValueError as e:
        raise BadInput(str(args.path), f"what was asked cannot be read ({e})") from e
    if asked is None:
        raise BadInput(str(args.path), "holds no sweep (sweep.json)", "evalsweep resume multirun/<day>/<time>")
    overrides = asked.get("overrides")
    if overrides is None:
        raise BadInput(
            str(args.path),
            "its command is not kept, because it held a secret or an earlier version wrote it; give the command again "
            "with the same folder",
            f"hydra.{'sweep' if asked.get('multirun') else 'run'}.dir={args.path}",
        )
    where = "sweep" if asked["multirun"] else "run"
    own = [o for o in overrides if not o.lstrip("+").startswith(f"hydra.{where}.dir=")]
    flags = ["--multirun"] if asked["multirun"] else []
    flags += [f"--config-name={asked['config_name']}"] if asked.get("config_name") else []
    flags += [f"--config-dir={asked['config_dir']}"] if asked.get("config_dir") else []
    return sweep.run([*flags, *own, f"hydra.{where}.dir={quoted(str(args.path))}"], again=args.failed)
