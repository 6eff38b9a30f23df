"""Shots are pinned: the same set for every document, whatever the limit, the order or the seed."""

from __future__ import annotations

import pytest
from conftest import job_of, write_jsonl

from evalsweep.engine import tasks
from evalsweep.engine.evaluate import evaluate
from evalsweep.errors import BadInput


def shots(*overrides: str, document: int = 0) -> list[str]:
    built = tasks.build(job_of(*overrides))
    (task,) = built.tasks.values()
    n = task.config.num_fewshot
    prompt = task.fewshot_context(task.eval_docs[document], num_fewshot=n)
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
    assert any("seeds differ in their order alone" in alarm for alarm in whole.alarms)
    assert evaluate(job_of(*own, "task.num_fewshot=2"), lambda *_: None).alarms == []


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
    with pytest.raises(BadInput, match="of which the scored document is left out"):
        shots(*own, "task.num_fewshot=5")


def test_a_pool_that_is_too_small_and_a_split_that_is_not_there_are_named(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}")
    with pytest.raises(BadInput, match=r"pool holds 8 examples; for example task.num_fewshot=8"):
        shots(*own, "task.num_fewshot=9")
    with pytest.raises(BadInput, match=r"pool holds 5 examples"):
        shots("task=sample_choice", "task.num_fewshot=6")
    with pytest.raises(BadInput, match=r"no such split; it has test, train"):
        shots(*own, "fewshot.split=dev")


def test_a_task_that_states_zero_shots_takes_what_is_asked(gsm8k):
    assert shots("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=0") == []
    assert len(shots("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=3")) == 3
