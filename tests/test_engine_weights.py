"""What `model=hf` loads: adapters, quantised checkpoints, GGUF files, folders that are not what they seem."""

from __future__ import annotations

import re
import shutil

import pytest
import torch
from conftest import job_of
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from evalsweep.engine.evaluate import evaluate
from evalsweep.engine.models import embedded, resident
from evalsweep.errors import BadInput

TINY = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}


def found(folder, *overrides):
    resident._resident.clear()  # folders change under the model
    own = ("model=hf", f"model.pretrained={folder}", "model.batch_size=4", "task.limit=2", "task.max_gen_toks=4")
    return evaluate(job_of(*own, *overrides), lambda *_: None)


def texts(evaluation):
    return [s.responses for s in evaluation.samples]


@pytest.fixture
def tiny(model_folder, tmp_path):
    """A random model of two layers, with the embedded model's tokenizer."""
    config = AutoConfig.from_pretrained(model_folder, **TINY, num_key_value_heads=2, dtype="float32")
    torch.manual_seed(5)
    config.initializer_range = 0.3
    folder = tmp_path / "tiny"
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(folder)
    return folder


@pytest.fixture
def lora(tiny, tmp_path):
    """A LoRA adapter with weights that move the model's answers."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(7)
    base = AutoModelForCausalLM.from_pretrained(tiny)
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "lora")
    return tmp_path / "lora"


def test_an_adapter_is_applied_and_recorded_with_its_hash(tiny, lora):
    plain, adapted = found(tiny), found(tiny, f"model.adapter={lora}")
    assert texts(plain) != texts(adapted)
    assert plain.provenance["adapter"] is None
    assert adapted.provenance["adapter_hash"]
    from peft import PeftModel

    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny), lora).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    prompt = tokenizer(adapted.samples[0].prompt, return_tensors="pt")
    new = model.generate(**prompt, do_sample=False, max_new_tokens=4)[0, prompt.input_ids.shape[1] :]
    assert adapted.samples[0].responses[0] == tokenizer.decode(new, skip_special_tokens=True).partition("\n")[0]


def test_another_adapter_is_another_job(tiny, lora):
    from evalsweep.engine.models.backends import acting

    own = ("model=hf", f"model.pretrained={tiny}")
    assert acting(job_of(*own)) != acting(job_of(*own, f"model.adapter={lora}"))


@pytest.mark.parametrize("beside", ["weights", "nothing"])
def test_a_folder_with_an_adapter_is_refused_where_a_model_is_meant(tiny, lora, tmp_path, beside):
    folder = tmp_path / "both"
    shutil.copytree(tiny if beside == "weights" else lora, folder)
    for file in lora.glob("adapter*"):
        shutil.copy(file, folder)
    with pytest.raises(BadInput) as refusal:
        found(folder)
    line = str(refusal.value)
    assert ("beside full weights" in line) == (beside == "weights")
    assert f"model.pretrained={tiny} model.adapter={folder}" in line


def test_a_folder_without_an_adapter_is_no_adapter(tiny, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"holds no adapter_config.json"):
        found(tiny, f"model.adapter={tmp_path / 'empty'}")


def test_weights_that_the_model_does_not_have_are_an_alarm(tiny):
    weights = load_file(tiny / "model.safetensors")
    save_file({**weights, "model.extra.weight": torch.zeros(3)}, tiny / "model.safetensors", {"format": "pt"})
    (alarm,) = [a for a in found(tiny).alarms if a.kind == "unexpected_weights"]
    assert alarm.message == (
        "1 weights of the checkpoint are not in the model and were left out, model.extra.weight first"
    )


@pytest.mark.parametrize("task", ["sample", "sample_choice"])
def test_broken_numbers_stop_the_job_with_a_line_that_says_where(tiny, task):
    weights = load_file(tiny / "model.safetensors")
    name = next(n for n in weights if "layers.1.mlp.down_proj" in n)
    weights[name][0, 0] = float("nan")
    save_file(weights, tiny / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput) as refusal:
        found(tiny, f"task={task}")
    line = str(refusal.value)
    assert "nan" in line
    assert "task=" not in line, "another task would be no way out"
    where = r"^sample_choice/\d+, choice '\w" if task == "sample_choice" else "^a first prompt"
    assert re.search(where, line)


def test_a_model_that_masks_a_part_of_its_vocabulary_is_not_broken(tiny, monkeypatch):
    from evalsweep.engine.models.forward import Forward

    original = Forward._logits

    def masked(self, *args):
        logits = original(self, *args)
        logits[..., 40000:] = -torch.inf
        return logits

    monkeypatch.setattr(Forward, "_logits", masked)
    assert len(texts(found(tiny))) == 2


def test_attention_and_further_arguments_reach_transformers_and_the_record(tiny):
    own = ("model.attn_implementation=eager", "model.args={low_cpu_mem_usage: true}")
    eager = found(tiny, *own)
    assert eager.provenance["attn_implementation"] == "eager"
    assert eager.provenance["model_args"] == {"low_cpu_mem_usage": True}
    assert texts(eager) == texts(found(tiny, "model.attn_implementation=sdpa"))


def test_an_argument_that_is_a_key_of_its_own_is_refused():
    with pytest.raises(BadInput, match=r"model.args.dtype=float16: is a key of its own: model.dtype"):
        job_of("model=hf", "model.pretrained=x", "model.args.dtype=float16")


def test_an_argument_that_nobody_knows_is_one_line(tiny):
    with pytest.raises(BadInput, match="cannot be loaded"):
        found(tiny, "model.args={no_such_argument: 1}")


def test_a_gguf_file_is_loaded_by_its_name():
    source = embedded._gguf()
    loaded = found(source.parent, f"model.gguf_file={source.name}", "task.max_gen_toks=8")
    own = evaluate(job_of("task.limit=2", "model.batch_size=4"), lambda *_: None)
    assert texts(loaded) == texts(own)


def test_bitsandbytes_quantises_and_the_record_says_so(tiny):
    args = "model.args={quantization_config: {quant_method: bitsandbytes, load_in_4bit: true}}"
    quantised = found(tiny, args)
    assert quantised.provenance["quantization"]["quant_method"] == "bitsandbytes"
    assert quantised.provenance["quantization"]["load_in_4bit"] is True
    assert quantised.metrics["generation/tokens"] > 0


def test_a_checkpoint_of_compressed_tensors_is_loaded_with_its_own_settings(tiny, tmp_path):
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    config = QuantizationConfig(
        config_groups={"group_0": {"targets": ["Linear"], "weights": weights}},
        ignore=["lm_head"],
        quantization_status="compressed",
    )
    model = AutoModelForCausalLM.from_pretrained(tiny)
    apply_quantization_config(model, config)
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            module.weight_scale.data = module.weight.abs().amax(1, keepdim=True).to(module.weight_scale.dtype) / 127
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    folder = tmp_path / "compressed"
    model.save_pretrained(folder)
    compressor.update_config(folder)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(folder)
    quantised = found(folder, "task=sample_choice")
    assert quantised.provenance["quantization"]["quant_method"] == "compressed-tensors"
    whole = found(tiny, "task=sample_choice")
    for a, b in zip(quantised.samples, whole.samples, strict=True):
        assert a.responses == pytest.approx(b.responses, rel=0.2), "8 bits of a random model"
        assert a.responses != b.responses
