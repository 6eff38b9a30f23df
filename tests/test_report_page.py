"""The report in a real browser: as a reader uses it, with hostile answers in it, and with very many documents."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from browser import browser
from made_sweeps import make_run, question

from evalsweep import store
from evalsweep.commands import report

HOSTILE = {
    50: "</script><script>document.title='owned'</script>",
    51: "<img src=x onerror=\"document.title='owned'\"> & \"quoted\" 'single'",
    52: "before\u202eesrever\u2066\u0000after\u2028line\x1b[31m",
    53: "x" * 20_000,
    54: "lone \ud800 surrogate, עברית and 漢字",
    55: "{{ 7 * 7 }} ${7*7} <!-- <script> -->",
}
PROMPTS = {"none": (), "helpful_assistant": ("prompt=helpful_assistant",)}


def hostile(number, score):
    sample = question(number, score)
    return replace(sample, responses=[HOSTILE[number]], flags=["capped"]) if number in HOSTILE else sample


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """Two temperatures, two prompts, two seeds, 60 documents; six answers are hostile."""
    sweep = tmp_path_factory.mktemp("page") / "day" / "<b>time"
    for t in (0, 0.5):
        for prompt, more in PROMPTS.items():
            for seed in (0, 1):
                wrong = {"none": 3, "helpful_assistant": 5}[prompt] + (20 if t else 0)
                scores = [float(i >= wrong + seed) for i in range(60)]
                make_run(sweep, scores, f"seed={seed}", f"temperature={t}", *more, sample=hostile)
    assert report.run([str(sweep)]) == 0
    return sweep / store.PAGE


@pytest.fixture(scope="module")
def chromium():
    with browser() as opened:
        yield opened


@pytest.fixture
def page(chromium, page_path):
    """The report, and a failure for whatever the browser complains of."""
    opened = chromium.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda r: None if r.url.startswith("file:") else complaints.append(r.url))
    opened.goto(page_path.as_uri())
    yield opened
    opened.close()
    assert complaints == []


def names(page) -> list[str]:
    return page.locator("#table tbody tr:not(.detail) button.open").all_inner_texts()


def count(page) -> int:
    return int(page.locator("#count").inner_text().split()[0])


def test_the_answer_stands_first_in_a_sentence(page):
    first = page.locator(".answer").first.inner_text()
    assert first.startswith("sample: of 4 cells prompt none, temperature 0 has the highest exact_match,number, 0.942")
    assert "on new questions between" in first
    assert "comparisons show a difference beyond chance" in page.locator(".answer").nth(1).inner_text()


def test_every_cell_has_both_intervals_and_a_dot_a_run(page):
    rows = page.locator(".cells tbody tr:not(.axis)")
    assert rows.count() == 4
    assert rows.first.locator("circle.dot").count() == 2
    assert rows.first.locator("line.new").count() == 3
    assert rows.first.locator("line.again").count() == 1
    assert page.locator("#temperature svg .series").count() == 2
    assert page.locator("#variance .stack").count() == 4
    assert page.locator(".matrix td.clear").count() == 4
    assert page.locator(".pairs tbody tr").count() == 4


def test_search_filter_and_order_find_documents(page):
    assert count(page) == 60
    page.locator("#search").fill('"What is 17 + 17"')
    assert names(page) == ["sample/17"]
    page.locator("#search").fill("CAPPED")
    assert count(page) == len(HOSTILE)
    page.locator("#search").fill("no such words")
    assert count(page) == 0
    assert "No document matches" in page.locator("#table").inner_text()
    page.locator("#search").fill("")
    page.locator("#filter").select_option("wrong")
    assert set(names(page)) == {"sample/0", "sample/1", "sample/2"}
    page.locator("#filter").select_option("all")
    page.locator("#sort").select_option("order")
    assert names(page)[:3] == ["sample/0", "sample/1", "sample/2"]


def test_documents_on_which_cells_disagree_come_first(page):
    flips = {f"sample/{i}" for i in range(3, 26)}
    assert set(names(page)[:23]) == flips
    page.locator("#filter").select_option("flips")
    assert count(page) == 23


def test_a_click_on_a_head_sorts_and_another_turns_it_round(page):
    head = page.get_by_role("button", name="prompt none, temperature 0.5", exact=False).first
    head.click()
    first = names(page)[0]
    head.click()
    assert names(page)[0] != first
    assert page.locator("#table th[aria-sort=ascending]").count() == 1


def test_pages_turn_by_button_and_by_key(page):
    page.locator("#sort").select_option("order")
    assert page.locator("#previous").is_disabled()
    page.locator("#next").click()
    assert names(page)[0] == "sample/25"
    page.locator("h1").click()
    page.keyboard.press("n")
    assert (names(page)[0], len(names(page))) == ("sample/50", 10)
    assert page.locator("#next").is_disabled()
    page.keyboard.press("p")
    assert "Page 2 of 3" in page.locator("#page").inner_text()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"


def test_a_document_opens_by_keyboard_with_its_prompt_and_all_answers(page):
    page.locator("#search").fill('"What is 17 + 17"')
    page.locator("button.open").focus()
    page.keyboard.press("Enter")
    detail = page.locator("tr.detail")
    assert page.locator("button.open").get_attribute("aria-expanded") == "true"
    assert "Question: What is 17 + 17?\nAnswer:" in detail.locator("pre").first.inner_text()
    assert detail.locator(".answers > div").count() == 8
    assert "temperature 0.5 · seed 1" in detail.inner_text()
    page.locator("button.open").focus()
    page.keyboard.press("Enter")
    assert page.locator("tr.detail").count() == 0


def test_hostile_answers_are_shown_and_not_obeyed(page):
    page.locator("#sort").select_option("order")
    page.locator("#search").fill("capped")
    for number in HOSTILE:
        page.locator("button.open", has_text=f"sample/{number}").first.click()
    shown = page.locator("tr.detail .answers > div:first-child pre").all_inner_texts()
    assert shown[0] == HOSTILE[50]
    assert shown[1] == HOSTILE[51]
    assert shown[2] == "beforeU+202EesreverU+2066␀afterU+2028line␛[31m"
    assert len(shown[3]) == 20_000
    assert "עברית and 漢字" in shown[4]
    assert shown[5] == HOSTILE[55]
    assert "owned" not in page.title()
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.locator("h1").inner_text() == "day/<b>time"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_have_readable_contrast_and_a_switch(chromium, page_path, scheme):
    page = chromium.new_page(color_scheme=scheme)
    page.goto(page_path.as_uri())
    ratios = page.evaluate(CONTRAST)
    assert min(ratios.values()) >= 4.5, ratios
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.close()


# WCAG 2's contrast of each colour that text is written in against the page
CONTRAST = """() => {
  const light = (rgb) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.match(/[0-9.]+/g).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const page = light(getComputedStyle(document.body).backgroundColor);
  const found = {};
  for (const name of ['ink', 'soft', 'blue', 'green', 'red', 'amber']) {
    const probe = document.createElement('span');
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const one = light(getComputedStyle(probe).color);
    found[name] = (Math.max(one, page) + 0.05) / (Math.min(one, page) + 0.05);
    probe.remove();
  }
  return found;
}"""


def test_at_400_pixels_nothing_is_wider_than_the_screen(chromium, page_path):
    page = chromium.new_page(viewport={"width": 400, "height": 800})
    page.goto(page_path.as_uri())
    page.locator("#search").fill("capped")
    for number in HOSTILE:
        page.locator("button.open", has_text=f"sample/{number}").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    sizes = "[...document.querySelectorAll('main p, main td, main th')].map((e) => getComputedStyle(e).fontSize)"
    assert min(float(size.removesuffix("px")) for size in page.evaluate(sizes)) >= 12
    page.close()


def test_fourteen_thousand_documents_of_five_runs_open_quickly_and_load_their_texts_when_asked(chromium, tmp_path):
    shots = "\n\n".join(f"Question: which of these is example number {i}?\nAnswer: B" for i in range(5))

    def long(number, score):
        sample = question(number % 250, score)
        prompt = f"{shots}\n\nQuestion: number {number} of the subject. {'Consider this. ' * 30}\nAnswer:"
        return replace(sample, task=f"subject_{number // 250:02d}", prompt=prompt, responses=[-1.5, -2.5, -0.5, -4.0])

    for seed in range(5):
        make_run(tmp_path, [float((i + seed) % 3 > 0) for i in range(14_042)], f"seed={seed}", sample=long)
    assert report.run([str(tmp_path)]) == 0
    size = (tmp_path / store.PAGE).stat().st_size
    assert size < 20e6
    texts = list((tmp_path / store.TEXTS).glob("*.js"))
    assert sum(t.stat().st_size for t in texts) > size, "the long texts are beside the page"
    page = chromium.new_page()
    started = time.monotonic()
    page.goto((tmp_path / store.PAGE).as_uri())
    page.locator("#table button.open").first.wait_for()
    assert time.monotonic() - started < 10, "it is 2 s at most on a machine that does nothing else"
    page.locator("#search").fill("number 13999 of")
    page.locator("#table button.open").first.click()
    assert "Question: number 13999 of the subject." in page.locator("tr.detail pre").first.inner_text()
    page.close()
    alone = tmp_path / "alone.html"
    (tmp_path / store.PAGE).rename(alone)
    (tmp_path / store.TEXTS).rename(tmp_path / "moved")
    page = chromium.new_page()
    page.goto(alone.as_uri())
    page.locator("#table button.open").first.click()
    page.get_by_text("which cannot be read from here").wait_for()
    page.close()


def test_texts_of_an_earlier_report_are_taken_away(tmp_path):
    run = make_run(tmp_path, [1.0, 0.0], "seed=0")
    (tmp_path / store.TEXTS).mkdir()
    (tmp_path / store.TEXTS / "7.js").write_text("old")
    assert report.run([str(tmp_path)]) == 0
    assert run.exists()
    assert not (tmp_path / store.TEXTS).exists()


def test_the_messages_of_a_chat_are_shown_by_their_roles():
    from evalsweep.report.documents import _conversation

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+3?\nAnswer:"}]
    assert _conversation(json.dumps(messages)) == "[system]\nBe brief.\n\n[user]\n2+3?\nAnswer:"
    for text in ('[{"role" is no JSON', '[{"role": 1}]', "What is 2+3?"):
        assert _conversation(text) == text


def test_thinking_is_shown_folded_and_what_was_read_stands_out(chromium, tmp_path):
    answer = "😀 The answer is <b>29</b>, not 7"
    start = answer.index("29")

    def thought(number, score):
        reading = {"value": "29", "text": "29", "start": start, "end": start + 2, "doubt": "two numbers"}
        return replace(question(number, score), responses=[answer], thinking=["is it </b> 7?"], readings=[reading])

    make_run(tmp_path, [1.0, 0.0], "seed=0", sample=thought)
    assert report.run([str(tmp_path)]) == 0
    page = chromium.new_page()
    page.goto((tmp_path / store.PAGE).as_uri())
    page.locator("button.open").first.click()
    detail = page.locator("tr.detail").first
    assert detail.locator("mark").all_inner_texts() == ["29"], "places are counted in letters, an emoji is one"
    assert answer in detail.inner_text()
    assert "read as 29; doubtful: two numbers" in detail.inner_text()
    assert not detail.locator("details.thinking pre").is_visible()
    detail.locator("details.thinking summary").click()
    assert detail.locator("details.thinking pre").inner_text() == "is it </b> 7?"
    page.close()
