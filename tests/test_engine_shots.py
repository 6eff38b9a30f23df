"""Shots are pinned: the same set for every document, whatever the limit, the order or the seed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from conftest import job_of, write_jsonl

from evalsweep.engine.evaluate import evaluate
from evalsweep.engine.models.contract import Capabilities
from evalsweep.engine.tasks import harness
from evalsweep.engine.tasks.likeness import frame, is_near_copy
from evalsweep.engine.tasks.prompts import Prompt, Prompts
from evalsweep.engine.tasks.shots import question
from evalsweep.errors import BadInput


def made(*overrides: str, document: int = 0) -> tuple[str, Prompt]:
    """The prompt of a document, and what is known of it."""
    built = harness.build(job_of(*overrides))
    (task,) = built.tasks.values()
    nobody = SimpleNamespace(can=Capabilities(counts_tokens=False, knows_length=False))
    prompts = Prompts(task, nobody, "flag")
    task.build_all_requests()
    requests = [r for r in task.instances if r.doc_id == document]
    return requests[0].args[0], prompts.made[document]


def shots(*overrides: str, document: int = 0) -> list[str]:
    prompt, _ = made(*overrides, document=document)
    return [q for q in prompt.split("\n") if q.startswith("Question:")][:-1]


def test_fixed_shots_are_the_same_for_every_document_and_seed(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}")
    first = shots(*own)
    assert len(first) == 5
    assert first == shots(*own, document=3)
    assert first == shots(*own, "seed=99")
    assert first != shots(*own, "fewshot.seed=1")


def test_resampled_shots_are_one_set_a_seed(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=resampled")
    assert shots(*own, "seed=1") == shots(*own, "seed=1", document=2)
    assert shots(*own, "seed=1") != shots(*own, "seed=2")


def test_a_published_order_is_kept_by_fixed_and_varied_by_resampled():
    own = ("task=sample_choice", "task.num_fewshot=5")
    published = [f"Question: {q}" for q in ("What do bees make?", "Which animal says meow?", "What color is grass?")]
    assert shots(*own)[:3] == published
    orders = {tuple(shots(*own, "fewshot=resampled", f"seed={s}")) for s in range(4)}
    assert len(orders) > 1
    assert {frozenset(order) for order in orders} == {frozenset(shots(*own))}


def test_a_pool_without_a_choice_is_an_alarm():
    own = ("task=sample_choice", "fewshot=resampled", "task.limit=2")
    whole = evaluate(job_of(*own, "task.num_fewshot=5"), lambda *_: None)
    assert any("seeds differ in their order alone" in alarm.message for alarm in whole.alarms)
    few = evaluate(job_of(*own, "task.num_fewshot=2"), lambda *_: None)
    assert [alarm.kind for alarm in few.alarms] == ["no_template"]


def test_shots_from_a_file_are_exactly_those_in_order(gsm8k, tmp_path):
    rows = [{"question": f"file {i}?", "answer": f"#### {i}"} for i in range(3)]
    path = write_jsonl(tmp_path / "shots.jsonl", rows)
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=file", f"fewshot.path={path}")
    assert shots(*own) == ["Question: file 0?", "Question: file 1?", "Question: file 2?"]
    assert shots(*own, "task.num_fewshot=2") == ["Question: file 0?", "Question: file 1?"]
    with pytest.raises(BadInput, match="holds 3 examples"):
        shots(*own, "task.num_fewshot=4")


def test_a_scored_document_in_the_pool_is_replaced_by_the_next(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot.split=test", "task.num_fewshot=2")
    for document in range(4):
        scored = f"Question: Tom has {document + 2} pens"
        found = shots(*own, document=document)
        assert len(found) == 2
        assert not any(q.startswith(scored) for q in found)


def test_a_document_of_a_validation_split_never_sees_its_own_answer(tmp_path):
    # lm_eval leaves the scored document out only where the few-shot split is the test split by name
    write_jsonl(tmp_path / "validation.jsonl", [{"q": f"Question: {i}?", "a": f"answer {i}"} for i in range(5)])
    definition = tmp_path / "mine.yaml"
    definition.write_text(
        "task: mine\noutput_type: generate_until\ndataset_path: json\nvalidation_split: validation\n"
        "fewshot_split: validation\nnum_fewshot: 3\ndoc_to_text: q\ndoc_to_target: a\n"
    )
    own = ("task=lm_eval", f"task.name={definition}", f"task.data={tmp_path}")
    for document in range(5):
        found = shots(*own, document=document)
        assert len(found) == 3
        assert f"Question: {document}?" not in "".join(found)
    whole = made(*own, "task.num_fewshot=5")[1]
    assert (len(whole.shots), whole.flags) == (4, ["fewer_shots"])


def test_a_pool_that_is_too_small_and_a_split_that_is_not_there_are_named(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}")
    with pytest.raises(BadInput, match=r"pool holds 8 examples; for example task.num_fewshot=8"):
        shots(*own, "task.num_fewshot=9")
    with pytest.raises(BadInput, match=r"pool holds 5 examples"):
        shots("task=sample_choice", "task.num_fewshot=6")
    with pytest.raises(BadInput, match=r"dev.jsonl is missing for task gsm8k; the folder has test.jsonl, train.jsonl"):
        shots(*own, "fewshot.split=dev")


def test_a_task_that_states_zero_shots_takes_what_is_asked(gsm8k):
    assert shots("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=0") == []
    assert len(shots("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=3")) == 3


def test_per_document_shots_differ_by_document_and_by_nothing_else(gsm8k, tmp_path):
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=per_document", "task.num_fewshot=3")
    drawn = [shots(*own, document=d) for d in range(4)]
    assert len({tuple(s) for s in drawn}) == 4
    assert shots(*own, "seed=9", document=2) == drawn[2]
    assert shots(*own, "fewshot.seed=9", document=2) != drawn[2]
    rows = (gsm8k / "test.jsonl").read_text().splitlines(keepends=True)
    (gsm8k / "test.jsonl").write_text("".join(rows[2:]))  # fewer documents, another order: the same shots
    assert shots(*own, document=0) == drawn[2]
    assert shots(*own, document=1) == drawn[3]


def test_the_draw_of_lm_eval_depends_on_the_documents_before_and_says_so(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=harness", "task.num_fewshot=2", "task.max_gen_toks=1")
    whole = evaluate(job_of(*own), lambda *_: None)
    (alarm,) = [a for a in whole.alarms if a.kind == "harness_shots"]
    assert "depends on the order of the documents, task.limit and the number of processes" in alarm.message
    rows = (gsm8k / "test.jsonl").read_text().splitlines(keepends=True)
    (gsm8k / "test.jsonl").write_text("".join(rows[2:]))
    later = evaluate(job_of(*own), lambda *_: None)
    assert whole.samples[2].prompt.rpartition("Question:")[2] == later.samples[0].prompt.rpartition("Question:")[2]
    assert whole.samples[2].shots != later.samples[0].shots, "lm_eval no longer draws one document after another?"
    assert [s.shots for s in evaluate(job_of(*own), lambda *_: None).samples] == [s.shots for s in later.samples]


def test_the_draw_of_lm_eval_is_lm_evals_own(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=harness", "task.num_fewshot=3", "task.max_gen_toks=1")
    ours = [s.prompt for s in evaluate(job_of(*own), lambda *_: None).samples]
    (task,) = harness.build(job_of(*own)).tasks.values()
    task.sampler = task.sampler.drawer
    task.set_fewshot_seed(1234)
    assert ours == [task.fewshot_context(doc, num_fewshot=3) for doc in task.eval_docs]


def test_ids_and_texts_of_the_shots_are_in_every_sample(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=2")
    prompt, about = made(*own, document=1)
    pool = (gsm8k / "train.jsonl").read_text().splitlines()
    assert len(about.shots) == 2
    for shot in about.shots:
        assert shot.text.startswith("Question: Tom has")
        assert shot.text.partition("\n")[0].removeprefix("Question: ") in pool[shot.id]
    assert prompt.startswith("\n\n".join(shot.text for shot in about.shots))


def test_a_scored_document_is_known_by_its_question_however_it_is_written(gsm8k):
    """Another split, another answer, other spacing, width and letter case: still the same question."""
    rows = [
        {"question": "TOM has 2 pens, and buys 3 more.   How many has he?", "answer": "#### 6"},
        {"question": "Tom has 2 pens and buys \uff13 more. How many has he?", "answer": "#### 7"},
        {"question": "Ann has 4 cats.", "answer": "#### 4"},
    ]
    write_jsonl(gsm8k / "train.jsonl", rows)
    own = ("task=gsm8k", f"task.data={gsm8k}")
    assert shots(*own, "task.num_fewshot=1") == ["Question: Ann has 4 cats."]
    assert len(shots(*own, "task.num_fewshot=3", document=1)) == 3
    assert made(*own, "task.num_fewshot=3")[1].flags == ["fewer_shots"]


def test_a_file_that_holds_the_scored_document_gives_it_one_fewer(gsm8k, tmp_path):
    test = [json.loads(line) for line in (gsm8k / "test.jsonl").read_text().splitlines()]
    path = write_jsonl(tmp_path / "shots.jsonl", [test[1], {"question": "Ann?", "answer": "#### 1"}])
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=file", f"fewshot.path={path}")
    assert len(shots(*own, document=0)) == 2
    assert shots(*own, document=1) == ["Question: Ann?"]
    assert made(*own, document=1)[1].flags == ["fewer_shots"]


def test_lm_evals_own_draw_can_leak_and_then_says_so(tmp_path):
    write_jsonl(tmp_path / "validation.jsonl", [{"q": f"Question: {i}?", "a": f"answer {i}"} for i in range(5)])
    definition = tmp_path / "mine.yaml"
    definition.write_text(
        "task: mine\noutput_type: generate_until\ndataset_path: json\nvalidation_split: validation\n"
        "fewshot_split: validation\nnum_fewshot: 4\ndoc_to_text: q\ndoc_to_target: a\n"
        "generation_kwargs: {until: []}\nmetric_list: [{metric: exact_match}]\n"
    )
    own = ("task=lm_eval", f"task.name={definition}", f"task.data={tmp_path}", "task.max_gen_toks=1")
    leaky = evaluate(job_of(*own, "fewshot=harness"), lambda *_: None)
    (alarm,) = [a for a in leaky.alarms if a.kind == "leaked"]
    assert alarm.count == sum("leaked" in s.flags for s in leaky.samples) > 2
    assert leaky.metrics["alarms/leaked"] == alarm.count
    assert evaluate(job_of(*own), lambda *_: None).metrics["alarms/leaked"] == 0


def test_a_near_copy_among_the_shots_is_flagged(gsm8k):
    rows = [
        {"question": "Tim has 2 pens and buys 3 more. How many has he?", "answer": "#### 5"},
        {"question": "Ann has 4 cats.", "answer": "#### 4"},
    ]
    write_jsonl(gsm8k / "train.jsonl", rows)
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=2")
    assert made(*own, document=0)[1].flags == ["near_copy"]
    assert made(*own, document=1)[1].flags == []


@pytest.mark.parametrize(
    ("a", "b", "near"),
    [
        ("tom has 2 pens and buys 3 more how many has he", "tim has 2 pens and buys 3 more how many has he", True),
        ("tom has 2 pens and buys 3 more how many has he", "tom has 2 pens and buys 4 more how many has he", False),
        ("what is 11 * 4", "what is 11 * 4", False),
        ("what color is grass", "what color is snow", False),
        ("tom has 2 pens", "ann owns 2 cats", False),
    ],
)
def test_near_copies_share_their_numbers_and_nearly_all_words(a, b, near):
    assert is_near_copy(a, b) is near


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("What is 11 - 5?", "what is  11 - 5", True),
        ("What is 11 - 5?", "What is 11 + 5?", False),
        ("What is 11 - 5?", "What is 11 5?", False),
        ("(3 + 4) * 2", "3 + (4 * 2)", False),
        ("not ( True and False )", "not True and ( False )", False),
        ("f[x]", "f(x)", False),
        ("का", "की", False),
        ("It costs $5.00.", "It costs $500", False),
        ("Is it -5?", "Is it 5?", False),
        ("“Who?” she said", '"Who?" She said', True),
        ("ﬁve cafés", "five cafe\u0301s", True),
    ],
)
def test_what_tells_two_questions_apart_and_what_does_not(gsm8k, a, b, same):
    (task,) = harness.build(job_of("task=gsm8k", f"task.data={gsm8k}")).tasks.values()
    normal = [question(task, {"question": text, "answer": ""}) for text in (a, b)]
    assert (normal[0] == normal[1]) is same


def test_an_instruction_that_all_questions_share_makes_no_copies():
    words = "answer the following question about the arts with a single name and nothing else please " * 3
    pool = [words + q for q in ("who wrote hamlet", "who painted guernica", "who sang carmen", "who wrote emma")]
    assert is_near_copy(pool[0], pool[1]), "most words are shared"
    assert not any(is_near_copy(a, b, frame(pool)) for a in pool for b in pool)
    assert (
        is_near_copy(
            words + "who was it that wrote the old danish play of hamlet",
            words + "who was it that wrote the old danish play hamlet",
            frame(pool),
        )
        is True
    )


def test_the_same_question_with_another_answer_is_a_copy_and_no_leak(gsm8k):
    rows = [json.loads(line) for line in (gsm8k / "test.jsonl").read_text().splitlines()]
    write_jsonl(gsm8k / "train.jsonl", [{**row, "answer": "#### 0"} for row in rows])
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=harness", "task.num_fewshot=4")
    assert made(*own)[1].flags == ["near_copy"]
    write_jsonl(gsm8k / "train.jsonl", rows)
    assert made(*own)[1].flags == ["leaked"]


def test_documents_that_are_there_twice_keep_their_own_shots(gsm8k):
    rows = (gsm8k / "test.jsonl").read_text().splitlines(keepends=True)
    (gsm8k / "test.jsonl").write_text(rows[0] * 4)
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=harness", "task.num_fewshot=2", "task.max_gen_toks=1")
    for sample in evaluate(job_of(*own), lambda *_: None).samples:
        assert sample.prompt.startswith("\n\n".join(shot.text for shot in sample.shots))


def test_dropping_shots_does_not_move_lm_evals_draw_for_later_documents(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "fewshot=harness", "task.num_fewshot=3", "task.max_gen_toks=1")
    rows = [json.loads(line) for line in (gsm8k / "test.jsonl").read_text().splitlines()]
    write_jsonl(gsm8k / "test.jsonl", [{**rows[0], "question": rows[0]["question"] * 6}, *rows[1:]])
    plain = evaluate(job_of(*own, "model.max_length=200"), lambda *_: None).samples
    fewer = evaluate(job_of(*own, "model.max_length=200", "on_truncation=drop_shots"), lambda *_: None).samples
    assert ["truncated" in s.flags for s in plain] == [True, False, False, False]
    assert fewer[0].flags[0] == "dropped_shots"
    assert fewer[0].shots == plain[0].shots[: len(fewer[0].shots)]
    assert [s.shots for s in fewer[1:]] == [s.shots for s in plain[1:]]


def test_shots_from_a_file_or_another_split_need_no_train_split(gsm8k, tmp_path):
    (gsm8k / "train.jsonl").rename(gsm8k / "dev.jsonl")
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=2")
    with pytest.raises(BadInput, match=r"train.jsonl is missing"):
        shots(*own)
    assert len(shots(*own, "fewshot.split=dev")) == 2
    assert len(shots(*own, "fewshot=file", f"fewshot.path={gsm8k / 'dev.jsonl'}")) == 2


def test_words_that_begin_every_answer_stand_in_the_shots_too(gsm8k):
    prompt, about = made("task=gsm8k_step_by_step", f"task.data={gsm8k}", "task.num_fewshot=2")
    assert prompt.count("Answer: Let's think step by step.") == 2 + (not prompt.endswith("Answer:"))
    assert "Let's think step by step. 6+7" in prompt or about.shots[0].text.count("Let's think step by step. ") == 1
