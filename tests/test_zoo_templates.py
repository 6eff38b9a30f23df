"""Chat templates of many makes: a system prompt reaches the model as it is recorded, or the job is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from conftest import composed, job_of, write_jsonl
from endpoint import completed, endpoint
from zoo import TEMPLATES, TOKENIZERS, Zoo

from evalsweep import preflight
from evalsweep.engine.evaluate import Evaluation, evaluate
from evalsweep.engine.models.template import TAKEN, Template
from evalsweep.errors import BadInput

THINK = ("<think>", "</think>")
SYSTEM = "Answer as a zoo keeper would."
CHAT = "model.apply_chat_template=true"
WITH_SYSTEM = (CHAT, "prompt=text", f"prompt.system='{SYSTEM}'")
SHORT = ("task.limit=1", "task.num_fewshot=1", "task.max_gen_toks=2")
TOOL = {"type": "function", "function": {"name": "feed", "parameters": {"type": "object", "properties": {}}}}


@dataclass(frozen=True)
class Make:
    """What is true of a template.

    Args:
        treatment: what becomes of a system prompt.
        refusal: what a job with a system prompt is told, where it has no place of its own.
        alarms: what a job without a system prompt is told.
        opens: whether the prompt ends within the thinking part.
        assistant: what a prompt ends with.
    """

    treatment: str
    refusal: str = ""
    alarms: frozenset[str] = frozenset()
    opens: bool = False
    assistant: str = "<|im_start|>assistant\n"


MAKES = {
    "chatml": Make(TAKEN),
    "gemma": Make("refused", "refuses a system prompt", assistant="<start_of_turn>model\n"),
    "mistral": Make("refused", "refuses a system prompt", assistant=" [/INST]"),
    "gemma3": Make("merged", "moves a system prompt into the user's turn", assistant="<start_of_turn>model\n"),
    "doubled": Make("doubled", "writes a system prompt more than once"),
    "silent": Make("dropped", "drops a system prompt without a word", assistant="<|assistant|>\n"),
    # right for one question, and not for one after shots
    "each_turn": Make("doubled", "writes a system prompt more than once"),
    "one_turn": Make("dropped", "drops a system prompt without a word"),
    "deepseek_r1": Make(TAKEN, opens=True, assistant="<|Assistant|><think>\n"),
    "qwen3": Make(TAKEN),
    "tools": Make(TAKEN, assistant="<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "qwen25": Make(TAKEN, alarms=frozenset({"template_prompt"})),
    "no_generation_prompt": Make(TAKEN, alarms=frozenset({"template_no_prompt"}), assistant="<|im_end|>\n"),
    "llama2": Make(TAKEN, assistant=" [/INST]"),
}
# Templates that join the begin or end token with text, and tokenizers that lack one of them.
JOINS, LACKS = {"deepseek_r1", "llama2"}, {"no_end", "no_begin_no_end"}
ABOUT_TEMPLATES = {"template_prompt", "template_text", "template_no_prompt", "template_date", "template_tokens"}


@pytest.fixture(scope="module", params=MAKES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def template_of(zoo: Zoo, name: str, placement: str = "system", words: str = "marks", **arguments: Any) -> Template:
    tokenizer = zoo.tokenizer(words)
    tokenizer.chat_template = (TEMPLATES / f"{name}.jinja").read_text()
    return Template(tokenizer, arguments, placement)


def answered(zoo: Zoo, name: str | None, *overrides: str, words: str = "marks") -> Evaluation:
    folder = zoo.model("llama", words, name)
    return evaluate(job_of("model=hf", f"model.pretrained={folder}", *SHORT, *overrides), lambda *_: None)


def kinds(evaluation: Evaluation) -> set[str]:
    return {alarm.kind for alarm in evaluation.alarms}


def test_every_template_of_the_folder_is_looked_at():
    assert {path.stem for path in TEMPLATES.iterdir()} == set(MAKES)


@pytest.mark.parametrize("words", TOKENIZERS)
def test_what_becomes_of_a_system_prompt_is_found(zoo, name, words):
    unusable = (name, words) == ("llama2", "no_begin_no_end")  # each of its turns begins with the begin token
    assert template_of(zoo, name, words=words).treatment() == ("unusable" if unusable else MAKES[name].treatment)


@pytest.mark.parametrize("words", TOKENIZERS)
def test_a_system_prompt_is_sent_once_in_its_own_place_or_refused(zoo, name, words):
    make = MAKES[name]
    if make.treatment != TAKEN:
        with pytest.raises(BadInput, match=rf"{make.refusal}.*prompt.placement=user") as refused:
            answered(zoo, name, *WITH_SYSTEM, words=words)
        assert "\n" not in str(refused.value)
        return
    if name in JOINS and words in LACKS:
        with pytest.raises(
            BadInput, match=r"neither .* nor model.template_args gives \('(bos|eos)_token' is undefined\)"
        ):
            answered(zoo, name, *WITH_SYSTEM, words=words)
        given = "model.template_args={bos_token: '<s>', eos_token: '</s>'}"
        assert kinds(answered(zoo, name, *WITH_SYSTEM, given, words=words)).isdisjoint({"template_prompt"})
        return
    evaluation = answered(zoo, name, *WITH_SYSTEM, words=words)
    assert evaluation.provenance["system_prompt_is"] == TAKEN
    for sample in evaluation.samples:
        assert sample.prompt.count(SYSTEM) == 1
        assert f"{SYSTEM}\n\nQuestion" not in sample.prompt
    assert not kinds(evaluation) & {"template_prompt", "template_text"}


def test_in_the_users_turn_every_template_sends_a_system_prompt_once(zoo, name):
    evaluation = answered(zoo, name, *WITH_SYSTEM, "prompt.placement=user")
    assert evaluation.provenance["system_prompt_is"] == "in the user's turn"
    for sample in evaluation.samples:
        assert sample.prompt.count(SYSTEM) == 1
        assert f"{SYSTEM}\n\nQuestion: " in sample.prompt
        assert sample.prompt.index(SYSTEM) < sample.prompt.index(sample.shots[0].text.strip()[:20])


def test_without_a_system_prompt_a_reader_is_told_what_the_template_does_of_its_own_accord(zoo, name):
    evaluation = answered(zoo, name, CHAT)
    assert kinds(evaluation) & ABOUT_TEMPLATES == MAKES[name].alarms
    assert all(sample.prompt.endswith(MAKES[name].assistant) for sample in evaluation.samples)
    assert all(sample.prompt.count(sample.shots[0].text.strip()[:20]) == 1 for sample in evaluation.samples)


def test_a_template_that_opens_the_thinking_part_is_known(zoo, name):
    template = template_of(zoo, name)
    prompt = template.render([{"role": "user", "content": "What is 2 + 2? <think> is a tag."}])
    assert template.opens_thinking(prompt, THINK) == MAKES[name].opens
    assert not template.opens_thinking(prompt, ())


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A task whose description lm_eval sends as a system message, with one shot."""
    folder = tmp_path_factory.mktemp("described")
    for split in ("test", "train"):
        write_jsonl(folder / f"{split}.jsonl", [{"q": f"What is {n} + {n}?", "a": f"{2 * n}"} for n in (3, 4)])
    (folder / "described.yaml").write_text(
        "task: described\noutput_type: generate_until\ndataset_path: json\ntest_split: test\ntraining_split: train\n"
        f"description: {SYSTEM}\ndoc_to_text: '{{{{q}}}}'\ndoc_to_target: '{{{{a}}}}'\nfewshot_split: train\n"
        "generation_kwargs: {until: null, max_gen_toks: 2}\n"
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
    return "task=lm_eval", f"task.name={folder / 'described.yaml'}", f"task.data={folder}"


def test_what_a_task_says_before_its_questions_is_sent_once_or_refused(zoo, name, described):
    if MAKES[name].treatment in ("refused", "dropped", "doubled"):
        with pytest.raises(BadInput, match=rf"{MAKES[name].refusal}, and so what this task says.*placement=user"):
            answered(zoo, name, CHAT, *described)
    else:
        (sample,) = answered(zoo, name, CHAT, *described).samples
        assert sample.prompt.count(SYSTEM) == 1
    (sample,) = answered(zoo, name, CHAT, "prompt.placement=user", *described).samples
    assert sample.prompt.count(SYSTEM) == 1


def test_words_that_an_answer_begins_with_end_the_prompt(zoo, name):
    evaluation = answered(zoo, name, CHAT, "task.gen_prefix='The answer is'")
    for sample in evaluation.samples:
        assert sample.prompt.endswith("The answer is")
    assert all("unfinished_thinking" not in sample.flags for sample in evaluation.samples)


def test_a_template_that_cannot_be_rendered_is_of_no_account_where_none_is_applied(zoo):
    assert answered(zoo, "llama2", words="no_begin_no_end").provenance["system_prompt_is"] == "unusable"


def test_the_text_of_an_inserted_system_prompt_is_told(zoo):
    (told,) = [alarm for alarm in answered(zoo, "qwen25", CHAT).alarms if alarm.kind == "template_prompt"]
    assert "You are Zoo, made by the keepers. You are a helpful assistant." in told.message


def test_an_answer_within_an_opened_thinking_part_counts_as_none(zoo):
    evaluation = answered(zoo, "deepseek_r1", CHAT)
    for sample in evaluation.samples:
        assert (sample.responses, sample.scores["exact_match,number"]) == ([""], 0.0)
        assert "unfinished_thinking" in sample.flags
        assert sample.thinking[0]


def test_a_servers_answer_within_an_opened_thinking_part_counts_as_none(zoo):
    folder = zoo.model("llama", "marks", "deepseek_r1")
    with endpoint(lambda _: completed("maybe #### 2 or Question:", "length")) as (url, seen):
        own = (
            "model=server",
            f"model.base_url={url}/v1/completions",
            "model.pretrained=m",
            f"model.tokenizer={folder}",
        )
        (sample,) = evaluate(job_of(*own, *SHORT, CHAT), lambda *_: None).samples
    assert seen[0].body["prompt"].endswith("<think>\n")
    assert (sample.responses, sample.thinking) == ([""], ["maybe #### 2 or Question:"])
    assert "unfinished_thinking" in sample.flags


def test_a_template_that_takes_turns_with_thought_needs_no_switch_and_heeds_it(zoo):
    def end(*overrides: str) -> str:
        return answered(zoo, "qwen3", CHAT, *overrides).samples[0].prompt.rpartition("assistant\n")[2]

    assert end() == end("+model.template_args={enable_thinking:true}") == ""
    off = answered(zoo, "qwen3", CHAT, "+model.template_args={enable_thinking:false}")
    assert off.samples[0].prompt.endswith("assistant\n<think>\n\n</think>\n\n")
    assert all("unfinished_thinking" not in sample.flags for sample in off.samples)
    assert off.provenance["template_arguments"] == {"enable_thinking": False}


@pytest.mark.parametrize("name", ["qwen3", "tools"])
def test_tools_are_written_where_they_are_given_and_the_system_prompt_is_sent_with_them(zoo, name):
    template = template_of(zoo, name, tools=[TOOL])
    assert template.treatment() == TAKEN
    talk = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hello"}]
    assert template.render(talk).count('"feed"') == template.render(talk).count(SYSTEM) == 1
    assert '"feed"' not in template_of(zoo, name).render(talk)


def test_a_begin_token_that_only_the_tokenizer_puts_is_told(zoo):
    """The template's own tokens have none; the prompt, as it is sent, has one."""
    bare = answered(zoo, "chatml", CHAT, words="sentencepiece_v1")
    (told,) = [alarm for alarm in bare.alarms if alarm.kind == "template_tokens"]
    assert "1 differ in the first one" in told.message


@pytest.mark.parametrize("name", ["llama2", "mistral", "gemma"])
@pytest.mark.parametrize("words", ["sentencepiece_v1", "marks"])
def test_a_begin_token_that_the_template_writes_is_not_doubled(zoo, name, words):
    evaluation = answered(zoo, name, CHAT, words=words)
    assert not kinds(evaluation) & {"double_bos", "missing_bos", "template_tokens"}
    assert evaluation.samples[0].prompt.startswith(zoo.tokenizer(words).bos_token)


def test_a_model_without_a_template_is_refused_in_one_line(zoo):
    with pytest.raises(BadInput, match=r"model.apply_chat_template=true: .*llama-marks-none has no chat template"):
        answered(zoo, None, CHAT)


def test_a_conversation_that_the_template_refuses_is_one_line(zoo):
    talk = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(BadInput, match=r"refuses the turns user, user \(Conversation roles must alternate"):
        template_of(zoo, "mistral").render(talk)


@pytest.mark.parametrize("overrides", [WITH_SYSTEM, (CHAT,)])
def test_what_no_job_could_send_is_refused_before_the_first_one(zoo, overrides):
    """A system prompt that the template refuses; a template where there is none."""
    name = "gemma" if len(overrides) > 1 else None
    told = "prompt.placement=user" if name else "has no chat template"
    folder = zoo.model("llama", "marks", name)
    with composed("-m", "seed=0,1", "model=hf", f"model.pretrained={folder}", *overrides) as plan:
        with pytest.raises(BadInput, match=told):
            preflight.check([job.config for job in plan.jobs])
        with pytest.raises(BadInput, match=told):
            evaluate(plan.first, lambda *_: None)


def test_a_sweep_whose_template_refuses_the_system_prompt_ends_before_its_first_job(zoo, run, tmp_path):
    folder = zoo.model("llama", "marks", "gemma")
    given = ("model=hf", f"model.pretrained={folder}", "prompt=helpful_assistant", CHAT, "tracking=off")
    refused = run(*given, "task.limit=1", "hydra.run.dir=out")
    assert refused.returncode == 2
    assert "refuses a system prompt" in refused.stderr
    assert "prompt.placement=user" in refused.stderr
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").rglob("record.json"))
