"""The number that a written answer gives: what lm_eval's patterns for it miss or mistake.

lm_eval's strict pattern fails on `#### $123` and `#### 5.0`; its flexible one on `$5.00`, on `\\boxed{42}. Done in 3
steps` and on `8\\n\\nQuestion 2`, and it takes the 3 of `1/3` for an answer of 3.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

# A model that does not stop goes on to ask itself the next question.
_NEXT_QUESTION = re.compile(r"(?:^|\n)\s*(?:question|problem|exercise|q)\b\s*\d*\s*[:.)\n]?", re.IGNORECASE)
_MARKER = re.compile(
    r"####|\\boxed\s*\{|\bfinal answer\b(?:\s+is\b)?|\bthe answer is\b|(?:^|\n)\s*answer\s*:", re.IGNORECASE
)
_SENTENCE = re.compile(r"\n|[.!?](?=\s|$)|;")

# 1,000,000 and 1 000 and 1'000 are one number each; so are 12, 3.5 and .5
_PLAIN = r"(?:\d{1,3}(?:[,' \u00a0\u202f]\d{3})+(?![\d])|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"""
    (?<![\w.,/:^])                      # not inside a word, a number, a fraction, a time or an exponent
    (?P<sign>[-+])?\s?
    (?:[$€£¥₹]\s?)?
    (?P<sign2>[-+])?
    (?P<number>(?:{_PLAIN})(?:[eE][-+]?\d{{1,3}}(?!\w))?)
    (?:\s?/\s?(?P<below>\d+)|\s(?P<above>\d+)/(?P<of>\d+))?   # 1/3, and 2 1/3
    """,
    re.VERBOSE,
)
# What makes a number part of something else: a range or difference, a time or ratio, another fraction, a bare comma
_PART = re.compile(
    r"(?:\s?[-\u2013\u2014]\s?[$€£¥₹]?\d|\^|:\d|/\d|,\d|\.\d|(?:st|nd|rd|th)\b|\s?to\s[$€£¥₹]?\d)", re.IGNORECASE
)
_SUM = re.compile(r"\d\s*[*x\u00d7\u00b7+]\s*[$€£¥₹]?\d")
_PART_BEFORE = re.compile(r"(?:\d\s?[-\u2013\u2014]\s?[$€£¥₹]?|\d\s?to\s[$€£¥₹]?)$")


@dataclass(frozen=True)
class Reading:
    """What was read from an answer."""

    number: Fraction | None
    text: str
    start: int
    end: int
    doubt: str | None


def read(text: str) -> Reading:
    return Reading(number_of(text), "", -1, -1, None)


def number_of(text: str) -> Fraction | None:
    """The number that `text` answers with; None where it gives none, or no single one.

    The last answer marker wins (`####`, "final answer", "the answer is", "Answer:", `\\boxed{}`): what follows it in
    its sentence, and there what follows the last `=`. Without a marker, or where no number follows it, the last number
    of the text does, up to where the model goes on to another question. Currency, thousands separators, percent, units,
    Markdown and LaTeX are read through; `5.0` is 5; the sign counts; `1/3` is a third; ranges are no number.
    """
    text = _cut(_plain(text))
    for marker in reversed(list(_MARKER.finditer(text))):
        if (found := _first(_after(text, marker))) is not None:
            return found
    numbers = _numbers(text)
    return numbers[-1] if numbers else None


def vote(answers: Sequence[Fraction | None], target: Fraction | None) -> tuple[float, bool]:
    """Whether the most frequent number is the target, and whether the vote was tied.

    Answers without a number do not vote; where none votes, the majority is wrong. Of m numbers that share the first
    place, one of which is the target, the vote counts as 1/m: what a fair draw among them gives on average, whatever
    the order of the answers.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    most = max(votes.values(), default=0)
    first = [number for number, count in votes.items() if count == most]
    return (1 / len(first) if target in first else 0.0), len(first) > 1


def _cut(text: str) -> str:
    after = _NEXT_QUESTION.search(text.lstrip(), 1)
    return text.lstrip()[: after.start()] if after else text


def _plain(text: str) -> str:
    """Text without what decorates numbers."""
    text = unicodedata.normalize("NFKC", text).translate({0x2212: "-", 0xFE63: "-"})
    text = re.sub(r"\\[dt]?frac\s*\{(\d+)\}\s*\{(\d+)\}", r" \1/\2", text)
    text = re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}", r" \1", text)
    text = text.replace("{,}", ",").replace("\\%", "%").replace("\\$", "$")
    text = re.sub(r"\\[,!;: ]|\\[()\[\]]|~", "", text)
    text = re.sub(r"\^\s*\{(-?\d+)\}", r"^\1", text)
    text = re.sub(r"\*\*|__|`", "", text)
    return re.sub(r"\$([^$\n]*)\$", r" \1 ", text)  # LaTeX's $...$, not currency, which stands alone


def _after(text: str, marker: re.Match[str]) -> str:
    rest = text[marker.end() :]
    if "boxed" in marker.group():
        depth = 1
        for i, letter in enumerate(rest):
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if depth == 0:
                return rest[:i]
    rest = rest.lstrip(" :=\n\t")
    end = _SENTENCE.search(rest)
    return rest[: end.start()] if end else rest


def _first(text: str) -> Fraction | None:
    """The number of a marked answer: after the last `=`, else the first."""
    head, _, tail = text.rpartition("=")
    for part in (head, text) if _SUM.search(tail) else (tail, text):  # "12 = 3*4" ends with how, not with what
        if numbers := _numbers(part):
            return numbers[0]
        if part.strip() and any(c.isdigit() for c in part):
            return None  # a range, a time: something was answered, but no number
    return None


def _numbers(text: str) -> list[Fraction]:
    found = []
    for match in _NUMBER.finditer(text):
        if _PART.match(text, match.end()) or _PART_BEFORE.search(text[: match.start()] + (match["sign"] or "")):
            continue
        value = Fraction(re.sub(r"[,' \u00a0\u202f]", "", match["number"]))
        if match["below"]:
            if int(match["below"]) == 0:
                continue
            value /= int(match["below"])
        if match["above"] and int(match["of"]):
            value += Fraction(int(match["above"]), int(match["of"]))
        found.append(-value if "-" in ((match["sign"] or "") + (match["sign2"] or "")) else value)
    return found
