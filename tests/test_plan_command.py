"""`evalsweep plan`: from a sweep, from assumptions, and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_sweeps import RIGHT_AND_WRONG, make_run, sweep, told

from evalsweep import store
from evalsweep.commands import plan

__all__ = ["sweep"]  # a fixture


def test_a_plan_from_a_sweep_uses_its_noise_and_speed(sweep, capsys):
    assert plan.run(["--detect", "0.02", "--from", str(sweep)]) == 0
    said = told(capsys)
    assert "measured: sample, temperature 0.5 against 0" in said
    assert "10 documents and 2 runs a side find a difference of" in said
    assert "0.20 s a document and run" in said


def test_a_plan_without_a_sweep_says_what_it_assumes(capsys):
    assert plan.run(["--detect", "0.02", "--task", "gsm8k"]) == 0
    said = told(capsys)
    assert "1,319 documents and 1 run a side find a difference of 0.0244" in said
    assert "assumed: score 0.5, documents all or nothing" in said
    assert "no number of runs suffices" in said


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--detect", "2"], "--detect 2: must lie between 0 and 1"),
        (["--detect", "0.02"], "say how many questions there are"),
        (["--detect", "0.02", "--task", "other"], "--task other: say how many"),
        (["--detect", "0.02", "--documents", "0"], "--documents 0: must be at least 1"),
        (["--detect", "0.02", "--power", "1"], "--power 1: must lie"),
        (["--detect", "0.02", "--correlation", "-1"], "--correlation -1"),
        (["--detect", "0.02", "--from", "nowhere"], "nowhere: is no folder"),
        (["--detect", "0.02", "--from", "x", "--accuracy", "0.7"], "the sweep says how noisy it is"),
        (
            ["--detect", "0.02", "--task", "gsm8k", "--unpaired", "--correlation", "0.5"],
            "different questions have none",
        ),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused_in_one_line(capsys, given, why):
    assert plan.run(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def test_a_plan_tells_what_is_broken_in_its_sweep(sweep, capsys):
    path = sweep / "seed=0_temperature=0" / store.RECORD
    path.write_text("{")
    assert plan.run(["--detect", "0.02", "--from", str(sweep)]) == 0
    assert str(path) in told(capsys)


def test_a_plan_from_a_sweep_without_a_score_says_so(tmp_path, capsys):
    folder = make_run(tmp_path, RIGHT_AND_WRONG, "seed=0")
    store.write_record(folder, replace(store.read_record(folder), status="FAILED", error="x", headline=None))
    assert plan.run(["--detect", "0.02", "--from", str(tmp_path)]) == 2
    assert "no run of it has a score" in told(capsys)


def test_more_runs_are_needed_where_shots_move_more_than_the_difference(tmp_path, capsys):
    for seed, share in ((0, 0.2), (1, 0.5), (2, 0.8)):
        changes = {"provenance": {"shots_hash": str(seed)}}
        scores = [float(i < share * 50) for i in range(50)]
        make_run(tmp_path, scores, f"seed={seed}", "fewshot=resampled", **changes)
    assert plan.run(["--detect", "0.1", "--from", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    needed = [line.split() for line in said.splitlines() if line.split() and line.split()[0].isdigit()]
    rows = [row for row in needed if row[1] in ("none", "suffice") or row[1].replace(",", "").isdigit()]
    assert [row[1:3] for row in rows[:3]] == [["none", "suffice"]] * 3
    assert int(rows[-1][0].replace(",", "")) > 10
    assert rows[-1][1].replace(",", "").isdigit()
