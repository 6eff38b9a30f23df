"""Local data: what is missing or broken is told with path and line, and nothing is scored silently wrong."""

from __future__ import annotations

import pytest
from conftest import job_of, write_jsonl

from evalsweep.engine.tasks import data, harness
from evalsweep.errors import BadInput


def build(*overrides: str) -> harness.Built:
    return harness.build(job_of(*overrides))


def test_gsm8k_from_local_files_is_lm_evals_own_task(gsm8k):
    built = build("task=gsm8k", f"task.data={gsm8k}")
    task = built.tasks["gsm8k"]
    assert len(task.eval_docs) == 4
    assert task.doc_to_text(task.eval_docs[0]).startswith("Question: Tom has 2 pens")
    assert [f.name for f in task._filters] == ["strict-match", "flexible-extract"]
    assert built.provenance["task_version"] == "3.0"
    assert built.provenance["num_fewshot"] == 5


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"question": "q"}', "line 2: column 'answer' is missing; the line has: question"),
        ('{"question": "q", "answer": null}', "line 2: column 'answer' is null"),
        ('{"question": "q", "answer"', "line 2: is not valid JSON"),
        ("[1, 2]", "line 2: is not a JSON object"),
    ],
)
def test_a_broken_line_is_named(gsm8k, line, why):
    (gsm8k / "test.jsonl").write_text('{"question": "q", "answer": "#### 1"}\n' + line + "\n")
    with pytest.raises(BadInput) as refusal:
        build("task=gsm8k", f"task.data={gsm8k}")
    assert str(gsm8k / "test.jsonl") in str(refusal.value)
    assert why in str(refusal.value)


def test_blank_lines_count_in_line_numbers(gsm8k):
    (gsm8k / "test.jsonl").write_text('\n\n{"question": "q", "answer": "#### 1"}\n{ broken\n')
    with pytest.raises(BadInput, match="line 4: is not valid JSON"):
        build("task=gsm8k", f"task.data={gsm8k}")


def test_an_empty_a_binary_and_a_missing_file_are_named(gsm8k):
    for content, why in ((b"", "holds no document"), (b"\xff\xfe\x00", "cannot be read")):
        (gsm8k / "test.jsonl").write_bytes(content)
        with pytest.raises(BadInput, match=why):
            build("task=gsm8k", f"task.data={gsm8k}")
    (gsm8k / "test.jsonl").unlink()
    with pytest.raises(BadInput, match=r"test.jsonl is missing for task gsm8k; the folder has train.jsonl"):
        build("task=gsm8k", f"task.data={gsm8k}")


def test_the_few_shot_file_is_needed_only_for_shots(gsm8k):
    (gsm8k / "train.jsonl").unlink()
    with pytest.raises(BadInput, match=r"train.jsonl is missing"):
        build("task=gsm8k", f"task.data={gsm8k}")
    assert build("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=0").provenance["num_fewshot"] == 0


def test_a_multiple_choice_answer_outside_the_choices_is_refused(tmp_path):
    row = {"question": "q", "choices": ["a", "b"], "answer": 0}
    for answer in (2, -1, "A"):
        write_jsonl(tmp_path / "dev.jsonl", [row] * 3)
        write_jsonl(tmp_path / "test.jsonl", [row, {**row, "answer": answer}])
        with pytest.raises(BadInput, match="a position from 0 to 1 is needed"):
            build("task=sample_choice", f"task.data={tmp_path}")


def test_a_column_that_mixes_types_is_named(gsm8k):
    write_jsonl(gsm8k / "test.jsonl", [{"question": "q", "answer": "#### 1"}, {"question": "q", "answer": 5}])
    with pytest.raises(BadInput, match="data of gsm8k: a column mixes types"):
        build("task=gsm8k", f"task.data={gsm8k}")


def test_columns_come_from_the_templates_and_from_bare_names():
    task = {
        "doc_to_text": "{{question.strip()}} {{choices[0]}}",
        "doc_to_target": "answer",
        "doc_to_choice": ["A", "B"],
    }
    assert data.columns_of(task) == ["choices", "question", "answer"]


def test_mmlu_from_local_files_is_57_subjects_in_four_groups(mmlu):
    built = build("task=mmlu", f"task.data={mmlu}")
    assert built.name == "mmlu"
    assert len(built.tasks) == 57
    assert {g.name for g in built.root.get_all_groups()} == {
        f"mmlu_{g}" for g in ("stem", "other", "social_sciences", "humanities")
    }
    anatomy = built.tasks["mmlu_anatomy"]
    assert {doc["subject"] for doc in anatomy.eval_docs} == {"anatomy"}
    prompt = anatomy.fewshot_context(anatomy.eval_docs[0], num_fewshot=5)
    assert prompt.count("Answer:") == 6
    assert [line for line in prompt.splitlines() if line.endswith("!")] == [f"anatomy {i}!" for i in range(5)]


def test_a_subject_without_rows_is_named(mmlu):
    text = (mmlu / "test.jsonl").read_text().splitlines()
    (mmlu / "test.jsonl").write_text("\n".join(line for line in text if '"anatomy"' not in line))
    with pytest.raises(BadInput, match="no row with subject 'anatomy'"):
        build("task=mmlu", f"task.data={mmlu}")


def test_mmlu_rows_without_a_subject_are_refused_and_not_scored_57_times(mmlu):
    text = (mmlu / "test.jsonl").read_text().replace('"subject"', '"topic"')
    (mmlu / "test.jsonl").write_text(text)
    with pytest.raises(BadInput, match="line 1: column 'subject' is missing"):
        build("task=mmlu", f"task.data={mmlu}")


def test_hub_data_that_is_not_here_is_one_line():
    with pytest.raises(BadInput, match=r"gsm8k: what it needs is not in the hub's cache.*task.data=data/gsm8k"):
        build("task=gsm8k")


def test_a_folder_that_would_shadow_the_hub_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_jsonl(tmp_path / "openai" / "gsm8k" / "test.jsonl", [{"question": "q", "answer": "#### 1"}])
    with pytest.raises(BadInput, match=r"silently take the place.*task.data=./openai/gsm8k"):
        build("task=gsm8k")


def test_code_that_lm_eval_itself_would_run_is_off():
    with pytest.raises(BadInput, match=r"has lm_eval run code that the model wrote.*task.unsafe_code=allow"):
        build("task=lm_eval", "task.name=mbpp_instruct")


def test_a_headline_that_the_task_does_not_yield_is_refused_before_it_runs(gsm8k):
    with pytest.raises(
        BadInput, match=r"yields exact_match,strict-match and exact_match,flexible-extract and numeric \(did you mean"
    ):
        build("task=gsm8k", f"task.data={gsm8k}", "task.metric='exact_match,strict'")


def test_an_unknown_task_of_lm_eval_gets_a_suggestion():
    with pytest.raises(BadInput, match=r"no such task \(did you mean 'hellaswag'\?\)"):
        harness.check_name("hellaswg")


def test_a_task_that_votes_itself_is_refused(gsm8k):
    with pytest.raises(
        BadInput, match=r"takes a vote over several answers of its own.*task.scorer=numeric task.samples=5"
    ):
        build("task=lm_eval", "task.name=gsm8k_cot_self_consistency", f"task.data={gsm8k}")


def test_a_template_that_asks_what_is_there_needs_no_column(gsm8k):
    assert build("task=lm_eval", "task.name=gsm8k_cot", f"task.data={gsm8k}").name == "gsm8k_cot"


def test_a_definition_that_is_none_is_one_line(tmp_path):
    path = tmp_path / "broken.yaml"
    for text in ("task: [unclosed", "group: mine\ntask: [sample]\n", "- a\n- b\n"):
        path.write_text(text)
        with pytest.raises(BadInput, match=r"is no definition of one task of lm_eval|no such task"):
            build("task=lm_eval", f"task.name={path}")
