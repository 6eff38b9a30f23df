"""Sampled texts of whole evaluations do not depend on batch, order, limit, processes or other tasks.

The same comparisons with 420 answers to GSM8K's own questions: `make invariance`.
"""

from __future__ import annotations

import json

import pytest
from invariance import Study, Texts, comparisons, identical


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    rows = [
        {
            "question": f"{name} has {n} pens and buys {n + 1} more. How many has {name}?",
            "answer": f"{n}+{n + 1}\n#### {2 * n + 1}",
        }
        for n, name in enumerate(("Tom", "Ann", "Bartholomew", "Li", "Maria Magdalena", "Jo"), start=2)
    ]
    settings = (
        "temperature=0.7",
        "task.samples=2",
        "task.num_fewshot=1",
        "task.max_gen_toks=16",
        "model.batch_size=16",
    )
    return Study(tmp_path_factory.mktemp("study"), rows[:4], rows[4:], settings)


@pytest.fixture(scope="module")
def reference(study) -> Texts:
    texts = study.answers("reference", study.rows)
    assert len({answer for answers in texts.values() for answer in answers}) > 6, "the answers differ from each other"
    return texts


WAYS = (
    "batch size 1",
    "batch size 4",
    "documents reversed",
    "task.limit=2",
    "two processes",
    "another task in the run",
)


@pytest.mark.parametrize("way", WAYS)
def test_a_sampled_text_depends_on_its_request_alone(study, reference, way):
    ways = comparisons(study, few=2)
    assert tuple(ways) == WAYS
    same, total = identical(reference, ways[way]())
    assert (same, total) == ((4, 4) if way == "task.limit=2" else (8, 8))


def test_the_comparison_can_fail(study, reference):
    other = study.answers("other", study.rows, "seed=1")
    assert identical(reference, other)[0] < 8
    assert json.dumps(reference) != json.dumps(other)
