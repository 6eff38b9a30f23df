"""Causal language models of transformers: loaded whole or refused, with nothing of their own that moves a score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import LM
from lm_eval.models.huggingface import HFLM

from evalsweep.config import ModelConfig
from evalsweep.engine import embedded
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
    """lm_eval's model, with log-likelihood batches that shrink as their prompts grow.

    lm_eval keeps the logits of every position of a batch: 32 five-shot MMLU prompts of 2,000 tokens over a vocabulary
    of 49,152 are 12.6 GB in float32, and twice that with their log-softmax. Here one copy stays below `LOGITS_BYTES`.
    """

    batch_size_per_gpu: int
    AUTO_MODEL_CLASS: Any

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
        try:
            while prompts:
                longest = min(len(prompts[0]), self.max_length)
                size = max(1, min(asked, LOGITS_BYTES // (bytes_per_token * max(1, longest))))
                indices = [i for tokens in prompts[:size] for i in by_prompt[tokens]]
                prompts = prompts[size:]
                self.batch_size_per_gpu = size
                found = super()._loglikelihood_tokens([requests[i] for i in indices], disable_tqdm=disable_tqdm)
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
