"""Checks of a configuration against its backend, before anything is loaded.

Nothing here imports torch, transformers or lm_eval, but for what a backend's own `look` needs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from evalsweep.config import DecodingConfig, JobConfig
from evalsweep.engine.models.backends import KINDS, SUPERFLUOUS, Kind, changed, kind_of, warped
from evalsweep.errors import BadInput


def look(jobs: Sequence[JobConfig]) -> None:
    """Look at the models of a sweep before its first job: folders, servers, templates and what they do to the prompt.

    Errors: BadInput for the first model that could not but fail.
    """
    seen: set[str] = set()
    for job in jobs:
        key = repr((job.model, job.prompt.system, job.prompt.placement))
        if key not in seen:
            seen.add(key)
            _look(job)


def _look(job: JobConfig) -> None:
    for key, value in (("pretrained", job.model.pretrained), ("adapter", job.model.adapter)):
        if value and value.startswith(("/", "./", "../", "~")) and not job.model.base_url:
            _need_folder(f"model.{key}", value)
    kind = kind_of(job.model)
    # a backend of lm_eval's has a tokenizer that only it knows
    if kind.can.template == "here" and job.model.apply_chat_template and "tokenizer" in kind.keys:
        importlib.import_module("evalsweep.engine.models.template").look(job)
    if kind.looks:
        # seconds of imports, which the first job would need anyway
        importlib.import_module(f"evalsweep.engine.models.{kind.module}").look(job)


def _need_folder(key: str, path: str) -> None:
    if not Path(path).expanduser().exists():
        raise BadInput(f"{key}={path}", "there is no such folder", f"{key}=/models/my-model")


def check(job: JobConfig) -> None:
    """Refuse a configuration that its backend cannot act on.

    Errors: BadInput, with the value, what is allowed, and something that works.
    """
    model, kind = job.model, kind_of(job.model)
    for key in kind.required:
        if not getattr(model, key):
            needed = " and ".join(f"model.{k} ({what})" for k, what in kind.required.items())
            verb = "are" if len(kind.required) > 1 else "is"
            raise BadInput(f"model={model.name}", f"{needed} {verb} needed", kind.example)
    for key, value in changed(model).items():
        if key not in kind.keys and key not in SUPERFLUOUS:
            known = ", ".join(name for name, other in KINDS.items() if key in other.keys)
            raise BadInput(f"model.{key}={value}", f"cannot act on model.kind={model.kind}; it acts on {known}")
    for key in model.args:
        if key in kind.keys and kind.resident:
            raise BadInput(
                f"model.args.{key}={model.args[key]}", f"is a key of its own: model.{key}", f"model.{key}=..."
            )
    if kind.package and importlib.util.find_spec(kind.package[0]) is None:
        raise BadInput(
            f"model={model.name}", f"the package {kind.package[0]} is not installed; install it", kind.package[1]
        )
    _check_chat(job, kind)
    _check_truncation(job, kind)
    _check_body(job)
    acting = kind.can.sampling if job.temperature > 0 else kind.can.sampling | kind.can.greedy
    for key in warped(job):
        if key not in acting:
            raise BadInput(
                f"decoding.{key}={getattr(job.decoding, key)}",
                f"cannot act on model.kind={model.kind}, which takes {', '.join(sorted(acting - {'num_beams'}))}",
                f"decoding.{key}={getattr(DecodingConfig(), key)}",
            )


def _check_chat(job: JobConfig, kind: Kind) -> None:
    model = job.model
    if kind.can.template == "there" and not model.apply_chat_template:
        raise BadInput(
            "model.apply_chat_template=false",
            f"a model of kind {model.kind} gets messages and applies its template itself",
            "model=server for a completions endpoint",
        )
    if model.apply_chat_template and kind.can.prompts == "text" and "tokenizer" in kind.keys and not model.tokenizer:
        raise BadInput(
            "model.apply_chat_template=true",
            "a completions endpoint takes text, so model.tokenizer must name the tokenizer whose template is applied",
            "model.tokenizer=Qwen/Qwen3-0.6B",
        )
    if job.prompt.placement == "user" and not model.apply_chat_template:
        raise BadInput(
            "prompt.placement=user",
            "without a chat template there are no turns: the system prompt stands before the question anyway",
            "model.apply_chat_template=true",
        )


def _check_truncation(job: JobConfig, kind: Kind) -> None:
    model = job.model
    countable = kind.can.counts_tokens or ("tokenizer" in kind.keys and model.tokenizer and model.max_length)
    if job.on_truncation != "flag" and not countable:
        raise BadInput(
            f"on_truncation={job.on_truncation} model={model.name}",
            "a server does not say how long a prompt is; model=server with model.tokenizer and model.max_length counts",
            "model.tokenizer=Qwen/Qwen3-0.6B model.max_length=32768",
        )


# What evalsweep itself sends, under the names that servers know it by.
_OWN = {
    "temperature": "temperature",
    "seed": "seed",
    "stop": "the task's stop strings",
    "stop_token_ids": "the task's stop strings",
    "n": "task.samples",
    "max_tokens": "task.max_gen_toks",
    "max_completion_tokens": "task.max_gen_toks",
    "prompt": "the task",
    "messages": "the task",
    "model": "model.pretrained",
    "stream": "nothing: answers are taken whole",
    "echo": "the kind of the task",
    "logprobs": "the kind of the task",
    "best_of": "task.samples",
    "top_p": "decoding.top_p",
    "do_sample": "temperature",
}


def _check_body(job: JobConfig) -> None:
    """Refuse fields of a request that evalsweep states itself: the record would tell one value, the server another."""
    own = {**_OWN, **{key: f"decoding.{key}" for key in warped(job)}}
    for key in job.model.extra_body:
        if key in own:
            raise BadInput(
                f"model.extra_body.{key}={job.model.extra_body[key]}",
                f"would contradict what evalsweep sends and records; it is set by {own[key]}",
                "model.extra_body={chat_template_kwargs:{enable_thinking:false}}",
            )
