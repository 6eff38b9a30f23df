"""Model families crossed with tokenizers, as evalsweep runs them: texts are transformers', scores are lm_eval's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from conftest import job_of, write_jsonl
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from zoo import MODELS, TOKENIZERS, Zoo

from evalsweep.config import JobConfig
from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.engine.models import resident
from evalsweep.engine.models.contract import Backend
from evalsweep.engine.models.requests import LOGLIKELIHOOD, ROLLING, Request
from evalsweep.errors import BadInput

# Kernels that are not installed, and code of transformers and of lm_eval that is on its way out.
pytestmark = pytest.mark.filterwarnings("ignore")

REFUSED = "mamba"
WORDS = [name for name in TOKENIZERS if name != "marks"]  # that one is for the tests of templates
FAMILIES = [name for name in MODELS if name != REFUSED]
# A third of all pairs: each family meets two tokenizers or more, each tokenizer four families or more.
PAIRS = [(family, words) for f, family in enumerate(FAMILIES) for w, words in enumerate(WORDS) if (f + w) % 3 == 0]
PROMPTS = [
    "Question: What is 2 + 2?\nAnswer:",
    "def add(a, b):\n    ",
    "Le café de 東京 😀",
    "A prompt of more tokens than those that are decoded with an answer: " + "one, two, three; " * 8,
    "x",
]
CONTEXTS = [
    ("The capital of France is", " Paris"),
    ("The capital of France is", " a city of more than one token"),
    ("def add(a, b):\n", "    return a + b"),
    ("Le café de 東京", " 😀 ferme"),
]
TEXT = "A text that is scored from its first token to its last, café and 東京 included."
NEW = 12


@dataclass
class Specimen:
    """A model's folder, what it stands for, and transformers' own view of it."""

    folder: Path
    family: str
    words: str
    tokenizer: Any
    model: Any

    def job(self, *overrides: str) -> JobConfig:
        return job_of("model=hf", f"model.pretrained={self.folder}", *overrides)

    def greedy(self, prompt: str) -> str:
        """Give transformers' own greedy answer: the text that comes to the prompt's when both are decoded."""
        ids = self.tokenizer(prompt)["input_ids"]
        given = torch.tensor([ids])
        whole = self.model.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=NEW, do_sample=False, pad_token_id=0
        )[0].tolist()
        ends = self.model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        new = whole[len(ids) :]
        first_end = next((i for i, token in enumerate(new) if token in ends), len(new))
        before, both = (
            self.tokenizer.decode(tokens, skip_special_tokens=True) for tokens in (ids, ids + new[:first_end])
        )
        assert both.startswith(before)
        return both[len(before) :]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A task whose prompts are `PROMPTS` and that stops at nothing, as overrides."""
    folder = tmp_path_factory.mktemp("task")
    write_jsonl(folder / "test.jsonl", [{"q": prompt, "a": "x"} for prompt in PROMPTS])
    (folder / "mine.yaml").write_text(
        "task: mine\noutput_type: generate_until\ndataset_path: json\ntest_split: test\nnum_fewshot: 0\n"
        f"doc_to_text: '{{{{q}}}}'\ndoc_to_target: a\ngeneration_kwargs: {{until: null, max_gen_toks: {NEW}}}\n"
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
    return f"task.name={folder / 'mine.yaml'}", f"task.data={folder}"


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def specimen(request: pytest.FixtureRequest, zoo: Zoo) -> Specimen:
    return specimen_of(zoo, *request.param)


def specimen_of(zoo: Zoo, family: str, words: str, ends: list[int] | None = None) -> Specimen:
    folder = zoo.model(family, words, ends=ends)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    return Specimen(folder, family, words, tokenizer, hf.AutoModelForCausalLM.from_pretrained(folder).eval())


def answered(specimen: Specimen, task: tuple[str, str], *overrides: str) -> Evaluation:
    return evaluate(specimen.job("task=lm_eval", *task, *overrides), lambda *_: None)


def texts(evaluation: Evaluation) -> dict[str, str]:
    return {sample.prompt: sample.responses[0] for sample in evaluation.samples}


def test_greedy_texts_are_transformers_own_whatever_the_batch(specimen, task):
    own = {prompt: specimen.greedy(prompt) for prompt in PROMPTS}
    assert len(set(own.values())) == len(PROMPTS), "the texts vary"
    assert texts(answered(specimen, task, "model.batch_size=1")) == own
    several = answered(specimen, task, "model.batch_size=4")
    assert texts(several) == own
    if specimen.tokenizer.eos_token_id is not None:
        assert several.decoding["sent"][0]["end_tokens"] == [specimen.tokenizer.eos_token_id]


def test_log_likelihoods_are_those_of_lm_evals_own_model(specimen):
    ours = resident.load(specimen.job("model.batch_size=3")).lm
    scored = [value for value, _ in scored_by(ours, LOGLIKELIHOOD, CONTEXTS)]
    if specimen.tokenizer.bos_token_id is None and specimen.tokenizer.eos_token_id is None:  # Qwen2's adds one itself
        # lm_eval's own model fails with a TypeError there; the plain sum of the tokens' log-probabilities stands in
        assert scored == pytest.approx([by_hand(specimen, *pair) for pair in CONTEXTS], abs=1e-4)
        with pytest.raises(BadInput, match="has neither a begin nor an end token"):
            scored_by(ours, ROLLING, [(TEXT,)])
        return
    theirs = HFLM(pretrained=str(specimen.folder), device="cpu", dtype="float32", batch_size=1)
    expected = theirs.loglikelihood(instances(LOGLIKELIHOOD, CONTEXTS), disable_tqdm=True)
    assert scored == pytest.approx([value for value, _ in expected], abs=1e-4)
    rolling = scored_by(ours, ROLLING, [(TEXT,)])
    assert rolling == pytest.approx(theirs.loglikelihood_rolling(instances(ROLLING, [(TEXT,)])), abs=1e-4)
    assert all(value < -1 for value in (*scored, *rolling))


def instances(kind: str, arguments: list[tuple[str, ...]]) -> list[Instance]:
    return [Instance(kind, {}, given, 0, metadata=("zoo", n, 1)) for n, given in enumerate(arguments)]


def scored_by(lm: Backend, kind: str, arguments: list[tuple[str, ...]]) -> list[Any]:
    """What evalsweep's own interface gives, in the order of the arguments."""
    requests = [Request(kind, prompt, continuation="".join(rest)) for prompt, *rest in arguments]
    found: dict[int, Any] = {}
    lm.answer(requests, lambda request, answer: found.__setitem__(id(request), answer.value))
    return [found[id(request)] for request in requests]


def by_hand(specimen: Specimen, context: str, continuation: str) -> float:
    # a context's last spaces and line breaks are the continuation's in lm_eval
    before = len(specimen.tokenizer(context.rstrip())["input_ids"])
    ids = specimen.tokenizer(context + continuation)["input_ids"]
    with torch.inference_mode():
        logits = specimen.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(float(logits[i - 1, ids[i]]) for i in range(before, len(ids)))


@pytest.mark.parametrize("words", ["sentencepiece_v1", "sentencepiece_v3"])
def test_the_space_that_begins_an_answer_is_kept(zoo, task, words):
    """The tokens of an answer alone decode without it, which is why prompt and answer are decoded together."""
    found = texts(answered(specimen_of(zoo, "llama", words), task))
    assert any(text.startswith(" ") for text in found.values())


def test_each_of_several_end_tokens_ends_an_answer(zoo, task):
    plain = specimen_of(zoo, "llama", "smollm2")
    ids = plain.tokenizer(PROMPTS[0])["input_ids"]
    given = torch.tensor([ids])
    own = plain.model.generate(given, attention_mask=torch.ones_like(given), max_new_tokens=NEW, do_sample=False)
    fifth = own[0, len(ids) + 5].item()
    ended = specimen_of(zoo, "llama", "smollm2", ends=[plain.tokenizer.eos_token_id, fifth])
    evaluation = answered(ended, task)
    assert evaluation.decoding["sent"][0]["end_tokens"] == sorted([plain.tokenizer.eos_token_id, fifth])
    assert texts(evaluation) == {prompt: ended.greedy(prompt) for prompt in PROMPTS}
    assert ended.greedy(PROMPTS[0]) == plain.tokenizer.decode(own[0, len(ids) : len(ids) + 5])
    assert "capped" not in evaluation.samples[0].flags
    assert "capped" in evaluation.samples[1].flags


def test_a_family_whose_state_cannot_be_batched_is_refused_in_one_line(zoo, task):
    folder = zoo.model(REFUSED, "smollm2")
    with pytest.raises(BadInput, match=r"^MambaForCausalLM: .*in a way that evalsweep's generator.*task=sample_choice"):
        evaluate(job_of("model=hf", f"model.pretrained={folder}", "task=lm_eval", *task), lambda *_: None)
    # log-likelihoods are computed whole, without a state that goes on
    theirs = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1)
    ours = resident.load(job_of("model=hf", f"model.pretrained={folder}")).lm
    expected = [value for value, _ in theirs.loglikelihood(instances(LOGLIKELIHOOD, CONTEXTS[:2]), disable_tqdm=True)]
    assert [value for value, _ in scored_by(ours, LOGLIKELIHOOD, CONTEXTS[:2])] == pytest.approx(expected, abs=1e-4)
