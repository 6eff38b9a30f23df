"""`evalsweep report` on sweeps as they come: whole, broken, strange."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest
from made_sweeps import METRIC, RIGHT_AND_WRONG, make_run, question, rewrite, sweep, told

from evalsweep import store
from evalsweep.commands import report
from evalsweep.record import Shot
from evalsweep.summary.types import Summary

__all__ = ["sweep"]  # a fixture


def summary_of(folder) -> Summary:
    text = (folder / store.SUMMARY).read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    return Summary.from_json(json.loads(text))


def test_a_report_is_made_again_from_disk_and_is_the_same(sweep, capsys):
    assert report.run([str(sweep)]) == 0
    files = {p.name: p.read_bytes() for p in sweep.iterdir() if p.is_file()}
    assert {store.PAGE, store.MARKDOWN, store.SUMMARY, store.RESULTS, "scores.png", "temperature.svg"} <= set(files)
    assert report.run([str(sweep)]) == 0
    assert {p.name: p.read_bytes() for p in sweep.iterdir() if p.is_file()} == files
    assert "temperature 0.5 against 0: -0.050" in told(capsys)


def test_the_summary_is_read_as_it_was_written(sweep, capsys):
    report.run([str(sweep)])
    summary = summary_of(sweep)
    (pair,) = summary.comparisons
    assert (pair.axis, pair.difference.value, pair.rose) == ("temperature", pytest.approx(-0.05), ())
    assert pair.noise is not None
    with pytest.raises(ValueError, match="schema 99"):
        Summary.from_json({**json.loads((sweep / store.SUMMARY).read_text()), "schema": 99})
    with pytest.raises(ValueError, match="fields"):
        Summary.from_json({"schema": 1})


def test_the_report_goes_where_one_says(sweep, tmp_path, capsys):
    assert report.run([str(sweep), "--out", str(tmp_path / "else")]) == 0
    assert (tmp_path / "else" / store.PAGE).exists()
    assert not (sweep / store.PAGE).exists()


@pytest.mark.parametrize("given", ["nowhere", "empty"])
def test_where_there_is_nothing_one_line_says_what_is_wanted(tmp_path, capsys, given):
    (tmp_path / "empty").mkdir()
    assert report.run([str(tmp_path / given)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / given) in line
    assert "multirun/<day>/<time>" in line


def test_a_single_run_is_reported_from_its_own_folder(tmp_path, capsys):
    folder = make_run(tmp_path, RIGHT_AND_WRONG, "seed=7")
    assert report.run([str(folder)]) == 0
    (cell,) = summary_of(folder).cells
    assert (cell.documents, len(cell.runs), cell.interval.low) == (10, 1, None)
    assert cell.questions.low == pytest.approx(0.3, abs=0.05)
    assert "What is 4 + 4" in (folder / store.PAGE).read_text(), "its documents are in the report"


def test_a_sweep_without_a_finished_run_is_told_and_written(sweep, capsys):
    for run in sweep.glob("*/record.json"):
        record = store.read_record(run.parent)
        store.write_record(run.parent, replace(record, status="FAILED", error="no memory", metrics={}, headline=None))
    assert report.run([str(sweep)]) == 1
    assert "No run has a score." in told(capsys)
    assert len(summary_of(sweep).failed) == 4
    assert "no memory" in (sweep / store.PAGE).read_text()


def test_a_document_that_one_run_lacks_is_named_and_left_out_of_what_is_told_of_documents(sweep, capsys):
    rewrite(sweep / "seed=1_temperature=0.5", lambda samples: [s for s in samples if s.doc_id != 3])
    assert report.run([str(sweep)]) == 1
    assert "seed=1_temperature=0.5/samples.jsonl.gz: 1 document (sample/3) of the other runs missing" in told(capsys)
    cells = summary_of(sweep).cells
    assert [cell.documents for cell in cells] == [10, 9]
    assert "of which 9 are shared" in str(summary_of(sweep).comparisons[0].unlike)


def test_a_document_that_is_there_twice_counts_once(sweep, capsys):
    rewrite(sweep / "seed=0_temperature=0", lambda samples: [*samples, samples[2]])
    assert report.run([str(sweep)]) == 1
    assert "seed=0_temperature=0/samples.jsonl.gz: 1 document (sample/2) more than once; the first is taken" in told(
        capsys
    )
    assert summary_of(sweep).cells[0].documents == 10


def test_another_question_under_the_same_name_is_not_the_same_document(sweep, capsys):
    change = lambda samples: [replace(samples[0], doc_hash="other"), *samples[1:]]  # noqa: E731
    rewrite(sweep / "seed=0_temperature=0", change)
    assert report.run([str(sweep)]) == 1
    assert "1 document (sample/0) with another question than in other runs" in told(capsys)
    assert summary_of(sweep).cells[0].documents == 9


def test_runs_without_a_common_document_have_their_scores_and_no_interval_for_new_questions(sweep, capsys):
    rewrite(sweep / "seed=0_temperature=0", lambda samples: [replace(s, doc_hash="x") for s in samples])
    assert report.run([str(sweep)]) == 1
    cell = summary_of(sweep).cells[0]
    assert (cell.spread.mean, cell.questions.low) == (0.6, None)
    assert cell.questions.reason


def test_a_score_that_is_not_a_number_is_named_and_left_out(sweep, capsys):
    change = lambda samples: [replace(samples[0], scores={METRIC: float("nan")}), *samples[1:]]  # noqa: E731
    rewrite(sweep / "seed=0_temperature=0", change)
    assert report.run([str(sweep)]) == 1
    assert f"seed=0_temperature=0/samples.jsonl.gz: 1 document (sample/0) without a score of {METRIC}" in told(capsys)


def test_samples_that_are_cut_off_or_gone_are_named_with_their_path(sweep, capsys):
    cut, gone = (sweep / f"seed={s}_temperature=0.5" / store.SAMPLES for s in (0, 1))
    cut.write_bytes(cut.read_bytes()[:150])
    gone.unlink()
    assert report.run([str(sweep)]) == 1
    said = told(capsys)
    assert str(cut.parent) in said
    assert str(gone.parent) in said
    assert [cell.questions.low is None for cell in summary_of(sweep).cells] == [False, True]


def test_a_line_that_is_no_sample_is_named_with_its_path(sweep, capsys):
    path = sweep / "seed=0_temperature=0" / store.SAMPLES
    path.write_bytes(gzip.compress(b'{"doc_id": 1}\n'))
    assert report.run([str(sweep)]) == 1
    assert f"the samples of seed=0_temperature=0 cannot be read, only its score counts ({path}: fields differ" in told(
        capsys
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [('{"schema": 2, "run_id"', "record.json"), ('{"schema": 77}', "schema 77 is not 3"), ("[]", "schema None")],
)
def test_a_broken_record_is_named_with_its_path_and_the_rest_is_reported(sweep, capsys, content, why):
    path = sweep / "seed=0_temperature=0" / store.RECORD
    path.write_text(content)
    assert report.run([str(sweep)]) == 1
    said = told(capsys)
    assert str(path) in said
    assert why in said
    assert [len(cell.runs) for cell in summary_of(sweep).cells] == [2, 1] or [
        len(cell.runs) for cell in summary_of(sweep).cells
    ] == [1, 2]


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_all_right_and_all_wrong_have_an_interval_with_one_open_end(tmp_path, capsys, score):
    folder = make_run(tmp_path, [score] * 20, "seed=0")
    assert report.run([str(folder)]) == 0
    questions = summary_of(folder).cells[0].questions
    assert (questions.low, questions.high)[int(score)] == score
    assert 0.8 < questions.high - questions.low + 0.75 < 0.95


def test_one_document_has_a_score_and_no_interval(tmp_path, capsys):
    folder = make_run(tmp_path, [1.0], "seed=0")
    assert report.run([str(folder)]) == 0
    assert summary_of(folder).cells[0].questions.low is None
    assert "one document: no interval for new questions" in told(capsys)


def test_a_metric_that_is_no_mean_over_documents_has_an_interval_for_another_run_alone(tmp_path, capsys):
    for seed, corpus in ((0, 31.5), (1, 30.1), (2, 33.3)):
        changes = {"metrics": {f"sample/{METRIC}": corpus}, "responses_hash": str(seed)}
        make_run(tmp_path, RIGHT_AND_WRONG, f"seed={seed}", **changes)
    assert report.run([str(tmp_path)]) == 0
    (cell,) = summary_of(tmp_path).cells
    assert cell.interval.low is not None
    assert (cell.questions.low, "no mean over documents" in str(cell.questions.reason)) == (None, True)


def test_groups_have_scores_of_their_own_and_make_the_interval_longer(tmp_path, capsys):
    def grouped(number, score):
        return replace(question(number, score), task=f"subject_{number % 4}", doc_id=number // 4)

    scores = [float(i % 4 < 2) for i in range(40)]
    for seed in (0, 1):
        make_run(tmp_path, scores, f"seed={seed}", sample=grouped, responses_hash=str(seed))
    assert report.run([str(tmp_path)]) == 0
    (cell,) = summary_of(tmp_path).cells
    assert (cell.groups[0].name, cell.groups[0].questions.value, cell.groups[0].questions.n) == ("subject_0", 1.0, 10)
    assert cell.macro.value == pytest.approx(0.5)
    assert cell.questions.high - cell.questions.low > 0.6, "whole groups are right or wrong: four are few"
    assert "subject_3" in (tmp_path / store.PAGE).read_text()


def test_a_comparison_of_unlike_with_unlike_says_so_first(sweep, capsys):
    for folder in sweep.glob("*temperature=0.5"):
        record = store.read_record(folder)
        store.write_record(folder, replace(record, provenance={"versions": {"torch": "2.8"}, "device": "cuda"}))
    assert report.run([str(sweep)]) == 0
    assert "NOT LIKE WITH LIKE: device: None and cuda; version of torch: None and 2.8" in told(capsys)


def test_runs_of_one_cell_with_other_libraries_are_an_alarm(sweep, capsys):
    folder = sweep / "seed=1_temperature=0"
    store.write_record(folder, replace(store.read_record(folder), provenance={"versions": {"torch": "1.0"}}))
    report.run([str(sweep)])
    assert "runs of sample that count as alike differ in version of torch: 1.0, None" in told(capsys)


def test_documents_that_every_run_lacks_are_missing_too(tmp_path, capsys):
    folder = make_run(tmp_path, RIGHT_AND_WRONG, "seed=0")
    rewrite(folder, lambda samples: samples[:7])
    assert report.run([str(folder)]) == 1
    assert "samples.jsonl.gz: 7 of the 10 documents that the score was made of" in told(capsys)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metrics", None),
        ("metrics", {"sample/acc": "high"}),
        ("alarms", [3]),
        ("seeds", {}),
        ("config", {"task": {"name": "sample"}}),
        ("started", None),
        ("provenance", None),
        ("cell_hash", ["x"]),
    ],
)
def test_a_record_with_a_field_of_another_type_is_named_with_its_path(sweep, capsys, field, value):
    path = sweep / "seed=0_temperature=0" / store.RECORD
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    assert report.run([str(sweep)]) == 1
    assert str(path) in told(capsys)
    assert len(summary_of(sweep).failed) == 1


@pytest.mark.parametrize("change", [{"scores": [1]}, {"scores": {METRIC: "1"}}, {"responses": None}, {"other": 1}])
def test_a_sample_with_a_field_of_another_type_is_named_with_its_path(sweep, capsys, change):
    path = sweep / "seed=0_temperature=0" / store.SAMPLES
    lines = gzip.decompress(path.read_bytes()).splitlines()
    lines[4] = json.dumps({**json.loads(lines[4]), **change}).encode()
    path.write_bytes(gzip.compress(b"\n".join(lines)))
    assert report.run([str(sweep)]) == 1
    assert str(path) in told(capsys)


@pytest.mark.parametrize("content", ['{"jobs": [', '{"jobs": [{"name": "x"}]}', "[]"])
def test_what_was_asked_is_missing_where_its_file_is_broken(sweep, capsys, content):
    (sweep / store.SWEEP).write_text(content)
    assert report.run([str(sweep)]) == 1
    assert f"{sweep / store.SWEEP}:" in told(capsys)


def test_bytes_that_are_no_gzip_any_more_are_named_with_their_path(sweep, capsys):
    path = sweep / "seed=0_temperature=0" / store.SAMPLES
    whole = bytearray(path.read_bytes())
    whole[60:120] = bytes(60)
    path.write_bytes(bytes(whole))
    assert report.run([str(sweep)]) == 1
    assert str(path) in told(capsys)


def test_a_run_and_a_folder_of_its_name_are_told_apart(tmp_path, capsys):
    outer = make_run(tmp_path, RIGHT_AND_WRONG, "seed=0")
    make_run(outer, [0.0] * 10, "seed=0", "temperature=0.5").rename(outer / outer.name)
    assert report.run([str(outer)]) == 0
    assert [cell.questions.value for cell in summary_of(outer).cells] == [pytest.approx(0.6), 0.0]


@pytest.mark.parametrize("name", ["cost $x_{ and $y", "lone \ud800", "<script>alert(1)</script>", "a\x1b[2Jb\u202ec"])
def test_strange_names_are_harmless_in_every_form_of_the_report(tmp_path, capsys, name):
    for seed, system in ((0, name), (1, name), (0, "plain")):
        folder = make_run(tmp_path, RIGHT_AND_WRONG, f"seed={seed}", "prompt=text", "prompt.system=placeholder")
        record = store.read_record(folder)
        config = {**record.config, "prompt": {**record.config["prompt"], "system": system}}
        changed = replace(record, config=config, cell_hash=system, config_hash=f"{seed}{system}")
        folder.rename(tmp_path / f"{seed}{len(system)}")
        store.write_record(tmp_path / f"{seed}{len(system)}", changed)
    assert report.run([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    texts = [said, *((tmp_path / f).read_text() for f in (store.PAGE, store.MARKDOWN))]
    for text in texts:
        assert not {"\x1b", "\u202e", "\ud800"} & set(text)
        assert "<script>alert" not in text or text == said
    assert summary_of(tmp_path).cells[0].differs["prompt.system"] in (name, "plain")


def test_links_and_code_of_a_model_s_making_are_text_in_markdown(tmp_path, capsys):
    folder = make_run(tmp_path, RIGHT_AND_WRONG, "seed=0")
    error = "![i](http://e/x) [x](javascript:y) `code` *bold* | cell\r\r# Head"
    store.write_record(folder, replace(store.read_record(folder), status="FAILED", error=error, headline=None))
    assert report.run([str(folder)]) == 1
    text = (folder / store.MARKDOWN).read_text()
    assert "\\!\\[i\\](http://e/x)" in text
    assert "\\`code\\` \\*bold\\* \\| cell \\# Head" in text


def test_a_copy_of_a_run_counts_once(sweep, capsys):
    copied = sweep / "seed=0_temperature=0.5"
    record = store.read_record(copied)
    make_run(sweep, [0.0, *RIGHT_AND_WRONG[1:]], "seed=0", "temperature=0.5", responses_hash=record.responses_hash)
    (sweep / "copy").mkdir()
    for name in (store.RECORD, store.SAMPLES):
        (sweep / "copy" / name).write_bytes((copied / name).read_bytes())
    assert report.run([str(sweep)]) == 0
    assert [len(cell.runs) for cell in summary_of(sweep).cells] == [2, 2]
    assert "the two count as one run" in told(capsys)


def test_a_score_in_per_cent_has_an_interval_in_per_cent(tmp_path, capsys):
    for seed, f1 in ((0, 73.2), (1, 75.1), (2, 74.4)):
        changes = {"metrics": {"sample/f1": f1}, "headline": "sample/f1", "responses_hash": str(seed)}
        make_run(tmp_path, RIGHT_AND_WRONG, f"seed={seed}", **changes)
    assert report.run([str(tmp_path)]) == 0
    interval = summary_of(tmp_path).cells[0].interval
    assert 70 < interval.low < 74.2 < interval.high < 80


def test_runs_are_paired_by_their_shots_and_not_by_their_order(tmp_path, capsys):
    import numpy as np

    rng = np.random.default_rng(0)
    chances = {"x": 0.2, "y": 0.5, "z": 0.8}
    for t, order in ((0, "xyz"), (0.5, "zxy")):
        for seed, shots in enumerate(order):
            scores = (rng.random(300) < chances[shots]).astype(float).tolist()
            changes = {"provenance": {"shots_hash": shots}, "started": float(seed)}
            make_run(tmp_path, scores, f"seed={seed}", f"temperature={t}", "fewshot=resampled", **changes)
    assert report.run([str(tmp_path)]) == 0
    (pair,) = summary_of(tmp_path).comparisons
    assert pair.difference.high - pair.difference.low < 0.4, "the shots' effect is shared"


def test_passages_make_the_interval_longer_and_get_no_row_each(tmp_path, capsys):
    def grouped(number, score):
        return replace(question(number, score), group=f"passage {number // 3}")

    folders = [tmp_path / name for name in ("alone", "passages")]
    scores = [float(i // 3 % 2) for i in range(360)]
    make_run(folders[0], scores, "seed=0")
    make_run(folders[1], scores, "seed=0", sample=grouped)
    for folder in folders:
        assert report.run([str(folder)]) == 0
    alone, passages = (summary_of(folder).cells[0] for folder in folders)
    assert passages.questions.target == "new questions, new groups"
    assert passages.questions.high - passages.questions.low > 1.6 * (alone.questions.high - alone.questions.low)
    assert passages.groups == ()
    assert report.run([str(folders[0]), "--group-by", "passage"]) == 2


def test_the_median_of_six_runs_has_an_interval(tmp_path, capsys):
    for seed in range(6):
        make_run(tmp_path, [float(i < 10 + seed) for i in range(20)], f"seed={seed}")
    assert report.run([str(tmp_path)]) == 0
    assert "0.625 (0.500 to 0.750)" in (tmp_path / store.PAGE).read_text()
    entry = json.loads((tmp_path / store.RESULTS).read_text())["sample"]
    assert (entry["median"], entry["median_low"], entry["median_high"]) == (0.625, 0.5, 0.75)


def test_a_question_in_a_chat_template_is_shown_and_found(tmp_path, capsys):
    def chat(number, score):
        sample = question(number, score)
        turns = "<|user|>\nQuestion: What is 7 * 6?\nAnswer:\n<|assistant|>\n42\n<|user|>\n"
        shots = [Shot(0, "Question: What is 7 * 6?\nAnswer: 42")]
        return replace(
            sample, prompt=f"<|system|>\n{'Be kind. ' * 60}{turns}{sample.prompt}\n<|assistant|>\n", shots=shots
        )

    make_run(tmp_path, [1.0, 0.0, 1.0], "seed=0", sample=chat)
    assert report.run([str(tmp_path)]) == 0
    rows = json.loads((tmp_path / store.PAGE).read_text().partition('id="data">')[2].partition("</script>")[0])
    questions = [row[1] for row in rows["tables"][0]["rows"]]
    assert ["What is 2 + 2?" in text for text in questions] == [False, False, True]
    assert questions[1] == "<|user|> Question: What is 1 + 1? Answer: <|assistant|>"


def test_a_long_question_is_shown_by_its_beginning_and_its_end(tmp_path, capsys):
    def long(number, score):
        return replace(question(number, score), prompt=f"Number {number}. {'A long passage. ' * 90}What is {number}?")

    make_run(tmp_path, [1.0, 0.0], "seed=0", sample=long)
    assert report.run([str(tmp_path)]) == 0
    page = (tmp_path / store.PAGE).read_text()
    assert '"Number 1. A long passage.' in page
    assert 'A long passage. What is 1?"' in page


def test_where_the_report_cannot_be_written_its_own_flag_is_named(sweep, capsys):
    (sweep / "file").write_text("")
    assert report.run([str(sweep), "--out", str(sweep / "file")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("--out my-report")
    assert report.run([str(sweep / "file")]) == 2
    assert "is a file; give the folder that it lies in" in told(capsys)


def test_another_question_under_the_same_name_is_never_paired(sweep, capsys):
    for folder in sweep.glob("*temperature=0.5"):
        rewrite(folder, lambda samples: [replace(samples[0], doc_hash="other"), *samples[1:]])
    assert report.run([str(sweep)]) == 0
    (pair,) = summary_of(sweep).comparisons
    assert pair.difference.n == 9
    assert "documents: 10 and 10, of which 9 are shared" in pair.unlike


def test_one_run_a_side_of_right_and_wrong_is_mcnemar_s_test(tmp_path, capsys):
    make_run(tmp_path, RIGHT_AND_WRONG, "temperature=0")
    make_run(tmp_path, [0.0] * 10, "temperature=0.5")
    assert report.run([str(tmp_path)]) == 0
    (pair,) = summary_of(tmp_path).comparisons
    assert (pair.method, pair.p) == ("McNemar, exact", pytest.approx(2 / 2**6))
    assert ">6</summary>sample/0, sample/2, " in (tmp_path / store.PAGE).read_text()


def test_two_models_with_other_types_of_numbers_or_templates_are_not_like_with_like(tmp_path, capsys):
    for name, dtype, template in (("one", "float32", False), ("two", "bfloat16", True)):
        folder = make_run(tmp_path, RIGHT_AND_WRONG, "model=hf", f"model.pretrained={name}")
        record = store.read_record(folder)
        config = {**record.config, "model": {**record.config["model"], "name": name, "apply_chat_template": template}}
        config["model"]["pretrained"] = None
        store.write_record(folder, replace(record, config=config, provenance={"dtype": dtype}))
    assert report.run([str(tmp_path)]) == 0
    (pair,) = summary_of(tmp_path).comparisons
    assert pair.axis == "model"
    assert pair.unlike == ("dtype: float32 and bfloat16", "model.apply_chat_template: False and True")


def test_a_sweep_that_asked_for_nothing_is_named(tmp_path, capsys):
    (tmp_path / store.SWEEP).write_text('{"schema": 1, "jobs": []}')
    assert report.run([str(tmp_path)]) == 1
    assert f"{tmp_path / store.SWEEP}: asks for no job" in told(capsys)
