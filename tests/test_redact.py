from __future__ import annotations

import pytest

from evalsweep.redact import redact, redact_tree


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("tracking.uri=http://ann:s3cret@host:5000/x", "s3cret"),
        ("postgresql://ann:s3cret@db/mlflow", "ann"),
        ("+model.extra_body.api_key=abc123", "abc123"),
        ("+model.extra_body={api_key:abc123,top_k:1}", "abc123"),
        ("http://ann:s3@cret@host:5000", "cret"),
        ("http://ann:sl/ash@host", "sl/ash"),
        ("--auth-token abc123 next", "abc123"),
        ("https://host/v1?token=abc123&x=1", "abc123"),
        ("HF_TOKEN=abc123", "abc123"),
        ('{"password": "abc123"}', "abc123"),
        ("Authorization: Bearer abcdefgh12345", "abcdefgh12345"),
        ("key hf_abcdefghijklmnopqrst here", "hf_abcdefghijklmnopqrst"),
        ("sk-abcdefghijklmnopqrstuv", "sk-abcdefghijklmnopqrstuv"),
        ("the value is topsecretvalue", "topsecretvalue"),
    ],
)
def test_secrets_are_taken_out(text, secret):
    environ = {"MLFLOW_TRACKING_PASSWORD": "topsecretvalue"}
    assert secret not in redact(text, environ)


@pytest.mark.parametrize(
    "text",
    [
        "model.tokenizer=gpt2 task.max_gen_toks=256",
        "python -m evalsweep -m seed=0,42,123 temperature=0,0.2",
        "http://localhost:5000/#/experiments/1",
        "tokenizer: null",
        "512 tokens: enough",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text, {"USER": "ann", "SHORT_TOKEN": "1"}) == text


def test_nested_values_are_redacted_by_key_and_by_content():
    tree = {"extra_body": {"api_key": "x1", "top_k": 3}, "uri": ["http://a:b@h"], "tokenizer": "gpt2"}
    assert redact_tree(tree, {}) == {
        "extra_body": {"api_key": "***", "top_k": 3},
        "uri": ["http://***@h"],
        "tokenizer": "gpt2",
    }
