"""maj@k: the chance that a majority vote over k answers, drawn from the n that there are, is right."""

from __future__ import annotations

import math
from collections.abc import Sequence


def maj_at_k(right: int, others: Sequence[int], k: int, silent: int = 0) -> float:
    """The unbiased estimate for one document: the share of all subsets of k of its n answers whose vote is right.

    A tie of m answers counts 1/m for each, as a fair draw among them would on average.

    Source: self-consistency (Wang et al. 2023, arXiv:2203.11171); averaged over subsets as pass@k is (Chen et al.
    2021).

    Args:
        right: how many of the n answers are the right one.
        others: how many are each of the wrong ones, one count a distinct answer.
        k: at least 1, at most n = right + sum(others) + silent.
        silent: how many give no answer that can be read: they are drawn and do not vote; where none votes, it is wrong.

    Errors: ValueError for a negative count, or a k out of range.
    """
    counts = [count for count in others if count]
    n = right + sum(counts) + silent
    if right < 0 or silent < 0 or any(count < 0 for count in counts):
        raise ValueError("counts of answers cannot be negative")
    if not 1 <= k <= n:
        raise ValueError(f"maj@{k} needs k from 1 to n = {n} answers to a document")
    won = 0.0
    for votes in range(1, min(right, k) + 1):
        # ways to draw the other k - votes with no answer above `votes`, by how many reach it
        ways = {(m, 0): math.comb(silent, m) for m in range(min(silent, k - votes) + 1)}
        for count in counts:
            further: dict[tuple[int, int], int] = {}
            for (drawn, ties), number in ways.items():
                for m in range(min(count, votes, k - votes - drawn) + 1):
                    at = (drawn + m, ties + (m == votes))
                    further[at] = further.get(at, 0) + number * math.comb(count, m)
            ways = further
        for (drawn, ties), number in ways.items():
            if drawn == k - votes:
                won += math.comb(right, votes) * number / (ties + 1)
    return won / math.comb(n, k)
