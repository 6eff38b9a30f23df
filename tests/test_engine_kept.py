"""Each request is answered once: by what it depends on, over the jobs of a sweep, and after a failure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from conftest import job_of, spy
from endpoint import Reply, completed, endpoint, said

from evalsweep.engine.evaluate import evaluate
from evalsweep.engine.models import resident
from evalsweep.errors import BadInput
from evalsweep.responses import Earlier, Responses

QUIET = lambda *_: None  # noqa: E731


@pytest.fixture
def asked(monkeypatch):
    """The requests that reach the embedded model, as they come."""
    found: list = []
    spy(monkeypatch, found.extend)
    return found


def found(responses, *overrides):
    return evaluate(job_of("task.limit=3", *overrides), QUIET, responses=responses)


@pytest.mark.parametrize(
    "own",
    [
        ("task.num_fewshot=1",),
        ("temperature=0.7", "task.samples=3", "task.num_fewshot=1"),
        ("task=sample_choice",),
        ("model.apply_chat_template=true", "prompt=helpful_assistant", "task.num_fewshot=1"),
    ],
)
def test_a_job_that_was_answered_before_asks_nothing_and_is_the_same(asked, own):
    responses = Responses()
    first = found(responses, *own)
    count = len(asked)
    assert count >= 3
    again = found(responses, *own)
    assert len(asked) == count
    assert again == first
    assert again == found(Responses(), *own), "nor does it depend on what is kept"
    assert len(asked) == 2 * count


def test_greedy_answers_and_log_likelihoods_are_asked_for_once_whatever_the_seed(asked):
    responses = Responses()
    for seed in (0, 42, 123):
        greedy = found(responses, f"seed={seed}", "task.num_fewshot=0")
        for temperature in (0, 0.7):
            found(responses, f"seed={seed}", f"temperature={temperature}", "task=sample_choice")
    kinds = [request.kind for request in asked]
    assert kinds.count("generate_until") == len(greedy.samples) == 3
    assert kinds.count("loglikelihood") == len({(r.prompt, r.continuation) for r in asked if r.continuation})


def test_sampled_answers_are_asked_for_by_seed_and_number(asked):
    responses = Responses()
    own = ("temperature=0.7", "task.num_fewshot=0")
    two = found(responses, *own, "task.samples=2")
    assert len(asked) == 6
    more = found(responses, *own, "task.samples=4")
    assert [(r.doc_id, r.sample) for r in asked[6:]] == [(n, s) for n in range(3) for s in (2, 3)]
    assert [s.responses[:2] for s in more.samples] == [s.responses for s in two.samples]
    found(responses, *own, "task.samples=2", "seed=1")
    assert len(asked) == 6 + 6 + 6


@pytest.mark.parametrize(
    "other",
    [
        "task.max_gen_toks=5",
        "model.tie_tolerance=0.01",
        "model.thinking=[]",
        "model.max_thinking_toks=3",
        "decoding.repetition_penalty=1.1",
        "model.dtype=bfloat16",
        "prompt=helpful_assistant",
        "fewshot.seed=5",
        "model.attn_implementation=eager",
    ],
)
def test_what_could_change_an_answer_asks_anew(asked, other):
    responses = Responses()
    found(responses, "task.num_fewshot=2")
    found(responses, "task.num_fewshot=2", other)
    assert len(asked) == 6


@pytest.mark.parametrize("other", ["model.batch_size=1", "task.limit=2", "task.metric='exact_match,number'"])
def test_what_changes_no_answer_asks_nothing(asked, other):
    responses = Responses()
    found(responses, "task.num_fewshot=0")
    evaluate(job_of("task.limit=3", "task.num_fewshot=0", other), QUIET, responses=responses)
    assert len(asked) == 3


def test_a_new_sweep_takes_over_what_an_earlier_one_has_and_says_so(asked, tmp_path):
    old = Responses(tmp_path / "old")
    own = ("temperature=0.7", "task.num_fewshot=0")
    found(old, *own, "task.samples=2")
    new = Responses(tmp_path / "new")
    job = job_of(*own, "task.samples=3", "task.limit=4", f"engine.reuse={tmp_path}")
    evaluation = evaluate(job, QUIET, responses=new, earlier=Earlier("abc", old))
    assert [(r.doc_id, r.sample) for r in asked[6:]] == [(0, 2), (1, 2), (2, 2), (3, 0), (3, 1), (3, 2)]
    taken = {"sweep": "abc", "answers": 6, "of": 12, "documents": {"sample": "0-2"}}
    assert evaluation.provenance["taken_over"] == [taken]
    count = len(asked)
    old.close()
    new.close()
    later = evaluate(job, QUIET, responses=Responses(tmp_path / "new"))
    assert len(asked) == count
    assert later == evaluation, "the new folder holds all that it needs, and where it came from"
    third = evaluate(job, QUIET, responses=Responses(), earlier=Earlier("def", new))
    assert third.provenance["taken_over"][0] == taken, "the sweep that computed them is named"
    assert third.provenance["taken_over"][1]["sweep"] == "def"
    assert "taken_over" not in found(Responses(), *own).provenance


def test_another_model_takes_nothing_over(asked, tmp_path):
    old = Responses()
    found(old, "task.num_fewshot=0")
    job = job_of("task.limit=3", "task.num_fewshot=0", "model.dtype=bfloat16", f"engine.reuse={tmp_path}")
    evaluation = evaluate(job, QUIET, responses=Responses(), earlier=Earlier("abc", old))
    assert len(asked) == 6
    assert evaluation.provenance["taken_over"] == []


def test_another_model_in_the_same_place_is_asked_anew(zoo, tmp_path):
    responses = Responses()
    texts = []
    for family in ("llama", "qwen2"):
        link = tmp_path / "model"
        link.unlink(missing_ok=True)
        link.symlink_to(zoo.model(family, "smollm2"))
        own = ("model=hf", f"model.pretrained={link}", "task.limit=2", "task.num_fewshot=0")
        resident.drop()
        texts.append([s.responses for s in evaluate(job_of(*own), QUIET, responses=responses).samples])
    assert len(responses) == 4
    assert texts[0] != texts[1]


def test_equal_requests_of_one_job_are_asked_once(asked, tmp_path):
    rows = [json.dumps({"question": "What is 2 + 3?", "answer": "5"})] * 4
    for split in ("test", "train"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    job = job_of("task.num_fewshot=0")
    job = replace(job, task=replace(job.task, data=str(tmp_path), limit=None))
    evaluation = evaluate(job, QUIET)
    assert len(asked) == 1
    assert len(evaluation.samples) == 4
    assert len({str(s.responses) for s in evaluation.samples}) == 1


@pytest.mark.parametrize("form", ["chat", "server"])
def test_after_a_failure_only_what_is_missing_is_asked(tmp_path, form):
    path = "chat/completions" if form == "chat" else "completions"
    right = said if form == "chat" else completed
    responses = Responses(tmp_path)
    broken = True

    def answer(_):
        return Reply({"error": "gone"}, 404) if broken and len(seen) > 3 else right(f"answer {len(seen)}")

    with endpoint(answer) as (url, seen):
        own = (f"model={form}", f"model.base_url={url}/v1/{path}", "model.pretrained=m", "model.num_concurrent=1")
        job = job_of(*own, "task.limit=6")
        with pytest.raises(BadInput, match="404: gone"):
            evaluate(job, QUIET, responses=responses)
        assert len(responses) == 3
        broken = False
        asked_before = len(seen)
        responses.close()
        later = Responses(tmp_path)
        texts = [s.responses[0] for s in evaluate(job, QUIET, responses=later).samples]
        later.close()
    assert texts == ["answer 1", "answer 2", "answer 3", "answer 5", "answer 6", "answer 7"]
    assert len(seen) - asked_before == 3


def test_the_jobs_of_a_sweep_share_their_answers(run, tmp_path):
    with endpoint(lambda asked: completed(f" {asked.body['seed'] % 10}")) as (url, seen):
        own = ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m", "task.limit=2")
        grid = ("seed=0,42,123", "temperature=0,0.7", "hydra.sweep.dir=out", "tracking=off")
        done = run("-m", *grid, *own)
    assert done.returncode == 0, done.stderr
    temperatures = sorted(request.body["temperature"] for request in seen)
    assert temperatures == [0.0] * 2 + [0.7] * 6
    records = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*/record.json")]
    assert len(records) == 6
    greedy = [record["responses_hash"] for record in records if record["config"]["temperature"] == 0]
    assert len(set(greedy)) == 1
    assert len(list((tmp_path / "out" / "responses").glob("*.jsonl"))) == 1
