"""The simulation behind the intervals, in small: its own truth, its bounds, and that they can be missed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration import USUAL, Setting, comparisons, draw, grid, judge, lines, simulate, valid

SMALL = [
    Setting(d, r, p, s, g, e)
    for d in (20, 50, 164)
    for r, s in ((1, 0.0), (3, 0.3), (5, 1.0))
    for p in (0.05, 0.5, 0.9)
    for g in (0.0, 0.2)
    for e in (0.0, 0.05)
]


@pytest.fixture(scope="module")
def results():
    return [simulate(at, 1500, seed=1, others=False) for at in SMALL]


def test_the_grid_has_every_setting_that_the_bounds_speak_of():
    settings = grid()
    assert len(settings) == len(set(settings)) == 1512
    assert {s.documents for s in settings} == {20, 50, 164, 1319}
    assert {s.runs for s in settings} == {1, 3, 5}
    assert (min(s.accuracy for s in settings), max(s.accuracy for s in settings)) == (0.02, 0.98)
    assert {s.spread for s in settings if s.runs > 1} == {0.0, 0.3, 0.7, 1.0}


def test_what_is_drawn_is_what_the_setting_says():
    at = Setting(300, 3, 0.3, 0.3, 0.2, 0.05)
    scores, group, truth = draw(np.random.default_rng(0), 400, at)
    assert scores.shape == (400, 300, 3)
    assert truth == pytest.approx(np.full(400, 0.3))
    assert scores.mean() == pytest.approx(0.3, abs=0.01)
    assert scores.mean(axis=(0, 2)).std() < 0.03, "no document is special"
    run_sd = scores.mean(axis=1) - scores.mean(axis=(1, 2))[:, None]
    assert run_sd.std(ddof=1) > 0.02 * np.sqrt(0.3 * 0.7), "runs differ"
    first = scores[:, :, 0]
    alike = np.corrcoef(first[:, group == 1][:, 0], first[:, group == 1][:, 1])[0, 1]
    assert alike == pytest.approx(0.2, abs=0.12), "documents of a group are alike"


def test_the_intervals_hold_the_truth_on_a_part_of_the_grid(results):
    # 1,500 draws: three standard errors are 0.017
    assert min(r.coverage["evalsweep"] for r in results) > 0.93 - 0.015
    assert np.median([r.coverage["evalsweep"] for r in results]) < 0.98


def test_where_the_usual_interval_is_valid_evalsweep_s_is_not_much_longer(results):
    compared = [r.width["evalsweep"] / r.width[USUAL] for r in valid(results)]
    assert len(compared) >= 5
    assert max(compared) < 1.2


def test_the_bounds_are_missed_by_the_usual_interval(results):
    as_usual = [replace(r, coverage={**r.coverage, "evalsweep": r.coverage[USUAL]}) for r in results]
    verdict = judge(as_usual)
    assert not verdict.held
    assert "MISSED" in str(verdict)
    assert verdict.least < 0.8


def test_the_bounds_are_missed_by_an_interval_that_is_too_long(results):
    everything = [replace(r, coverage={**r.coverage, "evalsweep": 1.0}) for r in results]
    assert not judge(everything).held
    longer = [replace(r, width={**r.width, "evalsweep": 2 * r.width["evalsweep"]}) for r in results]
    assert not judge(longer).held


def test_differences_of_two_cells_hold_the_truth_where_student_s_t_does_not():
    found = comparisons((20, 50), 1000, seed=2)
    assert min(ours for _, ours, _ in found) > 0.93 - 0.02
    assert min(plain for _, _, plain in found) < 0.85


def test_the_table_has_a_line_for_each_row_of_the_grid(results):
    # a row is printed only where all its accuracies were simulated
    assert lines(results)[0].split()[:2] == ["D", "R"]
    row = [replace(results[0], setting=replace(results[0].setting, accuracy=p)) for p in _accuracies()]
    assert len(lines(row)) == 2


def _accuracies() -> list[float]:
    return sorted({at.accuracy for at in grid()})
