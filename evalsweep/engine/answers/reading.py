"""Written answers read and compared with the right one, as numbers or as mathematics; votes over several of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from evalsweep.engine.answers import numeric
from evalsweep.engine.answers.numeric import vote
from evalsweep.engine.benchmarks.scorers import MATH_VERIFY, NUMERIC
from evalsweep.stats.majk import maj_at_k


@dataclass(frozen=True)
class Read:
    """The answers to a document as they were read.

    `target` and `answers` are equal where they mean the same; None where nothing was read. `readings` say for each
    answer what was read and where; `doubtful` tells those that a person could read in another way.
    """

    target: Hashable | None
    answers: list[Hashable | None]
    readings: list[dict[str, Any] | None]
    doubtful: list[bool]


def numbers(target: str, texts: Sequence[str]) -> Read:
    """Read numbers."""
    found = [numeric.read(text) for text in texts]
    readings = [
        None
        if reading.number is None
        else {
            "value": str(reading.number),
            "text": reading.text,
            "start": reading.start,
            "end": reading.end,
            "doubt": reading.doubt,
        }
        for reading in found
    ]
    answers: list[Hashable | None] = [reading.number for reading in found]
    return Read(numeric.number_of(target), answers, readings, [reading.doubt is not None for reading in found])


def mathematics(target: str, texts: Sequence[str]) -> Read:
    """Read expressions with math-verify, which says whether two of them are equal."""
    from math_verify import parse, verify

    def parsed(text: str) -> list[Any]:
        return list(parse(text)) or list(parse(f"${text}$"))

    gold = parsed(target)
    classes: list[list[Any]] = [gold]  # expressions that are equal share the number of their class; the target's is 0
    answers: list[Hashable | None] = []
    readings: list[dict[str, Any] | None] = []
    for text in texts:
        found = list(parse(text))
        if not found:
            answers.append(None)
            readings.append(None)
            continue
        same = next((n for n, other in enumerate(classes) if other and verify(other, found)), None)
        if same is None:
            classes.append(found)
            same = len(classes) - 1
        answers.append(same)
        readings.append({"value": str(found[0]), "text": str(found[-1]), "start": -1, "end": -1, "doubt": None})
    return Read(0 if gold else None, answers, readings, [False] * len(texts))


READERS: dict[str, Callable[[str, Sequence[str]], Read]] = {NUMERIC: numbers, MATH_VERIFY: mathematics}


def scores_of(scorer: str, read: Read, sizes: Sequence[int]) -> tuple[dict[str, float], list[str]]:
    """Score what was read.

    Args:
        scorer: names the score.
        read: the answers to one document.
        sizes: k of maj@k.

    Returns:
        The share of right answers and maj@k by name, and the flags of the document.
    """
    answers, target = read.answers, read.target
    scores = {scorer: sum(answer is not None and answer == target for answer in answers) / len(answers)}
    flags = ["unparsed"] if None in answers else []
    flags += ["doubtful"] if any(read.doubtful) else []
    if len(answers) > 1:
        others = Counter(answer for answer in answers if answer not in (None, target))
        right, silent = answers.count(target) if target is not None else 0, answers.count(None)
        for k in sizes:
            if k < len(answers):
                scores[f"maj@{k}"] = maj_at_k(right, list(others.values()), k, silent)
        scores[f"maj@{len(answers)}"], tied = vote(answers, target)
        flags += ["tied"] if tied else []
    return scores, flags
