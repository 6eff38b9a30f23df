from __future__ import annotations

from mlflow.utils.validation import _validate_metric_name

from evalsweep.tracking.runs import metric_names


def test_metric_names_are_ones_that_mlflow_takes_and_stay_apart():
    names = [
        "gsm8k/exact_match,strict-match",
        "gsm8k/exact_match/strict-match",
        "humaneval/pass@1",
        "humaneval/pass_at_1",
        "t/" + "x" * 300,
        "t/" + "x" * 301,
        "t/naïve (%)",
        "sample/temperature 0.2/mean",
    ]
    found = metric_names(names)
    for safe in found.values():
        _validate_metric_name(safe)
    assert len(set(found.values())) == len(names)
    assert found["gsm8k/exact_match,strict-match"] == "gsm8k/exact_match/strict-match"
    assert found["humaneval/pass@1"] == "humaneval/pass_at_1"
