"""The generator on small random models of many architectures: right, or refused in one line."""

from __future__ import annotations

import random

import pytest
import torch
import transformers as hf

from evalsweep.engine.models.draw import Prompted, Settings
from evalsweep.engine.models.forward import Forward
from evalsweep.engine.models.generation import Generator
from evalsweep.engine.models.likelihood import log_likelihoods
from evalsweep.engine.models.requests import GENERATE, Request
from evalsweep.errors import BadInput

VOCABULARY = 97
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "pad_token_id": 0}
CONFIGS = {
    "llama": lambda: hf.LlamaConfig(**SHAPE),
    "gpt2": lambda: hf.GPT2Config(**GPT2, bos_token_id=1, eos_token_id=2),  # places learned one by one
    "bloom": lambda: hf.BloomConfig(
        vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, pad_token_id=0
    ),  # ALiBi
    "mpt": lambda: hf.MptConfig(
        vocab_size=VOCABULARY, d_model=32, n_layers=2, n_heads=4, pad_token_id=0, eos_token_id=2
    ),
    "gpt_oss": lambda: hf.GptOssConfig(
        **SHAPE, head_dim=8, sliding_window=8, num_local_experts=2, num_experts_per_tok=1, attn_implementation="eager"
    ),
    "mistral": lambda: hf.MistralConfig(**SHAPE, sliding_window=8),
    "gemma3": lambda: hf.Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=8),
    "qwen3": lambda: hf.Qwen3Config(**SHAPE, head_dim=8),
    "mamba2": lambda: hf.Mamba2Config(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=16, n_groups=1
    ),
    "lfm2": lambda: hf.Lfm2Config(**SHAPE, layer_types=["conv", "full_attention"]),
}
PROMPTS = [tuple(random.Random(n).randrange(3, VOCABULARY) for _ in range(n)) for n in (17, 9, 5, 2, 1)]


def model_of(config):
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.25)
    return model


JOINS = {name: name not in ("mamba2", "lfm2") for name in CONFIGS}  # these keep a state, which others' tokens disturb


def generated(model, rows, temperature, samples=1, prompts=PROMPTS, shares=True):
    found: dict[tuple[str, int], list[int]] = {}
    settings = Settings(temperature, 12, (), frozenset({2}), 1e-3)
    forward = Forward(model, 0)
    forward.check(PROMPTS[0])
    generator = Generator(forward, lambda _, tokens: " ".join(map(str, tokens)), shares)
    asked = [(p, Request(GENERATE, str(p), sample=n, seed=3)) for p in prompts for n in range(samples)]
    generator.generate(
        [Prompted(request, tuple(p), settings) for p, request in asked],
        rows,
        lambda row: found.__setitem__((row.of.request.prompt, row.of.request.sample), row.new),
    )
    return found


@pytest.mark.filterwarnings("ignore")  # kernels that are not installed
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_is_transformers_own_and_samples_do_not_depend_on_the_batch(name):
    model = model_of(CONFIGS[name]())
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        own = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=2
        )
        new = own[0, len(prompt) :].tolist()
        assert generated(model, 5, 0.0)[str(prompt), 0] == (new[: new.index(2) + 1] if 2 in new else new)
    assert generated(model, 1, 1.0, samples=3) == generated(model, 7, 1.0, samples=3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONFIGS)
def test_shared_beginnings_and_rows_that_join_later_change_no_text(name):
    model = model_of(CONFIGS[name]())
    begin = PROMPTS[0] * 2
    families = [begin + p for p in PROMPTS] + [begin + PROMPTS[1] * 2 + p for p in PROMPTS]
    prompts = [begin, *families, *PROMPTS]
    prompts = [p[-50:] for p in prompts] if name == "gpt2" else prompts  # which has 64 places
    forward = Forward(model, 0)
    forward.check(PROMPTS[0])
    assert forward.joins == JOINS[name]
    alone = generated(model, 1, 1.0, 2, prompts, shares=False)
    assert len({tuple(new) for new in alone.values()}) > len(prompts)
    for rows in (1, 3, 64):
        assert generated(model, rows, 1.0, 2, prompts) == alone


@pytest.mark.parametrize("name", [name for name in CONFIGS if JOINS[name] and name != "gpt2"])
def test_log_likelihoods_are_those_of_each_text_alone(name):
    model = model_of(CONFIGS[name]())
    begin = PROMPTS[0] * 2
    texts = [(begin + p + end, len(end)) for p in PROMPTS for end in ((5,), (7,), (7, 8, 9), (7, 8, 4, 11), (6,) * 9)]
    texts += [((*begin, 3), 30), (begin, 34 - 1), ((4, 5), 1), (begin + PROMPTS[0] * 2, 40)]
    expected = []
    for tokens, scored in texts:
        logits = model(torch.tensor([tokens])).logits[0, -scored - 1 : -1].log_softmax(-1)
        end = torch.tensor(tokens[-scored:])
        own = logits.gather(1, end[:, None]).sum().item(), bool((logits.argmax(-1) == end).all())
        expected.append(own)
    for rows, positions in ((1, 1000), (8, 1000), (8, 7), (64, 1)):
        found = [None] * len(texts)

        def tell(number, score, greedy, found=found):
            assert found[number] is None
            found[number] = score, greedy

        assert log_likelihoods(Forward(model, 0), texts, rows, positions, tell) is None
        assert [f[0] for f in found] == pytest.approx([e[0] for e in expected], abs=1e-4)
        assert [f[1] for f in found] == [e[1] for e in expected]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "config",
    [
        hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, pad_token_id=0),
        hf.RecurrentGemmaConfig(**{**SHAPE, "num_hidden_layers": 3}, lru_width=32, attention_window_size=8),
    ],
)
def test_an_architecture_whose_state_cannot_be_batched_is_refused(config):
    with pytest.raises(BadInput, match=r"keeps its state in a way that evalsweep's generator"):
        generated(model_of(config), 5, 0.0)
