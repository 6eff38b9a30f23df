"""Number words: Chinese numerals, also of Japanese and in their formal shape, and English number words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

LONGEST = 300  # digits; a longer run is no number that anybody answers with
HAN_DIGIT = "〇零一二两兩三四五六七八九壹贰貳叁參肆伍陆陸柒捌玖"
HAN_UNIT = "十拾百佰千仟万萬亿億廿卅"
_HANGUL_UNITS = {"백": "百", "천": "千", "만": "万", "억": "亿"}

_HAN_VALUES = dict(zip("零一二三四五六七八九", range(10), strict=True))
_HAN_VALUES |= dict(zip("〇壹贰叁肆伍陆柒捌玖", range(10), strict=True))
_HAN_VALUES |= {"两": 2, "兩": 2, "貳": 2, "參": 3, "陸": 6}
_HAN_UNITS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_HAN_MYRIADS = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_HAN_NO_NUMBER = (  # words that begin with a numeral's sign and count nothing
    "一[共起样樣些定直半般切旦下边邊方致番緒瞬同人]|万一|萬一|十分|千万(?![元个人円])|三角|三明治|四周|二手|百货|千[克米]"
)
HAN = re.compile(
    rf"(?<![第几每周\d{HAN_DIGIT}{HAN_UNIT}])(?<!星期)(?<![统唯专])(?!{_HAN_NO_NUMBER})"
    rf"(?:负|負|マイナス)?(?:[{HAN_DIGIT}{HAN_UNIT}]{{1,20}}分之)?[{HAN_DIGIT}{HAN_UNIT}]{{1,40}}"
    rf"(?:[点點][{HAN_DIGIT}]{{1,20}})?(?![克米瓦月]|分之)"
)


def han_words(words: str) -> Fraction | None:
    """Return what a Chinese numeral is worth, also with 点, 分之 and 负; None where it is none."""
    sign = -1 if words.startswith(("负", "負", "マイナス")) else 1
    words = words.removeprefix("负").removeprefix("負").removeprefix("マイナス")
    below, _, above = words.rpartition("分之")
    whole, _, decimals = above.replace("點", "点").partition("点")
    value = han_value(han_tokens(whole))
    if value is None:
        return None
    if decimals:
        value += Fraction("0." + "".join(str(_HAN_VALUES[c]) for c in decimals))
    if below and below != "百":  # per cent is left as it is, as with %
        divisor = han_value(han_tokens(below))
        if not divisor:
            return None
        value /= divisor
    return sign * value


def han_tokens(words: str) -> list[Fraction | str]:
    words = words.replace("廿", "二十").replace("卅", "三十")
    for hangul, han in _HANGUL_UNITS.items():
        words = words.replace(hangul, han)
    tokens = re.findall(r"\d+|\S", words)
    return [Fraction(token) if token.isdecimal() and len(token) <= LONGEST else token for token in tokens]


def han_value(tokens: Sequence[Fraction | str]) -> Fraction | None:
    """Add up digits and units; 二九 without units is 29, and 三千五 is 3500."""
    if len(tokens) > 1 and all(token in _HAN_VALUES for token in tokens):
        return Fraction("".join(str(_HAN_VALUES[str(token)]) for token in tokens))
    total, section, digit, unit = Fraction(0), Fraction(0), None, 1
    for token in tokens:
        if isinstance(token, Fraction) or token in _HAN_VALUES:
            new = token if isinstance(token, Fraction) else Fraction(_HAN_VALUES[token])
            if digit:
                return None  # two digits side by side
            digit, unit = new, 1 if new == 0 or isinstance(token, Fraction) else unit
        elif token in _HAN_UNITS:
            unit = _HAN_UNITS[token]
            section += (1 if digit is None else digit or 1) * unit
            digit = None
        elif token in _HAN_MYRIADS:
            unit = _HAN_MYRIADS[token]
            section += digit or 0
            total = total * unit if section == 0 else total + section * unit
            section, digit = Fraction(0), None
        else:
            return None
    if digit is None:
        return total + section
    return total + section + digit * (unit // 10 if unit > 10 else 1)


# English number words

# fmt: off
_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]
# fmt: on
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORD_VALUES = {word: i for i, word in enumerate(_UNITS)} | {word: 20 + 10 * i for i, word in enumerate(_TENS)}
_WORD_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_WORD = "|".join(sorted(_WORD_VALUES, key=len, reverse=True))
ENGLISH_WORDS = re.compile(
    rf"(?:\b(?:minus|negative)\s)?\b(?:(?:{_WORD})|an?(?=\s(?:hundred|thousand|million)))\b"
    rf"(?:(?:\sand\s|[\s-])(?:{_WORD}|{'|'.join(_WORD_SCALES)})\b){{0,12}}+(?:\sand\sa\shalf\b)?",
    re.IGNORECASE,
)


def english_words(words: str) -> Fraction | None:
    """Return what English number words are worth; None for a list such as "two, three"."""
    words = words.lower()
    half = Fraction(1, 2) if words.endswith("half") else Fraction(0)
    total, section, last = 0, 0, 0
    for word in re.split(r"[\s-]+", words):
        if word in ("minus", "negative", "and", "half"):
            continue
        if word == "hundred":
            section = max(section, 1) * 100
        elif word in _WORD_SCALES:
            total, section = total + max(section, 1) * _WORD_SCALES[word], 0
        elif word in _WORD_VALUES:
            if last and (_WORD_VALUES[word] >= 10 or last < 20):
                return None
            section += _WORD_VALUES[word]
        last = _WORD_VALUES.get(word, 0)
    value = total + section + half
    return -value if words.startswith(("minus", "negative")) else value
