"""Any OpenAI-compatible completions endpoint as the model."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import requests
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.models.openai_completions import LocalCompletionsAPI

from evalsweep.config import ModelConfig
from evalsweep.engine.models.requests import CAPPED, ENDED, sample_numbers
from evalsweep.errors import BadInput, first_line
from evalsweep.provenance import text_hash

DEFAULT_LENGTH = 2048


class _Answer(str):
    """A text, and why the server ended it."""

    ended: str


class Completions(LocalCompletionsAPI):
    """lm_eval's client, which sends what was asked and nothing else, and for each prompt and sample a seed of its own.

    A server that honours seeds would otherwise answer the n samples of a document with n times the same text.
    """

    def __init__(self, *, seed: int, extra_body: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.sample = 0
        self.extra_body = dict(extra_body)
        self.counted_length: int | None = None  # tokens that the model takes, where its tokenizer is here to count them
        self.sent: list[dict[str, Any]] = []
        self.ended: dict[tuple[str, int, int], str] = {}

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        rounds: dict[int, list[int]] = {}
        for position, sample in enumerate(sample_numbers(requests)):
            rounds.setdefault(sample, []).append(position)
        answers = [""] * len(requests)
        for sample, positions in rounds.items():
            self.sample = sample
            found = super().generate_until([requests[i] for i in positions], disable_tqdm=disable_tqdm)
            for position, answer in zip(positions, found, strict=True):
                answers[position] = str(answer)
                request = requests[position]
                self.ended[request.task_name, request.doc_id, sample] = getattr(answer, "ended", ENDED)
        return answers

    def _create_payload(self, messages: Any, *args: Any, generate: bool = False, **kwargs: Any) -> dict[str, Any]:
        if generate:
            kwargs["seed"] = int(text_hash(f"{self.seed}|{self.sample}|{messages}"), 16) % 2**31
        payload: dict[str, Any] = super()._create_payload(messages, *args, generate=generate, **kwargs)
        payload |= self.extra_body
        settings = {k: v for k, v in payload.items() if k not in ("prompt", "seed")}
        if generate and settings not in self.sent:
            self.sent.append(settings)
        return payload

    @staticmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[str]:
        texts: list[str] = LocalCompletionsAPI.parse_generations(outputs, **kwargs)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"an answer without text: {str(outputs)[:200]}")
        (choice,) = (outputs[0] if isinstance(outputs, list) else outputs)["choices"]
        answer = _Answer(texts[0])
        answer.ended = CAPPED if choice.get("finish_reason") == "length" else ENDED
        return [answer]


@contextmanager
def served(model: ModelConfig) -> Iterator[None]:
    """A server that breaks off, refuses, or answers in another form becomes one line."""
    if model.kind != "server":
        yield
        return
    try:
        yield
    except BadInput:
        raise
    except (aiohttp.ClientError, TimeoutError, requests.RequestException) as e:
        raise _broken(model, f"the server broke off or refused a request ({type(e).__name__}: {first_line(e)})") from e
    except (ValueError, KeyError, TypeError, IndexError) as e:
        raise _broken(
            model, f"this is no answer of a completions endpoint ({type(e).__name__}: {first_line(e)})"
        ) from e


def _broken(model: ModelConfig, problem: str) -> BadInput:
    return BadInput(f"model.base_url={model.base_url}", f"{problem}; the server's own log says why")


def reach(base_url: str) -> str:
    """Host and port of a server that answers.

    Errors: BadInput where nobody does.
    """
    try:
        url = urlsplit(base_url)
        port = url.port or {"https": 443, "http": 80}[url.scheme]
        with socket.create_connection((str(url.hostname), port), timeout=10):
            return f"{url.hostname}:{port}"
    except (OSError, KeyError, ValueError) as e:
        raise BadInput(
            f"model.base_url={base_url}",
            f"no server answers there ({first_line(e)}); start it, or mend the address",
            "model.base_url=http://localhost:8000/v1/completions",
        ) from e


def connect(model: ModelConfig, seed: int) -> tuple[LM, dict[str, Any]]:
    """A client for the server, and what is known of it.

    Errors: BadInput where nobody answers.
    """
    where = reach(str(model.base_url))
    lm = Completions(
        seed=seed,
        extra_body=model.extra_body,
        base_url=model.base_url,
        model=model.pretrained,
        tokenizer=str(Path(model.tokenizer).expanduser()) if model.tokenizer else None,
        tokenizer_backend="huggingface" if model.tokenizer else "none",
        tokenized_requests=False,
        batch_size=1,  # one seed a request, and so one request a document
        num_concurrent=model.num_concurrent,
        max_length=model.max_length or DEFAULT_LENGTH,
    )
    if model.tokenizer and model.max_length:
        lm.counted_length = model.max_length
    identity = {
        "model": model.pretrained,
        "model_revision": model.revision,
        "model_hash": None,
        "dtype": "unknown: the server decides",
        "device": f"server {where}",
        "max_length": model.max_length or DEFAULT_LENGTH,
        "request_seeds": "SHA-256 of seed|sample|prompt, first 64 bits modulo 2**31",
        "chat_template_hash": None,
        "cuda": None,
    }
    return lm, identity
