"""One evaluation of the embedded model: what reaches the sampler, what is scored, what is kept."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from conftest import job_of, write_jsonl

from evalsweep.engine.answers.numeric import number_of, vote
from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.engine.models import causal, embedded, resident
from evalsweep.errors import BadInput


def found(*overrides: str) -> Evaluation:
    return evaluate(job_of("task.limit=6", *overrides), lambda *_: None)


def texts(evaluation: Evaluation) -> list[str]:
    return [text for sample in evaluation.samples for text in sample.responses]


NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0, "num_beams": 1}


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_the_bundled_task_is_neither_too_easy_nor_too_hard_for_the_embedded_model(temperature):
    whole = evaluate(job_of(f"temperature={temperature}"), lambda *_: None)
    assert len(whole.samples) == 60
    assert 0.3 < whole.metrics["sample/exact_match,number"] < 0.7


def test_the_temperature_reaches_the_sampler_and_is_recorded_as_sent():
    (sent,) = found("temperature=0.7").decoding["sent"]
    assert NEUTRAL.items() <= sent.items()
    assert (sent["do_sample"], sent["temperature"], sent["max_gen_toks"]) == (True, 0.7, 8)
    assert "\n" in sent["stop"]


def test_gsm8k_states_greedy_and_is_sampled_all_the_same(gsm8k):
    # lm_eval's own gsm8k says do_sample: false, under which a temperature silently does nothing
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.limit=1", "task.max_gen_toks=16", "task.num_fewshot=1")
    warm = evaluate(job_of(*own, "temperature=1.5"), lambda *_: None)
    assert warm.decoding["sent"][0]["do_sample"]
    assert texts(warm) != texts(evaluate(job_of(*own), lambda *_: None))
    of_lm_eval = {"gsm8k/exact_match,strict-match", "gsm8k/exact_match,flexible-extract"}
    own = {"gsm8k/numeric", "gsm8k/numeric_no_number", "gsm8k/numeric_doubtful", "gsm8k/numeric_disagrees"}
    assert {name for name in warm.metrics if name.startswith("gsm8k/")} == of_lm_eval | own
    assert warm.headline == "gsm8k/numeric"


def test_greedy_is_greedy_and_the_seed_does_not_move_it():
    zero, other = found("seed=0"), found("seed=99")
    assert zero.decoding["sent"][0]["do_sample"] is False
    assert zero.responses_hash == other.responses_hash


def test_the_seed_moves_samples_and_the_same_seed_repeats_them():
    a, again, b = (
        found("temperature=1.0", "seed=1"),
        found("temperature=1.0", "seed=1"),
        found("temperature=1.0", "seed=2"),
    )
    assert texts(a) == texts(again)
    assert texts(a) != texts(b)


def test_a_models_own_generation_config_does_not_leak_in(model_copy):
    settings = json.loads((model_copy / "generation_config.json").read_text())
    settings |= {"repetition_penalty": 9.0, "top_k": 1, "temperature": 0.1, "do_sample": True, "max_new_tokens": 1}
    (model_copy / "generation_config.json").write_text(json.dumps(settings))
    own = ("model=hf", f"model.pretrained={model_copy}", "model.batch_size=32")
    assert texts(found(*own)) == texts(found())
    assert texts(found(*own, "temperature=0.9")) == texts(found("temperature=0.9"))


def test_every_answer_of_a_document_is_kept_and_scored():
    several = found("temperature=1.0", "task.samples=4", "seed=3")
    by_hand = []
    for sample in several.samples:
        assert len(sample.responses) == 4
        numbers = [
            next(iter("".join(c if c.isdigit() or c == "-" else " " for c in r).split()), "") for r in sample.responses
        ]
        by_hand.append(sum(n == sample.target for n in numbers) / 4)
        assert sample.scores["exact_match,number"] == by_hand[-1]
    assert several.metrics["sample/exact_match,number"] == pytest.approx(sum(by_hand) / 6)
    assert len(set(texts(several))) > 6, "the answers to one question differ"


def test_a_sample_holds_prompt_shots_target_and_scores():
    sample = found().samples[0]
    assert sample.prompt.endswith("Question: What is 11 * 4?\nAnswer:")
    assert sample.prompt.count("Answer:") == 5
    assert (len(sample.shots), sample.target) == (4, "44")
    assert set(sample.scores) == {"exact_match,number"}


def test_multiple_choice_compares_log_likelihoods_and_says_that_temperature_is_dead():
    choice = found("task=sample_choice", "temperature=0.2")
    assert choice.decoding["sent"] == []
    assert "no token is generated" in choice.decoding["note"]
    assert any("temperature does not affect sample_choice" in alarm.message for alarm in choice.alarms)
    assert all(len(s.responses) == 4 and all(x < 0 for x in s.responses) for s in choice.samples)
    assert choice.samples[0].target in ("a lion", "spring", "ice", "eight", "green", "a cat", "honey")
    assert found("task=sample_choice").responses_hash == choice.responses_hash


def test_a_system_prompt_reaches_the_model_as_text_or_as_a_message(tmp_path):
    assert found("prompt=helpful_assistant").samples[0].prompt.startswith("You are a helpful assistant")
    chat = found("prompt=helpful_assistant", "model.apply_chat_template=true").samples[0].prompt
    assert chat.startswith("<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\nQuestion:")
    (tmp_path / "system.txt").write_text("Answer with one number.")
    own = found("prompt=file", f"prompt.file={tmp_path / 'system.txt'}")
    assert own.samples[0].prompt.startswith("Answer with one number.")
    assert own.provenance["prompt_hash"] != found("prompt=helpful_assistant").provenance["prompt_hash"]


def test_provenance_says_what_was_evaluated(model_folder):
    p = found().provenance
    assert p["model_parameters"] == 134515008
    assert (p["dtype"], p["device"], p["max_length"]) == ("float32", "cpu", 8192)
    for key in ("model_hash", "chat_template_hash", "tokenizer_hash", "task_config_hash", "dataset_fingerprint"):
        assert len(p[key]) == 16


def test_data_and_model_files_move_their_hashes(gsm8k, model_copy):
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.limit=1", "task.max_gen_toks=2", "task.num_fewshot=0")
    before = evaluate(job_of(*own), lambda *_: None).provenance
    (gsm8k / "test.jsonl").write_text((gsm8k / "test.jsonl").read_text().replace("Tom", "Ann"))
    (model_copy / "chat_template.jinja").write_text("changed")
    own = (*own, "model=hf", f"model.pretrained={model_copy}")
    after = evaluate(job_of(*own), lambda *_: None).provenance
    for key in ("dataset_fingerprint", "model_hash", "chat_template_hash"):
        assert before[key] != after[key]
    assert before["task_config_hash"] == after["task_config_hash"]


@pytest.fixture
def watch_model():
    """Have a function look at the logits (rows, positions, vocabulary) of each forward pass of the embedded model."""
    model = resident.load(job_of()).lm.model
    hooks = []
    yield lambda look: hooks.append(model.register_forward_hook(lambda _, __, output: look(output.logits)))
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize(("share", "most"), [("true", 4), ("false", 150)])
def test_long_prompts_make_smaller_batches_and_the_same_log_likelihoods(watch_model, monkeypatch, share, most):
    batches: list[tuple[int, int]] = []
    watch_model(lambda logits: batches.append(tuple(logits.shape[:2])))
    whole = found("task=sample_choice", f"engine.share={share}")
    assert max(rows for rows, _ in batches) > 4
    assert max(rows * positions for rows, positions in batches) > most
    batches.clear()
    monkeypatch.setattr(causal, "LOGITS_BYTES", most * 49152 * 4)
    small = found("task=sample_choice", f"engine.share={share}")
    assert batches
    assert all(rows == 1 or rows * positions <= most for rows, positions in batches)
    for a, b in zip(whole.samples, small.samples, strict=True):
        assert a.responses == pytest.approx(b.responses, abs=1e-3)


@pytest.mark.parametrize("share", ["true", "false"])
def test_log_likelihoods_survive_a_full_memory_with_smaller_batches(watch_model, share):
    def look(logits):
        if len(logits) > 3:
            raise torch.OutOfMemoryError("no room")

    whole = found("task=sample_choice", f"engine.share={share}")
    watch_model(look)
    small = found("task=sample_choice", f"engine.share={share}")
    (told,) = [a.message for a in small.alarms if "out of memory" in a.message]
    assert re.fullmatch(r"out of memory: the batch went down from 32 to [23]", told)
    for a, b in zip(whole.samples, small.samples, strict=True):
        assert a.responses == pytest.approx(b.responses, abs=1e-3)


def test_the_embedded_model_comes_from_the_hub_where_its_package_is_not_installed(monkeypatch):
    monkeypatch.setattr(embedded, "PACKAGE", "no_such_package")
    assert embedded.locate() == "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_the_embedded_model_is_converted_once(model_folder, monkeypatch):
    monkeypatch.setattr(embedded, "_convert", lambda *_: pytest.fail("converted again"))
    assert embedded.locate() == str(model_folder)


def test_the_model_stays_loaded_between_jobs():
    job = job_of()
    assert resident.load(job).lm is resident.load(job_of("seed=5", "model.batch_size=4")).lm


def test_weights_that_are_missing_are_refused_and_not_made_up(model_copy):
    from safetensors.torch import load_file, save_file

    path = model_copy / "model.safetensors"
    weights = {k: v for k, v in load_file(path).items() if "layers.5.mlp" not in k}
    path.unlink()
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"3 weights are missing, model.layers.5.mlp.down_proj.weight first"):
        found("model=hf", f"model.pretrained={model_copy}")


def test_several_answers_to_a_choice_are_said_to_be_one():
    assert any(
        "task.samples=4 has no effect" in a.message
        for a in found("task=sample_choice", "temperature=1", "task.samples=4").alarms
    )


def test_progress_counts_answers_up_to_their_number():
    seen: list[tuple[str, int, int]] = []
    evaluate(job_of("task.limit=6"), lambda *state: seen.append(state))
    generating = [state for state in seen if state[0] == "generating"]
    assert generating[0] == ("generating", 0, 6)
    assert generating[-1] == ("generating", 6, 6)


def test_answers_longer_than_the_model_are_refused():
    # the task's own 8 tokens, which validation cannot know
    with pytest.raises(BadInput, match="must be below the model's length of 8 tokens"):
        found("model.max_length=8")


def test_one_job_leaves_nothing_to_the_next():
    """lm_eval changes task objects while it runs them, and its caches know neither model nor settings."""
    before = found("temperature=0")
    found("temperature=1.5", "task.samples=2", "fewshot=resampled", "seed=7", "task.max_gen_toks=3")
    after = found("temperature=0")
    assert (before.responses_hash, before.decoding, before.metrics) == (
        after.responses_hash,
        after.decoding,
        after.metrics,
    )


def test_humaneval_takes_the_shots_that_are_asked_for():
    own = ("task=humaneval", "task.limit=1", "task.max_gen_toks=1", "task.num_fewshot=1")
    (sample,) = evaluate(job_of(*own), lambda *_: None).samples
    assert len(sample.shots) == 1
    assert sample.prompt.startswith(sample.shots[0].text)


def test_gsm8ks_vote_and_mean_stand_side_by_side(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.limit=3", "task.max_gen_toks=12", "task.num_fewshot=2")
    voted = evaluate(job_of(*own, "task.samples=5", "temperature=0.6"), lambda *_: None)
    for sample in voted.samples:
        numbers = [number_of(text) for text in sample.responses]
        assert len(numbers) == 5
        assert sample.scores["numeric"] == sum(n == int(sample.target.rpartition("#### ")[2]) for n in numbers) / 5
        assert sample.scores["maj@5"] == vote(numbers, number_of(sample.target))[0]
    for name in ("numeric", "maj@5"):
        assert voted.metrics[f"gsm8k/{name}"] == pytest.approx(sum(s.scores[name] for s in voted.samples) / 3)
    more = ("task.samples=5", "temperature=0.6", "task.metric=maj@5", "task.k=[3]")
    headed = evaluate(job_of(*own, *more), lambda *_: None)
    assert headed.headline == "gsm8k/maj@5"
    for sample in headed.samples:
        numbers, target = [number_of(text) for text in sample.responses], number_of(sample.target)
        votes = [vote(subset, target)[0] for subset in itertools.combinations(numbers, 3)]
        assert sample.scores["maj@3"] == pytest.approx(sum(votes) / len(votes))


def test_an_empty_prompt_is_answered_from_the_begin_token(tmp_path):
    write_jsonl(tmp_path / "test.jsonl", [{"q": "", "a": "x"}, {"q": "Hello", "a": "y"}])
    (tmp_path / "mine.yaml").write_text(
        "task: mine\noutput_type: generate_until\ndataset_path: json\ntest_split: test\nnum_fewshot: 0\n"
        "doc_to_text: '{{q}}'\ndoc_to_target: a\ngeneration_kwargs: {until: null, max_gen_toks: 3}\n"
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
    empty, _ = found("task=lm_eval", f"task.name={tmp_path / 'mine.yaml'}", f"task.data={tmp_path}").samples
    assert (empty.prompt, len(empty.responses)) == ("", 1)


def test_an_end_token_is_no_part_of_the_answer_even_where_it_is_not_special(model_copy):
    settings = json.loads((model_copy / "generation_config.json").read_text())
    space = resident.load(job_of()).lm.tok_encode(" ")[0]
    (model_copy / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": [2, space]}))
    cut = found("model=hf", f"model.pretrained={model_copy}")
    assert cut.decoding["sent"][0]["end_tokens"] == sorted([2, space])
    assert any(not text for text in texts(cut))


def test_documents_are_grouped_by_a_field_of_theirs():
    samples = evaluate(job_of("task.limit=3", "task.group_by=answer"), lambda *_: None).samples
    assert [sample.group for sample in samples] == [sample.target for sample in samples]
    with pytest.raises(BadInput, match=r"task.group_by=anser: is no field .*did you mean 'answer'.*question, answer"):
        evaluate(job_of("task.limit=3", "task.group_by=anser"), lambda *_: None)
