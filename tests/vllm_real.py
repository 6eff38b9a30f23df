"""`model=vllm` with a real vLLM, on the embedded model; in an environment of its own: `make test-vllm`.

Not named test_*, so that the common run leaves it out: vLLM wants another transformers than evalsweep's.
"""

from __future__ import annotations

import json

import pytest
from conftest import job_of

from evalsweep.engine.evaluate import evaluate
from evalsweep.engine.models import resident
from evalsweep.errors import BadInput

pytest.importorskip("vllm", reason="runs in the environment of `make test-vllm`")


def vllm(folder, *overrides):
    own = ("model=vllm", f"model.pretrained={folder}", "model.max_length=2048", "model.batch_size=16")
    return job_of(*own, *overrides)


def found(job, **given):
    return evaluate(job, lambda *_: None, **given)


def texts(evaluation):
    return [s.responses for s in evaluation.samples]


@pytest.fixture(scope="module")
def greedy(model_folder):
    return found(vllm(model_folder, "task.limit=12"))


def test_greedy_texts_are_those_of_transformers(greedy, model_folder):
    assert len(texts(greedy)) == 12
    served = texts(greedy)
    assert served == texts(found(job_of("task.limit=12")))


def test_sampled_answers_depend_on_their_request_alone(model_folder):
    own = ("temperature=0.7", "seed=3", "task.samples=3")
    all_, few = found(vllm(model_folder, "task.limit=8", *own)), found(vllm(model_folder, "task.limit=3", *own))
    assert texts(all_)[:3] == texts(few)
    assert texts(found(vllm(model_folder, "task.limit=8", *own), backwards=True)) == texts(all_)
    assert texts(found(vllm(model_folder, "task.limit=8", "temperature=0.7", "seed=4", "task.samples=3"))) != texts(
        all_
    )
    assert any(len(set(answers)) > 1 for answers in texts(all_)), "samples have seeds of their own"


def test_log_likelihoods_are_those_of_transformers(model_folder):
    own = ("task=sample_choice", "task.limit=6")
    served = found(vllm(model_folder, *own))
    for a, b in zip(served.samples, found(job_of(*own)).samples, strict=True):
        assert a.responses == pytest.approx(b.responses, abs=2e-3)


def test_chat_template_and_shots_reach_the_model(model_folder):
    own = ("task.limit=2", "model.apply_chat_template=true", "prompt=helpful_assistant")
    served = found(vllm(model_folder, *own))
    assert [s.prompt for s in served.samples] == [s.prompt for s in found(job_of(*own)).samples]
    assert "You are a helpful assistant" in served.samples[0].prompt


def test_the_record_says_what_ran(greedy):
    assert greedy.provenance["vllm"]
    assert greedy.provenance["model_args"]["enable_prefix_caching"]
    assert greedy.provenance["batch_invariant"] is False
    assert "batch_dependent" in {a.kind for a in greedy.alarms}
    assert greedy.metrics["generation/tokens"] > 0
    json.dumps(greedy.provenance)


def test_stop_strings_end_an_answer_and_the_limit_is_an_alarm(model_folder):
    short = found(vllm(model_folder, "task.limit=2", "task.max_gen_toks=1"))
    assert "capped" in {a.kind for a in short.alarms}
    assert all("\n" not in answer for answers in texts(found(vllm(model_folder, "task.limit=4"))) for answer in answers)


def test_an_adapter_is_applied_as_with_transformers(greedy, model_folder, tmp_path):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(7)
    base = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "lora")
    own = ("task.limit=6", "task.max_gen_toks=16", f"model.adapter={tmp_path / 'lora'}")
    served = found(vllm(model_folder, *own))
    assert texts(served) == texts(found(job_of("model=hf", f"model.pretrained={model_folder}", *own)))
    assert texts(served) != texts(greedy)[:6]
    assert served.provenance["adapter_hash"]


def test_a_temperature_that_vllm_would_change_is_refused(model_folder):
    with pytest.raises(BadInput, match=r"vLLM would raise it to 0.01"):
        found(vllm(model_folder, "temperature=0.001", "task.limit=1"))


def test_settings_that_vllm_does_not_have_are_refused():
    with pytest.raises(BadInput, match=r"decoding.typical_p=0.5: cannot act on model.kind=vllm"):
        job_of("model=vllm", "model.pretrained=x", "temperature=0.7", "decoding.typical_p=0.5")


def test_a_model_that_is_not_there_is_one_line(tmp_path):
    resident.drop()
    with pytest.raises(BadInput, match="vLLM cannot load it"):
        found(job_of("model=vllm", f"model.pretrained={tmp_path}", "task.limit=1"))


def test_a_sweep_runs_as_with_any_model(run, model_folder):
    resident.drop()  # the sweep is another process, and needs the room
    own = ("model=vllm", f"model.pretrained={model_folder}", "model.max_length=2048", "tracking=off", "task.limit=4")
    done = run("-m", "seed=0,1", "temperature=0,0.5", *own)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "4 of 4 jobs finished" in done.stdout
