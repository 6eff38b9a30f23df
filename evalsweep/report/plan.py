"""What a comparison would cost, in words: the smallest difference that it would find, and what a smaller one needs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evalsweep.stats.power import Noise, detectable, documents_needed, runs_needed

FEW = 300  # documents below which a measured noise is itself noisy


@dataclass(frozen=True)
class Speed:
    """How long answers took: seconds a document and run, all in; generated tokens a second, None where none were."""

    seconds: float
    tokens: float | None


@dataclass(frozen=True)
class Plan:
    """What is looked for and what is known: `source` of the noise, `documents` and `runs` of a side."""

    difference: float
    power: float
    noise: Noise
    source: str
    documents: int
    runs: int
    speed: Speed | None
    measured: bool = False


def terminal(plan: Plan, width: int = 100) -> str:
    """The plan, at most `width` columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True, highlight=False)
    noise, asked = plan.noise, {"power": plan.power}
    console.print(
        f"noise of a difference, a document and run: documents {noise.documents:.4f}, runs {noise.runs:.4f}, rest "
        f"{noise.rest:.4f} (variances; {escape(plan.source)})\n"
    )
    least = detectable(noise, plan.documents, plan.runs, **asked)
    console.print(
        f"{plan.documents:,} documents and {_runs(plan.runs)} a side find a difference of {least:.4f} or more "
        f"({plan.power:.0%} power, 95% level){_cost(plan, plan.documents, plan.runs)}"
    )
    console.print(f"to find {plan.difference:g}:\n")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("runs a side", "documents needed", "answers, both sides", "estimated time"):
        table.add_column(head, justify="right")
    fewest = runs_needed(noise, plan.difference, 10**12, **asked) or 1  # with as many questions as one likes
    alike = noise.runs == noise.rest == 0
    for runs in [plan.runs] if alike else sorted({1, 3, 5, 10, plan.runs, fewest}):
        table.add_row(*_row(plan, runs, documents_needed(noise, plan.difference, runs, **asked)))
    console.print(table)
    more = runs_needed(noise, plan.difference, plan.documents, **asked)
    these = f"with these {plan.documents:,} documents"
    if more is not None:
        console.print(f"{these}: {_runs(more)} a side{_cost(plan, plan.documents, more)}")
    elif alike:
        console.print(f"{these} no number of runs suffices: of answers that do not vary, more runs tell nothing new")
    else:
        console.print(f"{these} no number of runs suffices: more questions are needed")
    if plan.measured and plan.documents < FEW:
        console.print("estimated from few documents: a guide, as is a variance of 0, which was only not seen")
    if plan.speed is None:
        console.print("for an estimated time give a sweep with --from: its speed is used")
    elif plan.speed.tokens is not None:
        console.print(
            f"measured: {plan.speed.tokens:.1f} tokens a second, {plan.speed.seconds:.2f} s a document and run"
        )
    else:
        console.print(f"measured: {plan.speed.seconds:.2f} s a document and run")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _row(plan: Plan, runs: int, documents: int | None) -> Sequence[str]:
    if documents is None:
        return str(runs), "none suffice", "-", "-"
    return str(runs), f"{documents:,}", f"{2 * runs * documents:,}", _time(plan.speed, documents * runs) or "-"


def _cost(plan: Plan, documents: int, runs: int) -> str:
    time = _time(plan.speed, documents * runs)
    return f", {time} for both sides" if time else ""


def _time(speed: Speed | None, answers: int) -> str | None:
    if speed is None:
        return None
    seconds = 2 * answers * speed.seconds
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


def _runs(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"
