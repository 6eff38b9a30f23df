"""Answers as text: decoded behind their prompts by real tokenizers, cut at stop strings, parted from their thinking."""

from __future__ import annotations

import pytest
from zoo import TOKENIZERS, Zoo

from evalsweep.engine.models.text import CONTEXT, Detokenizer, cut, first_stop, special_tokens
from evalsweep.engine.models.thinking import Parted, part, quiet_regions

SENTENCEPIECE = ("sentencepiece_v1", "sentencepiece_v3")
ANSWERS = [
    " 4",
    "    return a + b\n",
    "\n\n#### 1,234",
    "a  b   c",
    "\tx\r\n",
    " . , ! 's do n't",
    "Les élèves, 東京で 😀👩‍🚀 ok",
    "ភាសាខ្មែរ",
    "",
]
PROMPTS = ["Question: What is 2 + 2?\nAnswer:", "def add(a, b):\n", "東京 😀", "ភាសាខ្មែរ" * 6, "x"]


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest, zoo: Zoo):
    return zoo.tokenizer(request.param)


def bytes_of(tokenizer, text):
    """The byte tokens of a text, as SentencePiece has them for what is not in its vocabulary."""
    return tokenizer.convert_tokens_to_ids([f"<0x{byte:02X}>" for byte in text.encode()])


def never(_text):
    return []


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_answer_is_the_text_that_follows_the_prompts(tokenizer, prompt):
    words = Detokenizer(tokenizer)
    before = tokenizer(prompt)["input_ids"]
    for answer in ANSWERS:
        ids = tokenizer(prompt + answer)["input_ids"]
        if ids[: len(before)] == before:  # else the answer's first letters are one token with the prompt's last
            assert words.plain(before, ids[len(before) :]) == answer
            assert words.marked(before, ids[len(before) :]) == answer


def test_what_is_special_is_what_transformers_decoding_leaves_out(tokenizer):
    every = range(len(tokenizer))
    left_out = {i for i in every if tokenizer.decode([i]) and not tokenizer.decode([i], skip_special_tokens=True)}
    assert set(special_tokens(tokenizer)) == left_out


def test_special_tokens_within_an_answer_are_left_out_or_spelled(tokenizer):
    words = Detokenizer(tokenizer)
    token, mark = next(iter(words.special.items()))
    before = tokenizer("Answer:")["input_ids"]
    one, two = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("one", "two"))
    plain, marked = words.plain(before, [*one, token, *two]), words.marked(before, [*one, token, *two])
    assert plain == words.plain(before, [*one, *two])
    assert mark not in plain
    assert marked.count(mark) == 1
    assert marked.index("one") < marked.index(mark) < marked.index("two")


def test_an_answer_that_is_capped_within_a_letter_ends_with_a_replacement_mark(tokenizer):
    words = Detokenizer(tokenizer)
    before = tokenizer("Answer:")["input_ids"]
    whole = tokenizer("Answer: 😀🤿")["input_ids"]
    assert whole[: len(before)] == before
    seen = [words.plain(before, whole[len(before) : end]) for end in range(len(before) + 1, len(whole) + 1)]
    assert seen[-1] == " 😀🤿"
    assert any(text.endswith("\ufffd") for text in seen), "a letter of several tokens"
    assert all(text == "" or text.startswith((" ", "\ufffd")) for text in seen)


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_letters_of_bytes_are_read_whatever_the_length_of_the_prompts_last_word(zoo, name):
    """Khmer is written without spaces, in three bytes a letter: the prompt is decoded from within one of them."""
    tokenizer = zoo.tokenizer(name)
    words = Detokenizer(tokenizer)
    word = "ខ្ញុំសួរសំណួរនេះ"
    for count in (3, 10, 11, 12):
        before = [*tokenizer("Question:")["input_ids"], *bytes_of(tokenizer, word[:count])]
        assert words.plain(before, bytes_of(tokenizer, "ចម្លើយ")) == "ចម្លើយ"
    assert 3 * 11 > CONTEXT > 3 * 10


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_bytes_that_make_no_letter_do_not_spoil_the_prompt_before_them(zoo, name):
    tokenizer = zoo.tokenizer(name)
    words = Detokenizer(tokenizer)
    before = [*tokenizer("Say")["input_ids"], *bytes_of(tokenizer, "🤿")]
    half, more = bytes_of(tokenizer, "🤿")[:1], tokenizer(" more", add_special_tokens=False)["input_ids"]
    assert words.plain(before, half) == "\ufffd"
    assert words.plain(before, [*half, *more]) == "\ufffd more"


@pytest.mark.parametrize("name", SENTENCEPIECE)
def test_a_letter_that_the_prompt_begins_is_the_answers(zoo, name):
    """As it is where the tail of an answer is searched for a stop string."""
    tokenizer = zoo.tokenizer(name)
    words = Detokenizer(tokenizer)
    diver = bytes_of(tokenizer, "🤿")
    before = [*tokenizer("Say")["input_ids"], *diver[:2]]
    assert words.plain(before, diver[2:]) == "🤿"
    assert words.plain(before, []) == ""


def test_an_answer_to_nothing_is_decoded_as_transformers_decodes_it(tokenizer):
    ids = tokenizer(" one two")["input_ids"]
    ids = [token for token in ids if token != tokenizer.bos_token_id]
    assert Detokenizer(tokenizer).plain([], ids) == tokenizer.decode(ids)


def test_a_stop_string_is_found_across_the_boundaries_of_tokens(tokenizer):
    words = Detokenizer(tokenizer)
    before = tokenizer("Answer:")["input_ids"]
    parts = ["one", "Ques", "tion", ":", "two"]
    ids = [token for text in parts for token in tokenizer(text, add_special_tokens=False)["input_ids"]]
    said = words.plain(before, ids).replace(" ", "")
    assert cut(said, ["Question:"], never) == "one"
    assert first_stop(said, ["Question:", "eQ"], never) == 2


def test_the_first_of_several_stop_strings_cuts_and_quiet_regions_do_not():
    text = "one STOP two END three STOP"
    assert cut(text, ["END", "STOP"], never) == "one "
    assert cut(text, ["END"], never) == "one STOP two "
    assert cut(text, [], never) == cut(text, ["absent"], never) == text
    assert cut(text, ["STOP"], lambda _: [(0, 10)]) == "one STOP two END three "
    assert cut(text, ["STOP", "END"], lambda _: [(0, len(text))]) == text
    assert first_stop("STOP", ["STOP"], never) == 0
    assert first_stop("aab", ["ab"], lambda _: [(0, 1)]) == 1, "a region is half open"
    assert first_stop("aaab", ["aab", "aa"], lambda _: [(0, 1)]) == 1, "overlapping finds"


TAGS = ("<think>", "</think>")


@pytest.mark.parametrize(
    ("text", "opened", "parted"),
    [
        ("42", False, Parted("42")),
        ("<think>hm</think>42", False, Parted("42", "hm")),
        ("<think>\nhm\n</think>\n\n42", False, Parted("42", "hm")),
        ("\n<think>hm</think>\n\n42\n", False, Parted("42\n", "hm")),
        ("hm</think>\n\n42", True, Parted("42", "hm")),
        ("hm</think>\n\n42", False, Parted("42", "hm")),  # the server has left out the opening tag
        ("<think>hm</think>42", True, Parted("42", "hm")),  # opened once more by the model itself
        ("hm", True, Parted("", "hm", False)),
        ("<think>hm", False, Parted("", "hm", False)),
        ("", True, Parted("", "", False)),
        ("", False, Parted("")),
        ("<think></think>42", False, Parted("42", "")),
        ("<think>a</think>4<think>b</think>2", False, Parted("42", "a\nb")),
        ("42 <think>late", False, Parted("", "late", False)),
        ("<think>a<think>b</think>42", False, Parted("42", "a<think>b")),
        ("a</think>4<think>b</think>2", True, Parted("42", "a\nb")),
        ("a</think>4<think>b", True, Parted("", "a\nb", False)),
        ("4</thin", False, Parted("4</thin")),
        ("  indented", False, Parted("  indented")),
        ("<think>hm</think>\n    return 1", False, Parted("    return 1", "hm")),
    ],
)
def test_thinking_is_parted_from_the_answer(text, opened, parted):
    assert part(text, TAGS, opened) == parted


def test_without_tags_nothing_is_thinking():
    assert part("<think>hm</think>42", ()) == Parted("<think>hm</think>42")
    assert part("hm</think>42", (), True) == Parted("hm</think>42")


def test_tags_that_are_special_tokens_part_the_marked_text(zoo):
    """DeepSeek's begin and end tokens as tags: plain text has lost them, marked text has not."""
    tokenizer = zoo.tokenizer("deepseek")
    words = Detokenizer(tokenizer)
    tags = (tokenizer.bos_token, tokenizer.eos_token)
    hm, answer = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("hm", " 42"))
    ids = [tokenizer.bos_token_id, *hm, tokenizer.eos_token_id, *answer]
    assert part(words.marked([], ids), tags) == Parted(" 42", "hm")
    assert part(words.plain([], ids), tags) == Parted("hm 42")


def test_stop_strings_do_not_count_in_thought_and_in_fenced_code_where_that_is_asked_for():
    text = "<think>\n\na</think>b\n\n```\nc\n\n```d\n\n"
    assert cut(text, ["\n\n"], lambda said: quiet_regions(said, TAGS, False, True)) == "<think>\n\na</think>b"
    code = text.replace("b\n\n", "b")
    assert cut(code, ["\n\n"], lambda said: quiet_regions(said, TAGS, False, True)) == code[:-2]
    assert cut(code, ["\n\n"], lambda said: quiet_regions(said, TAGS, False, False)) == "<think>\n\na</think>b```\nc"
    opened = "a\n\nb</think>c\n\nd"
    assert cut(opened, ["\n\n"], lambda said: quiet_regions(said, TAGS, True, False)) == "a\n\nb</think>c"
    unfinished = "a\n\nb"
    assert cut(unfinished, ["\n\n"], lambda said: quiet_regions(said, TAGS, True, False)) == unfinished
