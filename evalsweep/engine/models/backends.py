"""The kinds of backends, which keys act on each, and so what the identity of a job is made of.

Nothing here imports torch, transformers or lm_eval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from evalsweep.config import DecodingConfig, JobConfig, ModelConfig
from evalsweep.engine.benchmarks import scorers
from evalsweep.engine.models.contract import Capabilities
from evalsweep.errors import BadInput
from evalsweep.identity import HARMLESS
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
SUPERFLUOUS = (
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
        frozenset((*_EVERY, "backend", "args", "batch_size", "device")) - {"max_length", "max_thinking_toks"},
        {"backend": "the name of a backend of lm_eval"},
        "model=lm_eval model.backend=sglang 'model.args={pretrained: my-model}'",
    ),
}


def kind_of(model: ModelConfig) -> Kind:
    """Give the kind of a model. Errors: BadInput for a kind that does not exist."""
    if model.kind not in KINDS:
        raise BadInput(f"model.kind={model.kind}", f"must be one of {', '.join(KINDS)}", "model.kind=hf")
    return KINDS[model.kind]


def idle(job: JobConfig) -> list[str]:
    """Name the settings that are given and cannot act, as `key=value has no effect ...`."""
    kind = kind_of(job.model)
    found = [
        f"model.{key}={redact_tree(value)} has no effect on model.kind={job.model.kind}"
        for key, value in changed(job.model).items()
        if key not in kind.keys
    ]
    if job.model.template_args and not job.model.apply_chat_template:
        found.append(f"model.template_args={job.model.template_args} has no effect without a chat template")
    if job.temperature == 0:
        found += [
            f"decoding.{key}={getattr(job.decoding, key)} has no effect at temperature 0"
            for key in warped(job)
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
        if group in HARMLESS:
            continue
        if not isinstance(values, dict):
            found[group] = values  # seed and temperature name a job even at their defaults
            continue
        found[group] = {key: value for key, value in values.items() if value != default[group][key]}
    found["model"] = {k: v for k, v in found["model"].items() if k in kind.keys and k not in _HARMLESS}
    found["decoding"] = {k: v for k, v in found["decoding"].items() if k in decoding and k != "do_sample"}
    for key in _unread(job):
        group, _, name = key.partition(".")
        found[group].pop(name, None)
    if job.task.num_fewshot == 0:
        found["fewshot"] = {"name": "fixed"}  # no shot is drawn
    if found.get("on_truncation") == default["on_truncation"]:
        del found["on_truncation"]
    return found


def _unread(job: JobConfig) -> list[str]:
    """Name the keys that nothing reads in this job, whatever their values."""
    found = ["prompt.file"]  # its text is in prompt.system
    if job.temperature == 0:
        found += ["task.samples", "task.k"]
    if job.fewshot.name == "file":
        found += ["fewshot.seed"]
    if not job.model.apply_chat_template:
        found += ["model.template_args"]
    if scorers.scorer_of(job) != scorers.CODE:
        found += ["task.sandbox_packages"]
    return found


def changed(model: ModelConfig) -> dict[str, Any]:
    """Give the keys of a model that differ from their defaults."""
    default = asdict(ModelConfig())
    return {key: value for key, value in asdict(model).items() if value != default[key]}


def warped(job: JobConfig) -> list[str]:
    """Name the decoding settings that differ from neutral ones."""
    neutral = asdict(DecodingConfig())
    return [k for k, v in asdict(job.decoding).items() if v != neutral[k] and k != "do_sample"]
