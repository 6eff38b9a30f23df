"""Run-to-run spread: closed forms, and reference values made with scipy 1.17.1 by the code given beside them."""

from __future__ import annotations

import math

import pytest

from evalsweep.stats.estimate import SAME_QUESTIONS
from evalsweep.stats.runs import run_interval, spread

ARTICLE = [0.67, 0.69, 0.685, 0.678, 0.692]


def test_standard_deviation_is_the_sample_one():
    # statistics.stdev(ARTICLE); the article that prints 0.013 for these runs is wrong
    assert spread(ARTICLE).sd == pytest.approx(0.009055385138137376, abs=1e-15)


def test_two_runs_in_closed_form():
    # for R = 2, t(0.975, 1) = tan(0.475 pi), and the half width is t * |a - b| / 2
    estimate = run_interval([0.4, 0.6])
    half = math.tan(0.475 * math.pi) * 0.1
    assert (estimate.low, estimate.high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))


def test_five_runs_against_scipy():
    # scipy.stats.t.interval(0.95, 4, loc=np.mean(ARTICLE), scale=scipy.stats.sem(ARTICLE))
    estimate = run_interval(ARTICLE)
    assert estimate.low == pytest.approx(0.6717562542841055, abs=1e-12)
    assert estimate.high == pytest.approx(0.6942437457158946, abs=1e-12)
    assert (estimate.n, estimate.target) == (5, SAME_QUESTIONS)


def test_the_interval_stays_where_the_score_can_be():
    assert run_interval([0.0, 0.1], bounds=(0.0, 1.0)).low == 0.0
    assert run_interval([0.95, 1.0], bounds=(0.0, 1.0)).high == 1.0


@pytest.mark.parametrize(
    ("scores", "identical", "n", "why"),
    [
        ([0.5], False, 1, "one run"),
        ([0.5, 0.5, 0.5], True, 1, "3 identical runs count as one"),
        ([0.0, 0.0], False, 2, "different answers and the same score"),
    ],
)
def test_no_spread_is_no_interval_and_never_a_certainty(scores, identical, n, why):
    estimate = run_interval(scores, identical=identical)
    assert (estimate.low, estimate.high, estimate.n) == (None, None, n)
    assert why in str(estimate.reason)


def test_one_run_has_no_standard_deviation():
    assert spread([0.5]).sd is None


@pytest.mark.parametrize("scores", [[], [float("nan"), 0.5], [math.inf]])
def test_what_is_no_score_is_an_error(scores):
    with pytest.raises(ValueError, match="score"):
        run_interval(scores)


def test_a_level_outside_zero_and_one_is_an_error():
    with pytest.raises(ValueError, match="level"):
        run_interval([0.1, 0.2], level=95)
