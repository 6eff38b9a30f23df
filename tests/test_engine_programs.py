"""Answers as programs: which part of an answer is code, and the tests that documents of several forms bring."""

from __future__ import annotations

import json

import pytest
from conftest import job_of, write_jsonl
from endpoint import completed, endpoint

from evalsweep.engine.answers.programs import code_of, program_of
from evalsweep.engine.evaluate import evaluate
from evalsweep.errors import BadInput

PROMPT = 'import math\n\ndef f(x):\n    """Double x."""\n'
WHOLE = "def f(x):\n    return 2 * x\n"
BODY = "    return 2 * x\n"


@pytest.mark.parametrize(
    "answer",
    [
        BODY,
        f"```python\n{WHOLE}```",
        f"Sure!\n\n```python\n{WHOLE}```\nIt doubles.",
        f"```\n{WHOLE}```",
        f"Not this:\n```python\ndef f(x):\n    return x\n```\nbut this:\n```python\n{WHOLE}```\n",
        f"```python\n{WHOLE}",
        f"```python\n{BODY}```",
        f"{BODY}```\n\nThis doubles x.",
        "```python\nf = lambda x: 2 * x\n```",
        f"  ```python\n{WHOLE}  ```",
        f"```python\n{WHOLE}```\nOutput:\n```\n42\n```",
        f"```python\n{WHOLE}```\nUsage:\n```python\nprint(f(21))\n```",
        f"```python\n{BODY}```\nOutput:\n```\n42\n```",
        f"~~~python\n{WHOLE}~~~",
        f"````python\n{WHOLE}````",
        "1. Write it:\n\n   ```python\n   def f(x):\n       return 2 * x\n   ```\n2. Done.",
        "- ```python\n  def f(x):\n      return 2 * x\n  ```",
    ],
)
def test_the_code_of_an_answer_is_its_last_fence_or_goes_on_from_the_prompt(answer):
    names = {}
    exec(code_of(answer, "f", PROMPT), names)
    assert names["f"](21) == 42


@pytest.mark.parametrize(
    "answer",
    [
        BODY,
        f"{BODY}```\nDone.",
        f"{BODY}```\nUse it:\n```python\nf(1)\n```",
        f"```python\n{WHOLE}```",
        f"Here:\n```python\n{WHOLE}```",
    ],
)
def test_an_answer_whose_begin_has_opened_a_fence_goes_on_within_it_or_opens_its_own(answer):
    names = {}
    exec(code_of(answer, "f", PROMPT, f"Here it is:\n```python\n{PROMPT}"), names)
    assert names["f"](21) == 42


def test_an_empty_answer_is_no_program():
    document = {"prompt": PROMPT, "entry_point": "f", "test": "def check(candidate): pass"}
    assert program_of(document, "  \n") is None


def test_a_document_without_tests_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"a document has no tests: .*it has question"):
        program_of({"question": "?"}, "x = 1")


MBPP = [
    {
        "task_id": 11,
        "text": "Write a python function to double a number.",
        "code": "def double(n):\r\n  return 2 * n",
        "test_list": ["assert double(2) == 4", "assert double(0) == 0", "assert double(-1) == -2"],
        "test_setup_code": "",
        "challenge_test_list": [],
    }
]


def test_a_task_of_assertions_runs_in_the_sandbox(tmp_path):
    write_jsonl(tmp_path / "mbpp" / "test.jsonl", MBPP)
    for answer, score in (
        ("def double(n):\n  return n + n\n[DONE]", 1.0),
        ("```python\ndef double(n):\n    return n * 2\n```", 1.0),
        ("def double(n):\n  return n * n\n", 0.0),
    ):
        with endpoint(lambda _, answer=answer: completed(answer)) as (url, seen):
            own = ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m")
            found = evaluate(job_of("task=mbpp", f"task.data={tmp_path / 'mbpp'}", *own), lambda *_: None)
        assert found.metrics["mbpp/pass@1"] == score
        assert "Your code should pass these tests:\n\nassert double(2) == 4" in seen[0].body["prompt"]


def test_an_own_definition_of_numbers_gets_the_numeric_scorer_and_votes(tmp_path):
    folder = tmp_path / "mine"
    write_jsonl(
        folder / "data" / "test.jsonl", [{"question": "2+3?", "answer": "5"}, {"question": "1+1?", "answer": "2"}]
    )
    (folder / "sums.yaml").write_text(
        "task: sums\noutput_type: generate_until\ntest_split: test\ndataset_path: json\n"
        'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\ngeneration_kwargs: {until: ["\\n"]}\n'
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
    (tmp_path / "conf" / "task").mkdir(parents=True)
    (tmp_path / "conf" / "task" / "sums.yaml").write_text(
        f"name: sums\nscorer: numeric\nmetric: numeric\ninclude_path: {folder}\ndata: {folder / 'data'}\n"
    )
    with endpoint(lambda _: completed("The answer is 5.")) as (url, _):
        own = ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m")
        more = ("--config-dir", str(tmp_path / "conf"), "task=sums", "task.samples=3", "temperature=0.5")
        found = evaluate(job_of(*more, *own), lambda *_: None)
    assert found.headline == "sums/numeric"
    assert (found.metrics["sums/numeric"], found.metrics["sums/maj@3"]) == (0.5, 0.5)
    assert found.samples[0].readings[0]["value"] == "5"
    assert json.loads(json.dumps(found.metric_info["sums/numeric"])) == {
        "bounds": [0.0, 1.0],
        "aggregation": "mean",
        "higher_is_better": True,
    }


def test_mathematics_beyond_numbers_is_read_by_math_verify(tmp_path):
    pytest.importorskip("math_verify")
    folder = tmp_path / "mine"
    write_jsonl(folder / "data" / "test.jsonl", [{"question": "x?", "answer": r"$\\frac{1}{2}$"}])
    (folder / "halves.yaml").write_text(
        "task: halves\noutput_type: generate_until\ntest_split: test\ndataset_path: json\n"
        'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\ngeneration_kwargs: {until: ["@"]}\n'
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
    for answer, score in ((r"So $x = \\boxed{0.5}$", 1.0), (r"$\\boxed{2}$", 0.0), ("no idea", 0.0)):
        with endpoint(lambda _, answer=answer: completed(answer)) as (url, _):
            own = ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m", "task=lm_eval")
            own += ("task.name=halves", f"task.include_path={folder}", f"task.data={folder / 'data'}")
            found = evaluate(job_of(*own, "task.scorer=math_verify", "task.metric=math_verify"), lambda *_: None)
        assert found.metrics["halves/math_verify"] == score
