"""`model=server` against a real completions endpoint."""

from __future__ import annotations

import socket

import pytest
from completions_server import serving
from conftest import job_of

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
    assert {(b["temperature"], b["seed"], b["top_p"], b["top_k"]) for b in bodies[5:]} == {(0.7, 11, 1.0, -1)}
    assert not any("do_sample" in b or "num_beams" in b for b in bodies), "fields that the interface does not know"
    (sent,) = warm.decoding["sent"]
    assert {k: v for k, v in bodies[5].items() if k != "prompt"} == sent, "recorded as sent"
    assert seen[0]["headers"]["Authorization"] == "Bearer sk-topsecrettopsecret"
    assert "topsecret" not in str(warm)


def test_a_server_that_is_not_there_is_one_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1/completions"
    with pytest.raises(BadInput, match=r"model.base_url=.*no server answers there"):
        evaluate(job_of("model=server", f"model.base_url={url}", "model.pretrained=x"), lambda *_: None)
