"""Other backends of lm_eval as the model: its own Hugging Face one, which is truly run."""

from __future__ import annotations

import pytest
import torch
from conftest import job_of
from transformers import AutoModelForCausalLM, AutoTokenizer

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


def test_broken_numbers_of_its_model_stop_the_job(model_folder, tmp_path):
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(tmp_path)
    for task in ("sample", "sample_choice"):
        with pytest.raises(BadInput, match="no score can be made of"):
            evaluate(foreign(tmp_path, f"task={task}", "task.limit=2"), lambda *_: None)


def test_where_there_is_no_gpu_a_backend_that_wants_one_runs_on_the_processor(model_folder):
    own = ("model=lm_eval", "model.backend=hf", f"model.args={{pretrained: '{model_folder}'}}", "task.limit=1")
    found = evaluate(job_of(*own), lambda *_: None)
    assert found.provenance["device"] == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("key", ["max_length", "max_thinking_toks"])
def test_what_its_backend_is_not_told_is_refused(model_folder, key):
    with pytest.raises(BadInput, match=rf"model.{key}=64: cannot act on model.kind=lm_eval"):
        foreign(model_folder, f"model.{key}=64")


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
