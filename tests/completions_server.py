"""An OpenAI-compatible completions endpoint over the embedded model: the interface of `model=server`, truly served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from endpoint import Asked, Reply, completed, endpoint


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The endpoint's address, and the requests it gets (body and headers), as they come."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    lock = threading.Lock()

    def complete(body: dict[str, Any]) -> tuple[str, str]:
        prompt = body["prompt"]  # a text, or token ids
        ids = torch.tensor([prompt if isinstance(prompt, list) else tokenizer(prompt)["input_ids"]])
        generator = torch.Generator().manual_seed(body["seed"])
        new: list[int] = []
        text = ""
        with torch.no_grad():
            for _ in range(body["max_tokens"]):
                logits = model(torch.cat([ids, torch.tensor([new], dtype=ids.dtype)], 1)).logits[0, -1]
                if body["temperature"] > 0:
                    token = torch.multinomial((logits / body["temperature"]).softmax(-1), 1, generator=generator)
                else:
                    token = logits.argmax(-1, keepdim=True)
                new.append(int(token))
                text = tokenizer.decode(new, skip_special_tokens=True)
                cuts = [text.find(stop) for stop in body["stop"] if stop in text]
                if cuts:
                    return text[: min(cuts)], "stop"
                if int(token) == tokenizer.eos_token_id:
                    return text, "stop"
        return text, "length"

    def answer(body: dict[str, Any]) -> tuple[str, str]:
        with lock:
            return complete(body)

    with answering(answer) as (url, seen):
        yield url, seen


@contextmanager
def answering(answer: Callable[[dict[str, Any]], tuple[str, str]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An endpoint whose text and reason of ending are those of `answer` to a request's body."""
    seen: list[dict[str, Any]] = []

    def reply(asked: Asked) -> Reply:
        seen.append({"body": asked.body, "headers": asked.headers})
        return completed(*answer(asked.body))

    with endpoint(reply) as (url, _):
        yield f"{url}/v1/completions", seen
