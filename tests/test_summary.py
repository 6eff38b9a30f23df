from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from conftest import job_of
from test_store import RECORD

from evalsweep.identity import config_hash, without_seed
from evalsweep.provenance import value_hash
from evalsweep.record import FAILED, Alarm, Record
from evalsweep.report import plot, results, table
from evalsweep.summary.sweep import summarise
from evalsweep.summary.types import Job, Summary


def record(score: float, *overrides: str, answers: str | None = None, started: float = 0.0) -> tuple[str, Record]:
    job = job_of(*overrides)
    config = asdict(job)
    name = f"{job.task.name}/exact_match,number"
    made = replace(
        RECORD,
        config=config,
        config_hash=config_hash(config),
        cell_hash=value_hash(without_seed(config)),
        seeds={"generation": job.seed},
        metrics={name: score, f"{job.task.name}/length": 12.0 + score},
        headline=name,
        metric_info={name: {"bounds": [0.0, 1.0], "aggregation": "mean", "higher_is_better": True}},
        responses_hash=answers or f"{overrides}",
        started=started,
    )
    return "_".join(overrides), made


def sweep() -> Summary:
    greedy = [record(0.5, f"seed={s}", "temperature=0", answers="same") for s in (0, 1, 2)]
    warm = [record(x, f"seed={s}", "temperature=0.2") for s, x in enumerate((0.4, 0.5, 0.6))]
    return summarise([*greedy, *warm])


def test_runs_that_differ_only_in_the_seed_are_one_cell():
    summary = sweep()
    assert [(c.differs, len(c.runs)) for c in summary.cells] == [({"temperature": 0.0}, 3), ({"temperature": 0.2}, 3)]
    assert [run.seed for run in summary.cells[1].runs] == [0, 1, 2]


def test_runs_of_two_samplers_are_not_one_cell_and_that_is_said():
    runs = [record(x, f"seed={s}", "temperature=0.2") for s, x in enumerate((0.4, 0.5, 0.6, 0.5))]
    drawn = [
        (name, replace(r, decoding={"sent": [{"sampler": "Philox" if n < 2 else "Threefry"}]}))
        for n, (name, r) in enumerate(runs)
    ]
    summary = summarise(drawn)
    assert [len(c.runs) for c in summary.cells] == [2, 2]
    assert "runs that differ only in what drew their tokens are 2 cells: Philox | Threefry" in summary.warnings
    assert summary.comparisons == ()
    assert "drew their tokens" not in str(summarise(drawn[:2]).warnings)


def test_identical_runs_are_one_and_have_no_interval():
    greedy, warm = sweep().cells
    assert (greedy.identical, greedy.interval.n, greedy.interval.low) == (True, 1, None)
    assert not warm.identical
    assert warm.interval.low == pytest.approx(0.5 - 4.302652729749464 * 0.1 / 3**0.5)  # t(0.975, 2) from a table


def test_the_interval_of_a_share_is_cut_at_zero_and_one_and_others_are_not():
    cell = summarise([record(0.9, "seed=0"), record(1.0, "seed=1")]).cells[0]
    assert cell.interval.high == 1.0
    assert cell.per_metric["sample/length"].interval.high > 13.0


def test_failed_killed_missing_and_unreadable_jobs_are_told_and_the_rest_summarised():
    good_name, good = record(0.5, "seed=0")
    bad_name, bad = record(0.0, "seed=1")
    bad = replace(bad, status=FAILED, error="model gone", metrics={}, headline=None)
    asked = [
        Job("s=0", good_name, good.config_hash),
        Job("s=1", bad_name, bad.config_hash),
        Job("s=2", "dir2", "hash2"),
        Job("s=3", "dir3", "hash3"),
    ]
    summary = summarise([(good_name, good), (bad_name, bad)], asked, {"dir3": "dir3/record.json: cut off"})
    assert len(summary.cells) == 1
    assert [(f.name, f.status) for f in summary.failed] == [
        ("s=1", "FAILED"),
        ("dir3", "UNREADABLE"),
        ("s=2", "MISSING"),
    ]
    assert summary.jobs == 4


def test_prompts_that_look_like_secrets_stay_apart():
    summary = summarise([record(0.5, "prompt=text", f"prompt.system='The password: {x}'") for x in ("alpha", "bravo")])
    assert [len(cell.runs) for cell in summary.cells] == [1, 1]
    assert summary.cells[0].differs != summary.cells[1].differs


@pytest.mark.parametrize("score", [float("nan"), None])
def test_a_score_that_is_no_number_is_no_score_and_the_rest_is_summarised(score):
    bad_name, bad = record(0.5, "seed=1")
    bad = replace(bad, metrics={str(bad.headline): score, "sample/length": score})
    summary = summarise([record(0.5, "seed=0"), (bad_name, bad)])
    assert [len(cell.runs) for cell in summary.cells] == [1]
    assert [f.directory for f in summary.failed] == [bad_name]


def test_results_have_the_simple_shape_and_never_pool_cells():
    entry = results.results(sweep())["sample"]
    assert entry["runs"] == [0.5, 0.5, 0.5]
    assert entry["cell"] == {"temperature": 0.0}
    assert (entry["mean"], entry["std"], entry["ci_low"], entry["identical"]) == (0.5, 0.0, None, True)
    second = entry["cells"][1]
    assert second["runs"] == [0.4, 0.5, 0.6]
    assert second["std"] == pytest.approx(0.1)
    assert second["ci_low"] < 0.5 < second["ci_high"]


def test_one_cell_needs_no_list_of_cells():
    entry = results.results(summarise([record(0.5, "seed=0")]))["sample"]
    assert "cells" not in entry
    assert (entry["ci_low"], entry["std"], entry["n"]) == (None, None, 1)


def test_the_table_has_a_row_a_cell_and_says_what_the_interval_is():
    text = table.terminal(sweep(), 100)
    assert [line.split()[:3] for line in text.splitlines() if line.startswith(" sample")] == [
        ["sample", "0", "3"],
        ["sample", "0.2", "3"],
    ]
    assert "same questions" in text
    assert "the seed changed neither shots nor samples: 3 identical runs count as one" in " ".join(text.split())
    assert "0.000" not in text, "no spread is not a spread of zero"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_the_terminal_and_breaks_no_number(width):
    wide = [
        record(score, f"task={task}", f"seed={seed}", f"prompt={prompt}", f"temperature={t}")
        for t in (0.2, 0.7)
        for task in ("sample", "sample_choice")
        for prompt in ("none", "helpful_assistant")
        for seed, score in enumerate((0.5, 0.51))
    ]
    for summary in (sweep(), summarise(wide)):
        text = table.terminal(summary, width)
        assert max(map(len, text.splitlines())) <= width
        for cell in summary.cells:
            shown = table.ANOTHER in next(line for line in text.splitlines() if "mean" in line)
            assert shown or width < 100
            if cell.interval.low is not None and shown:
                assert f"{cell.interval.low:.3f} to {cell.interval.high:.3f}" in text


def test_markdown_leaves_no_html_of_a_failure_alive():
    failed = replace(record(0.0)[1], status=FAILED, error="<script>x|y</script>", metrics={}, headline=None)
    assert "<script>" not in table.markdown(summarise([("d", failed)]), None)


def test_the_picture_is_a_png_also_for_one_run_and_one_cell():
    for summary in (sweep(), summarise([record(0.5, "seed=0")])):
        made = plot.pictures(summary)
        assert made["scores.png"].startswith(b"\x89PNG")
        assert b"</svg>" in made["scores.svg"]
        assert made == plot.pictures(summary), "the same numbers are the same bytes"
    assert "temperature.png" in plot.pictures(sweep())
    assert plot.pictures(summarise([])) == {}


def test_a_seed_that_moved_the_shots_but_no_answer_is_told_apart():
    runs = [record(0.5, f"seed={s}", "fewshot=resampled", answers="same") for s in (0, 1)]
    runs = [(d, replace(r, provenance={"shots_hash": str(r.seeds)})) for d, r in runs]
    assert (
        summarise(runs).cells[0].interval.reason == "the seed changed the shots, but no answer: 2 identical runs "
        "count as one"
    )


def test_an_axis_that_changed_no_answer_is_named():
    runs = [
        record(0.5, f"prompt={p}", f"temperature={t}", answers=f"at {t}")
        for p in ("none", "helpful_assistant")
        for t in (0, 1)
    ]
    assert summarise(runs).warnings == ("prompt changed no answer of sample",)
    (name, one), *others = runs
    assert summarise([(name, replace(one, responses_hash="else")), *others]).warnings == ()


def test_a_dead_temperature_is_said_once():
    dead = Alarm("dead_temperature", "temperature does not affect sample: ...")
    runs = [record(0.5, f"temperature={t}", answers="same") for t in (0, 1)]
    assert summarise(runs).warnings == ("temperature changed no answer of sample",)
    runs[1] = (runs[1][0], replace(runs[1][1], alarms=[dead]))
    assert summarise(runs).warnings == (dead.message,)


def test_alarms_of_a_kind_are_one_line_the_worst():
    runs = [record(0.5, f"seed={s}") for s in range(3)]
    counts = (3, 9)
    runs[:2] = [
        (d, replace(r, alarms=[Alarm("capped", f"{n} of 60 were cut", n, 60)]))
        for (d, r), n in zip(runs[:2], counts, strict=True)
    ]
    assert summarise(runs).warnings == ("9 of 60 were cut (at worst; in 2 of 3 runs)",)


def test_alarms_of_a_run_as_a_whole_are_all_told():
    runs = [record(0.5, "model=hf", f"model.pretrained={m}") for m in "ab"]
    runs = [(d, replace(r, alarms=[Alarm("no_template", f"{d[-1]} has a template")])) for d, r in runs]
    assert summarise(runs).warnings == ("a has a template", "b has a template")
