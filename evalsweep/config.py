"""What a job is asked to do: the schema of `conf/` and its checks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from evalsweep.errors import BadInput

MAX_SEED = 2**32 - 1
AUTO = "auto"
DTYPES = ("auto", "float32", "bfloat16", "float16")
THINKING = ("<think>", "</think>")
SCORERS = ("lm_eval", "numeric", "code", "math_verify")


@dataclass
class ModelConfig:
    """Which model answers, and how it is loaded. Which keys act on which kind: `engine/models/backends.py`."""

    name: str = "???"
    kind: str = "hf"  # embedded | hf | server | chat | vllm | lm_eval
    pretrained: str | None = None  # hub id, folder, or the server's model name
    revision: str | None = None  # branch, tag or commit on the hub
    tokenizer: str | None = None  # default: the model's own
    adapter: str | None = None  # a LoRA or another adapter of PEFT: a folder or a hub id
    gguf_file: str | None = None  # the GGUF file in the folder or repository of the model
    attn_implementation: str | None = None  # eager | sdpa | flash_attention_2 | ...; default: transformers' choice
    args: dict[str, Any] = field(default_factory=dict)  # further arguments of from_pretrained, LLM or lm_eval's backend
    backend: str | None = None  # kind lm_eval: the name of its backend
    dtype: str = "auto"  # auto: bfloat16 on CUDA, float32 elsewhere
    device: str = "auto"  # auto | cpu | cuda | cuda:N | mps
    batch_size: Any = 16  # answers that grow at once, or auto: as many as fit
    tie_tolerance: float | None = None  # logits closer than this are decided by the row alone; default: by dtype
    max_length: int | None = None  # tokens of prompt and answer together; default: the model's own
    parallelize: bool = False  # spread the layers over all GPUs
    trust_remote_code: bool = False
    apply_chat_template: bool = False
    template_args: dict[str, Any] = field(default_factory=dict)  # of the chat template, such as enable_thinking: false
    thinking: list[str] = field(default_factory=lambda: list(THINKING))  # tags around what is not scored; [] for none
    max_thinking_toks: int | None = None  # tokens for the thinking part, beside task.max_gen_toks for the answer
    base_url: str | None = None  # of a server, for example http://localhost:8000/v1/completions
    num_concurrent: int = 4  # of a server: requests in flight
    retries: int = 6  # of a server: further tries of a request that it refuses for the moment
    timeout: float = 600.0  # of a server: seconds that it may be silent
    extra_body: dict[str, Any] = field(default_factory=dict)  # of a server: further fields of each request


@dataclass
class TaskConfig:
    """Which questions are asked, how many, and which score is the headline."""

    name: str = "???"
    scorer: str | None = None  # lm_eval | numeric | code | math_verify; default: the benchmark's own, else lm_eval
    include_path: str | None = None  # folder with definitions of tasks for lm_eval, as of its flag --include_path
    data: str | None = None  # folder with <split>.jsonl; default: bundled files or the hub
    limit: int | None = None  # documents a task (a subject of a group is a task); default: all
    num_fewshot: int | None = None  # default: the task's own
    samples: int = 1  # answers per document; at temperature 0 there is one
    samples_of: dict[str, int] = field(default_factory=dict)  # by the name of the task, in place of samples
    k: list[int] = field(default_factory=list)  # pass@k and maj@k, k <= samples; default: 1, 5, 10 and maj@samples
    max_gen_toks: int | None = None  # default: the task's own
    gen_prefix: str | None = None  # words that every answer begins with, also in the shots
    metric: str | None = None  # the headline, as lm_eval names it; default: the first
    group_by: str | None = None  # the field that names a document's group, as a passage; subjects are groups anyway
    unsafe_code: str = "refuse"  # refuse | allow: code that the model wrote, without a sandbox
    sandbox_packages: list[str] = field(default_factory=lambda: ["numpy"])  # what programs may import


@dataclass
class PromptConfig:
    """The system prompt: text, or a file that holds it."""

    name: str = "???"
    system: str | None = None
    file: str | None = None
    placement: str = "system"  # system | user: where a chat template gets it


@dataclass
class FewshotConfig:
    """Where the shots come from and what draws them."""

    name: str = "???"  # fixed | resampled | per_document | file | harness
    seed: int = 0  # draws the set; `resampled` ties it to the job's seed
    split: str | None = None  # default: the task's own
    path: str | None = None  # JSON Lines, for `file`


@dataclass
class DecodingConfig:
    """The generation settings beside the temperature; the defaults change nothing in the distribution."""

    do_sample: bool = False
    num_beams: int = 1
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    epsilon_cutoff: float = 0.0
    eta_cutoff: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0


@dataclass
class EngineConfig:
    """How answers are come by; nothing here moves a score."""

    share: bool = True  # ask equal requests once, all jobs together, and read once what prompts share
    reuse: str | None = None  # folder of an earlier sweep, whose answers are taken where they are to equal requests


@dataclass
class TrackingConfig:
    """Where runs are mirrored to."""

    name: str = "???"  # mlflow | off
    uri: str | None = None  # default: sqlite:///mlflow.db in the working directory
    experiment: str = "evalsweep"
    note: str | None = None  # Markdown, put before the run's own note


@dataclass
class JobConfig:
    """One point of the grid, whole."""

    model: ModelConfig = field(default_factory=ModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    fewshot: FewshotConfig = field(default_factory=FewshotConfig)
    on_truncation: str = "flag"  # flag | error | drop_shots: for prompts that are too long for the model
    temperature: float = 0.0
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    seed: int = 0
    engine: EngineConfig = field(default_factory=EngineConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)


def decoding_at(temperature: float) -> dict[str, Any]:
    """All that a temperature option stands for: greedy with one beam at 0, plain sampling above.

    Errors: none; `temperature` must be finite and not negative (see `parse_temperature`).
    """
    return {"temperature": temperature, "decoding": asdict(DecodingConfig(do_sample=temperature > 0))}


def samples_at(job: JobConfig) -> int:
    """Give how many answers a document gets: greedy ones are all the same, so at temperature 0 there is one."""
    return job.task.samples if job.temperature > 0 else 1


def parse_seed(text: str) -> int:
    """A seed from its text; ValueError with what is allowed."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= MAX_SEED:
        raise ValueError(f"a seed is a whole number from 0 to {MAX_SEED}")
    return value


def parse_temperature(text: str) -> float:
    """A temperature from its text; ValueError with what is allowed.

    Ten significant digits are kept: `range(0,1,0.2)` yields 0.6000000000000001 where 0.6 is meant.
    """
    try:
        value = float(f"{float(text):.10g}")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("a temperature is a number of 0 or more")
    return value


def validate(job: JobConfig) -> None:
    """Refuse what the types let through.

    Errors: BadInput, with the value, what is allowed, and something that works.
    """
    for name, parse, example in (
        ("seed", parse_seed, "seed=42"),
        ("temperature", parse_temperature, "temperature=0.2"),
    ):
        try:
            parse(str(getattr(job, name)))
        except ValueError as e:
            raise BadInput(f"{name}={getattr(job, name)}", str(e), example) from None
    _check_decoding(job)
    _check_model(job.model)
    _check_task(job)
    _one_of("on_truncation", job.on_truncation, ("flag", "error", "drop_shots"))
    _check_sources(job)


def _check_decoding(job: JobConfig) -> None:
    if job.decoding.do_sample != (job.temperature > 0):
        raise BadInput(
            f"temperature={job.temperature:g} with decoding.do_sample={str(job.decoding.do_sample).lower()}",
            "temperature 0 is greedy and every other temperature samples",
            "temperature=0.7",
        )
    d = job.decoding
    for name, good, allowed in (
        ("num_beams", d.num_beams == 1, "1: evalsweep measures greedy decoding and plain sampling"),
        ("top_k", d.top_k >= 0, "0 (off) or more"),
        ("top_p", 0 < d.top_p <= 1, "above 0 and at most 1 (off)"),
        ("min_p", 0 <= d.min_p <= 1, "from 0 (off) to 1"),
        ("typical_p", 0 < d.typical_p <= 1, "above 0 and at most 1 (off)"),
        ("epsilon_cutoff", 0 <= d.epsilon_cutoff < 1, "from 0 (off) to below 1"),
        ("eta_cutoff", 0 <= d.eta_cutoff < 1, "from 0 (off) to below 1"),
        ("repetition_penalty", 0 < d.repetition_penalty < math.inf, "above 0 (1 is off)"),
        ("no_repeat_ngram_size", d.no_repeat_ngram_size >= 0, "0 (off) or more"),
    ):
        if not good:
            raise BadInput(
                f"decoding.{name}={getattr(d, name)}",
                f"must be {allowed}",
                f"decoding.{name}={getattr(DecodingConfig(), name)}",
            )


def _check_model(model: ModelConfig) -> None:
    _one_of("model.dtype", model.dtype, DTYPES)
    for name in ("num_concurrent", "max_length", "max_thinking_toks"):
        _positive(f"model.{name}", getattr(model, name))
    size = model.batch_size
    if size != AUTO and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise BadInput(
            f"model.batch_size={size}", "must be a whole number of 1 or more, or auto", "model.batch_size=16"
        )
    if model.retries < 0:
        raise BadInput(f"model.retries={model.retries}", "must be 0 or more", "model.retries=6")
    if not 0 < model.timeout < math.inf:
        raise BadInput(f"model.timeout={model.timeout}", "must be above 0, in seconds", "model.timeout=600")
    if model.tie_tolerance is not None and not 0 <= model.tie_tolerance < math.inf:
        raise BadInput(f"model.tie_tolerance={model.tie_tolerance}", "must be 0 (off) or more", "model.tie_tolerance=0")
    if len(model.thinking) not in (0, 2) or not all(model.thinking):
        raise BadInput(
            f"model.thinking={model.thinking}",
            "must be two tags, that open and close what is not scored, or [] for none",
            "'model.thinking=[<think>,</think>]'",
        )
    device = model.device
    if device not in ("auto", "cpu", "cuda", "mps") and not (
        device.startswith("cuda:") and device.removeprefix("cuda:").isdigit()
    ):
        raise BadInput(f"model.device={device}", "must be auto, cpu, cuda, cuda:N or mps", "model.device=cuda:0")


def _check_task(job: JobConfig) -> None:
    task = job.task
    for name in ("limit", "samples", "max_gen_toks"):
        _positive(f"task.{name}", getattr(task, name))
    if task.num_fewshot is not None and task.num_fewshot < 0:
        raise BadInput(f"task.num_fewshot={task.num_fewshot}", "must be 0 or more", "task.num_fewshot=5")
    _one_of("task.unsafe_code", task.unsafe_code, ("refuse", "allow"))
    if task.scorer is not None:
        _one_of("task.scorer", task.scorer, SCORERS)
    length = job.model.max_length
    if task.max_gen_toks is not None and length is not None and task.max_gen_toks >= length:
        raise BadInput(
            f"task.max_gen_toks={task.max_gen_toks}",
            f"must be below the model's length of {length} tokens, which holds the prompt too",
            f"task.max_gen_toks={max(1, min(256, length // 4))}",
        )


def _check_sources(job: JobConfig) -> None:
    if job.prompt.name == "none" and (job.prompt.system or job.prompt.file):
        raise BadInput(
            f"prompt=none prompt.{'system' if job.prompt.system else 'file'}=...",
            "is a system prompt under the name of none",
            "prompt=text 'prompt.system=\"Answer briefly.\"'",
        )
    for name, needed in (("text", "system"), ("file", "file")):
        if job.prompt.name == name and not getattr(job.prompt, needed):
            raise BadInput(f"prompt={name}", f"prompt.{needed} is needed", f"prompt={name} prompt.{needed}=...")
    _one_of("prompt.placement", job.prompt.placement, ("system", "user"))
    _one_of("fewshot.name", job.fewshot.name, ("fixed", "resampled", "per_document", "file", "harness"))
    if (job.fewshot.name == "file") != bool(job.fewshot.path):
        raise BadInput(
            f"fewshot={job.fewshot.name} fewshot.path={job.fewshot.path}",
            "fewshot=file goes with fewshot.path, a JSON Lines file of examples, and only with it",
            "fewshot=file fewshot.path=shots.jsonl",
        )
    if not 0 <= job.fewshot.seed <= MAX_SEED:
        raise BadInput(f"fewshot.seed={job.fewshot.seed}", f"must be from 0 to {MAX_SEED}", "fewshot.seed=0")
    if job.engine.reuse and not job.engine.share:
        raise BadInput(
            f"engine.share=false engine.reuse={job.engine.reuse}",
            "exclude each other: without sharing, each job computes all of its answers",
            f"engine.reuse={job.engine.reuse}",
        )
    _one_of("tracking.name", job.tracking.name, ("mlflow", "off"))


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadInput(f"{key}={value}", f"must be one of {', '.join(allowed)}", f"{key}={allowed[0]}")


def _positive(key: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise BadInput(f"{key}={value}", "must be 1 or more", f"{key}=1")
