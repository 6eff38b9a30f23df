"""Reports of what lm_eval itself wrote: a real run of it, and the forms that its versions have had."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalsweep import store
from evalsweep.commands import report
from evalsweep.engine.benchmarks.benchmark import DEFINITIONS
from evalsweep.harness_logs.records import read_records
from evalsweep.harness_logs.samples import read_samples
from evalsweep.summary.types import Summary

TASKS = DEFINITIONS


def summary_of(folder: Path) -> Summary:
    return Summary.from_json(json.loads((folder / store.SUMMARY).read_text()))


@pytest.fixture(scope="module")
def harness(tmp_path_factory, model_folder):
    """What `lm_eval run --log_samples` wrote of two tasks in two runs with different seeds."""
    folder = tmp_path_factory.mktemp("harness")
    for name, splits in (("sample", ("train", "test")), ("sample_choice", ("dev", "test"))):
        task = (TASKS / name / f"{name}.yaml").read_text().replace(f"task: {name}", f"task: tiny_{name}")
        files = "".join(f"    {split}: {TASKS / name / f'{split}.jsonl'}\n" for split in splits)
        (folder / f"tiny_{name}.yaml").write_text(
            f"{task}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n{files}"
        )
    for seed in (0, 1):
        command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--device", "cpu", "--log_samples"]
        command += ["--model_args", f"pretrained={model_folder},dtype=float32", "--include_path", str(folder)]
        command += ["--tasks", "tiny_sample,tiny_sample_choice", "--limit", "8", "--seed", str(seed)]
        command += ["--gen_kwargs", "do_sample=true,temperature=0.7", "--output_path", str(folder / "out")]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
    return folder / "out"


def test_two_runs_of_lm_eval_are_two_runs_of_a_cell(harness, tmp_path, capsys):
    assert report.run([str(harness), "--out", str(tmp_path)]) == 0
    cells = {cell.task: cell for cell in summary_of(tmp_path).cells}
    results = [json.loads(p.read_text())["results"] for p in sorted(harness.rglob("results_*.json"))]
    sampled, choice = cells["tiny_sample"], cells["tiny_sample_choice"]
    assert [run.score for run in sampled.runs] == [r["tiny_sample"]["exact_match,number"] for r in results]
    assert [run.score for run in choice.runs] == [r["tiny_sample_choice"]["acc,none"] for r in results]
    assert ([run.seed for run in sampled.runs], sampled.documents, choice.metric) == ([0, 1], 8, "acc")
    assert sampled.questions.target == "new questions, new shots", "lm_eval's seed draws other examples"
    assert (choice.identical, choice.questions.target) == (True, "new questions"), (
        "its examples are the first of a list"
    )
    assert sampled.config["temperature"] == 0.7
    page = (tmp_path / store.PAGE).read_text()
    assert "What is 11 * 4?" in page
    assert "Which season comes after winter?" in page


def test_by_default_the_report_lies_in_a_folder_of_its_own_and_is_not_read_again(harness, tmp_path, capsys):
    shutil.copytree(harness, tmp_path / "copy")
    for _ in range(2):
        assert report.run([str(tmp_path / "copy")]) == 0
    assert len(summary_of(tmp_path / "copy" / "report").cells) == 2


def test_samples_that_lm_eval_did_not_write_leave_the_scores(harness, tmp_path, capsys):
    shutil.copytree(harness, tmp_path / "copy")
    for file in (tmp_path / "copy").rglob("samples_tiny_sample_2*.jsonl"):
        file.unlink()
    assert report.run([str(tmp_path / "copy")]) == 1
    assert "lm_eval writes it with --log_samples" in " ".join(capsys.readouterr().out.split())
    (first, _) = summary_of(tmp_path / "copy" / "report").cells
    assert (first.spread.n, first.questions.low) == (2, None)


def test_a_results_file_that_is_cut_off_is_named_and_the_rest_is_reported(harness, tmp_path, capsys):
    shutil.copytree(harness, tmp_path / "copy")
    broken = sorted((tmp_path / "copy").rglob("results_*.json"))[0]
    broken.write_text(broken.read_text()[:200])
    assert report.run([str(tmp_path / "copy")]) == 1
    assert broken.name in re.sub(r"\s+", "", capsys.readouterr().out)
    assert [len(cell.runs) for cell in summary_of(tmp_path / "copy" / "report").cells] == [1, 1]


def _results(**changes: Any) -> dict[str, Any]:
    """As version 0.4.2 wrote it: model_args in one string, no date, no seeds, no hashes."""
    return {
        "results": {
            "gsm8k": {"exact_match,strict-match": 0.5, "exact_match_stderr,strict-match": 0.1, "alias": "gsm8k"}
        },
        "configs": {"gsm8k": {}},
        "versions": {"gsm8k": 3.0},
        "n-shot": {"gsm8k": 5},
        "config": {"model": "hf", "model_args": "pretrained=org/model-7b,dtype=float16", "batch_size": "1", "limit": 4},
        "git_hash": "abc1234",
        **changes,
    }


def _old_sample(number: int, score: float, flavour: str = "strict-match") -> dict[str, Any]:
    return {
        "doc_id": number,
        "doc": {"question": f"What is {number}?"},
        "target": str(number),
        "arguments": [[f"Question: What is {number}?\nAnswer:", {"until": ["\n"]}]],
        "resps": [[f" {number}"]],
        "filtered_resps": [str(number)],
        "filter": flavour,
        "exact_match": score,
    }


def test_the_form_of_an_older_version_is_read(tmp_path, capsys):
    (tmp_path / "results.json").write_text(json.dumps(_results()))
    rows = [_old_sample(i, float(i < 2), flavour) for flavour in ("strict-match", "flexible") for i in range(4)]
    (tmp_path / "samples_gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert report.run([str(tmp_path)]) == 0
    (cell,) = summary_of(tmp_path / "report").cells
    assert (cell.task, cell.metric, cell.documents) == ("gsm8k", "exact_match,strict-match", 4)
    assert (cell.config["model"]["name"], cell.config["model"]["dtype"]) == ("org/model-7b", "float16")
    assert cell.questions.low is not None
    sample = next(read_samples(tmp_path / "results.json", "gsm8k"))
    assert sample.prompt == "Question: What is 0?\nAnswer:"
    assert sample.scores == {"exact_match,strict-match": 1.0, "exact_match,flexible": 1.0}


def test_a_group_is_one_cell_of_all_its_tasks(tmp_path, capsys):
    subjects = {f"mmlu_{name}": share for name, share in (("law", 0.25), ("art", 0.75), ("math", 1.0))}
    results = {name: {"acc,none": share, "acc_stderr,none": 0.1} for name, share in subjects.items()}
    results["mmlu_humanities"] = {"acc,none": 0.5}
    results["mmlu"] = {"acc,none": 2 / 3}
    groups = {"mmlu": ["mmlu_humanities", "mmlu_math"], "mmlu_humanities": ["mmlu_law", "mmlu_art"]}
    counts = {name: {"original": 100, "effective": 4} for name in subjects}
    data = _results(results=results, group_subtasks=groups, **{"n-samples": counts, "n-shot": {"mmlu_law": 5}})
    (tmp_path / "results_2026-01-02T03-04-05.678901.json").write_text(json.dumps(data))
    for name, share in subjects.items():
        rows = [
            {"doc_id": i, "target": "A", "arguments": {"gen_args_0": {"arg_0": f"{name} {i}?", "arg_1": " A"}}}
            | {"resps": [[["-1.5", "False"]], [["-0.5", "True"]]], "filter": "none", "metrics": ["acc"]}
            | {"acc": float(i < 4 * share), "doc_hash": f"{name}{i}"}
            for i in range(4)
        ]
        file = tmp_path / f"samples_{name}_2026-01-02T03-04-05.678901.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert report.run([str(tmp_path)]) == 0
    (cell,) = summary_of(tmp_path / "report").cells
    assert (cell.task, cell.documents, cell.questions.target) == ("mmlu", 12, "new questions, new groups, these shots")
    assert {group.name: group.questions.value for group in cell.groups} == subjects
    record = read_records(next(tmp_path.glob("results_*")))[0][1]
    assert record.started == 1767323045.0


@pytest.mark.parametrize("text", ["[1, 2]", '{"results": 3}', "{"])
def test_what_is_no_results_file_is_an_error_with_its_path(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "results.json"))):
        read_records(tmp_path / "results.json")


def test_a_line_that_is_no_sample_is_named_with_its_number(tmp_path, capsys):
    (tmp_path / "results.json").write_text(json.dumps(_results()))
    (tmp_path / "samples_gsm8k.jsonl").write_text(json.dumps(_old_sample(0, 1.0)) + "\n{half a li")
    assert report.run([str(tmp_path)]) == 1
    assert "samples_gsm8k.jsonl: line 2:" in re.sub(r"\s+", " ", capsys.readouterr().out)


def write(folder: Path, model: str, scores: list[float], name: str = "results", **changes: Any) -> None:
    """One run of gsm8k as an older version wrote it, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    data = _results(
        results={"gsm8k": {"exact_match,strict-match": sum(scores) / len(scores)}},
        **{"n-samples": {"gsm8k": {"original": 100, "effective": len(scores)}}},
    )
    data["config"] = {**data["config"], "model_args": model, **changes}
    stamp = name.removeprefix("results").lstrip("_")
    (folder / f"{name}.json").write_text(json.dumps(data))
    rows = [_old_sample(i, score) for i, score in enumerate(scores)]
    samples = folder / (f"samples_gsm8k_{stamp}.jsonl" if stamp else "samples_gsm8k.jsonl")
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))


def cells_of(folder: Path, code: int = 0) -> list[Any]:
    assert report.run([str(folder)]) == code
    return list(summary_of(folder / "report").cells)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"model": "pretrained=orgA/llama"}, {"model": "pretrained=orgB/llama"}),
        ({"model": "pretrained=gpt2"}, {"model": "pretrained=gpt2,dtype=float32"}),
        ({"model": "pretrained=gpt2", "gen_kwargs": "temperature=0.7"}, {"model": "pretrained=gpt2"}),
        (
            {"model": "pretrained=gpt2", "gen_kwargs": {"temperature": 0.7}},
            {"model": "pretrained=gpt2", "gen_kwargs": {"temperature": 0.7, "top_p": 0.9}},
        ),
    ],
)
def test_runs_with_other_settings_are_not_runs_of_one_cell(tmp_path, capsys, one, other):
    write(tmp_path / "a", scores=[1.0, 0.0, 1.0, 1.0], **one)
    write(tmp_path / "b", scores=[1.0, 0.0, 0.0, 1.0], **other)
    assert [cell.spread.mean for cell in cells_of(tmp_path)] == [0.75, 0.5]


def test_runs_without_shots_that_differ_in_their_seeds_are_runs_of_one_cell(tmp_path, capsys):
    for seed in (1, 2, 3):
        write(tmp_path / str(seed), "pretrained=gpt2", [1.0, 0.0, float(seed > 1)], torch_seed=seed, fewshot_seed=seed)
        path = tmp_path / str(seed) / "results.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "n-shot": {"gsm8k": 0}}))
    (cell,) = cells_of(tmp_path)
    assert ([run.seed for run in cell.runs], cell.questions.target) == ([1, 2, 3], "new questions")


def test_a_document_that_is_there_again_is_told_and_the_first_is_taken(tmp_path, capsys):
    write(tmp_path, "pretrained=gpt2", [1.0, 0.0, 1.0, 1.0])
    with (tmp_path / "samples_gsm8k.jsonl").open("a") as f:
        f.write(json.dumps(_old_sample(0, 0.0)) + "\n")
    (cell,) = cells_of(tmp_path, 1)
    assert (cell.questions.value, cell.documents) == (0.75, 4)


def test_results_that_their_user_named_and_samples_that_the_model_names_are_found(tmp_path, capsys):
    write(tmp_path, "pretrained=gpt2", [1.0, 0.0])
    (tmp_path / "results.json").rename(tmp_path / "mine.json")
    (tmp_path / "samples_gsm8k.jsonl").rename(tmp_path / "pretrained__gpt2_gsm8k.jsonl")
    (cell,) = cells_of(tmp_path)
    assert cell.questions.low is not None
    write(tmp_path, "pretrained=other", [1.0, 1.0], "mine_2026-01-02T03-04-05.6")
    (tmp_path / "samples_gsm8k_mine_2026-01-02T03-04-05.6.jsonl").rename(
        tmp_path / "samples_gsm8k_2026-01-02T03-04-05.6.jsonl"
    )
    assert [cell.questions.value for cell in cells_of(tmp_path)] == [0.5, 1.0]


def test_a_linked_folder_is_followed_once(tmp_path, capsys):
    write(tmp_path / "store" / "model", "pretrained=gpt2", [1.0, 0.0])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model").symlink_to(tmp_path / "store" / "model")
    (tmp_path / "store" / "model" / "round").symlink_to(tmp_path / "store")
    assert len(cells_of(tmp_path / "out")) == 1


def test_secrets_of_a_command_line_do_not_reach_the_report(tmp_path, capsys):
    write(
        tmp_path, "pretrained=gpt2,token=hf_abcdefghijklmnopqrstuvwxyz,base_url=http://ann:s3cretpass@h/v1", [1.0, 0.0]
    )
    assert report.run([str(tmp_path)]) == 0
    for file in (store.PAGE, store.SUMMARY, store.MARKDOWN):
        text = (tmp_path / "report" / file).read_text()
        assert "hf_abcdef" not in text
        assert "s3cretpass" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {"results": {"gsm8k": None}},
        {"config": None},
        {"config": [1]},
        {"n-samples": 3},
        {"results": {"gsm8k": {"acc,none": 10**400}}},
        {"group_subtasks": {"a": ["b"], "b": ["a"]}, "results": {"a": {}, "b": {}}},
        {"group_subtasks": 3},
    ],
)
def test_results_of_another_shape_are_named_with_their_path_and_the_rest_is_reported(tmp_path, capsys, changes):
    write(tmp_path / "good", "pretrained=gpt2", [1.0, 0.0])
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "results.json").write_text(json.dumps({**_results(), **changes}))
    assert len(cells_of(tmp_path, 1)) == 1
    assert "bad/results.json" in "".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("row", [{"doc_id": None}, {"doc_id": 0, "metrics": [[1]]}, [1], {"doc_id": 0, "resps": 3}])
def test_samples_of_another_shape_are_named_with_their_path(tmp_path, capsys, row):
    write(tmp_path, "pretrained=gpt2", [1.0, 0.0])
    (tmp_path / "samples_gsm8k.jsonl").write_text(json.dumps(row) + "\n")
    cells_of(tmp_path, 1)
    assert "samples_gsm8k.jsonl" in "".join(capsys.readouterr().out.split())


def test_a_group_that_names_itself_is_read_as_a_task(tmp_path, capsys):
    write(tmp_path, "pretrained=gpt2", [1.0, 0.0])
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "group_subtasks": {"gsm8k": ["gsm8k"]}}))
    assert len(cells_of(tmp_path)) == 1


def test_documents_of_lm_eval_are_grouped_by_a_field_of_theirs(tmp_path, capsys):
    write(tmp_path, "pretrained=gpt2", [1.0, 0.0, 1.0, 0.0])
    path = tmp_path / "samples_gsm8k.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for i, row in enumerate(rows):
        row["doc"]["passage"] = f"{i // 2}: {'Once upon a time. ' * 20}"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert report.run([str(tmp_path), "--group-by", "passage"]) == 0
    (cell,) = summary_of(tmp_path / "report").cells
    assert cell.questions.target.startswith("new questions, new groups")
    assert [group.questions.n for group in cell.groups] == [2, 2]
    capsys.readouterr()
    assert report.run([str(tmp_path), "--group-by", "pasage"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "group by pasage: is no field of every document (did you mean 'passage'?); one has question, passage" in line


def test_sweeps_below_a_folder_of_lm_eval_are_named_as_not_read(tmp_path, capsys):
    write(tmp_path / "out", "pretrained=gpt2", [1.0, 0.0])
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / store.SWEEP).write_text("")
    cells_of(tmp_path, 1)
    assert "a sweep of evalsweep's own, not read here" in " ".join(capsys.readouterr().out.split())


def test_copies_of_a_run_count_once_whether_or_not_all_are_alike(tmp_path, capsys):
    for name in ("a", "b", "c"):
        write(tmp_path / name, "pretrained=gpt2", [1.0, 0.0], torch_seed=0)
    (cell,) = cells_of(tmp_path)
    assert len(cell.runs) == 1
    assert "repeats" in capsys.readouterr().out
