"""pass@k against its definition, closed forms and a simulation."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsweep.stats.passk import pass_at_k


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_it_is_the_share_of_draws_of_k_answers_that_hold_a_right_one(n_c_k):
    n, c, k = n_c_k
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k([c], n, k)[0] == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(
    ("n", "c", "k"), [(20, 0, 10), (20, 1, 1), (20, 3, 5), (20, 10, 10), (20, 11, 10), (200, 3, 100)]
)
def test_it_is_the_closed_form(n, c, k):
    assert pass_at_k([c], n, k)[0] == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)


def test_it_is_unbiased_where_the_plain_formula_is_not():
    rng = np.random.default_rng(0)
    correct = rng.binomial(20, 0.1, size=40_000)
    truth = 1 - 0.9**10
    assert pass_at_k(correct, 20, 10).mean() == pytest.approx(truth, abs=0.005)
    assert (1 - (1 - correct / 20) ** 10).mean() < truth - 0.03


def test_documents_may_have_different_numbers_of_answers():
    assert pass_at_k([1, 1], [2, 4], 1).tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("correct", "n", "k"), [([1], 4, 5), ([1, 1], [5, 4], 5), ([1], 4, 0), ([5], 4, 1), ([-1], 4, 1)]
)
def test_what_cannot_be_estimated_is_an_error(correct, n, k):
    with pytest.raises(ValueError, match=r"needs at least k|more right answers"):
        pass_at_k(correct, n, k)
