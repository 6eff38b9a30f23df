"""The table of a sweep, one row a cell: for the terminal (rich) and as Markdown."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evalsweep.report import methods, words
from evalsweep.summary.types import Cell, Summary, shown

ANOTHER, NEW = "another run", "new questions"
MOST_PAIRS = 8  # comparisons that the terminal shows; the report has all


def terminal(summary: Summary, width: int = 100, colour: bool = False) -> str:
    """The table, the comparisons, the failures and the warnings, at most `width` columns wide."""
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
            table.add_row(*map(_shown, row))
        console.print(table)
        console.print(f"metric: {_shown(_metrics(summary.cells))}")
        for head, caption in captions(summary.cells).items():
            if head in heads:
                console.print(caption, style="dim")
        for line in words.notes(summary.cells):
            console.print(f"* {_shown(line)}")
    for c in summary.comparisons[:MOST_PAIRS]:
        console.print(_shown(words.comparison(summary, c)), style="bold" if words.is_clear(c) else "")
    if len(summary.comparisons) > MOST_PAIRS:
        console.print(f"... and {len(summary.comparisons) - MOST_PAIRS} more comparisons, in the report")
    for failure in summary.failed:
        # paths in them are to be copied: only the terminal breaks these lines
        console.print(f"{failure.status} {_shown(failure.name)}: {_shown(failure.error)}", style="red", soft_wrap=True)
    for problem in summary.problems:
        console.print(f"MISSING {_shown(problem)}", style="red", soft_wrap=True)
    for warning in summary.warnings:
        console.print(f"! {_shown(warning)}", style="yellow")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def note(summary: Summary) -> str:
    """Headline, table, what failed and what is to be known as GitHub Markdown, which MLflow renders as a run's note."""
    lines = [*(f"**{plain(line)}**" for line in words.headline(summary)), "", *cells(summary)]
    if summary.failed:
        lines += ["", f"**{len(summary.failed)} of {summary.jobs} jobs have no score**", ""]
        lines += [f"- {f.status} {plain(f.name)}: {plain(f.error)}" for f in summary.failed]
    if summary.problems:
        lines += ["", "**Missing**", "", *(f"- {plain(p)}" for p in summary.problems)]
    if summary.warnings:
        lines += ["", "**Warnings**", "", *(f"- {plain(w)}" for w in summary.warnings)]
    return "\n".join(lines).strip() + "\n"


def markdown(summary: Summary, command: str | None) -> str:
    """The whole report as GitHub Markdown."""
    lines = ["# evalsweep report", "", note(summary)]
    if summary.comparisons:
        lines += ["## Comparisons", "", *rows(*_comparisons(summary), texts=1)]
    if any(cell.variance for cell in summary.cells):
        lines += ["", "## Where the variance comes from", "", *rows(*_variance(summary), texts=1)]
    for cell in summary.cells:
        if cell.groups:
            groups = [[g.name, str(g.questions.n), words.interval(g.questions)] for g in cell.groups]
            macro = f" Macro mean {words.interval(cell.macro)}." if cell.macro else ""
            lines += ["", f"## Groups: {plain(cell.name)}", "", macro.strip(), ""]
            lines += rows(["group", "documents", "score and 95% interval"], groups, texts=1)
    lines += ["", "## How each number was computed", ""]
    lines += [f"- **{name}**: {text}" for name, text in methods.computed(summary)]
    lines += ["", "## Provenance", "", *([f"- command: {plain(command)}"] if command else [])]
    for cell in summary.cells:
        lines.append(f"- {plain(cell.name)}: {plain('; '.join(f'{k} {v}' for k, v in about(cell)))}")
    return "\n".join(lines).strip() + "\n"


def about(cell: Cell) -> list[tuple[str, str]]:
    """Provenance of a cell, as names and values; what is empty is left out."""
    found = {**cell.provenance}
    versions = found.pop("versions", None) or {}
    pairs = [(str(k), str(v)) for k, v in found.items() if v not in (None, [], "", {})]
    return pairs + [(f"version of {k}", str(v)) for k, v in versions.items()]


def cells(summary: Summary) -> list[str]:
    """Lines of Markdown: the table of cells and its notes."""
    if not summary.cells:
        return []
    heads, body = _table(summary.cells)
    lines = rows(heads, body, texts=len(heads) - len(_NUMBERS))
    lines += [
        "",
        f"Metric: {plain(_metrics(summary.cells))}.",
        *(f"{caption}." for caption in captions(summary.cells).values()),
        "",
    ]
    return lines + [f"- {plain(line)}" for line in words.notes(summary.cells)]


def rows(heads: Sequence[str], body: Sequence[Sequence[str]], texts: int) -> list[str]:
    """A table of Markdown, whose first `texts` columns are text and the others numbers."""
    lines = ["| " + " | ".join(map(plain, heads)) + " |"]
    lines.append("|" + "".join(" --- |" if i < texts else " ---: |" for i in range(len(heads))))
    return lines + ["| " + " | ".join(map(plain, row)) + " |" for row in body]


def captions(cells: Sequence[Cell]) -> dict[str, str]:
    """What each interval is about, by its head; with what is new beside the questions."""
    also = dict.fromkeys(part for cell in cells for part in cell.questions.target.split(", ")[1:])
    beside = f", with {' or '.join(also)}" if also else ""
    return {
        ANOTHER: "another run: 95% interval for the mean of further runs on the same questions (Student's t)",
        NEW: f"new questions: 95% interval for the score on other questions of this kind{beside}",
    }


_GAP, _LEAST = 3, 4  # columns between two columns of the table; what a column of text may shrink to
_NUMBERS = ("runs", "mean", "sd", "median", "min", "max", ANOTHER, NEW)
_SPARED = (  # what is left out where there is no room, and whether columns of text then shrink
    ((), False),
    (("median", "min", "max"), False),
    (("median", "min", "max"), True),
    (("median", "min", "max", "sd"), True),
    (("median", "min", "max", "sd", ANOTHER), True),
    (("median", "min", "max", "sd", ANOTHER, "runs"), True),
)


def _table(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: task, what differs, then the numbers."""
    differs = list(dict.fromkeys(key for cell in cells for key in cell.differs))
    heads = ["task", *(key.rpartition(".")[2] for key in differs), *_NUMBERS]
    body = []
    for cell in cells:
        s, i = cell.spread, cell.interval
        intervals = [words.span(e) if e.low is not None else "none *" for e in (i, cell.questions)]
        sd = "-" if s.sd is None or i.low is None else f"{s.sd:.3f}"
        numbers = [str(s.n), f"{s.mean:.3f}", sd, *(f"{v:.3f}" for v in (s.median, s.min, s.max)), *intervals]
        body.append([cell.task, *(shown(cell.differs.get(k)) for k in differs), *numbers])
    return heads, body


def _comparisons(summary: Summary) -> tuple[list[str], list[list[str]]]:
    heads = ["b against a", "difference", "95% interval", "p", "adjusted p", "rose", "fell", "not alike"]
    body = []
    for c in summary.comparisons:
        d = c.difference
        numbers = ["-", "-"] if d is None else [words.signed(d.value), words.span(d)]
        flips = [str(len(c.rose)), str(len(c.fell))] if d is not None else ["-", "-"]
        why = "; ".join(c.unlike) or c.reason or ""
        body.append([words.versus(summary, c), *numbers, words.chance(c.p), words.chance(c.p_adjusted), *flips, why])
    return heads, body


def _variance(summary: Summary) -> tuple[list[str], list[list[str]]]:
    heads = ["cell", "documents", "runs", "rest"]
    found = [(cell.name, cell.variance) for cell in summary.cells if cell.variance]
    return heads, [[name, *(f"{v.shares[part]:.0%}" for part in heads[1:])] for name, v in found]


def _shown(text: str) -> str:
    """Text that rich and the terminal show as it is."""
    return escape(words.line(text))


def _fitting(heads: list[str], rows: list[list[str]], width: int) -> tuple[list[str], list[list[str]]]:
    """The table without the numbers for which there is no room; results_summary.json has them all."""
    for spared, text_shrinks in _SPARED:
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


def plain(text: str) -> str:
    """Text that Markdown and HTML show as it is, on one line."""
    text = words.line(text)
    for char, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, safe)
    return re.sub(r"([\\`*_\[\]!#|~])", r"\\\1", text)
