"""Alarms: what a reader of a score must know is counted, named, and said in one line."""

from __future__ import annotations

import json

import pytest
from completions_server import serving
from conftest import job_of, write_jsonl

from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.engine.models import resident
from evalsweep.errors import BadInput
from evalsweep.record import Alarm

SHORT = ("task.limit=4",)


def found(*overrides: str) -> Evaluation:
    return evaluate(job_of(*SHORT, *overrides), lambda *_: None)


def alarm(evaluation: Evaluation, kind: str) -> Alarm:
    (one,) = [a for a in evaluation.alarms if a.kind == kind]
    return one


def kinds(evaluation: Evaluation) -> set[str]:
    return {a.kind for a in evaluation.alarms}


def test_prompts_that_are_cut_are_flagged_with_the_tokens_and_whole_shots_they_lost():
    cut = found("model.max_length=60")
    whole = found()
    for short, full in zip(cut.samples, whole.samples, strict=True):
        assert "truncated" in short.flags
        assert len(full.shots) == 4
    # the first keeps "\n\nQuestion: What is 11 - 5?..." of its prompt, the third "6\n\n", the end of the second shot
    assert [cut.samples[i].lost for i in (0, 2)] == [{"tokens": 35, "shots": 2}, {"tokens": 34, "shots": 1}]
    told = alarm(cut, "truncated")
    assert (told.count, told.total, cut.metrics["alarms/truncated"]) == (4, 4, 4.0)
    assert told.message.startswith("4 of 4 prompts of sample were cut from the left to fit the model: up to ")
    assert told.message.endswith(f"{max(s.lost['tokens'] for s in cut.samples)} tokens and 2 shots")
    worst = max(cut.samples, key=lambda s: s.lost["tokens"])
    assert told.documents[0] == f"sample/{worst.doc_id}"
    assert whole.metrics["alarms/truncated"] == 0
    assert found("task=sample_choice", "model.max_length=30").metrics["alarms/truncated"] == 4


def test_on_truncation_error_refuses_and_names_the_prompt():
    with pytest.raises(BadInput, match=r"What is 11 \* 4.*is \d+ tokens too long .* on_truncation=drop_shots"):
        found("model.max_length=60", "on_truncation=error")


def test_on_truncation_drop_shots_drops_whole_shots_and_says_how_many():
    fewer = found("model.max_length=60", "on_truncation=drop_shots")
    for sample in fewer.samples:
        assert sample.flags[0] == "dropped_shots"
        assert len(sample.shots) == 4 - sample.lost["shots"] < 4
        assert sample.prompt.count("Answer:") == len(sample.shots) + 1
        assert sample.prompt.startswith("Question:")
    assert "dropped_shots" in kinds(fewer) and "truncated" not in kinds(fewer)


def test_shots_that_were_dropped_are_not_counted_as_cut_too():
    neither = found("model.max_length=22", "on_truncation=drop_shots")
    assert all(s.lost["shots"] == 4 and s.shots == [] for s in neither.samples)
    assert alarm(neither, "dropped_shots").message.endswith("up to 4 fewer")
    assert alarm(neither, "truncated").message.endswith(" tokens and 0 shots")


def test_answers_that_run_into_the_token_limit_are_flagged():
    assert alarm(found("task.max_gen_toks=1"), "capped").count == 4
    assert found().metrics["alarms/capped"] == 0


def test_answers_from_which_nothing_is_read_and_empty_ones_are_flagged(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=0", "task.max_gen_toks=1")
    silent = found(*own)
    numbers = [any(c.isdigit() for c in s.responses[0]) for s in silent.samples]
    assert ["unparsed" in s.flags for s in silent.samples] == [not n for n in numbers]
    assert silent.metrics["alarms/unparsed"] == numbers.count(False) > 0
    empty = [not s.responses[0].strip() for s in silent.samples]
    assert ["empty" in s.flags for s in silent.samples] == empty


def test_extraction_failures_of_lm_evals_own_filters_are_flagged():
    hot = found("temperature=4", "task.limit=20")
    assert any("unparsed" in s.flags for s in hot.samples)
    for sample in hot.samples:
        assert ("unparsed" in sample.flags) == (not any(c.isdigit() for c in sample.responses[0]))


def test_a_chat_model_without_its_template_and_a_template_with_a_system_prompt_of_its_own_are_told():
    plain = found()
    assert "smollm2 has a chat template and runs without it" in alarm(plain, "no_template").message
    chat = found("model.apply_chat_template=true")
    assert (
        "inserts a system prompt of its own: 'You are a helpful AI assistant named SmolLM"
        in alarm(chat, "template_prompt").message
    )
    assert "You are a helpful AI assistant named SmolLM" in chat.samples[0].prompt
    own = found("model.apply_chat_template=true", "prompt=helpful_assistant")
    assert not kinds(own) & {"template_prompt", "no_template"}


def test_two_begin_tokens_or_none_are_flagged(model_copy):
    """A chat template that writes BOS twice, and a tokenizer that puts one where the prompt then has none."""
    template = "{{ bos_token }}{{ bos_token }}{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    (model_copy / "chat_template.jinja").write_text(template)
    own = ("model=hf", f"model.pretrained={model_copy}")
    assert alarm(found(*own, "model.apply_chat_template=true"), "double_bos").count == 4
    # one that is to put a BOS, and has nothing that does
    resident._resident.clear()  # a folder that changes under a loaded model
    (model_copy / "chat_template.jinja").unlink()
    settings = json.loads((model_copy / "tokenizer_config.json").read_text())
    (model_copy / "tokenizer_config.json").write_text(json.dumps(settings | {"add_bos_token": True}))
    without = found(*own, "task.max_gen_toks=1")
    tokens = resident.load(job_of(*own)).lm.tok_encode(without.samples[0].prompt)
    assert tokens[0] != 1, "transformers now heeds add_bos_token"
    assert alarm(without, "missing_bos").count == 4


def test_a_tokenizer_that_puts_its_begin_token_raises_no_alarm(model_copy):
    tokenizer = json.loads((model_copy / "tokenizer.json").read_text())
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    (model_copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    own = ("model=hf", f"model.pretrained={model_copy}")
    once = found(*own, "task.max_gen_toks=1")
    assert resident.load(job_of(*own)).lm.tok_encode(once.samples[0].prompt)[0] == 1
    assert not kinds(once) & {"double_bos", "missing_bos"}
    # the template's own BOS is not joined by the tokenizer's
    assert "double_bos" not in kinds(found(*own, "model.apply_chat_template=true"))


def test_a_server_that_gives_one_text_for_all_samples_is_told(model_folder):
    with serving(model_folder) as (url, _):
        own = ("model=server", f"model.base_url={url}", "model.pretrained=smol", "task.samples=3", "task.limit=3")
        # 0.0001 is as good as greedy: the interface of a server that ignores the seed
        assert "may ignore the seed" in alarm(found(*own, "temperature=0.0001"), "same_answers").message
        assert "same_answers" not in kinds(found(*own, "temperature=2"))


def test_a_servers_answers_that_ran_into_the_limit_are_flagged(model_folder):
    with serving(model_folder) as (url, _):
        own = ("model=server", f"model.base_url={url}", "model.pretrained=smol")
        assert alarm(found(*own, "task.max_gen_toks=1"), "capped").count == 4


def test_the_usual_counts_are_metrics_also_when_they_are_zero():
    counted = {k: v for k, v in found().metrics.items() if k.startswith("alarms/")}
    assert counted == dict.fromkeys(
        ["alarms/truncated", "alarms/leaked", "alarms/near_copy", "alarms/empty", "alarms/capped", "alarms/unparsed"], 0
    )
    assert "alarms/capped" not in found("task=sample_choice").metrics


def test_rounding_beyond_the_tolerance_is_told(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=4", "task.samples=8", "task.max_gen_toks=16")
    coarse = found("model.dtype=bfloat16", "temperature=1", *own)
    seen = coarse.decoding["rounding"]
    assert seen["near_ties"] == coarse.metrics["generation/near_ties"] > 0
    assert seen["largest"] > coarse.decoding["sent"][0]["tie_tolerance"] == 0.05
    assert "texts may depend on model.batch_size; model.tie_tolerance=" in alarm(coarse, "rounding").message
    assert "rounding" not in kinds(found("temperature=1", *own))


def test_a_template_that_adds_to_every_system_prompt_or_writes_the_date_is_told(model_copy):
    """As Llama 3.1's does."""
    (model_copy / "chat_template.jinja").write_text(
        "{{ bos_token }}system\n\nCutting Knowledge Date: December 2023\nToday Date: {{ strftime_now('%d %b %Y') }}\n\n"
        "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}{% endif %}{{ eos_token }}"
        "{% for m in messages if m['role'] != 'system' %}{{ m['role'] }}\n{{ m['content'] }}{{ eos_token }}{% endfor %}"
    )
    own = ("model=hf", f"model.pretrained={model_copy}", "model.apply_chat_template=true", "task.max_gen_toks=1")
    for prompt in ("none", "helpful_assistant"):
        told = found(*own, f"prompt={prompt}")
        assert "Cutting Knowledge Date: December 2023 Today Date:" in alarm(told, "template_text").message
        assert "may differ from day to day" in alarm(told, "template_date").message
        assert "template_prompt" not in kinds(told)


def test_shots_that_are_cut_are_counted_under_a_chat_template_too():
    chat = found("model.apply_chat_template=true", "model.max_length=100")
    assert {s.lost["shots"] for s in chat.samples} <= {1, 2, 3} and chat.samples[0].lost["tokens"] > 30


def test_prompts_of_choices_with_a_context_each_are_counted(tmp_path):
    """A task as winogrande is: the choices stand within the prompt, and one ending follows."""
    rows = [
        {"a": f"The cat sat on the mat {n}, as", "b": "The dog sat", "end": "cats do", "right": 0} for n in range(4)
    ]
    write_jsonl(tmp_path / "test.jsonl", rows)
    (tmp_path / "mine.yaml").write_text(
        "task: mine\noutput_type: multiple_choice\ndataset_path: json\ntest_split: test\nnum_fewshot: 0\n"
        "doc_to_text: right\ndoc_to_target: end\ndoc_to_choice: '{{[a, b]}}'\n"
        "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
    )
    own = ("task=lm_eval", f"task.name={tmp_path / 'mine.yaml'}", f"task.data={tmp_path}")
    assert found(*own).metrics["alarms/truncated"] == 0
    assert found(*own, "model.max_length=9").metrics["alarms/truncated"] == 4
    with pytest.raises(BadInput, match="too long"):
        found(*own, "model.max_length=9", "on_truncation=error")


def test_the_longest_choice_is_so_by_its_tokens(tmp_path):
    rows = [
        {
            "q": "Name it:",
            "choices": ["a plain choice of several words", "\u16a0\u16a2\u16a6\u16a8\u16b1\u16b2"],
            "right": 0,
        }
    ]
    write_jsonl(tmp_path / "test.jsonl", rows)
    (tmp_path / "mine.yaml").write_text(
        "task: mine\noutput_type: multiple_choice\ndataset_path: json\ntest_split: test\nnum_fewshot: 0\n"
        "doc_to_text: q\ndoc_to_target: right\ndoc_to_choice: choices\n"
        "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]\n"
    )
    own = ("task=lm_eval", f"task.name={tmp_path / 'mine.yaml'}", f"task.data={tmp_path}")
    assert found(*own, "model.max_length=19").metrics["alarms/truncated"] == 1


def test_a_servers_prompts_are_counted_with_its_tokenizer(model_folder):
    with serving(model_folder) as (url, _):
        own = ("model=server", f"model.base_url={url}", "model.pretrained=smol", f"model.tokenizer={model_folder}")
        assert found(*own, "model.max_length=60", "task.max_gen_toks=2").metrics["alarms/truncated"] == 4
        with pytest.raises(BadInput, match="too long"):
            found(*own, "model.max_length=60", "on_truncation=error")


def test_several_samples_at_temperature_zero_are_one_and_that_is_said():
    found = evaluate(job_of("task.limit=1", "task.samples=3"), lambda *_: None)
    assert [len(s.responses) for s in found.samples] == [1]
    (alarm,) = [a for a in found.alarms if a.kind == "greedy_sample"]
    assert "at temperature 0 a document of sample has one answer" in alarm.message
    assert "task.samples=3 is for other temperatures" in alarm.message


def test_a_setting_that_cannot_act_is_an_alarm():
    found = evaluate(job_of("task.limit=1", "decoding.top_p=0.9"), lambda *_: None)
    assert [a.message for a in found.alarms if a.kind == "idle_setting"] == [
        "decoding.top_p=0.9 has no effect at temperature 0"
    ]
