"""Readings: the number that a written answer gives, where it stands, and whether it could be read another
way.

lm_eval's strict pattern fails on `#### $123` and `#### 5.0`; its flexible one on `$5.00`, on
`\\boxed{42}. Done in 3 steps` and on `8\\n\\nQuestion 2`, and it takes the 3 of `1/3` for an answer of 3.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from evalsweep.engine.answers import phrases
from evalsweep.engine.answers.markup import plain
from evalsweep.engine.answers.numerals import SEPARATOR_DOUBT, Numeral, numerals

AFTER_MARKER = "several different numbers follow the marker"
IN_SENTENCE = "the last sentence has several different numbers"
_AT_MOST = 200  # numerals of one sentence that are weighed
_WINDOW = 48  # characters before a numeral that say what it is

_ENUMERATOR = re.compile(r"(?:^|\n|:|\#{4})[ \t#>*]{0,9}(\d{1,2})([.)])\s{1,9}(?=\S)")
_LIST_OR_DECIMAL = re.compile(r"\s*[1-9],\d\s*")  # a bare 1,5 with no word beside it


@dataclass(frozen=True)
class Reading:
    """What was read from an answer: the number, the words, and where they stand in the text as it was given.

    `text` is `answer[start:end]`; where nothing was read it is empty, and both positions are -1. `doubt`
    says in a few words why a person could read the answer another way; None where it is plain.
    """

    number: Fraction | None
    text: str
    start: int
    end: int
    doubt: str | None


NOTHING = Reading(None, "", -1, -1, None)


def number_of(text: str) -> Fraction | None:
    """Return the number that `text` answers with; None where it gives none, or no single one."""
    return read(text).number


def read(text: str) -> Reading:
    """Read the number that `text` answers with.

    Thinking is left out, and so is what follows the answer's turn: another question, another speaker. The
    last answer marker wins (`####`, `\\boxed{}`, "the answer is", "Answer:", and the same in other languages)
    if a number follows it in its sentence. Without one the last sentence with a number decides. Currency,
    separators, scales, units, Markdown, LaTeX and HTML are read through; ranges, times, ordinals and sums
    without a result are no number.
    """
    regions, unfinished = _visible(text)
    answer = plain(text, regions)
    scene = _Scene(answer.text, numerals(answer.text))
    choice = scene.marked() or (None if unfinished else scene.unmarked(0, scene.end))
    if choice is None or choice.numeral is None:
        return NOTHING
    start, end = answer.original(choice.numeral.start, choice.numeral.end)
    if choice.numeral.doubt == SEPARATOR_DOUBT and _LIST_OR_DECIMAL.fullmatch(answer.text):
        return Reading(None, "", -1, -1, SEPARATOR_DOUBT)
    return Reading(choice.numeral.value, text[start:end], start, end, choice.numeral.doubt or choice.doubt)


def vote(answers: Sequence[Hashable | None], target: Hashable | None) -> tuple[float, bool]:
    """Whether the most frequent number is the target, and whether the vote was tied.

    Answers without a number do not vote; where none votes, the majority is wrong. Of m numbers that share
    the first place, one of which is the target, the vote counts as 1/m: what a fair draw among them gives
    on average, whatever the order of the answers.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    most = max(votes.values(), default=0)
    first = [number for number, count in votes.items() if count == most]
    return (1 / len(first) if target in first else 0.0), len(first) > 1


def _visible(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Return the regions outside thinking and within the first turn, and whether thinking is unfinished.

    A close without an open ends the thinking that a chat template began.
    """
    regions: list[tuple[int, int]] = []
    start, thinking = 0, False
    for tag in phrases.TAG.finditer(text):
        if tag["open"] and not thinking:
            regions.append((start, tag.start()))
            thinking = True
        elif tag["close"]:
            if not thinking:
                regions = []
            start, thinking = tag.end(), False
        elif tag["end"] and not thinking and text[start : tag.start()].strip():
            return [*regions, (start, tag.start())], False
    return (regions, True) if thinking else ([*regions, (start, len(text))], False)


@dataclass(frozen=True)
class _Choice:
    """The numeral that answers, or None where what stands there is no single number."""

    numeral: Numeral | None
    doubt: str | None = None


class _Scene:
    """A plain answer with its numerals, up to where the model goes on to another question."""

    def __init__(self, text: str, found: list[Numeral]) -> None:
        self.text = text
        self.end = _turn_end(text, found)
        self.numerals = [numeral for numeral in found if numeral.end <= self.end]
        self.starts = [numeral.start for numeral in self.numerals]
        self.enumerators = _enumerators(text)

    def marked(self) -> _Choice | None:
        """Return what the last marker announces that a number follows."""
        found = [*phrases.MARKER.finditer(self.text, 0, self.end)]
        found += phrases.IS_THE_ANSWER.finditer(self.text, 0, self.end)
        limit = self.end
        for match in sorted(found, key=lambda m: (m.end(), -m.start()), reverse=True):
            stated = match.re is phrases.IS_THE_ANSWER
            choice = self._stated(match) if stated else self._announced(match, limit)
            if choice is not None:
                return choice
            limit = limit if stated else match.start()
        return None

    def _stated(self, statement: re.Match[str]) -> _Choice | None:
        """Return the number that a statement of the answer follows: "29 eggs is the final answer"."""
        at = statement.start()
        usable = self._plain_digits([n for n in self.within(max(0, at - 40), at + 1) if n.end == at])
        return _Choice(usable[-1]) if usable else None

    def unmarked(self, start: int, end: int) -> _Choice | None:
        """Return the number of the last sentence that has one, leaving out a check of the result."""
        if check := next(
            (c for c in phrases.CHECK.finditer(self.text, start, end) if self._any_plain(start, c.start())), None
        ):
            end = check.start()
        clauses = sorted(self._clauses(start, end), key=self._is_statement)  # a question is the last resort
        for usable in (self._plain_digits, self._plain_words, self._any_digits, self._any_words):
            for first, last in reversed(clauses):
                if (choice := self._last_of(usable(self.within(first, last)), IN_SENTENCE)) is not None:
                    return choice
        return None

    def within(self, start: int, end: int) -> list[Numeral]:
        first, last = bisect_left(self.starts, start), bisect_left(self.starts, end)
        return self.numerals[first:last]

    def _announced(self, marker: re.Match[str], limit: int) -> _Choice | None:
        start = marker.end()
        if (
            phrases.CHECKS_THE_ANSWER.search(self.text[max(0, marker.start() - 30) : marker.start()])
            and not marker["is"]
        ):
            return None
        if marker["box"]:
            return self._of_sentence(start, _closing_brace(self.text, start, limit))
        direct = self._direct(start, limit)
        if direct is None and not (marker["is"] or marker["colon"] or marker["tag"]):
            return None
        if direct is None and marker["colon"] and not marker["is"]:
            return self.unmarked(start, limit)
        start += len(self.text[start:limit]) - len(self.text[start:limit].lstrip(" :=\n\t"))
        ends = phrases.SENTENCE_END.search(self.text, direct.end if direct else start, limit)
        return self._of_sentence(start, ends.start() if ends else limit)

    def _direct(self, start: int, limit: int) -> Numeral | None:
        """Return the numeral that follows a marker with nothing but fillers between."""
        index = bisect_left(self.starts, start)
        if index == len(self.starts) or self.starts[index] >= limit:
            return None
        numeral = self.numerals[index]
        gap = self.text[start : numeral.start]
        if len(gap) > 60 or not phrases.FILLER.fullmatch(gap) or numeral.start in self.enumerators:
            return None
        return numeral

    def _of_sentence(self, start: int, end: int) -> _Choice | None:
        """Return the number of a marked sentence: what follows its last `=`, else the first, else the
        last."""
        for restart in phrases.RESTART.finditer(self.text, start, end):
            if self.within(restart.end(), end):
                start = restart.end()
        direct = self._direct(start, end)
        if direct is not None:
            reason = phrases.REASON.search(self.text, direct.end, end)
            end = reason.start() if reason else end
        found = [n for n in self.within(start, end)[:_AT_MOST] if not self._is_label(n) and not self._is_negated(n)]
        usable = self._plain_digits(found) or self._any_digits(found) or self._any_words(found)
        if not usable:
            return _Choice(None) if any(not numeral.spelled for numeral in found) else None
        if direct is None or direct not in usable or self._continues(direct, end):
            return self._last_of(usable, AFTER_MARKER)
        others = {n.value for n in usable if not self._is_prepositional(n)} - {direct.value}
        return _Choice(direct, AFTER_MARKER if others else None)

    def _is_result(self, numeral: Numeral) -> bool:
        before = self._before(numeral)
        return bool(phrases.RESULT.search(before) or phrases.ROUNDS_TO.search(before)) or bool(
            phrases.REMAINS.match(self.text, numeral.end)
        )

    def _continues(self, direct: Numeral, end: int) -> bool:
        """Say whether an equation or a rounding leads from the first number to a later one."""
        rest = self.text[direct.end : end]
        later = [n for n in self.within(direct.end, end) if n.value is not None and not self._is_aside(n)]
        equals = max(rest.rfind("="), rest.rfind("≈"))
        if equals >= 0 and any(n.start >= direct.end + equals for n in later):
            return True
        return any(phrases.ROUNDS_TO.search(self._before(n)) for n in later)

    def _last_of(self, usable: list[Numeral], doubt: str) -> _Choice | None:
        """Return the last numeral that no preposition makes a circumstance, from the last result on."""
        if not usable:
            return None
        results = [i for i, n in enumerate(usable) if self._is_result(n)]
        usable = usable[results[-1] :] if results else usable
        free = [n for n in usable if not self._is_prepositional(n)] or usable[-1:]
        return _Choice(free[-1], doubt if len({n.value for n in free}) > 1 else None)

    def _plain_digits(self, found: list[Numeral]) -> list[Numeral]:
        return [n for n in self._any_digits(found) if not self._is_aside(n) and not self._is_label(n)]

    def _plain_words(self, found: list[Numeral]) -> list[Numeral]:
        return [n for n in self._any_words(found) if not n.small and not self._is_aside(n) and not self._is_label(n)]

    def _any_digits(self, found: list[Numeral]) -> list[Numeral]:
        return [n for n in found[-_AT_MOST:] if n.value is not None and not n.spelled and not self._is_negated(n)]

    def _any_words(self, found: list[Numeral]) -> list[Numeral]:
        return [n for n in found[-_AT_MOST:] if n.value is not None and n.spelled and not self._is_negated(n)]

    def _any_plain(self, start: int, end: int) -> bool:
        return any(n.value is not None for n in self.within(start, end))

    def _before(self, numeral: Numeral) -> str:
        return self.text[max(0, numeral.start - _WINDOW) : numeral.start]

    def _is_label(self, numeral: Numeral) -> bool:
        """Say whether the numeral counts steps or the like: "Step 2", "2. Then", "2 decimal places"."""
        if numeral.start in self.enumerators or phrases.PLACES.match(self.text, numeral.end):
            return True
        return bool(phrases.LABEL.search(self._before(numeral)))

    def _is_negated(self, numeral: Numeral) -> bool:
        after = phrases.NEGATED_AFTER.match(self.text, numeral.end)
        return bool(after or phrases.NEGATED.search(self._before(numeral)))

    def _is_aside(self, numeral: Numeral) -> bool:
        """Say whether the numeral stands in brackets or is a circumstance: "in 3 days", "each of the 4"."""
        before = self._before(numeral)
        if phrases.DEPENDENT.search(before) or re.match(r"-[^\W\d_]", self.text[numeral.end : numeral.end + 2]):
            return True
        if phrases.COMPARED.match(self.text, numeral.end):
            return True
        if phrases.CIRCUMSTANCE.search(before) and phrases.TIME_AFTER.match(self.text, numeral.end):
            return True
        return self._in_brackets(numeral)

    def _in_brackets(self, numeral: Numeral) -> bool:
        line = self.text[max(0, numeral.start - 120) : numeral.start].rpartition("\n")[2]
        after = self.text[numeral.end : numeral.end + 120].partition("\n")[0]
        return line.rfind("(") > line.rfind(")") and 0 <= after.find(")") < (after + "(").find("(")

    def _is_prepositional(self, numeral: Numeral) -> bool:
        if numeral.currency or phrases.REMAINS.match(self.text, numeral.end):
            return False
        return bool(phrases.PREPOSITION.search(self._before(numeral))) or self._is_aside(numeral)

    def _clauses(self, start: int, end: int) -> list[tuple[int, int]]:
        """Split a region at the ends of sentences and at "so", "therefore" and the like."""
        borders = {start, end}
        borders |= {m.end() for m in phrases.SENTENCE_END.finditer(self.text, start, end)}
        borders |= {m.start() for m in phrases.CLAUSE.finditer(self.text, start, end)}
        ordered = sorted(borders)
        return [(a, self._reason(a, b)) for a, b in pairwise(ordered) if self.within(a, b)]

    def _is_statement(self, clause: tuple[int, int]) -> bool:
        return not self.text[slice(*clause)].rstrip().endswith("?")

    def _reason(self, start: int, end: int) -> int:
        """Return where a clause goes on to say why after its number, without a result of its own."""
        reason = phrases.BECAUSE.search(self.text, self.within(start, end)[0].end, end)
        if reason and not re.search(r"[=,]", self.text[reason.end() : end]):
            return reason.start()
        return end


def _turn_end(text: str, found: list[Numeral]) -> int:
    """Return where another question or speaker begins, after at least one number."""
    first = min((numeral.end for numeral in found if numeral.value is not None), default=len(text))
    turn = phrases.NEW_TURN.search(text, first)
    return turn.start() if turn else len(text)


def _enumerators(text: str) -> set[int]:
    """Return where the numbers of lists stand: 1., 2., 3., each at the begin of a line."""
    result: set[int] = set()
    run: list[int] = []
    for match in _ENUMERATOR.finditer(text):
        number = int(match[1])
        run = (
            [*run, match.start(1)]
            if number == len(run) + 1 and len(run) < 99
            else [match.start(1)]
            if number == 1
            else []
        )
        if len(run) > 1:
            result |= set(run[-2:])
        if match[2] == ")":
            result.add(match.start(1))
    return result


def _closing_brace(text: str, start: int, limit: int) -> int:
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, start, limit):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.start()
    ends = phrases.SENTENCE_END.search(text, start, limit)
    return ends.start() if ends else limit
