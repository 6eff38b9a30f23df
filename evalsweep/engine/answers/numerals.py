"""Numerals: where numbers stand in plain text, and what each is worth.

Digits with the separators of several countries, fractions, exponents, scales (`1.5 million`, `3万`),
Chinese numerals and English number words.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

from evalsweep.engine.answers.markup import folded
from evalsweep.engine.answers.number_words import (
    ENGLISH_WORDS,
    HAN,
    HAN_DIGIT,
    HAN_UNIT,
    LONGEST,
    english_words,
    han_tokens,
    han_value,
    han_words,
)

SEPARATOR_DOUBT = "the separator may be of thousands or of decimals"
MOST = 10_000  # numerals that are read of one answer

CURRENCY_SIGN = r"[$¢-¥֏؋৲৳৻૱௹฿៛₠-\u20c0]"
CURRENCY = (
    rf"(?:\b[A-Z]{{1,3}}|\bMex|\bS/)?{CURRENCY_SIGN}"
    r"|\b(?:Rs|Rp|RM|Fr|Kr|S/|INR|USD|EUR|GBP|CNY|RMB|JPY|CHF|AUD|CAD|Php)(?![^\W\d_])\.?"
)
_GROUPED = r"\d{1,3}(?P<gap>[ '_])\d{3}(?:(?P=gap)\d{3}){0,6}(?!\d)(?:[.,]\d+)?"  # 1 000 and 1'000,5
_DIGITS = rf"{_GROUPED}|\d+(?:[.,]\d+)*+|(?<![\w.])\.\d+"

_SCALES = {
    100: r"hundred|सौ",
    1000: r"thousand|thousands|mil|mille|mila|tausend|duizend|tusen|тыс\.?|тысяч\w?|ribu|nghìn|ngàn|bin|tys\.?|tysięcy"
    r"|हजार|हज़ार|হাজার|ألف|آلاف|พัน",
    10**4: r"หมื่น",
    10**5: r"lakhs?|lacs?|लाख|লাখ|লক্ষ|แสน",
    10**6: r"millions?|millones|millón|millionen|mio\.?|milhões|milhão|milioni|milione"
    r"|miljoen|miljoner|млн\.?|миллион\w{0,2}"
    r"|juta|triệu|milyon|milion\w{0,2}|mln\.?|مليون|ملايين|ล้าน",
    10**7: r"crores?|करोड़|কোটি",
    10
    ** 9: r"billions?|milliarden?|mrd\.?|milliards?|miliardi|miliarde?|miljard|млрд\.?|миллиард\w{0,2}|tỷ|milyar|مليار",
    10**12: r"trillions?|триллион\w{0,2}",
}
_SCALE = folded("|".join(f"(?P<s{zeros}>{words})" for zeros, words in _SCALES.items()))
_SHORT_SCALES = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9, "t": 10**12}
_MINUS = folded(r"minus|negative|negativ|menos|moins|meno|минус|负|負|マイナス|ลบ|ऋण|سالب|ناقص")

_NUMBER = re.compile(
    rf"""
    (?P<sign>[-+–]\s?|(?<![^\W\d_])(?:{_MINUS})\s?)?+
    (?P<currency>(?:{CURRENCY})\s?)?+
    (?P<inner>[-+])?+
    (?P<digits>{_DIGITS})
    (?P<exponent>[eE][-+]?\d{{1,3}}(?!\w))?
    (?:\s?/\s?(?P<below>\d+)|\s(?P<above>\d+)\s?/\s?(?P<of>\d+)(?!\d|[.,]\d))?   # 1/3, and 2 1/3
    """,
    re.VERBOSE,
)
_AFTER = re.compile(rf"[\s-]?(?:{_SCALE})(?![^\W\d_])", re.IGNORECASE)
_SHORT = re.compile(r"(?P<short>bn|mn|[kmbt])(?![\w/]|\s(?:run|race|marathon)\b)", re.IGNORECASE)
_HAN_AFTER = re.compile(
    rf"\s?(?:千(?![克米瓦卡])|百(?!分)|[万萬亿億백천만억])(?:\s?\d+(?=\s?[{HAN_UNIT}백천만억])"
    rf"|[{HAN_DIGIT}{HAN_UNIT}백천만억]){{0,20}}"
    r"(?:\d{1,9})?"
)
_CENTS_AFTER = re.compile(
    r"\s?(?:dollars?|euros?|pounds?)?\s(?:and\s)?(?P<cents>\d\d?)\s(?:cents?|pence)\b", re.IGNORECASE
)
_HALF_AFTER = re.compile(r"\s(?:and\s(?:a|one)\shalf|y\smedia|et\sdemie?)\b", re.IGNORECASE)

# What makes a number part of something else: a range, a difference, a sum, a time or ratio, a fraction, an ordinal
_OPERATOR = r"\s?[*×x·+÷]\s?"
_TO = folded(r"\s?(?:至|到|から)\s?|\s(?:to|bis|a|à|до|đến|hingga|sampai)\s")
_DASH = r"\s?[-–—]\s?"
_PART_AFTER = re.compile(
    rf"(?:{_DASH}|{_OPERATOR}|{_TO})\(?{CURRENCY_SIGN}?\s?\d|\^|:\d|\s?/\s?\d|[,.]\d|(?:st|nd|rd"
    rf"|th)\b|k\s(?:run|race|marathon)\b",
    re.IGNORECASE,
)
_PART_BEFORE = re.compile(
    rf"(?:\d\s?(?:%|{CURRENCY_SIGN})?(?:{_DASH}|{_OPERATOR}|{_TO}|\s?/)|\)(?:{_OPERATOR}|{_DASH}|\s?/\s?)"
    rf"|\^[{{(]?-?){CURRENCY_SIGN}?\s?\Z|\d[:,.]\Z|[A-Za-zÀ-ɏͰ-Ͽ\u0400-\u04ff_]\Z",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\bbetween\s\S{0,12}\s?\Z", re.IGNORECASE)
_BETWEEN_AND = re.compile(r"\bbetween\s\S{1,12}\s(?:\S{1,12}\s)?and\s\S?\Z", re.IGNORECASE)
_AND = re.compile(r"[^.\n]{0,15}\sand\s")
_ROUNDS = re.compile(r"\bround\w*\s[^.\n]{0,20}\Z", re.IGNORECASE)  # "rounding 28.6 to 29" is no range
_TO_BEFORE, _TO_AFTER = re.compile(r"\d\s?to\s\S?\Z"), re.compile(r"\s?to\s")
_SIGN_MAY_STAND = re.compile(
    r"(?:^|[\s(\[{\"'“«=:≈|>,¤!]|[\u0600-\u06ff\u0900-\u0dff\u0e00-\u0fff\u2e80-\u9fff\uac00-\ud7af])\Z"
)
_SPACED_SIGN_MAY_STAND = re.compile(r"(?:^|[=:(\[{≈]|\bis)\s*\Z", re.IGNORECASE)

_FOREIGN = re.compile(
    folded(
        r"[€₫₺]|\beuros?\b|\bRp|\bR\$|\brupiah\b"
        r"|\b(?:der|das|und|ist|sind|lautet|antwort|kostet|insgesamt|el|los|las|una|respuesta"
        r"|cuesta|dólares|le|les|est|sont"
        r"|réponse|coûte|il|è|sono|risposta|são|resposta|custa|reais|het|een|antwoord|svaret|svar"
        r"|är|vastaus|odpowiedź"
        r"|cevap|toplam|adalah|jawaban|jawabannya|đáp|là|răspunsul|este|odpověď|vyjde|wynosi|apa"
        r"|gesamt|ergibt)\b"
        r"|[\u0370-\u04ff]"
    ),
    re.IGNORECASE,
)
_ENGLISH = re.compile(r"\b(?:the|are|he|she|answer|of|has|it|they|we)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Numeral:
    """Digits or number words within a text.

    `value` is None where they are no single number: a range, a sum, a time, a name such as A4. `spelled` tells words
    from digits; `small` marks words such as "one" that need not count anything.
    """

    start: int
    end: int
    value: Fraction | None
    doubt: str | None = None
    currency: bool = False
    spelled: bool = False
    small: bool = False


def numerals(text: str) -> list[Numeral]:
    """Return the numerals of a plain text, in order; of a text with very many only the last."""
    found = _of_digits(text)
    for pattern, value_of in ((ENGLISH_WORDS, english_words), (HAN, han_words)):
        for match in deque(pattern.finditer(text), maxlen=MOST):
            value = value_of(match.group())
            if value is not None:
                small = len(match.group()) == 1 or value <= 10
                found.append(Numeral(*match.span(), value, spelled=True, small=small))
    return _apart(sorted(found, key=lambda numeral: (numeral.start, -numeral.end)))


def _of_digits(text: str) -> list[Numeral]:
    foreign, english = bool(_FOREIGN.search(text)), bool(_ENGLISH.search(text))
    found: list[Numeral] = []
    for match in deque(_NUMBER.finditer(text), maxlen=MOST):
        if not found or match.start() >= found[-1].end:
            found.append(_numeral(text, match, foreign, english))
    return found


def _apart(found: list[Numeral]) -> list[Numeral]:
    """Leave out what stands within the numeral before."""
    result: list[Numeral] = []
    for numeral in found:
        if not result or numeral.start >= result[-1].end:
            result.append(numeral)
    return result


def _numeral(text: str, match: re.Match[str], foreign: bool, english: bool) -> Numeral:
    start, sign = _sign(text, match)
    currency = bool(match["currency"]) or text[match.end() : match.end() + 2].lstrip()[:1] in tuple("$€£¥₹¤")
    value, doubt = amount(match["digits"], foreign, english)
    end = match.end()
    if value is not None:
        value = _with_fraction(value, match)
    if value is not None:
        value, end = _scaled(value, text, end, currency)
    if value is not None and (cents := _CENTS_AFTER.match(text, end)):
        value, end = value + Fraction(int(cents["cents"]), 100), cents.end()
    if value is not None and (half := _HALF_AFTER.match(text, end)):
        value, end = value + Fraction(1, 2), half.end()
    if _is_part(text, match.start() if sign else start, end):
        value = None
    return Numeral(start, end, None if value is None else sign * value if sign else value, doubt, currency)


def _sign(text: str, match: re.Match[str]) -> tuple[int, int]:
    """Return where the numeral begins, and 1 or -1 for a sign before it, 0 for none.

    A dash after a word, or one between words with a space on both sides, is no sign.
    """
    written, start = match["sign"] or "", match.start()
    if match["inner"]:
        return start, -1 if "-" in match["inner"] else 1
    if not written:
        return start, 0
    before = text[max(0, start - 12) : start]
    spaced = written[-1:].isspace() and written[0] in "-+–"
    stands = _SPACED_SIGN_MAY_STAND if spaced else _SIGN_MAY_STAND
    if written[0] in "-+–" and not stands.search(before) and not re.search(r"[\d)]\s?\Z", before):
        return start + len(written), 0
    return start, 1 if written[0] == "+" else -1


def _is_part(text: str, start: int, end: int) -> bool:
    """Say whether the number from `start` to `end` is one end of a range, one term of a sum, or the like."""
    near = text[max(0, start - 10) : start]
    if text[start] in "-+–" and re.search(r"[\d)]\s?\Z", near):
        return True  # 16-8
    if _PART_BEFORE.search(near):
        return not (_TO_BEFORE.search(near) and _ROUNDS.search(text[max(0, start - 32) : start]))
    if _PART_AFTER.match(text, end):
        return not (_TO_AFTER.match(text, end) and _ROUNDS.search(text[max(0, start - 32) : start]))
    before = text[max(0, start - 32) : start]
    return "between" in before.lower() and bool(
        _BETWEEN_AND.search(before) or (_BETWEEN.search(before) and _AND.match(text, end))
    )


def amount(digits: str, foreign: bool, english: bool) -> tuple[Fraction | None, str | None]:
    """Return what digits with separators are worth, and why a person could read them another way.

    Args:
        digits: ASCII digits with `.`, `,`, `'`, `_` and spaces between.
        foreign: the text is in a language that writes 1.250,5.
        english: the text is in a language that writes 1,250.5.

    None where the separators make no number, as in 1.2.3, or where the run is too long to be meant.
    """
    if len(digits) > LONGEST:
        return None, None
    if digits.isdecimal():
        return Fraction(int(digits)), None
    gapped = re.search(r"[ '_]", digits)
    digits = re.sub(r"[ '_]", "", digits)
    commas, dots = digits.count(","), digits.count(".")
    if gapped and commas + dots == 1:  # 1 234,5
        return Fraction(digits.replace(",", ".")), None
    if commas and dots:
        decimal = "," if digits.rindex(",") > digits.rindex(".") else "."
        whole, _, rest = digits.rpartition(decimal)
        grouped = _ungrouped(whole, "." if decimal == "," else ",")
        return (None if grouped is None else Fraction(f"{grouped}.{rest}")), None
    if commas > 1 or dots > 1:
        grouped = _ungrouped(digits, "," if commas else ".")
        return (None if grouped is None else Fraction(grouped)), None
    if commas:
        return _one_comma(digits, foreign and not english)
    if re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", digits):
        if foreign:
            return Fraction(digits.replace(".", "")), SEPARATOR_DOUBT
        return Fraction(digits), None if english else SEPARATOR_DOUBT
    return Fraction(digits), None


def _one_comma(digits: str, may_be_decimal: bool) -> tuple[Fraction, str | None]:
    if re.fullmatch(r"[1-9]\d{0,2},\d{3}", digits):
        return Fraction(digits.replace(",", "")), SEPARATOR_DOUBT if may_be_decimal else None
    return Fraction(digits.replace(",", ".")), None if digits.startswith("0,") else SEPARATOR_DOUBT


def _ungrouped(digits: str, separator: str) -> str | None:
    """Return the digits without separators of thousands, also in India's grouping (12,34,567)."""
    indian = rf"|[1-9]\d?(?:{re.escape(separator)}\d{{2}})+{re.escape(separator)}\d{{3}}" if separator == "," else ""
    pattern = rf"\d+|\d{{1,3}}(?:{re.escape(separator)}\d{{3}})+{indian}"
    return digits.replace(separator, "") if re.fullmatch(pattern, digits) else None


def _with_fraction(value: Fraction, match: re.Match[str]) -> Fraction | None:
    below, above, of = match["below"], match["above"], match["of"]
    if any(part and len(part) > LONGEST for part in (below, above, of)):
        return None
    if match["exponent"]:
        value *= Fraction(10) ** int(match["exponent"][1:])
    if below:
        return value / int(below) if int(below) else None
    if above:
        return value + Fraction(int(above), int(of)) if int(of) else None
    return value


def _scaled(value: Fraction, text: str, end: int, currency: bool) -> tuple[Fraction | None, int]:
    """Multiply by the scales that follow: "million", "5 hundred thousand", "k"; "M" and the like only of money."""
    if han := _HAN_AFTER.match(text, end):
        return han_value([value, *han_tokens(han.group())]), han.end()
    for _ in range(2):
        if not (scale := _AFTER.match(text, end)):
            break
        value *= int(scale.lastgroup[1:] if scale.lastgroup else 1)
        end = scale.end()
    else:
        return value, end
    short = _SHORT.match(text, end)
    if short and (currency or short["short"] in ("k", "K", "M", "bn", "mn")):
        return value * _SHORT_SCALES[short["short"].lower()], short.end()
    return value, end
