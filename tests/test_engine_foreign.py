"""Other backends of lm_eval as the model: its own Hugging Face one, which is truly run."""

from __future__ import annotations

import pytest
from conftest import job_of

from evalsweep.engine.evaluate import evaluate
from evalsweep.errors import BadInput


def foreign(folder, *overrides):
    own = ("model=lm_eval", "model.backend=hf", f"model.args={{pretrained: '{folder}', dtype: float32}}")
    return job_of(*own, "model.device=cpu", "model.batch_size=4", *overrides)


def test_another_backend_of_lm_eval_answers_and_an_alarm_names_what_it_cannot_promise(model_folder):
    found = evaluate(foreign(model_folder, "task.limit=4"), lambda *_: None)
    own = evaluate(job_of("task.limit=4", "model.batch_size=4"), lambda *_: None)
    assert [s.responses for s in found.samples] == [s.responses for s in own.samples]
    (alarm,) = [a for a in found.alarms if a.kind == "foreign_backend"]
    assert "not promised are answers that depend on their request alone" in alarm.message
    assert any("prompt length unknown, not checked" in a.message for a in found.alarms)
    assert {found.metrics[f"alarms/{kind}"] for kind in ("truncated", "capped")} == {None}, "nobody counted"
    assert found.metrics["generation/tokens"] is None
    assert found.provenance["backend"] == "lm_eval hf"


def test_its_log_likelihoods_are_those_of_lm_eval(model_folder):
    found = evaluate(foreign(model_folder, "task=sample_choice", "task.limit=3"), lambda *_: None)
    own = evaluate(job_of("task=sample_choice", "task.limit=3"), lambda *_: None)
    for a, b in zip(found.samples, own.samples, strict=True):
        assert a.responses == pytest.approx(b.responses, abs=1e-4)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("model.backend=hff",), "lm_eval has no such backend (did you mean 'hf'?)"),
        (("model.backend=hf", "model.args={pretrained: /nowhere/at/all}"), "cannot be made with"),
    ],
)
def test_a_backend_that_cannot_be_made_is_one_line(given, told):
    with pytest.raises(BadInput) as refusal:
        evaluate(job_of("model=lm_eval", *given), lambda *_: None)
    assert told in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_backend_must_be_named():
    with pytest.raises(BadInput, match=r"model.backend \(the name of a backend of lm_eval\) is needed"):
        job_of("model=lm_eval")
