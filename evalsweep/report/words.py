"""A summary in words: the answer in a sentence, each comparison in a line, and how the numbers were computed."""

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
    line = f"{name}: {interval(c.difference, with_sign=True)}, p {chance(c.p)}, adjusted {chance(c.p_adjusted)}"
    line += f"; {len(c.rose)} document{'' if len(c.rose) == 1 else 's'} rose, {len(c.fell)} fell"
    return line + (f"; NOT LIKE WITH LIKE: {'; '.join(c.unlike)}" if c.unlike else "")


def notes(cells: tuple[Cell, ...] | list[Cell]) -> list[str]:
    """Why an interval is missing, once for all cells that share the reason."""
    by_reason: dict[str, list[str]] = {}
    for cell in cells:
        for name, estimate in (("another run", cell.interval), ("new questions", cell.questions)):
            if estimate.low is None and estimate.reason:
                by_reason.setdefault(f"{name}: {estimate.reason}", []).append(cell.name)
    return [f"{'; '.join(names)}: {reason}" for reason, names in by_reason.items()]


def computed(summary: Summary) -> list[tuple[str, str]]:
    """What each number is, in words: its name and how it was computed."""
    found = [
        ("Cell", "All runs that differ only in their seed. Runs of different cells are never pooled."),
        ("Mean, sd, median, least, most", "Over the runs of a cell; sd is the sample standard deviation (ddof = 1)."),
        (
            "95% interval, another run",
            "Student's t over the runs. It answers: would I get this again, on the same questions? It says nothing of "
            "other questions. One run has none; identical runs count as one.",
        ),
        (
            "95% interval, new questions",
            "It answers: how good is the model on questions like these? The scores of each document are averaged over "
            "the runs; the variance of these means gives an effective number of independent yes-or-no questions, and "
            "that many questions give an interval between those of Clopper and Pearson and of Jeffreys (quantiles of a "
            "Beta distribution), within 0 and 1. A simulation over sizes, accuracies and spreads of documents chose "
            "it: it held the truth at least 93% of the time in every setting.",
        ),
    ]
    if any(cell.groups for cell in summary.cells):
        found.append(
            (
                "Groups",
                "Documents of one group (such as a subject) are alike. New questions are taken to come from new "
                "groups: the variance between groups is added, with Student's t over the groups. The macro mean counts "
                "each group the same.",
            )
        )
    if any(cell.resampled for cell in summary.cells):
        found.append(
            (
                "Resampled shots",
                "Each run has few-shot examples of its own, whose effect all its questions share: a run effect, which "
                "is added once (crossed random effects), with Student's t over the runs. With one run it cannot be "
                "seen, and the target says `these shots`.",
            )
        )
    found += [
        (
            "Where the variance comes from",
            "The variance of the mean, split into what other documents would change, what other runs would change for "
            "all documents at once, and the rest: chance in single answers. Method of moments, crossed random effects.",
        ),
        (
            "Difference",
            "Of the two cells' means on the documents that both answered, paired by document. The interval is "
            "Student's t over the documents' differences with two made-up documents added, one that flips each way, so "
            "that agreement on every document is not taken for certainty.",
        ),
        (
            "p, adjusted p",
            "How often chance alone would make a difference at least as large: all signs of the documents' differences "
            "are tried (exact, by convolution). Adjusted for the number of comparisons by Holm's method; up to "
            f"{CLEAR} a difference is called beyond chance.",
        ),
        ("Rose, fell", "Documents whose mean score over the runs changed by more than one half."),
    ]
    return found
