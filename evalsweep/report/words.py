"""A summary in words: the answer in a sentence, each comparison in a line."""

from __future__ import annotations

from evalsweep.stats.estimate import Estimate
from evalsweep.summary.types import Cell, Comparison, Summary, shown

CLEAR = 0.05  # adjusted p up to which a difference is said to be more than chance


def headline(summary: Summary) -> list[str]:
    """The answer, a sentence or two a task."""
    found = []
    for task, cells in summary.by_task().items():
        best = max(cells, key=lambda cell: cell.spread.mean)
        runs = "1 run" if len(best.runs) == 1 else f"{len(best.runs)} runs"
        runs += " that are identical" if best.identical else ""
        facts = f"{best.documents} documents, {runs}"
        if len(cells) == 1:
            start = f"{task}: {best.metric} {best.spread.mean:.3f} ({facts})"
        else:
            which = ", ".join(f"{k} {shown(v)}" for k, v in best.differs.items())
            most = f"the highest {best.metric}, {best.spread.mean:.3f}"
            start = f"{task}: of {len(cells)} cells {which} has {most} ({facts})"
        found.append(f"{start}; on {best.questions.target} {_between(best.questions)}.")
        pairs = [c for c in summary.comparisons if summary.cells[c.a].task == task]
        if pairs:
            found.append(_verdict(summary, pairs))
    if not summary.cells:
        found.append("No run has a score.")
    return found


def _between(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"no interval: {estimate.reason}"
    return f"between {estimate.low:.3f} and {estimate.high:.3f} ({estimate.level:.0%})"


def _verdict(summary: Summary, pairs: list[Comparison]) -> str:
    clear = [c for c in pairs if is_clear(c)]
    tested = [c for c in pairs if c.difference is not None]
    if not tested:
        return "Nothing could be compared."
    if not clear:
        many = "The one comparison shows" if len(tested) == 1 else f"None of the {len(tested)} comparisons shows"
        return f"{many} no difference beyond chance." if len(tested) == 1 else f"{many} a difference beyond chance."
    largest = max(clear, key=lambda c: abs(c.difference.value if c.difference else 0))
    count = f"{len(clear)} of {len(tested)} comparisons show" if len(tested) > 1 else "The comparison shows"
    by = interval(largest.difference, with_sign=True)
    return f"{count} a difference beyond chance: {versus(summary, largest)}, {by}."


def is_clear(comparison: Comparison) -> bool:
    """Whether a difference is beyond chance, the whole family of comparisons considered."""
    return comparison.p_adjusted is not None and comparison.p_adjusted <= CLEAR


def versus(summary: Summary, c: Comparison) -> str:
    """`temperature 0.2 against 0`, with what the two sides share where that is not all."""
    a, b = summary.cells[c.a], summary.cells[c.b]
    shared = ", ".join(f"{k} {shown(v)}" for k, v in a.differs.items() if k != c.axis)
    words = f"{c.axis} {shown(b.differs[c.axis])} against {shown(a.differs[c.axis])}"
    return f"{words} ({shared})" if shared else words


def interval(estimate: Estimate | None, with_sign: bool = False) -> str:
    """`0.617 (0.486 to 0.736)`."""
    if estimate is None:
        return "none"
    written = signed if with_sign else _plain
    if estimate.low is None or estimate.high is None:
        return f"{written(estimate.value)} (no interval)"
    return f"{written(estimate.value)} ({written(estimate.low)} to {written(estimate.high)})"


def visible(text: str) -> str:
    """Text without the letters that would act on a terminal or turn the direction of writing: their escapes instead."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def line(text: object) -> str:
    """Any text on one line, and visible."""
    return visible(" ".join(str(text).split()))


def signed(value: float) -> str:
    """`+0.031`; a difference that rounds to 0 has no sign."""
    text = f"{value:+.3f}"
    return text if float(text) else "0.000"


def _plain(value: float) -> str:
    return f"{value:.3f}"


def span(estimate: Estimate) -> str:
    """`0.486 to 0.736`, or `none`."""
    if estimate.low is None or estimate.high is None:
        return "none"
    return f"{estimate.low:.3f} to {estimate.high:.3f}"


def chance(p: float | None) -> str:
    """A p value as it is read: never 0."""
    if p is None:
        return "-"
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.01 else f"{p:.2f}"


def comparison(summary: Summary, c: Comparison) -> str:
    """One line: what is compared, by how much it differs, how likely chance is, and what flipped."""
    name = versus(summary, c)
    if c.difference is None:
        return f"{name}: {c.reason}"
    line = f"{name}: {interval(c.difference, with_sign=True)}, p {chance(c.p)}"
    if len(summary.comparisons) > 1:
        line += f", adjusted {chance(c.p_adjusted)}"
    line += f"; {len(c.rose)} document{'' if len(c.rose) == 1 else 's'} rose by more than one half, {len(c.fell)} fell"
    return line + (f"; NOT LIKE WITH LIKE: {'; '.join(c.unlike)}" if c.unlike else "")


def notes(cells: tuple[Cell, ...] | list[Cell]) -> list[str]:
    """Why an interval is missing, once for all cells that share the reason."""
    by_reason: dict[str, list[str]] = {}
    for cell in cells:
        for name, estimate in (("another run", cell.interval), ("new questions", cell.questions)):
            if estimate.low is None and estimate.reason:
                by_reason.setdefault(f"{name}: {estimate.reason}", []).append(cell.name)
    return [f"{'; '.join(names)}: {reason}" for reason, names in by_reason.items()]
