"""When two questions are the same, or nearly so: what a document must not be shown among its own shots."""

from __future__ import annotations

import difflib
import itertools
import re
import unicodedata
from collections.abc import Sequence

NEAR = 0.9  # of the words in common order, with the same numbers: the same question in a thin disguise
SEEN = 50  # questions of a pool in which its frame is looked for

_WORDS = re.compile(r"-?\d+(?:[.,]\d+)*|[^\W\d_]+|(?<=\s)-(?=\s)|[^\s\w-]")
_SIGNS = ("-", *"*/%#&", "S", "Ps", "Pe", "M")  # signs, and categories of Unicode, that are part of what is asked


def normalised(text: str) -> str:
    """A question without what does not tell two apart: letter case, width, spacing, quotes, commas and full stops.

    Numbers keep their points and signs; signs of arithmetic and currency, brackets and vowel signs stay.
    """
    return " ".join(filter(_tells, _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())))


def _tells(word: str) -> bool:
    category = unicodedata.category(word[0])
    return word.isalnum() or word[-1].isdigit() or any(sign in _SIGNS for sign in (word, category, category[0]))


def frame(questions: Sequence[str]) -> tuple[int, int]:
    """How many words all of the normalised questions begin and end with: an instruction, which tells nothing apart."""
    words = [q.split() for q in dict.fromkeys(questions)][:SEEN]
    if len(words) < 2:
        return 0, 0
    before = _shared(words)
    return before, _shared([w[before:][::-1] for w in words])


def _shared(words: Sequence[Sequence[str]]) -> int:
    """How many words all begin with."""
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))


def is_near_copy(a: str, b: str, framed: tuple[int, int] = (0, 0)) -> bool:
    """Whether two different normalised questions are one but for a few words: same numbers, nearly the same words."""
    ours, theirs = (_inner(q.split(), framed) for q in (a, b))
    if ours == theirs or [w for w in ours if w[-1].isdigit()] != [w for w in theirs if w[-1].isdigit()]:
        return False
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    return matcher.real_quick_ratio() >= NEAR and matcher.ratio() >= NEAR


def _inner(words: list[str], framed: tuple[int, int]) -> list[str]:
    before, after = framed
    return words[before : len(words) - after]
