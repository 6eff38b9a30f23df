"""`evalsweep audit KEY=VALUE ...`: looks at one job on a few documents, before money is spent on the whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser

from evalsweep import compose, preflight, store
from evalsweep.commands.arguments import in_one_line
from evalsweep.config import JobConfig
from evalsweep.errors import BadInput, first_line
from evalsweep.log import logged
from evalsweep.report import audit as page
from evalsweep.terminal import complain, progress, say, width

OK, FAILED = 0, 1
USAGE = (
    "evalsweep audit KEY=VALUE ..., the keys of a single job; for example evalsweep audit task=sample temperature=0.7"
)


@in_one_line
def run(argv: Sequence[str]) -> int:
    """Audit the job that the overrides name; gives the exit code: 0 done, 1 failed, 2 bad input."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    if {"-h", "--help"} & set(argv):
        say(f"{__doc__}\n\n{USAGE}\nEight documents, or task.limit=N a task; results in <hydra.run.dir>/audit.json")
        return OK
    try:
        name, job, directory = _job(argv)
        preflight.check([job])
        store.check_writable(directory)
        directory.mkdir(parents=True, exist_ok=True)
        with progress("audit") as shown, logged(directory):
            from evalsweep.engine.audit import audit  # seconds of imports, late so that refusals are instant

            found = audit(job, name, shown)
        where = store.write_audit(directory, found)
    except OSError as e:
        complain(f"the audit cannot be written ({first_line(e)})")
        return FAILED
    say(page.terminal(found, width()))
    say(f"audit    {where}")
    return OK


def _job(argv: Sequence[str]) -> tuple[str, JobConfig, Path]:
    """Name, configuration and directory of the one job."""
    args = get_args_parser().parse_intermixed_args(list(argv))
    hydra = compose.open_hydra(args.config_dir)
    try:
        plan = compose.plan(hydra, args)
    finally:
        compose.close_hydra()
    if plan.multirun:
        raise BadInput(
            "evalsweep audit", "looks at one job: give one value for each key", USAGE.rpartition("example ")[2]
        )
    return plan.jobs[0].name, plan.first, plan.directory
