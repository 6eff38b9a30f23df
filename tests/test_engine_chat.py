"""`model=chat` and the client that it shares with `model=server`, against local endpoints."""

from __future__ import annotations

import base64
import email.utils
import json
import time

import pytest
from conftest import job_of
from endpoint import Reply, completed, endpoint, said

from evalsweep import preflight
from evalsweep.engine.evaluate import evaluate
from evalsweep.errors import BadInput

CLOSE = """def has_close_elements(numbers, threshold):
    n = sorted(numbers)
    return any(b - a < threshold for a, b in zip(n, n[1:]))
"""  # the first problem of HumanEval, solved
QUIET = lambda *_: None  # noqa: E731


def chat(url: str, *overrides: str):
    own = ("model=chat", f"model.base_url={url}/v1/chat/completions", "model.pretrained=m", "model.num_concurrent=1")
    return job_of(*own, "task.limit=2", *overrides)


def server(url: str, *overrides: str):
    own = ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m", "model.num_concurrent=1")
    return job_of(*own, "task.limit=2", *overrides)


def kinds(found) -> set[str]:
    return {alarm.kind for alarm in found.alarms}


def test_messages_are_sent_with_their_roles_and_the_usage_is_recorded():
    with endpoint(lambda _: said(" 42")) as (url, seen):
        found = evaluate(chat(url, "prompt=helpful_assistant", "task.num_fewshot=1"), QUIET)
    roles = [[m["role"] for m in asked.body["messages"]] for asked in seen]
    assert roles == [["system", "user", "assistant", "user"]] * 2
    assert seen[0].body["messages"][0]["content"] == "You are a helpful assistant"
    assert {k: seen[0].body[k] for k in ("model", "temperature", "top_p", "max_tokens")} == {
        "model": "m",
        "temperature": 0.0,
        "top_p": 1.0,
        "max_tokens": 8,
    }
    assert found.decoding["usage"] == {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
    assert found.metrics["generation/tokens"] == 6
    assert [s.responses for s in found.samples] == [[" 42"], [" 42"]]


def test_a_system_prompt_goes_into_the_users_turn_where_that_is_asked_for():
    with endpoint(lambda _: said("1")) as (url, seen):
        evaluate(chat(url, "prompt=helpful_assistant", "prompt.placement=user", "task.num_fewshot=0"), QUIET)
    (message,) = seen[0].body["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("You are a helpful assistant\n\nQuestion:")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_that_comes_apart_is_kept_and_not_scored(field):
    with endpoint(lambda _: said("The answer is 7", **{field: "Is it 99? No."})) as (url, _):
        found = evaluate(chat(url), QUIET)
    assert [s.thinking for s in found.samples] == [["Is it 99? No."]] * 2
    assert {text for s in found.samples for text in s.responses} == {"The answer is 7"}


def test_thinking_within_the_text_is_kept_and_not_scored(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=1")
    with endpoint(lambda _: said("<think>\n#### 99\n</think>\n\n#### 5")) as (url, _):
        found = evaluate(chat(url, *own), QUIET)
    assert [s.responses for s in found.samples] == [["#### 5"]] * 2
    assert [s.thinking for s in found.samples] == [["#### 99"]] * 2
    assert found.metrics["gsm8k/numeric"] == 0.5, "2+3 is 5, 3+4 is not"


def test_thinking_that_never_ends_is_no_answer_and_an_alarm_of_its_own(gsm8k):
    own = ("task=gsm8k", f"task.data={gsm8k}", "task.num_fewshot=1", "model.max_thinking_toks=100")
    with endpoint(lambda _: said("<think>2+3 = 5, so #### 5", "length")) as (url, seen):
        found = evaluate(chat(url, *own), QUIET)
    assert [s.responses for s in found.samples] == [[""]] * 2
    assert {"unfinished_thinking", "capped"} <= kinds(found)
    assert found.metrics["gsm8k/numeric"] == 0.0
    assert seen[0].body["max_tokens"] == 256 + 100
    with endpoint(lambda _: said(None, "length", reasoning_content="2+3 is")) as (url, _):
        assert "unfinished_thinking" in kinds(evaluate(chat(url, *own), QUIET))


def test_an_answer_that_was_stopped_within_the_servers_reasoning_is_asked_for_again_without_stop_strings():
    def answer(asked):
        if "stop" in asked.body:
            return said("", reasoning_content="Let me restate. ")
        return said("7", reasoning_content="Let me restate. Question: 3 + 4.")

    with endpoint(answer) as (url, seen):
        found = evaluate(chat(url), QUIET)
    assert [s.responses for s in found.samples] == [["7"]] * 2
    assert [s.thinking for s in found.samples] == [["Let me restate. Question: 3 + 4."]] * 2
    assert ["stop" in asked.body for asked in seen] == [True, True, False, False]
    assert found.decoding["usage"]["completion_tokens"] == 12, "the first tries are counted too"


def test_a_message_without_content_that_ran_into_the_limit_is_no_answer():
    with endpoint(lambda _: said(None, "length")) as (url, _):
        found = evaluate(chat(url), QUIET)
    assert [s.responses for s in found.samples] == [[""]] * 2
    assert {"empty", "capped"} <= kinds(found)


def test_details_of_the_usage_are_recorded():
    reply = said("7")
    reply.body["usage"]["completion_tokens_details"] = {"reasoning_tokens": 2, "audio": None}
    with endpoint(lambda _: reply) as (url, _):
        usage = evaluate(chat(url), QUIET).decoding["usage"]
    assert usage["completion_tokens_details.reasoning_tokens"] == 4


def test_a_server_that_does_not_count_what_it_reads_is_told_of_where_a_system_prompt_is_sent():
    reply = said("7")
    del reply.body["usage"]
    with endpoint(lambda _: reply) as (url, _):
        assert "system_unchecked" in kinds(evaluate(chat(url, "prompt=helpful_assistant"), QUIET))
        assert "system_unchecked" not in kinds(evaluate(chat(url), QUIET))
        assert evaluate(chat(url), QUIET).metrics["generation/tokens"] is None


def test_a_task_of_log_likelihoods_is_refused_in_one_line():
    with (
        endpoint(lambda _: said("x")) as (url, seen),
        pytest.raises(BadInput, match=r"compares log-likelihoods.*model=server asks a completions"),
    ):
        evaluate(chat(url, "task=sample_choice"), QUIET)
    assert seen == []


@pytest.mark.parametrize("form", ["chat", "server"])
def test_the_length_of_a_prompt_that_nobody_counts_is_null_and_said(form):
    make, says = (chat, said) if form == "chat" else (server, completed)
    with endpoint(lambda _: says("1")) as (url, _):
        found = evaluate(make(url), QUIET)
    assert found.metrics["alarms/truncated"] is None
    assert found.provenance["max_length"] is None
    assert any(a.message.startswith("prompt length unknown, not checked") for a in found.alarms)


@pytest.mark.parametrize("form", ["chat", "server"])
@pytest.mark.parametrize("task", ["humaneval", "humaneval_instruct"])
def test_right_code_in_a_fence_passes_on_both_forms_of_humaneval(task, form):
    answer = f"Here it is:\n\n```python\nimport math\n\n{CLOSE}```\n\nIt sorts them first.\n\ndef other(): pass"
    make, says = (chat, said) if form == "chat" else (server, completed)
    with endpoint(lambda _: says(answer)) as (url, seen):
        assert evaluate(make(url, f"task={task}", "task.limit=1"), QUIET).metrics[f"{task}/pass@1"] == 1.0
    # a chat answer ends by itself; stop strings would cut its code
    assert ("stop" in seen[0].body) == (form == "server")


def test_a_server_that_stops_within_a_fence_is_asked_again_without_stop_strings():
    code = f"```python\nimport math\n\n{CLOSE}```\n"

    def answer(asked):
        cuts = [code.find(stop) for stop in asked.body.get("stop", []) if stop in code]
        return completed(code[: min(cuts)] if cuts else code)

    with endpoint(answer) as (url, seen):
        found = evaluate(server(url, "task=humaneval", "task.limit=1"), QUIET)
    assert found.metrics["humaneval/pass@1"] == 1.0
    assert ["stop" in asked.body for asked in seen] == [True, False]


def test_programs_that_do_not_parse_are_an_alarm():
    with endpoint(lambda _: completed("    return return\n")) as (url, _):
        found = evaluate(server(url, "task=humaneval"), QUIET)
    assert "2 of 2 documents of humaneval have a program that does not parse" in [a.message for a in found.alarms]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
@pytest.mark.parametrize("make", [chat, server])
def test_what_a_server_refuses_for_good_is_told_at_once_in_its_own_words(status, make):
    error = {"error": {"message": "This model's maximum context length is 4096 tokens", "type": "BadRequestError"}}
    with endpoint(lambda _: Reply(error, status)) as (url, seen), pytest.raises(BadInput) as refusal:
        evaluate(make(url), QUIET)
    assert f"the server answers {status}: This model's maximum context length is 4096 tokens" in str(refusal.value)
    assert len(seen) == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_busy_server_is_asked_again_after_the_time_that_it_names(form):
    times = []

    def answer(_):
        times.append(time.monotonic())
        if len(times) == 1:
            after = "2" if form == "seconds" else email.utils.formatdate(time.time() + 3, usegmt=True)
            return Reply({"error": "busy"}, 429, {"Retry-After": after})
        return said("1")

    with endpoint(answer) as (url, _):
        evaluate(chat(url, "task.limit=1"), QUIET)
    assert len(times) == 2
    assert times[1] - times[0] >= 1.9


def test_answers_that_came_are_kept_when_a_later_one_fails(run, tmp_path):
    def answer(asked):
        number = len(seen)
        return said(f"answer {number}") if number <= 3 else Reply({"error": "gone"}, 404)

    with endpoint(answer) as (url, seen):
        own = (
            "model=chat",
            f"model.base_url={url}/v1/chat/completions",
            "model.pretrained=m",
            "model.num_concurrent=1",
        )
        done = run(*own, "task.limit=6", "tracking=off", "hydra.run.dir=out")
    assert done.returncode == 1
    assert "3 answers that came are kept" in done.stderr
    (file,) = (tmp_path / "out" / "responses").glob("*.jsonl")
    kept = [json.loads(line.split(" ", 2)[2]) for line in file.read_text().splitlines()]
    assert [k["value"] for k in kept] == ["answer 1", "answer 2", "answer 3"]
    assert [k["document"] for k in kept] == ["sample/0", "sample/1", "sample/2"]


def test_tries_are_counted_by_model_retries():
    with endpoint(lambda _: Reply("oops", 500)) as (url, seen), pytest.raises(BadInput, match="answers 500: oops"):
        evaluate(chat(url, "model.retries=1"), QUIET)
    assert len(seen) == 2


def test_a_silent_server_is_given_up_after_model_timeout():
    def answer(_):
        time.sleep(3)
        return said("1")

    with endpoint(answer) as (url, _), pytest.raises(BadInput, match="broke off or refused"):
        evaluate(chat(url, "model.timeout=0.5", "model.retries=0", "task.limit=1"), QUIET)


def test_a_password_in_the_address_is_basic_authentication_and_no_bearer_clashes(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-this-one-please")
    with endpoint(lambda _: said("1")) as (url, seen):
        found = evaluate(chat(url.replace("http://", "http://ann:p%40ss@"), "task.limit=1"), QUIET)
    assert seen[0].headers["Authorization"] == "Basic " + base64.b64encode(b"ann:p@ss").decode()
    assert "p%40ss" not in str(found)
    assert "p@ss" not in str(found)


def test_the_key_of_the_environment_is_sent_and_not_recorded(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-topsecrettopsecret")
    with endpoint(lambda _: said("1")) as (url, seen):
        found = evaluate(chat(url, "task.limit=1"), QUIET)
    assert seen[0].headers["Authorization"] == "Bearer sk-topsecrettopsecret"
    assert "topsecret" not in str(found)


@pytest.mark.parametrize("drops", [True, False])
def test_a_server_that_drops_system_prompts_is_found_before_the_first_job(drops):
    def answer(asked):
        told = [m["content"] for m in asked.body["messages"] if not (drops and m["role"] == "system")]
        reply = said("1")
        reply.body["usage"]["prompt_tokens"] = sum(len(text.split()) for text in told)
        return reply

    with endpoint(answer) as (url, _):
        if not drops:
            preflight.check([chat(url, "prompt=helpful_assistant")])
            return
        with pytest.raises(BadInput, match=r"so that it drops system prompts.*prompt.placement=user"):
            preflight.check([chat(url, "prompt=helpful_assistant")])
        preflight.check([chat(url, "prompt=helpful_assistant", "prompt.placement=user")])


def test_a_server_whose_template_refuses_a_system_prompt_is_told_in_its_own_words_before_the_first_job():
    with (
        endpoint(lambda _: Reply({"error": {"message": "System role not supported"}}, 400)) as (url, _),
        pytest.raises(BadInput, match="the server answers 400: System role not supported"),
    ):
        preflight.check([chat(url, "prompt=helpful_assistant")])
