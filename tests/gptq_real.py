"""`model=hf` with checkpoints of GPTQ and AWQ that gptqmodel itself makes, of a small random model: `make test-gptq`.

Not named test_*, so that the common run leaves it out: gptqmodel is built from source.
"""

from __future__ import annotations

import pytest
import torch
from conftest import job_of
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from evalsweep.engine.evaluate import evaluate

# code of gptqmodel and its packages
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 32}
FORMS = {"gptq": {}, "awq": {"method": "awq", "format": "gemm"}}


@pytest.fixture(params=FORMS)
def quantised(request, model_folder, tmp_path, monkeypatch):
    """The name of a form and the folder of a checkpoint."""
    monkeypatch.chdir(tmp_path)  # where gptqmodel writes its logs
    from gptqmodel import GPTQModel, QuantizeConfig

    torch.manual_seed(5)
    config = AutoConfig.from_pretrained(model_folder, **SHAPE, num_key_value_heads=2, dtype="float32")
    config.initializer_range = 0.3
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "plain")
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(tmp_path / "plain")
    settings = QuantizeConfig(bits=4, group_size=32, **FORMS[request.param])
    model = GPTQModel.load(str(tmp_path / "plain"), settings, device="cpu")
    model.quantize(["The capital of France is Paris and the water is cold in the morning. " * 8] * 4, batch_size=1)
    folder = tmp_path / request.param
    model.save(str(folder))
    return request.param, folder


def test_its_greedy_texts_are_transformers_own_and_the_record_says_what_it_is(quantised):
    form, folder = quantised
    own = ("model=hf", f"model.pretrained={folder}", "task.limit=3", "task.max_gen_toks=8", "model.batch_size=1")
    found = evaluate(job_of(*own), lambda *_: None)
    assert found.provenance["quantization"]["quant_method"] == form
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for sample in found.samples:
        given = tokenizer(sample.prompt, return_tensors="pt")
        whole = model.generate(**given, max_new_tokens=8, do_sample=False)[0]
        before, both = (tokenizer.decode(ids, skip_special_tokens=True) for ids in (given.input_ids[0], whole))
        assert sample.responses[0]
        assert both == before + sample.responses[0]
