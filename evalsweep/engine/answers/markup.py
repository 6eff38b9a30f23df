"""Plain text: an answer without markup, each character of which knows its place in the answer as it was
given."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

# Characters that NFKC keeps apart, and that mean the same in a number
_SAME = str.maketrans(
    {"\u2010": "-", "\u2012": "-", "\u2212": "-", "\u2044": "/", "\u2215": "/", "\u066b": ".", "\u066c": ",", "،": ","}
    | {"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u2236": ":", "\u22c5": "·", "\u2217": "*", "\u2715": "×"}
    | {"\r": "\n", "\u0085": "\n", "\u2028": "\n", "\u2029": "\n"}
)
_LETTERS_AT_MOST = 4  # of a ligature; those that stand for a whole phrase are kept
_MARKS_AT_MOST = 8  # of one letter; normalising a longer run of them takes quadratic time

_LATEX_SIGNS = {
    "times": "×",
    "cdot": "·",
    "div": "÷",
    "approx": "≈",
    "simeq": "≈",
    "rightarrow": "→",
    "to": "→",
    "implies": "⇒",
    "Rightarrow": "⇒",
    "therefore": " so ",
    "pounds": "£",
    "euro": "€",
    "degree": "°",
    "quad": " ",
    "qquad": " ",
    "left": "",
    "right": "",
    "displaystyle": "",
    "boldsymbol": "",
    "large": "",
    "bf": "",
}
_NAMED_SIGN = re.compile(rf"\\({'|'.join(_LATEX_SIGNS)})(?![A-Za-z])")
_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf|tt)|mbox|emph|underline"
    r"|operatorname)\s?\{([^{}]*)\}"
)
_FRACTION = re.compile(
    r"(?P<whole>\d\s?)?(?:\\[dtc]?frac)\s?(?:\{\s?(?P<above>-?[\d.,]+)\s?\}\s?\{\s?(?P<below>[\d.,]+)\s?\}"
    r"|(?P<a>\d)\s?(?P<b>\d))"
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,8}\d{0,2});")
_BREAK = re.compile(
    r"</?(?:br|p|li|tr|div|h\d)\b[^<>\n]{0,100}>|</[\w -]{0,9}answer>|<\|[^<>\n]{0,60}\|>", re.IGNORECASE
)
_TAG = re.compile(r"</?(?![\w -]{0,9}answer>)[A-Za-z][^<>\n]{0,100}>", re.IGNORECASE)
_MATH = re.compile(r"\$(?=\S)([^$\n]*)(?<=\S)\$(?!\d)")  # $29$, and not "$29 a day, $7 a"


class Plain:
    """A text, and where each of its characters stood in the original one."""

    def __init__(self, text: str, starts: list[int], ends: list[int]) -> None:
        self.text = text
        self.starts = starts
        self.ends = ends

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return where the characters from `start` to `end`, at least one, stood."""
        return self.starts[start], self.ends[end - 1]

    def replace(self, pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str]) -> Plain:
        """Put `by` in place of each match; all its characters stand for the whole match."""
        return self._rebuilt(pattern, lambda match: (by if isinstance(by, str) else by(match), None, ""))

    def unwrap(self, pattern: re.Pattern[str]) -> Plain:
        """Keep of each match only its first group, between spaces."""
        return self._rebuilt(pattern, lambda match: (" ", match.span(1), " "))

    def _rebuilt(
        self, pattern: re.Pattern[str], parts: Callable[[re.Match[str]], tuple[str, tuple[int, int] | None, str]]
    ) -> Plain:
        texts: list[str] = []
        starts: list[int] = []
        ends: list[int] = []

        def keep(first: int, last: int) -> None:
            texts.append(self.text[first:last])
            starts.extend(self.starts[first:last])
            ends.extend(self.ends[first:last])

        def write(new: str, first: int, last: int) -> None:
            texts.append(new)
            starts.extend([self.starts[first]] * len(new))
            ends.extend([self.ends[last - 1]] * len(new))

        done = 0
        for match in pattern.finditer(self.text):
            keep(done, match.start())
            before, kept, after = parts(match)
            write(before, *match.span())
            if kept is not None:
                keep(*kept)
            write(after, *match.span())
            done = match.end()
        if not done:
            return self
        keep(done, len(self.text))
        return Plain("".join(texts), starts, ends)


def plain(text: str, regions: list[tuple[int, int]]) -> Plain:
    """Return what stands in these regions of `text`, without markup, as ASCII digits and compatible
    characters."""
    result = _folded(text, regions)
    for step in (_html, _latex, _markdown):
        result = step(result)
    return result


@lru_cache(maxsize=8192)
def folded_letter(letter: str) -> str:
    """Return a letter with its combining marks in a form that patterns can rely on."""
    first = letter[0]
    if unicodedata.category(first) == "Cf" or first == "\u20e3" or "\ufe00" <= first <= "\ufe0f":
        return ""  # directions, soft hyphens, the frames of keycaps
    form = unicodedata.decomposition(first).partition(" ")[0]
    normal = unicodedata.normalize("NFKC", letter).translate(_SAME)
    if len(normal) > _LETTERS_AT_MOST:
        return letter
    if unicodedata.digit(first, None) is not None and form in ("<super>", "<sub>"):
        return ("^" if form == "<super>" else "_") + normal
    if form == "<fraction>":
        return " " + normal  # 2½ is "2 1/2"
    return "".join(str(unicodedata.decimal(c, c)) for c in normal)


def folded(text: str) -> str:
    """Return `text` with its letters folded; patterns are written so too."""
    return _folded(text, [(0, len(text))]).text


def _folded(text: str, regions: list[tuple[int, int]]) -> Plain:
    texts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for first, last in regions:
        if text[first:last].isascii() and "\r" not in text[first:last]:
            texts.append(text[first:last])
            starts.extend(range(first, last))
            ends.extend(range(first + 1, last + 1))
            continue
        while first < last:
            end = first + 1
            while end < min(last, first + _MARKS_AT_MOST) and unicodedata.combining(text[end]):
                end += 1
            new = folded_letter(text[first:end])
            texts.append(new)
            starts.extend([first] * len(new))
            ends.extend([end] * len(new))
            first = end
    return Plain("".join(texts), starts, ends)


def _html(text: Plain) -> Plain:
    text = text.replace(re.compile(r"<<[^<>\n]{0,200}>>"), "")  # notes of a calculator
    if "&" in text.text:
        text = text.replace(_ENTITY, lambda match: folded(html.unescape(match.group())))
    text = text.replace(_BREAK, "\n")
    text = text.replace(re.compile(r"<sup>", re.IGNORECASE), "^")
    return text.replace(_TAG, " ")


def _latex(text: Plain) -> Plain:
    if "\\" in text.text:
        text = text.replace(re.compile(r"\\\$"), "¤")  # a currency, not a border of mathematics
        text = text.replace(re.compile(r"\\([%#&_])"), lambda match: match[1])
        text = text.replace(re.compile(r"\^\s?\{?\s?\\circ\b\s?\}?"), "°")
        text = text.replace(_NAMED_SIGN, lambda match: _LATEX_SIGNS[match[1]])
        text = text.replace(re.compile(r"\\[,!;:]"), "")
        text = text.replace(re.compile(r"\\\\(?![A-Za-z])"), "\n")
        text = text.replace(re.compile(r"\\[()\[\] ]"), " ")
        for _ in range(2):  # \text{\textbf{29}}
            text = text.unwrap(_WRAPPER)
        text = text.replace(_FRACTION, _fraction)
    text = text.replace(re.compile(r"\{,\}"), ",")
    text = text.replace(re.compile(r"\$\$"), " ")
    return text.unwrap(_MATH)


def _fraction(match: re.Match[str]) -> str:
    above, below = match["above"] or match["a"], match["below"] or match["b"]
    whole = f"{match['whole'].strip()} " if match["whole"] else ""
    return f"{whole}{above.replace(',', '')}/{below.replace(',', '')}"


def _markdown(text: Plain) -> Plain:
    text = text.replace(re.compile(r"~~[^~\n]*~~"), " ")  # struck out
    text = text.replace(re.compile(r"(?<=\d)~(?=\d)"), "\u2013")
    text = text.replace(re.compile(r"(?<=\d)\*\*(?=-?\d)"), "^")
    text = text.replace(re.compile(r"\*\*|__|`|~"), " ")
    return text.replace(re.compile(r"(?<=\n)[ \t]{0,20}[-*+•‣▪◦][ \t]{1,9}(?=\S)"), "")  # a list's mark, no sign
