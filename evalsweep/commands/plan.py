"""`evalsweep plan --detect DIFFERENCE [--from SWEEP]`: how many questions and runs it takes, before money is spent."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from evalsweep import inputs
from evalsweep.commands.arguments import Parser, in_one_line
from evalsweep.engine.benchmarks.benchmark import benchmarks
from evalsweep.errors import BadInput
from evalsweep.report import words
from evalsweep.report.plan import Plan, Speed, terminal
from evalsweep.stats.power import POWER, Noise, noise_of
from evalsweep.summary.types import Cell, Comparison, Summary
from evalsweep.terminal import complain, say, width

OK = 0
SIZES = {name: benchmark.documents for name, benchmark in benchmarks().items() if benchmark.documents}
ALIKE = 0.8  # correlation of documents between two versions of a model, where it is not measured


@in_one_line
def run(argv: Sequence[str]) -> int:
    """Print the plan; gives the exit code: 0 done, 2 bad input."""
    args = _parser().parse_args(list(argv))
    _check(args)
    say(terminal(_from_sweep(args) if args.source else _assumed(args), width()))
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser("plan", __doc__, "evalsweep plan --detect 0.02 --from multirun/<day>/<time>")
    parser.add_argument("--detect", type=float, required=True, help="the difference to find, such as 0.02 for 2 points")
    parser.add_argument("--from", dest="source", type=Path, help="a sweep: its noise and speed are used")
    parser.add_argument("--task", help=f"which task of the sweep; without one, a size ({', '.join(SIZES)})")
    parser.add_argument("--documents", type=int, help="questions that there are; default: those of the sweep or task")
    parser.add_argument("--runs", type=int, help="runs of each side; default: those of the sweep, or 1")
    parser.add_argument("--accuracy", type=float, help="without a sweep: the score; default 0.5, the worst case")
    parser.add_argument(
        "--correlation",
        type=float,
        help=f"of the two sides' documents, in place of what is measured; default {ALIKE}",
    )
    parser.add_argument("--unpaired", action="store_true", help="the two sides answer different questions")
    parser.add_argument("--power", type=float, default=POWER, help=f"chance that it is found; default {POWER}")
    return parser


def _check(args: argparse.Namespace) -> None:
    if not 0 < args.detect < 1:
        raise BadInput(f"--detect {args.detect:g}", "must lie between 0 and 1, as scores do", "--detect 0.02")
    if not 0 < args.power < 1:
        raise BadInput(f"--power {args.power:g}", "must lie between 0 and 1", "--power 0.8")
    if args.accuracy is not None and not 0 < args.accuracy < 1:
        raise BadInput(f"--accuracy {args.accuracy:g}", "must lie between 0 and 1", "--accuracy 0.7")
    if args.correlation is not None and not 0 <= args.correlation <= 1:
        raise BadInput(f"--correlation {args.correlation:g}", "must lie between 0 and 1", "--correlation 0.8")
    if args.source and args.accuracy is not None:
        raise BadInput(f"--accuracy {args.accuracy:g} --from", "the sweep says how noisy it is; give one of the two")
    if args.unpaired and args.correlation is not None:
        raise BadInput(
            f"--correlation {args.correlation:g} --unpaired", "different questions have none; give one of the two"
        )
    for name, value in (("--documents", args.documents), ("--runs", args.runs)):
        if value is not None and value < 1:
            raise BadInput(f"{name} {value}", "must be at least 1", f"{name} 3")


def _assumed(args: argparse.Namespace) -> Plan:
    """Without a sweep: documents that are all or nothing, the worst case."""
    documents = args.documents or SIZES.get(args.task)
    if documents is None:
        given = f"--task {args.task}" if args.task else "evalsweep plan"
        raise BadInput(given, f"say how many questions there are, or name one of {', '.join(SIZES)}", "--documents 500")
    correlation = _correlation(args)
    accuracy = 0.5 if args.accuracy is None else args.accuracy
    variance = accuracy * (1 - accuracy)
    source = f"assumed: score {accuracy:g}, documents all or nothing, {_pairing(args, correlation)}"
    noise = noise_of(variance, 0.0, 0.0, correlation)
    return Plan(args.detect, args.power, noise, source, documents, args.runs or 1, None)


def _correlation(args: argparse.Namespace) -> float:
    if args.unpaired:
        return 0.0
    return ALIKE if args.correlation is None else float(args.correlation)


def _pairing(args: argparse.Namespace, correlation: float) -> str:
    return "different questions" if args.unpaired else f"the same questions, correlated by {correlation:g}"


def _from_sweep(args: argparse.Namespace) -> Plan:
    summary = inputs.load(args.source).summary
    for failure in summary.failed:
        complain(f"{failure.status} {failure.name}: {failure.error}")
    for problem in summary.problems:
        complain(problem)
    tasks = summary.by_task()
    if not tasks:
        raise BadInput(str(args.source), "no run of it has a score", "another sweep, or --documents 500")
    task = args.task or next(iter(tasks))
    if task not in tasks:
        raise BadInput(
            f"--task {task}", f"is not in {args.source}; it has {', '.join(tasks)}", f"--task {next(iter(tasks))}"
        )
    cell = max(tasks[task], key=lambda c: c.spread.mean * (1 - c.spread.mean))
    if cell.variance is None:
        raise BadInput(
            str(args.source), f"{cell.name}: {cell.questions.reason or 'no document is known'}", "another sweep"
        )
    noise, source = _noise(args, summary, task, cell)
    if len(tasks) > 1 and not args.task:
        source += f"; --task for {', '.join(name for name in tasks if name != task)}"
    if noise.rest == 0 and len(cell.runs) == 1 and not cell.decoding.get("greedy", True):
        source += "; with one sampled run what more runs would gain is not known"
    return Plan(
        args.detect,
        args.power,
        noise,
        source,
        args.documents or cell.documents,
        args.runs or len(cell.runs),
        _speed(cell),
        measured=True,
    )


def _noise(args: argparse.Namespace, summary: Summary, task: str, cell: Cell) -> tuple[Noise, str]:
    """Measured from the pair of cells that differs most from document to document, else from one cell."""
    pairs = [c for c in summary.comparisons if summary.cells[c.a].task == task and c.noise is not None]
    if pairs and not args.unpaired and args.correlation is None:
        pair = max(pairs, key=_size)
        if pair.noise is not None and _size(pair) > 0:
            among = f", the noisiest of {len(pairs)} pairs" if len(pairs) > 1 else ""
            return pair.noise, f"measured: {task}, {words.versus(summary, pair)}{among}"
    assert cell.variance is not None
    correlation = _correlation(args)
    noise = noise_of(cell.variance.documents, cell.variance.runs, cell.variance.rest, correlation)
    return noise, f"measured: {cell.name}; assumed: {_pairing(args, correlation)}"


def _size(pair: Comparison) -> float:
    return pair.noise.documents + pair.noise.runs + pair.noise.rest if pair.noise else 0.0


def _speed(cell: Cell) -> Speed | None:
    seconds = sum(run.seconds for run in cell.runs)
    if seconds <= 0 or not cell.documents:
        return None
    tokens = [run.tokens for run in cell.runs if run.tokens]
    rate = sum(tokens) / seconds if len(tokens) == len(cell.runs) else None
    return Speed(seconds / len(cell.runs) / cell.documents, rate)
