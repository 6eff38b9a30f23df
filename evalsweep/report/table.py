"""The table of a sweep, one row a cell: for the terminal (rich) and as Markdown."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evalsweep.summary.types import Cell, Summary, shown

CAPTION = "95% interval: the mean of further runs on the same questions (Student's t over runs), not of other questions"


def terminal(summary: Summary, width: int = 100, colour: bool = False) -> str:
    """The table, the failures and the warnings, at most `width` columns wide."""
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colour, no_color=not colour, highlight=False)
    if summary.cells:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        heads, rows = _fitting(*_table(summary.cells), width)
        for i, head in enumerate(heads):
            if head in _NUMBERS:
                table.add_column(head, justify="right", no_wrap=True, min_width=_widest(i, heads, rows))
            else:
                table.add_column(head, overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        console.print(f"metric: {escape(_metrics(summary.cells))}")
        console.print(CAPTION, style="dim")
        for line in _notes(summary.cells):
            console.print(f"* {escape(line)}")
    for failure in summary.failed:
        console.print(f"{failure.status} {escape(failure.name)}: {escape(failure.error)}", style="red")
    for warning in summary.warnings:
        console.print(f"! {escape(warning)}", style="yellow")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def markdown(summary: Summary) -> str:
    """The same as GitHub Markdown, which MLflow renders as a run's note."""
    lines: list[str] = []
    if summary.cells:
        heads, rows = _table(summary.cells)
        text = len(heads) - len(_NUMBERS)
        lines.append("| " + " | ".join(heads) + " |")
        lines.append("|" + "".join(" --- |" if i < text else " ---: |" for i in range(len(heads))))
        lines += ["| " + " | ".join(_plain(c) for c in row) + " |" for row in rows]
        lines += ["", f"Metric: {_plain(_metrics(summary.cells))}. {CAPTION}.", ""]
        lines += [f"- {_plain(line)}" for line in _notes(summary.cells)]
    if summary.failed:
        lines += ["", f"**{len(summary.failed)} of {summary.jobs} jobs have no score**", ""]
        lines += [f"- {f.status} `{f.name}`: {_plain(f.error)}" for f in summary.failed]
    if summary.warnings:
        lines += ["", "**Warnings**", "", *(f"- {_plain(w)}" for w in summary.warnings)]
    return "\n".join(lines).strip() + "\n"


_GAP, _LEAST = 3, 4  # columns between two columns of the table; what a column of text may shrink to
_NUMBERS = ("runs", "mean", "sd", "median", "min", "max", "95% interval")


def _table(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: task, what differs, then the numbers."""
    differs = list(dict.fromkeys(key for cell in cells for key in cell.differs))
    heads = ["task", *(key.rpartition(".")[2] for key in differs), *_NUMBERS]
    rows = []
    for cell in cells:
        s, i = cell.spread, cell.interval
        interval = "none *" if i.low is None or i.high is None else f"{i.low:.3f} to {i.high:.3f}"
        sd = "-" if s.sd is None or i.low is None else f"{s.sd:.3f}"
        numbers = [str(s.n), f"{s.mean:.3f}", sd, *(f"{v:.3f}" for v in (s.median, s.min, s.max)), interval]
        rows.append([cell.task, *(shown(cell.differs.get(k)) for k in differs), *numbers])
    return heads, rows


def _fitting(heads: list[str], rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """The table without the numbers for which there is no room; results_summary.json has them all."""
    for spared, text_shrinks in (((), False), (("median", "min", "max"), True), (("median", "min", "max", "sd"), True)):
        kept = [i for i, head in enumerate(heads) if head not in spared]
        widths = [_widest(i, heads, rows) for i in kept]
        if text_shrinks:
            widths = [w if heads[i] in _NUMBERS else min(w, _LEAST) for i, w in zip(kept, widths, strict=True)]
        if sum(widths) + _GAP * len(widths) <= width:
            break
    return [heads[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _widest(i: int, heads: list[str], rows: list[list[str]]) -> int:
    return max(len(heads[i]), *(len(row[i]) for row in rows))


def _metrics(cells: Sequence[Cell]) -> str:
    """The headline metric, by task where tasks have different ones."""
    by_task = {cell.task: cell.metric for cell in cells}
    if len(set(by_task.values())) == 1:
        return cells[0].metric
    return "; ".join(f"{task}: {metric}" for task, metric in by_task.items())


def _notes(cells: Sequence[Cell]) -> list[str]:
    return [f"{cell.name}: {cell.interval.reason}" for cell in cells if cell.interval.reason]


def _plain(text: str) -> str:
    """Text that Markdown and HTML leave as it is."""
    for char, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("\n", " ")):
        text = text.replace(char, safe)
    return text
