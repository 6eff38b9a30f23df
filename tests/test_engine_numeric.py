"""The number that a written answer gives."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path

import pytest
from conftest import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsweep.engine.answers.markup import plain
from evalsweep.engine.answers.number_words import english_words, han_words
from evalsweep.engine.answers.numerals import amount
from evalsweep.engine.answers.numeric import NOTHING, number_of, read, vote

DATA = Path(__file__).parent / "data"

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)

ANSWERS = {
    # GSM8K's own marker
    "#### 18": 18,
    "####18": 18,
    "#### $123": 123,
    "#### 5.0": 5,
    "#### -7": -7,
    "#### 1,234": 1234,
    "#### 1,234,567": 1234567,
    "#### $1,000.50": Fraction(2001, 2),
    "#### 50%": 50,
    "#### 0.5": HALF,
    "#### .5": HALF,
    "#### 12 dollars": 12,
    "#### 12.": 12,
    "#### 18 dollars for 3 eggs": 18,
    "#### 7/2": Fraction(7, 2),
    # other markers; the last one wins
    "#### 16 #### 18": 18,
    "#### 3\n#### 4": 4,
    "The answer is 12": 12,
    "The answer is 12.": 12,
    "the answer is $5.00": 5,
    "The answer is **42**.": 42,
    "So the answer is 3 + 4 = 7.": 7,
    "The answer is 18. Done in 3 steps.": 18,
    "The answer is\n\n18": 18,
    "The final answer is 9": 9,
    "Final answer: 9 apples": 9,
    "**Final Answer:** 72": 72,
    "Answer: The answer is 4": 4,
    "The answer is unclear. I think 7": 7,
    "The answer is 10-15.": None,
    "The answer is 12 = 3*4": 12,
    "The answer is 3 * 4 = 12": 12,
    "1e3": 1000,
    "#### 2.5e-1": Fraction(1, 4),
    "10^3": None,
    "$10^{3}$": None,
    # boxes and LaTeX
    r"\boxed{42}. Done in 3 steps": 42,
    r"$\boxed{42}$": 42,
    r"\boxed{\$1{,}000}": 1000,
    r"\boxed{\text{18 eggs}}": 18,
    r"\boxed{\frac{1}{2}}": HALF,
    r"\boxed{-3}": -3,
    r"so \boxed{5} but then \boxed{6}": 6,
    r"\(18\)": 18,
    r"18\%": 18,
    "The total is $$18$$": 18,
    # going on to another question
    "8\n\nQuestion 2": 8,
    "8\n\nQuestion: Tom has 5 pens": 8,
    "Answer: 8\n\nQuestion 2: What": 8,
    "He has 5 apples.\nQ: What is 2+2?\nA: 4": 5,
    "#### 8\n\nQuestion: Tom has 5 pens\nAnswer: #### 9": 8,
    # no marker: the last number
    "16 - 3 - 4 = 9 eggs, 9 * 2 = 18": 18,
    "She makes $18 every day": 18,
    "5, 6": 6,
    "x = 5": 5,
    "(5)": 5,
    "0": 0,
    # separators, currency, units
    "It costs 1 000 euros": 1000,
    "It costs 1\u202f000 euros": 1000,
    "1'000": 1000,
    "$5.00": 5,
    "$ 5": 5,
    "€5": 5,
    "5€": 5,
    "about 5kg": 5,
    "5 km/h": 5,
    "2.50 dollars": Fraction(5, 2),
    "\uff15": 5,
    # signs
    "-5": -5,
    "\u22125": -5,
    "- 5": -5,
    "-$5": -5,
    "$-5": -5,
    "+5": 5,
    # fractions are fractions; ranges, times, ordinals and names are no numbers
    "1/3": THIRD,
    "It is 1/3": THIRD,
    "2 1/2": Fraction(5, 2),
    "16-8": None,
    "10-15": None,
    "10\u201315 eggs": None,
    "between 10 to 15": None,
    "at 3:30": None,
    "3rd place": None,
    "A4 paper": None,
    "1,5": None,
    "5/0": None,
    "no number": None,
    "": None,
}


@pytest.mark.parametrize("text", ANSWERS, ids=repr)
def test_the_number_of_an_answer(text):
    assert number_of(text) == ANSWERS[text]


def answers_of(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


# Collected from models and people; further ones of the same and of neighbouring kinds
WRITTEN = answers_of("written_answers.jsonl") + answers_of("further_answers.jsonl")


@pytest.mark.parametrize("answer", WRITTEN, ids=lambda answer: repr(answer["text"]))
def test_a_written_answer_is_read_right_and_doubted_where_it_is_ambiguous(answer):
    reading = read(answer["text"])
    assert reading.number == (None if answer["right"] is None else Fraction(answer["right"]))
    assert (reading.doubt is not None) == (answer.get("flag") == "ambiguous")


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Hence 29 is the final answer, since 4*7 = 28, plus 1.", 29),
        ("So 29 eggs is the answer. I used 4 times 7.", 29),
        ("7 is the answer to the first part. The answer is 29.", 29),
        ("$1,250 is my final answer (5 * 250).", 1250),
    ],
)
def test_a_number_before_its_marker_is_read(text, right):
    assert number_of(text) == right


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The answer is **$1.5 million**.", "$1.5 million"),
        ("答案是２９。", "２９"),
        ("so \\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("<think>5</think> 2\ufe0f\u20e39\ufe0f\u20e3 apples", "2\ufe0f\u20e39"),
        ("The answer is twenty-nine.", "twenty-nine"),
        ("#### 1{,}000", "1{,}000"),
        ("It is 2½ in all", "2½"),
        ("The answer is \u221229", "\u221229"),
    ],
)
def test_the_words_that_were_read_stand_in_the_answer_as_given(text, words):
    reading = read(text)
    assert reading.text == words
    assert text[reading.start : reading.end] == words


def test_where_nothing_is_read_there_are_no_words():
    assert read("I do not know.") == NOTHING


PIECES = [
    *(
        "29",
        "-3",
        "1,250",
        "1.250,5",
        "２９",
        "٢٩",
        "二十九",
        "½",
        "twenty-nine",
        "\\frac{1}{2}",
        "5 million",
        "10-15",
        "3:45",
    ),
    *(
        "#### ",
        "The answer is ",
        "答案是",
        "Ответ: ",
        "\\boxed{",
        "}",
        "<answer>",
        "</answer>",
        "$",
        "**",
        "~~",
        "`",
        "(",
    ),
    *(
        "<think>",
        "</think>",
        "<|im_end|>",
        "\n",
        " ",
        ".",
        "\n\nQuestion: ",
        "not ",
        " = ",
        " + ",
        "ﷺ",
        "e\u0301",
        "\u200b",
        "&frac12;",
    ),
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=25).map("".join) | st.text())
@settings(max_examples=400, deadline=None)
def test_a_reading_is_a_part_of_the_answer(text):
    reading = read(text)
    if reading.number is None:
        assert (reading.text, reading.start, reading.end) == ("", -1, -1)
    else:
        assert 0 <= reading.start < reading.end
        assert text[reading.start : reading.end] == reading.text


@given(st.text())
def test_each_plain_character_knows_its_place(text):
    result = plain(text, [(0, len(text))])
    assert len(result.text) == len(result.starts) == len(result.ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(result.starts, result.ends, strict=True))
    assert result.starts == sorted(result.starts)
    assert result.ends == sorted(result.ends)


LONG = [
    *(
        "1",
        "1,",
        "1.",
        "1 ",
        "000 ",
        "(",
        "((1",
        "$",
        "$1 ",
        "1/",
        "1-",
        "_1",
        "\n",
        "\t",
        " ",
        "a",
        "#",
        "<a",
        "<<",
        "&#",
        "{",
    ),
    *(
        "**",
        "- ",
        "one ",
        "1 and ",
        "一",
        "1万",
        "约",
        "١",
        "é",
        "\u0301\u0316",
        "ﷺ",
        "x=1",
        "so 1 ",
        "not ",
        "1e9",
        "29 million ",
    ),
    *(
        "the answer is ",
        "answer to ",
        "answer:",
        "\\boxed{",
        "\\frac{1",
        "\\text{",
        "####",
        "<think>",
        "\nuser",
        "1. a\n",
        "答案是",
    ),
]


@pytest.mark.parametrize("piece", LONG, ids=repr)
def test_a_long_answer_of_any_shape_is_read_quickly(piece):
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    read(text)
    assert time.process_time() - start < 5  # about one second at the most where nothing else runs


@pytest.mark.parametrize(
    ("digits", "foreign", "value", "doubted"),
    [
        ("1,250", False, 1250, False),
        ("1,250", True, 1250, True),
        ("1.250", False, Fraction(5, 4), False),
        ("1.250", True, 1250, True),
        ("3,5", False, Fraction(7, 2), True),
        ("0,5", True, HALF, False),
        ("0,500", True, HALF, False),
        ("1.234.567,89", True, Fraction(123456789, 100), False),
        ("1,234,567.5", False, Fraction(2469135, 2), False),
        ("1 234,5", True, Fraction(2469, 2), False),
        ("12,34,567", False, 1234567, False),
        ("1,2,3", False, None, False),
        ("1.2.3", False, None, False),
        ("1" * 5000, False, None, False),
    ],
)
def test_separators(digits, foreign, value, doubted):
    read_value, doubt = amount(digits, foreign, english=not foreign)
    assert read_value == value
    assert (doubt is not None) == doubted


@pytest.mark.parametrize(
    ("words", "value"),
    [
        *[
            ("十", 10),
            ("十五", 15),
            ("二十九", 29),
            ("一百零五", 105),
            ("一百二", 120),
            ("一百二十", 120),
            ("三千", 3000),
        ],
        *[("两万", 20000), ("三万五", 35000), ("一亿三千万", 130_000_000), ("二〇二四", 2024), ("壹佰贰拾", 120)],
        *[("三点五", Fraction(7, 2)), ("负五", -5), ("三分之一", THIRD), ("百分之五", 5), ("零", 0)],
    ],
)
def test_chinese_numerals(words, value):
    assert han_words(words) == value


@given(st.integers(0, 10**8 - 1))
def test_a_chinese_numeral_is_read_back(n):
    assert han_words(in_chinese(n)) == n


def in_chinese(n):
    if n >= 10_000:
        rest = n % 10_000
        return in_chinese(n // 10_000) + "万" + ("零" if 0 < rest < 1000 else "") + (in_chinese(rest) if rest else "")
    result, gap = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // unit % 10
        if digit:
            result += ("零" if gap and result else "") + "零一二三四五六七八九"[digit] + name
        gap = not digit
    return result or "零"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        *[("twenty-nine", 29), ("one hundred and five", 105), ("a hundred", 100), ("two thousand", 2000)],
        *[("one million two hundred thousand", 1_200_000), ("minus five", -5), ("two and a half", Fraction(5, 2))],
        *[("two three", None), ("twenty thirty", None)],
    ],
)
def test_english_number_words(words, value):
    assert english_words(words) == value


DECORATIONS = [
    "#### {}",
    "The answer is {}.",
    "so it is {} in all",
    "**{}**",
    r"\boxed{{{}}}",
    "Final answer: {} apples",
    "5 - 2 = 3, so\n#### {}",
    "{}\n\nQuestion: Ann has 7 cats.",
]
WRITINGS = [
    lambda n: f"{n}",
    lambda n: f"{n:,}",
    lambda n: f"{n}.0",
    lambda n: f"{n:,}.00",
    lambda n: f"${n:,}" if n >= 0 else f"-${-n:,}",
    lambda n: f"{n}%",
    lambda n: f"{n:,}".replace(",", " "),
    lambda n: f"{n}".replace("-", "\u2212"),
]


@given(st.integers(-(10**9), 10**9), st.sampled_from(DECORATIONS), st.sampled_from(WRITINGS))
def test_a_whole_number_written_in_any_supported_way_is_read_back(n, decoration, writing):
    assert number_of(decoration.format(writing(n))) == n


@given(st.decimals(-(10**6), 10**6, places=2), st.sampled_from(DECORATIONS))
def test_a_decimal_is_read_back(value, decoration):
    assert number_of(decoration.format(value)) == Fraction(value)


@given(st.integers(1, 999), st.integers(1, 999), st.sampled_from(DECORATIONS))
def test_a_fraction_is_never_one_of_its_parts(above, below, decoration):
    assert number_of(decoration.format(f"{above}/{below}")) == Fraction(above, below)


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    number_of(text)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark data beside the checkout is not here")
def test_all_gold_answers_of_gsm8k_are_read():
    for split in ("train", "test"):
        for line in (SHARED / "gsm8k" / f"{split}.jsonl").read_text().splitlines():
            answer = json.loads(line)["answer"]
            reading = read(answer)
            assert reading.number == Fraction(answer.rpartition("#### ")[2].replace(",", ""))
            assert reading.doubt is None


NONE = None


@pytest.mark.parametrize(
    ("answers", "target", "credit", "tied"),
    [
        ([18, 18, 5, NONE, 7], 18, 1.0, False),
        ([5, 5, 18, 18, NONE], 18, 0.5, True),
        ([5, 6, 7], 18, 0.0, True),
        ([NONE, NONE, NONE, 18, NONE], 18, 1.0, False),
        ([NONE, NONE], 18, 0.0, False),
        ([5, 5, 18], 18, 0.0, False),
        ([1, 2, 18], 18, 1 / 3, True),
    ],
)
def test_failed_extractions_do_not_vote_and_ties_count_as_their_chance(answers, target, credit, tied):
    answers = [None if a is None else Fraction(a) for a in answers]
    assert vote(answers, Fraction(target)) == (credit, tied)


@given(st.lists(st.sampled_from([None, 1, 2, 3]), min_size=1, max_size=9), st.randoms())
def test_the_order_of_the_answers_decides_no_vote(answers, random):
    answers = [None if a is None else Fraction(a) for a in answers]
    before = vote(answers, Fraction(1))
    random.shuffle(answers)
    assert vote(answers, Fraction(1)) == before


def test_numbers_vote_by_value_and_not_by_their_writing():
    answers = [number_of(text) for text in ("#### 18", "The answer is $18.00.", "7", "so 7", "\\boxed{18.0}")]
    assert vote(answers, Fraction(18)) == (1.0, False)
