"""Power and votes: closed forms, brute force, and reference values made with the code given beside them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsweep.stats.majk import maj_at_k
from evalsweep.stats.power import Noise, detectable, documents_needed, noise_of, runs_needed
from evalsweep.stats.runs import median_interval


def test_the_smallest_difference_against_statsmodels():
    # statsmodels 0.15.0: NormalIndPower().solve_power(nobs1=164, alpha=.05, power=.8) * 0.5, but for the chance of a
    # significant difference in the wrong direction, which it counts too
    assert detectable(noise_of(0.25, 0, 0), 164, 1) == pytest.approx(0.15469146956566923, rel=1e-4)


@pytest.mark.parametrize(
    ("documents", "unpaired", "paired"),
    # Miller (2024)'s formula by hand, at a score of one half: 2.8016 sqrt(2 * 0.25 (1 - rho) / D)
    [(14042, 0.01672, 0.00748), (1319, 0.05455, 0.02439), (164, 0.15470, 0.06918), (30, 0.36169, 0.16175)],
)
def test_pairing_by_document_finds_differences_less_than_half_as_large(documents, unpaired, paired):
    assert detectable(noise_of(0.25, 0, 0), documents, 1) == pytest.approx(unpaired, abs=2e-5)
    assert detectable(noise_of(0.25, 0, 0, correlation=0.8), documents, 1) == pytest.approx(paired, abs=2e-5)


@settings(deadline=None)
@given(
    st.builds(Noise, *(st.floats(0.001, 0.3) for _ in range(3))),
    st.floats(0.005, 0.3),
    st.integers(1, 20),
)
def test_what_is_needed_is_the_least_that_suffices(noise, wanted, runs):
    documents = documents_needed(noise, wanted, runs)
    if documents is None:
        assert detectable(noise, 10**9, runs) > wanted * (1 - 1e-6)
        return
    assert detectable(noise, documents, runs) <= wanted * (1 + 1e-9)
    assert documents == 1 or detectable(noise, documents - 1, runs) > wanted * (1 - 1e-9)


def test_no_number_of_runs_makes_up_for_too_few_documents():
    noise = noise_of(0.1, 0, 0.15)
    assert runs_needed(noise, 0.02, 100) is None
    runs = runs_needed(noise, 0.09, 300)
    assert runs is not None
    assert detectable(noise, 300, runs) <= 0.09 < detectable(noise, 300, runs - 1)


def test_no_number_of_documents_makes_up_for_too_few_runs_of_resampled_shots():
    assert documents_needed(noise_of(0.1, 0.01, 0.1), 0.02, 3) is None


@pytest.mark.parametrize("wrong", [{"power": 1.0}, {"level": 0.0}])
def test_power_and_level_lie_between_zero_and_one(wrong):
    with pytest.raises(ValueError, match="between 0 and 1"):
        detectable(noise_of(0.25, 0, 0), 10, 1, **wrong)


def test_a_difference_of_nothing_cannot_be_looked_for():
    with pytest.raises(ValueError, match="above 0"):
        documents_needed(noise_of(0.25, 0, 0), 0.0, 1)


@pytest.mark.parametrize(
    ("n", "k"),
    # the table of Conover (1999), p = 1/2: for n = 6 the extremes (96.9%), for n = 10 the second ones (97.9%)
    [(6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6)],
)
def test_the_median_lies_between_two_of_the_runs(n, k):
    scores = list(np.random.default_rng(n).permutation(n).astype(float))
    estimate = median_interval(scores)
    assert (estimate.low, estimate.high) == (k - 1, n - k)
    assert estimate.value == (n - 1) / 2


def test_five_runs_are_too_few_for_an_interval_of_the_median():
    estimate = median_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (estimate.value, estimate.low) == (3.0, None)
    assert "5 runs: too few" in str(estimate.reason)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0], level=0.9).low == 1.0


def _vote(subset: tuple[int | None, ...]) -> float:
    answers = [a for a in subset if a is not None]
    if not answers:
        return 0.0
    counts = [answers.count(a) for a in dict.fromkeys(answers)]
    tied = [a for a in dict.fromkeys(answers) if answers.count(a) == max(counts)]
    return (0 in tied) / len(tied)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 4), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 2), st.data())
def test_a_majority_of_k_is_the_mean_vote_of_all_subsets(right, others, silent, data):
    answers = [0] * right + [i for i, count in enumerate(others, 1) for _ in range(count)] + [None] * silent
    if not answers:
        return
    k = data.draw(st.integers(1, len(answers)))
    tried = [_vote(subset) for subset in itertools.combinations(answers, k)]
    assert maj_at_k(right, others, k, silent) == pytest.approx(np.mean(tried))


@pytest.mark.parametrize(("right", "others", "k"), [(3, [2], 6), (3, [2], 0), (-1, [2], 1)])
def test_a_majority_of_more_answers_than_there_are_is_an_error(right, others, k):
    with pytest.raises(ValueError, match=r"maj@|negative"):
        maj_at_k(right, others, k)
