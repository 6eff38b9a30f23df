"""Causal language models of transformers: loaded whole or refused, with nothing of their own that moves a score."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import postprocess_generated_text
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from evalsweep.config import DecodingConfig, ModelConfig
from evalsweep.engine.models import embedded
from evalsweep.engine.models.draw import TOLERANCE, TOLERANCE_16_BITS, WARPERS, Settings
from evalsweep.engine.models.generation import Generator, Rounding
from evalsweep.engine.models.noise import STREAM
from evalsweep.engine.models.requests import ENDED, Request, sample_numbers
from evalsweep.engine.models.template import own_system_text
from evalsweep.errors import BadInput, first_line
from evalsweep.provenance import files_hash, value_hash

# A fixed number, not a share of what is free: the batches, and with them the rounding, depend on the prompts alone.
LOGITS_BYTES = 2 * 2**30


class _Whole:
    """A model class of transformers whose missing weights are an error: transformers itself fills them at random."""

    def __init__(self, auto: Any) -> None:
        self.auto = auto

    def from_pretrained(self, *args: Any, **kwargs: Any) -> Any:
        model, report = self.auto.from_pretrained(*args, output_loading_info=True, **kwargs)
        missing = sorted(report["missing_keys"])
        if missing:
            raise OSError(f"{len(missing)} weights are missing, {missing[0]} first")
        return model


class Transformers(HFLM):
    """lm_eval's model, with answers that do not depend on their batch, and batches that shrink as prompts grow.

    lm_eval keeps the logits of every position of a batch: 32 five-shot MMLU prompts of 2,000 tokens over a vocabulary
    of 49,152 are 12.6 GB in float32, and twice that with their log-softmax. Here one copy stays below `LOGITS_BYTES`.

    `seed` and `tolerance` (None: by dtype) are the job's. `sent` and `ended` tell of the last run: the distinct
    generation settings, and how the n-th answer of a task's document came to its end.
    """

    batch_size_per_gpu: int
    AUTO_MODEL_CLASS: Any
    seed: int = 0
    tolerance: float | None = None
    _checked: bool = False  # that the model's batches agree with its rows alone
    declares_bos: bool = False  # whether the tokenizer's configuration says that it puts a begin token

    def begin(self, seed: int, batch_size: int, tolerance: float | None) -> None:
        """Get ready for a job."""
        self.seed, self.batch_size_per_gpu, self.tolerance = seed, batch_size, tolerance
        self.sent: list[dict[str, Any]] = []
        self.ended: dict[tuple[str, int, int], str] = {}
        self.rounding = Rounding()

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        answers = [""] * len(requests)
        alike: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            alike.setdefault(repr(request.args[1]), []).append(i)
        samples = sample_numbers(requests)
        tokens: dict[str, tuple[int, ...]] = {}
        for positions in alike.values():
            settings = self._settings(requests[positions[0]].args[1])
            longest = self.max_length - settings.max_gen_toks
            wanted = []
            for i in positions:
                prompt = requests[i].args[0]
                if prompt not in tokens:
                    tokens[prompt] = tuple(self.tok_encode(prompt)) or (self.prefix_token_id,)
                wanted.append(Request(prompt, tokens[prompt][-longest:], samples[i], i))
            self._generate(wanted, settings, requests, answers)
        return answers

    def _generate(
        self, wanted: list[Request], settings: Settings, requests: list[Instance], answers: list[str]
    ) -> None:
        def tell(request: Request, new: list[int], ended: str) -> None:
            instance = requests[request.position]
            shown = new[:-1] if ended == ENDED else new  # an end token need not be one that decoding leaves out
            text = postprocess_generated_text(self.tok_decode(shown), list(settings.stop), None)
            answers[request.position] = text
            self.ended[instance.task_name, instance.doc_id, request.sample] = ended
            self.cache_hook.add_partial("generate_until", instance.args, text)

        generator = Generator(self.model, self._with_special_tokens, self.tokenizer.pad_token_id, self.rounding)
        if not self._checked:
            generator.check(self.tok_encode("The quick brown fox jumps over the lazy dog. Answer: 12"))
            self._checked = True
        generator.generate(wanted, settings, self.batch_size_per_gpu, tell)

    def _with_special_tokens(self, tokens: list[int]) -> str:
        return str(self.tok_decode(tokens, skip_special_tokens=False))

    def _settings(self, asked: dict[str, Any]) -> Settings:
        """The settings of a request, each of which acts or is refused; noted in `sent`."""
        asked = dict(asked)
        stop = [asked["until"]] if isinstance(asked["until"], str) else list(asked["until"] or [])
        neutral = {**asdict(DecodingConfig()), "temperature": 0.0, "max_gen_toks": 0, "until": []}
        if unknown := sorted(set(asked) - set(neutral)):
            raise BadInput(f"generation setting {unknown[0]}", "is not one that evalsweep's generator has")
        ends = self.model.generation_config.eos_token_id
        ends = {self.eot_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
        default = TOLERANCE.get(self.model.dtype, TOLERANCE_16_BITS)
        warpers = {k: v for k, v in asked.items() if k in WARPERS and v != neutral[k]}
        settings = Settings(
            seed=self.seed,
            temperature=float(asked["temperature"]) if asked["do_sample"] else 0.0,
            max_gen_toks=int(asked["max_gen_toks"]),
            stop=tuple(dict.fromkeys([*filter(None, stop), self.tok_decode(self.eot_token_id, False)])),
            end_tokens=frozenset(ends),
            tolerance=default if self.tolerance is None else self.tolerance,
            warpers=warpers,
        )
        sent = {
            **{k: v for k, v in asked.items() if k != "until"},
            "stop": list(settings.stop),
            "end_tokens": sorted(settings.end_tokens),
            "tie_tolerance": settings.tolerance,
            "sampler": STREAM if settings.temperature else "greedy",
        }
        if sent not in self.sent:
            self.sent.append(sent)
        return settings

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        auto: Any = self.AUTO_MODEL_CLASS
        self.AUTO_MODEL_CLASS = _Whole(auto)
        try:
            super()._create_model(*args, **kwargs)
        finally:
            self.AUTO_MODEL_CLASS = auto

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, override_bs: Any = None
    ) -> list[Any]:
        asked: int = self.batch_size_per_gpu
        bytes_per_token = 4 * int(self.model.config.get_text_config().vocab_size)
        by_prompt: dict[tuple[int, ...], list[int]] = {}  # choices of one token share their prompt's forward pass
        for i, (_, context, continuation) in enumerate(requests):
            by_prompt.setdefault(tuple(context + continuation[:-1]), []).append(i)
        prompts = sorted(by_prompt, key=lambda tokens: (-len(tokens), tokens))
        answers: list[Any] = [None] * len(requests)
        most = asked
        try:
            while prompts:
                longest = min(len(prompts[0]), self.max_length)
                size = max(1, min(most, LOGITS_BYTES // (bytes_per_token * max(1, longest))))
                indices = [i for tokens in prompts[:size] for i in by_prompt[tokens]]
                self.batch_size_per_gpu = size
                found: list[Any] | None = None
                try:
                    found = super()._loglikelihood_tokens([requests[i] for i in indices], disable_tqdm=disable_tqdm)
                except torch.OutOfMemoryError:
                    if size == 1:
                        raise
                if found is None:  # outside of the handler, whose traceback holds the tensors
                    most = self.rounding.smallest_batch = size // 2
                    if torch.cuda.is_available():
                        torch.cuda.empty_cache()
                    continue
                prompts = prompts[size:]
                for i, answer in zip(indices, found, strict=True):
                    answers[i] = answer
        finally:
            self.batch_size_per_gpu = asked
        return answers


def device_of(model: ModelConfig) -> str:
    """The device that `auto` stands for: CUDA, else Apple's GPU, else the processor."""
    if model.device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if model.device.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput(f"model.device={model.device}", "PyTorch finds no CUDA device here", "model.device=cpu")
    return model.device


def load(model: ModelConfig) -> tuple[LM, dict[str, Any]]:
    """The model, and who it is.

    Errors: BadInput, one line, for whatever cannot be loaded whole.
    """
    source = _embedded() if model.kind == "embedded" else str(model.pretrained)
    path = Path(source).expanduser()
    local = path.is_dir()
    device = device_of(model)
    dtype = ("bfloat16" if device.startswith("cuda") else "float32") if model.dtype == "auto" else model.dtype
    try:
        lm = Transformers(
            pretrained=str(path) if local else source,
            revision=model.revision or "main",
            tokenizer=str(Path(model.tokenizer).expanduser()) if model.tokenizer else None,
            dtype=dtype,
            device=device,
            batch_size=model.batch_size,
            max_length=model.max_length,
            parallelize=model.parallelize,
            trust_remote_code=model.trust_remote_code,
        )
    except Exception as e:  # transformers, safetensors and the hub raise dozens of types; each ends as one line
        raise _refusal(source, local, model, e) from e
    _forget_generation_config(lm)
    lm.declares_bos = get_tokenizer_config(lm.tokenizer.name_or_path).get("add_bos_token") is True
    template = getattr(lm.tokenizer, "chat_template", None)
    identity = {
        "model": model.name if model.kind == "embedded" else source,
        "model_revision": None if local else getattr(lm.model.config, "_commit_hash", None) or model.revision,
        "model_hash": files_hash(p for p in path.iterdir() if p.is_file()) if local else None,
        "model_parameters": lm.model.num_parameters(),
        "dtype": str(lm.model.dtype).removeprefix("torch."),
        "device": str(lm.device),
        "max_length": lm.max_length,
        "chat_template_hash": value_hash(template) if template else None,
        **(own_system_text(lm.tokenizer) if template else {}),
        "tokenizer_hash": value_hash(lm.tokenizer.get_vocab()),
        "cuda": torch.version.cuda,
    }
    return lm, identity


def _embedded() -> str:
    try:
        return embedded.locate()
    except OSError as e:
        raise BadInput(
            str(embedded.cache_folder()),
            f"the embedded model is converted into this folder, which cannot be written ({first_line(e)})",
            "EVALSWEEP_CACHE=/tmp/evalsweep",
        ) from e


def _forget_generation_config(lm: HFLM) -> None:
    """Leave only the token ids: a model's own repetition_penalty, top_k or length would leak into every run."""
    from transformers import GenerationConfig

    old = lm.model.generation_config
    if old is not None:
        ids = {k: getattr(old, k) for k in ("bos_token_id", "eos_token_id", "pad_token_id")}
        lm.model.generation_config = GenerationConfig(**ids)


def _refusal(source: str, local: bool, model: ModelConfig, error: Exception) -> BadInput:
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    names = {type(e).__name__ for e in chain}
    given = f"model.pretrained={source}"
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return BadInput(given, "does not fit on the GPU", "model.parallelize=true or model.dtype=bfloat16")
    if local:
        return BadInput(
            given,
            f"the folder cannot be loaded ({type(error).__name__}: {first_line(error)}); it must hold config.json, the "
            "tokenizer's files and whole weights",
        )
    if "GatedRepoError" in names:
        return BadInput(given, "the model is gated: ask for access on its page and set HF_TOKEN")
    if "RepositoryNotFoundError" in names:
        return BadInput(given, "the hub has no such model, or it is private: check the name, or set HF_TOKEN")
    if "RevisionNotFoundError" in names:
        return BadInput(f"model.revision={model.revision}", f"the model {source} has no such revision")
    unreachable = {
        "OfflineModeIsEnabled",
        "LocalEntryNotFoundError",
        "ConnectionError",
        "ConnectTimeout",
        "ConnectError",
    }
    if names & unreachable or isinstance(error, OSError):
        return BadInput(
            given,
            "is no folder here, not in the hub's local cache, and the hub cannot be reached; download it "
            "first, or give a folder",
            "model.pretrained=/models/my-model",
        )
    return BadInput(given, f"cannot be loaded ({type(error).__name__}: {first_line(error)})")
