"""`model=server` against a real completions endpoint."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from completions_server import serving
from conftest import job_of
from endpoint import Reply, completed, endpoint
from transformers import AutoModelForCausalLM, AutoTokenizer

from evalsweep.engine.evaluate import evaluate
from evalsweep.errors import BadInput


def test_a_server_answers_as_the_model_itself_does(model_folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-topsecrettopsecret")
    with serving(model_folder) as (url, seen):
        own = ("model=server", f"model.base_url={url}", "model.pretrained=smol", "task.limit=5")
        served = evaluate(job_of(*own), lambda *_: None)
        warm = evaluate(job_of(*own, "temperature=0.7", "seed=11", "+model.extra_body.top_k=-1"), lambda *_: None)
    local = evaluate(job_of("task.limit=5", "model.batch_size=1"), lambda *_: None)
    assert [s.responses for s in served.samples] == [s.responses for s in local.samples]
    bodies = [request["body"] for request in seen]
    assert len(bodies) == 10
    assert {b["temperature"] for b in bodies[:5]} == {0.0}
    assert {(b["temperature"], b["top_p"], b["top_k"]) for b in bodies[5:]} == {(0.7, 1.0, -1)}
    assert len({b["seed"] for b in bodies}) == 10, "one seed for each prompt of each run"
    assert not any("do_sample" in b or "num_beams" in b for b in bodies), "fields that the interface does not know"
    (sent,) = warm.decoding["sent"]
    assert {k: v for k, v in bodies[5].items() if k not in ("prompt", "seed")} == sent, "recorded as sent"
    assert seen[0]["headers"]["Authorization"] == "Bearer sk-topsecrettopsecret"
    assert "topsecret" not in str(warm)


def test_the_samples_of_a_document_have_seeds_of_their_own_and_repeat(model_folder):
    with serving(model_folder) as (url, seen):
        own = ("model=server", f"model.base_url={url}", "model.pretrained=smol", "temperature=1.2")
        job = job_of(*own, "task.limit=2", "task.samples=3")
        first, again = (evaluate(job, lambda *_: None) for _ in range(2))
    assert [s.responses for s in first.samples] == [s.responses for s in again.samples]
    assert any(len(set(s.responses)) > 1 for s in first.samples)
    seeds = {}
    for body in (request["body"] for request in seen):
        seeds.setdefault(body["prompt"], []).append(body["seed"])
    assert all(len(of_prompt) == 6 and len(set(of_prompt)) == 3 for of_prompt in seeds.values())


def test_log_likelihoods_of_a_server_need_a_tokenizer(model_folder):
    with serving(model_folder) as (url, seen):
        own = ("model=server", f"model.base_url={url}", "model.pretrained=x", "task=sample_choice")
        with pytest.raises(BadInput, match=r"model.tokenizer must name its tokenizer"):
            evaluate(job_of(*own), lambda *_: None)
        assert seen == []


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (500, b"oops", "the server answers 500: oops"),
        (404, b"<html>", "the server answers 404: <html>"),
        (200, b'{"error": "no such model"}', "no answer of such an endpoint"),
        (200, b'{"choices": []}', "no answer of such an endpoint"),
        (200, b'{"choices": [{"index": 0, "text": null}]}', "no answer of such an endpoint"),
    ],
)
def test_a_server_that_answers_badly_is_one_line_and_the_traceback_is_in_the_log(run, tmp_path, status, body, told):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1/completions"
        own = (
            "model=server",
            f"model.base_url={url}",
            "model.pretrained=x",
            "task.limit=3",
            "tracking=off",
            "model.retries=0",
        )
        done = run(*own, "hydra.run.dir=out")
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert f"model.base_url={url}" in line
    assert told in line
    assert "Traceback" in (tmp_path / "out" / "evalsweep.log").read_text()


def test_a_server_that_is_not_there_is_one_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/completions"
    with pytest.raises(BadInput, match=r"model.base_url=.*no server answers there"):
        evaluate(job_of("model=server", f"model.base_url={url}", "model.pretrained=x"), lambda *_: None)


def scoring(folder):
    """A completions endpoint of a local model that echoes token ids with their log-probabilities, as vLLM does."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def answer(asked):
        ids = asked.body["prompt"]
        # a text is tokenized by the server, begin token included; ids are taken as they are
        ids = ids if isinstance(ids, list) else list(tokenizer(ids)["input_ids"])
        with torch.no_grad():
            found = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        own = [None] + [float(found[i, token]) for i, token in enumerate(ids[1:])]
        best = [None] + [{"x": float(found[i].max())} for i in range(len(ids) - 1)]
        logprobs = {"token_logprobs": [*own, -1.0], "top_logprobs": [*best, {"x": -1.0}]}
        return Reply({"choices": [{"index": 0, "text": "", "finish_reason": "length", "logprobs": logprobs}]})

    return endpoint(answer)


def test_log_likelihoods_of_a_tokenizer_that_adds_a_begin_token_are_those_of_the_model(begins):
    own = ("task=sample_choice", "task.limit=3")
    local = evaluate(job_of("model=hf", f"model.pretrained={begins}", *own), lambda *_: None)
    with scoring(begins) as (url, seen):
        server = (
            "model=server",
            f"model.base_url={url}/v1/completions",
            "model.pretrained=m",
            f"model.tokenizer={begins}",
        )
        served = evaluate(job_of(*server, *own), lambda *_: None)
    begin = AutoTokenizer.from_pretrained(begins).bos_token_id
    assert all(asked.body["prompt"][0] == begin and asked.body["prompt"][1] != begin for asked in seen)
    for a, b in zip(served.samples, local.samples, strict=True):
        assert a.responses == pytest.approx(b.responses, abs=1e-4)
        assert a.scores == b.scores


@pytest.mark.parametrize("task", ["sample", "sample_choice"])
def test_what_is_cut_from_a_prompt_that_is_too_long_is_what_the_record_says(begins, task):
    with scoring(begins) as (url, seen):
        own = (
            "model=server",
            f"model.base_url={url}/v1/completions",
            "model.pretrained=m",
            f"model.tokenizer={begins}",
        )
        given = (f"task={task}", "task.limit=1", "model.max_length=20", "task.num_fewshot=4")
        (sample,) = evaluate(job_of(*own, *given), lambda *_: None).samples
    assert "truncated" in sample.flags
    whole = AutoTokenizer.from_pretrained(begins)(sample.prompt)["input_ids"]
    for asked in seen:
        if task == "sample":
            assert asked.body["prompt"] == whole[sample.lost["tokens"] :]
        assert len(asked.body["prompt"]) + asked.body["max_tokens"] <= 20
    if task == "sample_choice":  # of the longest choice
        target = AutoTokenizer.from_pretrained(begins)(" A", add_special_tokens=False)["input_ids"]
        longest = max(len(asked.body["prompt"]) for asked in seen)
        assert longest == 19
        assert sample.lost["tokens"] >= len(whole) + len(target) - 1 - longest


def test_a_server_that_does_not_echo_token_ids_is_refused_and_nothing_is_scored(begins):
    logprobs = {"token_logprobs": [-1.0], "top_logprobs": [{"x": -1.0}]}
    reply = Reply({"choices": [{"index": 0, "text": "a", "finish_reason": "length", "logprobs": logprobs}]})
    with (
        endpoint(lambda _: reply) as (url, _),
        pytest.raises(BadInput, match="does not echo prompts given as token ids"),
    ):
        server = (
            "model=server",
            f"model.base_url={url}/v1/completions",
            "model.pretrained=m",
            f"model.tokenizer={begins}",
        )
        evaluate(job_of(*server, "task=sample_choice", "task.limit=1"), lambda *_: None)


def test_a_chat_template_is_applied_on_this_side_and_text_is_sent(model_folder):
    own = ("task.limit=1", "model.apply_chat_template=true", "prompt=helpful_assistant")
    local = evaluate(job_of(*own), lambda *_: None)
    with endpoint(lambda _: completed("12")) as (url, seen):
        server = ("model=server", f"model.base_url={url}/v1/completions", "model.pretrained=m")
        evaluate(job_of(*server, f"model.tokenizer={model_folder}", *own), lambda *_: None)
    assert seen[0].body["prompt"] == local.samples[0].prompt
    assert "<|im_start|>system\nYou are a helpful assistant" in seen[0].body["prompt"]


@pytest.fixture(scope="module")
def begins(zoo):
    """A tiny random model with a SentencePiece tokenizer that adds a begin token."""
    return zoo.model("llama", "sentencepiece_v1")
