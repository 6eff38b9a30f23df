"""Intervals for new questions: closed forms, and reference values made with the code given beside them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsweep.stats.components import components
from evalsweep.stats.questions import effective_n, new_questions

# 6 documents x 4 runs
SCORES = np.array([[1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 0]], dtype=float)


def column(right: int, of: int) -> np.ndarray:
    return np.r_[np.ones(right), np.zeros(of - right)][:, None]


def test_mean_squares_are_those_of_a_two_way_analysis_of_variance():
    # statsmodels 0.15.0: anova_lm(smf.ols('y ~ C(d) + C(r)', frame).fit()), mean_sq of d, r and the residual
    ms_d, ms_r, rest = 0.6000000000000002, 0.11111111111111123, 0.17777777777777776
    found = components(SCORES)
    assert found.documents == pytest.approx((ms_d - rest) / 4)
    assert found.runs == 0.0, "an estimate below 0 is cut there"
    assert found.rest == pytest.approx(rest)
    assert ms_r < rest
    turned = components(SCORES.T)
    assert turned.runs == pytest.approx((ms_d - rest) / 4), "documents and runs are treated alike"


def test_variance_between_groups_is_that_of_a_one_way_analysis_of_variance():
    # statsmodels 0.15.0: anova_lm(smf.ols('y ~ C(g)', frame).fit()) over the documents' means; groups of 3, 2 and 1
    between, within = 0.16666666666666677, 0.13888888888888887
    size = (6 - (9 + 4 + 1) / 6) / 2
    found = components(SCORES, groups_D=["a", "a", "a", "b", "b", "c"])
    assert found.clusters == pytest.approx((between - within) / size)
    assert found.cluster_noise == pytest.approx(within / size)
    assert (found.G, found.G_effective) == (3, pytest.approx(36 / 14))


def test_shares_of_the_variance_of_the_mean_add_up():
    assert sum(components(SCORES).shares().values()) == pytest.approx(1)
    assert components(np.ones((5, 3))).shares() == {"documents": 0.0, "runs": 0.0, "rest": 0.0}


def test_one_run_of_yes_or_no_answers_is_as_many_questions_as_there_are():
    assert effective_n(components(column(13, 50))) == pytest.approx(50)
    assert effective_n(components(np.repeat(column(13, 50), 4, axis=1))) == pytest.approx(50), "repeats tell nothing"


@pytest.mark.parametrize(
    ("right", "of", "low", "high"),
    [
        # scipy 1.17.1: beta.ppf(0.025, x + 1/4, n - x + 3/4) and beta.ppf(0.975, x + 3/4, n - x + 1/4)
        (0, 20, 0.0, 0.1443561981645343),  # 0 where nothing is right
        (3, 20, 0.03794635739246764, 0.36389413910760476),
        (82, 164, 0.42253955344097377, 0.5774604465590262),
        (1300, 1319, 0.9778261028568511, 0.9911581809644895),
        (20, 20, 1 - 0.1443561981645343, 1.0),
    ],
)
def test_plain_counts_against_scipy(right, of, low, high):
    estimate = new_questions(column(right, of))
    assert (estimate.low, estimate.high) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    assert (estimate.target, estimate.n) == ("new questions", of)


def test_the_interval_lies_between_those_of_clopper_and_pearson_and_of_jeffreys():
    # statsmodels 0.15.0: proportion_confint(3, 20, method='beta') and (..., method='jeffreys')
    estimate = new_questions(column(3, 20))
    assert 0.0320709371854637 < estimate.low < 0.04413134197515587
    assert 0.348577710858454 < estimate.high < 0.37892682654531396


def test_answers_that_vary_by_chance_alone_are_as_many_questions_as_answers():
    rng = np.random.default_rng(0)
    scores = (rng.random((2000, 5)) < 0.6).astype(float)
    assert effective_n(components(scores)) == pytest.approx(10_000, rel=0.1)


def test_groups_that_are_alike_within_count_as_one_question_each():
    scores = np.repeat(column(20, 40), 10, axis=0)
    groups = np.repeat(np.arange(40), 10)
    together, apart = (new_questions(scores, groups_D=g) for g in (groups, None))
    alone = new_questions(column(20, 40))
    assert together.high - together.low == pytest.approx(alone.high - alone.low, rel=0.06), "Student's t for normal"
    assert apart.high - apart.low < 0.4 * (together.high - together.low)
    assert "40 groups" in together.method
    assert together.target == "new questions, new groups"


@pytest.mark.parametrize("groups", [["a"] * 12, list(range(12))])
def test_one_group_and_groups_of_one_are_no_groups(groups):
    assert new_questions(column(5, 12), groups_D=groups) == new_questions(column(5, 12))


def test_a_run_effect_is_added_once_and_only_where_shots_are_resampled():
    rng = np.random.default_rng(1)
    chance = np.array([0.45, 0.5, 0.55])
    scores = (rng.random((3000, 3)) < chance).astype(float)
    fixed, moved = (new_questions(scores, resampled=r) for r in (False, True))
    assert moved.high - moved.low > 4 * (fixed.high - fixed.low)
    found = components(scores)
    # by hand: the documents' part, and t(0.975, 2) for the runs' part
    half = math.hypot(1.959964 * math.sqrt(0.25 / 9000), 4.302653 * math.sqrt(float(found.runs) / 3))
    assert moved.high - moved.value == pytest.approx(half, rel=0.1)


def test_the_target_says_what_is_new():
    scores = SCORES[:, :2]
    assert new_questions(scores).target == "new questions"
    assert new_questions(scores, resampled=True).target == "new questions, new shots"
    assert new_questions(scores[:, :1], resampled=True).target == "new questions, these shots"


def test_macro_weights_give_the_mean_of_the_groups_means():
    scores, groups = np.r_[column(9, 10), column(1, 2)], ["a"] * 10 + ["b"] * 2
    weights = [1 / 20] * 10 + [1 / 4] * 2
    estimate = new_questions(scores, groups_D=groups, weights_D=weights)
    assert estimate.value == pytest.approx((0.9 + 0.5) / 2)
    assert estimate.low < 0.7 < estimate.high
    assert components(scores, weights_D=weights).D_effective == pytest.approx(1 / (10 / 400 + 2 / 16))


def test_scores_without_bounds_get_student_s_t_over_documents():
    values = np.array([3.1, 5.2, 4.4, 6.0, 2.9])
    estimate = new_questions(values[:, None], shares=False)
    # scipy 1.17.1: stats.t.interval(0.95, 4, loc=values.mean(), scale=stats.sem(values))
    assert (estimate.low, estimate.high) == (pytest.approx(2.6648101940134996), pytest.approx(5.975189805986501))


def test_one_document_has_no_interval():
    estimate = new_questions([[1.0, 0.0]])
    assert (estimate.value, estimate.low, estimate.high) == (0.5, None, None)
    assert "one document" in str(estimate.reason)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (np.zeros((0, 3)), "at least one"),
        (np.zeros(4), "documents x runs"),
        ([[0.5, math.nan]], "finite"),
        ([[1.5], [0.0]], "outside"),
    ],
)
def test_what_is_no_table_of_scores_is_an_error(scores, why):
    with pytest.raises(ValueError, match=why):
        new_questions(scores)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_the_interval_holds_its_value_and_stays_within_zero_and_one(data):
    d, r = data.draw(st.integers(2, 30)), data.draw(st.integers(1, 6))
    cells = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    scores = np.array(data.draw(st.lists(st.lists(cells, min_size=r, max_size=r), min_size=d, max_size=d)))
    groups = data.draw(st.none() | st.lists(st.integers(0, 4), min_size=d, max_size=d))
    estimate = new_questions(scores, groups_D=groups, resampled=data.draw(st.booleans()))
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 <= estimate.low <= estimate.value + 1e-12
    assert estimate.value - 1e-12 <= estimate.high <= 1
    assert estimate.low < estimate.high
