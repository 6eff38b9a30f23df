"""How each number of a report was computed, in words; only of what is in the report."""

from __future__ import annotations

from evalsweep.report.words import CLEAR
from evalsweep.stats.compare import METHOD
from evalsweep.stats.questions import MEANS, SHARES
from evalsweep.summary.types import Summary


def computed(summary: Summary) -> list[tuple[str, str]]:
    """What each number is: its name and how it was computed."""
    return [*_cells(summary), *_new_questions(summary), *_comparisons(summary)]


def _cells(summary: Summary) -> list[tuple[str, str]]:
    found = [
        ("Cell", "All runs that differ only in their seed. Runs of different cells are never pooled."),
        (
            "Mean, sd, median, min, max",
            "Over the runs of a cell; sd is the sample standard deviation (ddof = 1). The median has an interval "
            "between two of the scores (order statistics) from 6 runs on.",
        ),
        (
            "95% interval, another run",
            "Student's t over the runs. It answers: would I get this again, on the same questions? It says nothing of "
            "other questions. One run has none; identical runs count as one.",
        ),
    ]
    return found if summary.cells else []


def _new_questions(summary: Summary) -> list[tuple[str, str]]:
    methods = {cell.questions.method.partition(",")[0] for cell in summary.cells if cell.questions.low is not None}
    found = []
    if SHARES in methods:
        found.append(
            (
                "95% interval, new questions",
                "It answers: how good is the model on questions like these? The scores of each document are averaged "
                "over the runs; the variance of these means gives an effective number of independent yes-or-no "
                "questions, and that many questions give an interval between those of Clopper and Pearson and of "
                "Jeffreys (quantiles of a Beta distribution), within 0 and 1. It was chosen by simulation: the truth "
                "lay in it at least 93% of the time at every size, accuracy, spread of documents, groups and shots of "
                "the grid that evalsweep's docs/statistics.md shows.",
            )
        )
    if MEANS in methods:
        found.append(
            (
                "95% interval, new questions, of scores without bounds",
                "It answers: how good is the model on questions like these? Student's t over the documents' means.",
            )
        )
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
    if any(cell.variance for cell in summary.cells):
        found.append(
            (
                "Where the variance comes from",
                "The variance of the mean, split into what other documents would change, what other runs would change "
                "for all documents at once, and the rest: chance in single answers. Method of moments, crossed random "
                "effects. With one run the rest is in the documents' part.",
            )
        )
    return found


def _comparisons(summary: Summary) -> list[tuple[str, str]]:
    made = [c for c in summary.comparisons if c.difference is not None]
    if not made:
        return []
    of = "Of the two cells' means on the documents that both answered, paired by document. The interval is Student's t "
    if any(c.difference is not None and c.difference.method == METHOD for c in made):
        of += (
            "over the documents' differences with two made-up documents added, one that flips each way, so that "
            "agreement on every document is not taken for certainty; scores without bounds have none added."
        )
    else:
        of += "over the documents' differences."
    tests = " or ".join(dict.fromkeys(str(c.method) for c in made))
    return [
        ("Difference", of),
        (
            "p, adjusted p",
            "How often chance alone would make a difference at least as large, if either side were as likely to be the "
            f"better one on each document ({tests}). Adjusted for the number of comparisons by Holm's method; up to "
            f"{CLEAR} a difference is called beyond chance.",
        ),
        ("Rose, fell", "Documents whose mean score over the runs changed by more than one half."),
    ]
