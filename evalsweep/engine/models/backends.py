"""The kinds of backends: which keys act on each; checks a configuration before anything is loaded.

Nothing here imports torch, transformers or lm_eval.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evalsweep.config import DecodingConfig, JobConfig, ModelConfig
from evalsweep.engine.models.contract import Capabilities
from evalsweep.errors import BadInput
from evalsweep.redact import redact_tree

_EVERY = (
    *("name", "kind", "pretrained", "max_length"),
    *("apply_chat_template", "template_args", "thinking", "max_thinking_toks"),
)
_OF_THE_JOB = ("name", "apply_chat_template", "template_args", "thinking", "max_thinking_toks")
_WEIGHTS = (
    *("revision", "tokenizer", "dtype", "device", "batch_size", "tie_tolerance", "parallelize", "trust_remote_code"),
    *("adapter", "attn_implementation", "gguf_file", "args"),
)
_CLIENT = ("tokenizer", "base_url", "num_concurrent", "retries", "timeout", "extra_body", "trust_remote_code")
# Keys that say how to reach or run a model, and cannot move a score.
_HARMLESS = ("retries", "timeout")
# Keys that are only superfluous where they cannot act; any other one was meant to change the model, and is refused.
_SUPERFLUOUS = (
    *("base_url", "num_concurrent", "retries", "timeout", "extra_body"),
    *("device", "batch_size", "tie_tolerance"),
)


@dataclass(frozen=True)
class Kind:
    """A kind of backend, as it is known before it is loaded.

    Args:
        module: the module of `evalsweep.engine.models` that has `load(job) -> Loaded`.
        can: what it can do at best; a loaded backend says it of its own model.
        keys: the keys of `model` that act on it.
        required: keys that must be given, with what they are.
        example: overrides that work.
        package: what must be installed beside evalsweep, as (import name, how to get it).
        resident: whether the model stays in memory between the jobs of a process.
        of_the_job: keys that are set anew for each job: the same weights in memory serve all of them.
        looks: whether the module has `look(job)`, which finds before the first job what could not but fail.
    """

    module: str
    can: Capabilities
    keys: frozenset[str]
    required: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    package: tuple[str, str] | None = None
    resident: bool = False
    of_the_job: frozenset[str] = frozenset((*_OF_THE_JOB, "batch_size", "tie_tolerance"))
    looks: bool = False


_COMPLETIONS = Capabilities(
    prompts="text", counts_tokens=False, knows_length=False, seeds=None, deterministic=None, together="num_concurrent"
)
_NAME = {"pretrained": "the name that the server knows the model by"}

KINDS: dict[str, Kind] = {
    "embedded": Kind("loading", Capabilities(), frozenset((*_EVERY, *_WEIGHTS)), resident=True),
    "hf": Kind(
        "loading",
        Capabilities(),
        frozenset((*_EVERY, *_WEIGHTS)),
        {"pretrained": "a folder or a hub id"},
        "model=hf model.pretrained=HuggingFaceTB/SmolLM2-135M-Instruct",
        resident=True,
    ),
    "server": Kind(
        "server",
        _COMPLETIONS,
        frozenset((*_EVERY, *_CLIENT)),
        {"base_url": "the address of a completions endpoint", **_NAME},
        "model=server model.base_url=http://localhost:8000/v1/completions model.pretrained=my-model",
        looks=True,
    ),
    "chat": Kind(
        "chat",
        Capabilities(
            prompts="messages",
            template="there",
            counts_tokens=False,
            knows_length=False,
            loglikelihoods=False,
            seeds=None,
            deterministic=None,
            together="num_concurrent",
            missing={"loglikelihoods": "a chat endpoint gives none; model=server asks a completions endpoint"},
        ),
        frozenset((*_EVERY, *_CLIENT)) - {"tokenizer", "trust_remote_code", "template_args"},
        {"base_url": "the address of a chat endpoint", **_NAME},
        "model=chat model.base_url=http://localhost:8000/v1/chat/completions model.pretrained=my-model",
        looks=True,
    ),
    "vllm": Kind(
        "vllm",
        Capabilities(
            sampling=frozenset({"do_sample", "num_beams", "top_k", "top_p", "min_p", "repetition_penalty"}),
            greedy=frozenset({"do_sample", "num_beams", "repetition_penalty"}),
        ),
        frozenset((*_EVERY, "revision", "tokenizer", "dtype", "batch_size", "trust_remote_code", "adapter", "args")),
        {"pretrained": "a folder or a hub id"},
        "model=vllm model.pretrained=HuggingFaceTB/SmolLM2-135M-Instruct",
        package=("vllm", "pip install 'evalsweep[vllm]'"),
        resident=True,
        of_the_job=frozenset(_OF_THE_JOB),
    ),
    "lm_eval": Kind(
        "foreign",
        Capabilities(
            prompts="text",
            counts_tokens=False,
            knows_length=False,
            seeds=False,
            deterministic=None,
            reports_endings=False,
        ),
        frozenset((*_EVERY, "backend", "args", "batch_size", "device")),
        {"backend": "the name of a backend of lm_eval"},
        "model=lm_eval model.backend=sglang 'model.args={pretrained: my-model}'",
    ),
}


def kind_of(model: ModelConfig) -> Kind:
    """Give the kind of a model. Errors: BadInput for a kind that does not exist."""
    if model.kind not in KINDS:
        raise BadInput(f"model.kind={model.kind}", f"must be one of {', '.join(KINDS)}", "model.kind=hf")
    return KINDS[model.kind]


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
    for key, value in _changed(model).items():
        if key not in kind.keys and key not in _SUPERFLUOUS:
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
    for key in _warped(job):
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
    own = {**_OWN, **{key: f"decoding.{key}" for key in _warped(job)}}
    for key in job.model.extra_body:
        if key in own:
            raise BadInput(
                f"model.extra_body.{key}={job.model.extra_body[key]}",
                f"would contradict what evalsweep sends and records; it is set by {own[key]}",
                "model.extra_body={chat_template_kwargs:{enable_thinking:false}}",
            )


def idle(job: JobConfig) -> list[str]:
    """Name the settings that are given and cannot act, as `key=value has no effect ...`."""
    kind = kind_of(job.model)
    found = [
        f"model.{key}={redact_tree(value)} has no effect on model.kind={job.model.kind}"
        for key, value in _changed(job.model).items()
        if key not in kind.keys
    ]
    if job.temperature == 0:
        found += [
            f"decoding.{key}={getattr(job.decoding, key)} has no effect at temperature 0"
            for key in _warped(job)
            if key not in kind.can.greedy
        ]
    return found


def acting(job: JobConfig) -> dict[str, Any]:
    """Give the part of a configuration that can move a score: the keys that act and differ from their defaults.

    A key that a later release adds is left out as long as it has its default, so that it renames no job.
    """
    kind = kind_of(job.model)
    greedy = job.temperature == 0
    decoding = kind.can.greedy if greedy else kind.can.sampling
    given, default = asdict(job), asdict(JobConfig())
    found: dict[str, Any] = {}
    for group, values in given.items():
        if group == "tracking":
            continue
        if not isinstance(values, dict):
            found[group] = values  # seed and temperature name a job even at their defaults
            continue
        found[group] = {key: value for key, value in values.items() if value != default[group][key]}
    found["model"] = {k: v for k, v in found["model"].items() if k in kind.keys and k not in _HARMLESS}
    found["decoding"] = {k: v for k, v in found["decoding"].items() if k in decoding and k != "do_sample"}
    if greedy:
        found["task"].pop("samples", None)
    if job.fewshot.name == "file":
        found["fewshot"].pop("seed", None)
    if found.get("on_truncation") == default["on_truncation"]:
        del found["on_truncation"]
    return found


def _changed(model: ModelConfig) -> dict[str, Any]:
    default = asdict(ModelConfig())
    return {key: value for key, value in asdict(model).items() if value != default[key]}


def _warped(job: JobConfig) -> list[str]:
    """Name the decoding settings that differ from neutral ones."""
    neutral = asdict(DecodingConfig())
    return [k for k, v in asdict(job.decoding).items() if v != neutral[k] and k != "do_sample"]
