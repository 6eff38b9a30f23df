"""`evalsweep report PATH`: the report of a sweep, of a single run, or of what `lm_eval run --log_samples` wrote."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from evalsweep import inputs, store
from evalsweep.commands.arguments import Parser, in_one_line
from evalsweep.errors import BadInput, first_line
from evalsweep.publish import publish
from evalsweep.report import table, words
from evalsweep.terminal import complain, say, width

OK, MISSING = 0, 1


@in_one_line
def run(argv: Sequence[str]) -> int:
    """Summarise what lies at PATH, show it, and write the report; gives the exit code.

    0: all that was asked for is there. 1: a job, a document or a record is missing or broken; the rest is reported.
    2: bad input, nothing is written.
    """
    parser = Parser("report", __doc__, "evalsweep report multirun/<day>/<time>")
    parser.add_argument(
        "path", type=Path, help="folder of a sweep or run (multirun/<day>/<time>), or of lm_eval's results"
    )
    parser.add_argument(
        "--group-by", metavar="FIELD", help="of lm_eval's results: the field of a document that names its group"
    )
    parser.add_argument(
        "--out", type=Path, help="folder to write to; PATH itself for a sweep, PATH/report for lm_eval's"
    )
    try:
        args = parser.parse_args(list(argv))
        found = inputs.load(args.path, group_by=args.group_by)
        out = args.out or (args.path if found.own else args.path / "report")
        _check_writable(out)
        say("\n" + table.terminal(found.summary, width(), colour=sys.stdout.isatty()).strip("\n") + "\n")
        publish(found, out, inputs.title(args.path))
    except OSError as e:
        complain(f"the report cannot be written ({first_line(e)}); name another folder with --out")
        return MISSING
    for line in words.headline(found.summary):
        say(line)
    say(f"report   {out / store.PAGE}")
    return OK if found.summary.whole else MISSING


def _check_writable(out: Path) -> None:
    try:
        store.check_writable(out)
    except BadInput as e:
        raise BadInput(str(out), "the report cannot be written there", "--out my-report") from e
