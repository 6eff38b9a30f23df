"""Comparisons: closed forms, brute force, and reference values made with the code given beside them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsweep.stats.compare import EXACT, SAMPLED, difference, flipped, holm, mcnemar, sign_flip


def test_yes_or_no_pairs_get_bonett_and_price_s_interval_with_student_s_t():
    only_a, only_b, d = 3, 9, 60
    a = np.r_[np.ones(only_a), np.zeros(only_b), np.ones(d - only_a - only_b)][:, None]
    b = np.r_[np.zeros(only_a), np.ones(only_b), np.ones(d - only_a - only_b)][:, None]
    # their formula: p12 = (f12 + 1) / (n + 2), p21 alike; t(0.975, 59) = 2.000995 where they have z
    p12, p21 = (only_b + 1) / (d + 2), (only_a + 1) / (d + 2)
    half = 2.0009953780882674 * np.sqrt((p12 + p21 - (p12 - p21) ** 2) / (d + 2))
    estimate = difference(a, b)
    assert estimate.value == pytest.approx(0.1)
    assert (estimate.low, estimate.high) == (pytest.approx(p12 - p21 - half), pytest.approx(p12 - p21 + half))


def test_sides_that_agree_on_every_document_do_not_differ_by_zero_with_certainty():
    same = np.array([[1.0], [0.0], [1.0]] * 20)
    estimate = difference(same, same)
    assert estimate.value == 0
    assert estimate.low < -0.02 < 0.02 < estimate.high


def test_pairing_by_document_is_what_makes_it_short():
    rng = np.random.default_rng(3)
    chance = rng.random(400)
    a, b = ((rng.random((400, 5)) < chance[:, None]).astype(float) for _ in range(2))
    paired = difference(a, b)
    shuffled = difference(a, rng.permutation(b))
    assert paired.high - paired.low < 0.6 * (shuffled.high - shuffled.low)


def test_runs_with_the_same_shots_share_their_effect():
    rng = np.random.default_rng(4)
    effect = np.array([-0.2, 0.0, 0.2])
    a, b = ((rng.random((800, 3)) < 0.5 + effect).astype(float) for _ in range(2))
    shared = difference(a, b, resampled=True, same_runs=True)
    apart = difference(a, b, resampled=True)
    assert shared.high - shared.low < 0.5 * (apart.high - apart.low)
    assert shared.target == "new questions, new shots"


def test_groups_lengthen_the_interval_of_a_difference():
    a = np.repeat([[0.0], [1.0], [0.0], [1.0]] * 5, 10, axis=0)
    b = np.repeat([[1.0], [1.0], [0.0], [0.0]] * 5, 10, axis=0)
    groups = np.repeat(np.arange(20), 10)
    plain, grouped = difference(a, b), difference(a, b, groups_D=groups)
    assert grouped.high - grouped.low > 2 * (plain.high - plain.low)


def test_scores_without_bounds_are_paired_by_student_s_t():
    x, y = np.array([1.0, 2.0, 4.0, 7.0]), np.array([2.0, 2.5, 6.0, 8.5])
    estimate = difference(x[:, None], y[:, None], shares=False)
    # scipy 1.17.1: stats.t.interval(0.95, 3, loc=(y - x).mean(), scale=stats.sem(y - x))
    assert (estimate.low, estimate.high) == (pytest.approx(0.2228698716197397), pytest.approx(2.2771301283802603))


@pytest.mark.parametrize("b", [np.ones((3, 1)), np.ones(4)])
def test_different_documents_are_an_error(b):
    with pytest.raises(ValueError, match="not the same documents"):
        difference(np.ones((4, 1)), b)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([-1, -2 / 3, -1 / 3, 0, 1 / 5, 2 / 5, 1]), min_size=1, max_size=9))
def test_the_exact_test_is_what_trying_all_signs_gives(differences):
    d = np.array(differences, dtype=float)
    total = abs(d.sum()) - 1e-9
    tried = [abs((np.array(signs) * d).sum()) >= total for signs in itertools.product((1, -1), repeat=d.size)]
    assert sign_flip(d).p == pytest.approx(np.mean(tried))
    assert sign_flip(d).method == EXACT


def test_documents_of_a_group_change_sign_together():
    differences, groups = [1.0, 1.0, 1.0, -1.0], [0, 0, 1, 1]
    assert sign_flip(differences, groups).p == pytest.approx(1.0), "the sums are 2 and 0: both signs are as far"
    assert sign_flip([1.0] * 6, [0, 0, 1, 1, 2, 2]).p == pytest.approx(2 / 2**3)


def test_differences_that_are_no_fractions_are_sampled_and_never_zero():
    rng = np.random.default_rng(5)
    test = sign_flip(rng.normal(3, 1, 200))
    assert (test.method, test.p) == (SAMPLED, pytest.approx(1 / 20_001))
    d = rng.normal(0.1, 1, 60)
    assert sign_flip(d).p == pytest.approx(_normal_p(d), abs=0.02)


def _normal_p(d: np.ndarray) -> float:
    from scipy import stats

    return float(2 * stats.norm.sf(abs(d.sum()) / np.sqrt((d**2).sum())))


def test_the_exact_test_is_exact_at_the_size_of_mmlu():
    from scipy import stats

    assert sign_flip(np.r_[np.ones(900), -np.ones(700), np.zeros(12_442)]).p == pytest.approx(
        stats.binomtest(700, 1600).pvalue, rel=1e-6
    )


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [
        # statsmodels 0.15.0: mcnemar([[10, 7], [1, 12]], exact=True), mcnemar([[30, 12], [5, 40]], exact=True)
        (7, 1, 0.0703125),
        (12, 5, 0.143463134765625),
        (0, 0, 1.0),
    ],
)
def test_mcnemar_against_statsmodels_and_it_is_the_sign_flip_test(only_a, only_b, p):
    assert mcnemar(only_a, only_b).p == pytest.approx(p)
    assert sign_flip(np.r_[-np.ones(only_a), np.ones(only_b), np.zeros(30)]).p == pytest.approx(p)


def test_holm_against_statsmodels():
    # statsmodels 0.15.0: multipletests([.001, .04, .03, .02, .8], method='holm')[1]
    assert holm([0.001, 0.04, 0.03, 0.02, 0.8]) == pytest.approx([0.005, 0.09, 0.09, 0.08, 0.8])
    assert holm([]) == []
    with pytest.raises(ValueError, match="p value"):
        holm([1.2])


def test_flipped_documents_changed_by_more_than_one_half():
    a = [[1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 0, 1]]
    b = [[0, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 1]]
    rose, fell = flipped(a, b)
    assert (list(rose), list(fell)) == ([1, 3], [0])
