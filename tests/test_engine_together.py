"""Jobs of a sweep that share a model ask in one pass: the same answers as each alone, each request once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import composed, job_of, spy, write_jsonl
from endpoint import Reply, completed, endpoint

from evalsweep.config import EngineConfig
from evalsweep.engine import together
from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.engine.models import resident
from evalsweep.engine.models.forward import Forward
from evalsweep.errors import BadInput
from evalsweep.responses import Responses

# Log-likelihoods of the embedded model in float32, read on from a cache here, and whole by lm_eval's own method there:
# they differ by up to 3.1e-5, as logits do between any two shapes of a batch (see TOLERANCE in engine/models/draw.py).
ROUNDING = 5e-5
QUIET = lambda *_: None  # noqa: E731


def jobs_of(*overrides: str):
    with composed("-m", *overrides) as plan:
        return {planned.name: planned.config for planned in plan.jobs}


def alone(job) -> Evaluation:
    """A job by itself, without any saving."""
    return evaluate(replace(job, engine=EngineConfig(share=False)), QUIET)


def in_one_pass(jobs, responses=None) -> tuple[dict[str, Evaluation], list[str]]:
    """Each job's evaluation, and the lines that were told."""
    responses = Responses() if responses is None else responses
    lines: list[str] = []
    beside = together.Beside(jobs, lines.append)
    found = {}
    for name, job in jobs.items():
        found[name] = evaluate(job, QUIET, responses=responses, beside=beside)
        beside = together.Beside({})
    return found, lines


@pytest.fixture
def calls(monkeypatch):
    """The lists of requests that reach the embedded model."""
    found: list = []
    spy(monkeypatch, found.append)
    return found


GRID = ("seed=0,7", "temperature=0,0.8")


@pytest.mark.parametrize(
    ("own", "distinct"),
    [
        (("task.limit=3",), 3 + 2 * 3),
        (("task.limit=2", "task.samples=2", "model.batch_size=3"), 2 + 2 * 2 * 2),
        (("task=sample_choice", "task.limit=3", "task.num_fewshot=4"), 12),
        (("task.limit=2", "model.apply_chat_template=true", "prompt=helpful_assistant"), 2 + 2 * 2),
        (("task.limit=2", "fewshot=resampled", "task.num_fewshot=2"), 4 + 2 * 2),
        (("task=humaneval", "task.limit=2", "task.samples=2", "task.max_gen_toks=6"), 2 + 2 * 2 * 2),
    ],
)
def test_every_answer_is_as_it_is_alone_and_asked_for_once(calls, own, distinct):
    jobs = jobs_of(*GRID, *own)
    found, lines = in_one_pass(jobs)
    assert sum(map(len, calls)) == distinct
    assert len(calls) == 1, "one pass for all jobs"
    assert f"{distinct} of them distinct" in lines[0]
    for name, job in jobs.items():
        own_way = alone(job)
        if own[0] == "task=sample_choice":
            for a, b in zip(found[name].samples, own_way.samples, strict=True):
                assert a.responses == pytest.approx(b.responses, abs=ROUNDING)
                assert a.scores == b.scores
        else:
            assert found[name].samples == own_way.samples
            assert found[name].alarms == own_way.alarms
            assert found[name].decoding["sent"] == own_way.decoding["sent"]
            tokens = "generation/tokens"
            assert found[name].metrics[tokens] == own_way.metrics[tokens]
        assert found[name].responses_hash == own_way.responses_hash or own[0] == "task=sample_choice"


def test_gsm8k_with_its_shots_is_as_it_is_alone(calls, gsm8k):
    own = ("task.num_fewshot=3", "task.max_gen_toks=8", "model.batch_size=3")
    jobs = jobs_of(*GRID, "task=gsm8k", f"task.data={gsm8k}", *own)
    found, _ = in_one_pass(jobs)
    assert len(calls) == 1
    for name, job in jobs.items():
        assert found[name].samples == alone(job).samples


def test_mmlu_reads_the_examples_of_a_subject_once_and_scores_as_it_does_alone(monkeypatch, mmlu):
    """Four questions of a subject, with the same five examples before them."""
    own = ("task=lm_eval", "task.name=mmlu_abstract_algebra", "task.num_fewshot=5", f"task.data={mmlu}")
    jobs = jobs_of(*own, "seed=0,7", "temperature=0,1")
    read = []
    original = Forward._logits

    def logits(self, ids, *rest):
        read.append(ids.numel())
        return original(self, ids, *rest)

    monkeypatch.setattr(Forward, "_logits", logits)
    found, lines = in_one_pass(jobs)
    assert "64 answers, 16 of them distinct" in lines[0]
    together_ = sum(read)
    monkeypatch.setattr(Forward, "_logits", original)
    first = next(iter(jobs))
    own_way = alone(jobs[first])
    lm = resident.load(jobs[first]).lm
    assert together_ < 0.6 * sum(len(lm.encode(s.prompt)) for s in own_way.samples)
    for a, b in zip(found[first].samples, own_way.samples, strict=True):
        assert a.responses == pytest.approx(b.responses, abs=ROUNDING)
        assert a.scores == b.scores
    assert [e.metrics for e in found.values()] == [found[first].metrics] * 4


def test_without_sharing_each_job_computes_all_of_its_answers(calls):
    jobs = jobs_of("seed=0,1", "task.limit=2", "engine.share=false")
    responses = Responses()
    found, lines = in_one_pass(jobs, responses)
    assert lines == []
    assert [len(call) for call in calls] == [2, 2]
    in_one_pass(jobs, responses)
    assert len(calls) == 2, "what a job has kept it has"
    assert len({e.responses_hash for e in found.values()}) == 1


def test_a_batch_size_of_auto_finds_what_fits_and_is_recorded(monkeypatch):
    job = job_of("task.limit=3", "model.batch_size=auto", "task.max_gen_toks=4")
    own = alone(replace(job, model=replace(job.model, batch_size=2)))
    asked = resident.load(job).lm
    found = evaluate(job, QUIET)
    rows = found.provenance["rows"]
    assert rows == 64
    assert [s.responses for s in found.samples] == [s.responses for s in own.samples]
    assert "rows" not in own.provenance

    class Small:
        available = 4 * asked._forward().token_bytes * 200

    monkeypatch.setattr("evalsweep.engine.models.forward.psutil.virtual_memory", Small)
    assert asked._forward().fitting(100) in (2, 3)
    assert asked._forward().fitting(10_000) == 1
    assert (
        evaluate(job_of("task=sample_choice", "task.limit=2", "model.batch_size=auto"), QUIET).provenance["rows"] >= 1
    )


def test_several_tasks_are_asked_in_one_pass(calls):
    in_one_pass(jobs_of("task=sample,sample_choice", "temperature=0,0.5", "task.limit=2"))
    assert sorted(request.task for call in calls for request in call) == ["sample"] * 4 + ["sample_choice"] * 8
    assert len(calls) == 2, "one for each kind of request"


def test_which_jobs_ask_nothing_of_their_own_is_said_before_the_first(calls):
    _, lines = in_one_pass(jobs_of("seed=0,1,2,3,4,5", "temperature=0,0.5", "task.limit=2"))
    assert lines == [
        "12 jobs ask for 24 answers, 14 of them distinct; all are computed together",
        "t=0 s=1 sample, t=0 s=2 sample, t=0 s=3 sample and 2 more: the same answers as t=0 s=0 sample, and no cost",
    ]


def test_what_was_answered_before_is_counted(calls):
    responses = Responses()
    in_one_pass(jobs_of("seed=0,1", "temperature=0.5", "task.limit=2"), responses)
    _, lines = in_one_pass(jobs_of("seed=0,1,2", "temperature=0.5", "task.limit=2"), responses)
    assert "6 answers, 6 of them distinct, 4 of them answered before" in lines[0]
    assert [len(call) for call in calls] == [4, 2]


def test_a_job_whose_questions_cannot_be_read_fails_alone(calls, tmp_path):
    jobs = {"bad": job_of("task=gsm8k", f"task.data={tmp_path}"), "good": job_of("task.limit=2")}
    responses = Responses()
    found = evaluate(jobs["good"], QUIET, responses=responses, beside=together.Beside(jobs))
    assert len(found.samples) == 2
    with pytest.raises(BadInput, match=r"task.data="):
        evaluate(jobs["bad"], QUIET, responses=responses)


def test_a_request_that_a_server_refuses_fails_the_jobs_that_ask_it_and_no_other(run, tmp_path):
    def answer(asked):
        if asked.body["max_tokens"] == 5:
            return Reply({"error": "too long"}, 400)
        return completed(" 7")

    with endpoint(answer) as (url, _):
        own = ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m", "model.num_concurrent=1")
        grid = ("task.max_gen_toks=5,6", "seed=0,1", "task.limit=3", "hydra.sweep.dir=out", "tracking=off")
        done = run("-m", *grid, *own)
    assert done.returncode == 1
    assert "2 of 4 jobs finished" in done.stdout
    assert done.stderr.count("the server answers 400: too long") == 2


def test_a_sweep_says_how_much_it_asks_and_finishes(run, tmp_path):
    done = run("-m", "seed=0,42", "temperature=0,0.2", "task.limit=2", "hydra.sweep.dir=out", "tracking=off")
    assert done.returncode == 0, done.stderr
    assert "evalsweep: 4 jobs ask for 8 answers, 6 of them distinct" in done.stdout
    assert done.stdout.index("jobs ask for") < done.stdout.index("[1/4]")


@pytest.fixture
def shuffling(tmp_path):
    """A task that shuffles its choices while it reads its documents, as GPQA does."""
    rows = [{"q": f"What is {n} + {n}?", "choices": [str(2 * n + k) for k in range(6)]} for n in range(4)]
    write_jsonl(tmp_path / "test.jsonl", rows)
    (tmp_path / "utils.py").write_text(
        "import random\n"
        "def one(row):\n"
        "    choices = list(row['choices'])\n"
        "    random.shuffle(choices)\n"
        "    return {'choices': choices, 'right': choices.index(row['choices'][0])}\n"
        "def process_docs(dataset):\n"
        "    return dataset.map(one)\n"
    )
    (tmp_path / "shuffling.yaml").write_text(
        "task: shuffling\noutput_type: multiple_choice\ndataset_path: json\ntest_split: test\nnum_fewshot: 0\n"
        "process_docs: !function utils.process_docs\ndoc_to_text: '{{q}} {{choices|join(\" \")}}'\n"
        "doc_to_choice: choices\ndoc_to_target: right\n"
        "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
    )
    return "task=lm_eval", f"task.name={tmp_path / 'shuffling.yaml'}", f"task.data={tmp_path}"


def test_documents_that_draw_are_the_same_for_every_seed_and_every_time(calls, shuffling):
    jobs = jobs_of("seed=0,1", *shuffling)
    found, lines = in_one_pass(jobs)
    assert sum(map(len, calls)) == 4 * 6
    assert "48 answers, 24 of them distinct" in lines[0]
    orders = [
        [s.prompt for s in evaluation.samples] for evaluation in (*found.values(), alone(next(iter(jobs.values()))))
    ]
    assert orders[0] == orders[1] == orders[2]
    assert any(prompt.split("? ")[1].split() != sorted(prompt.split("? ")[1].split(), key=int) for prompt in orders[0])
    for sample in next(iter(found.values())).samples:
        n = int(sample.prompt.split()[2])
        assert sample.target == str(2 * n), "the target is that of the prompt's own order"
