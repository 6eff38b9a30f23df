"""Loads causal models of transformers: whole or refused, with nothing of their own that acts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from evalsweep.config import AUTO, JobConfig, ModelConfig
from evalsweep.engine.models import embedded
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.causal import Transformers
from evalsweep.engine.models.contract import Loaded
from evalsweep.errors import BadInput, first_line
from evalsweep.provenance import folder_hash, value_hash


def device_of(model: ModelConfig) -> str:
    """The device that `auto` stands for: CUDA, else Apple's GPU, else the processor."""
    if model.device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if model.device.startswith("cuda") and not torch.cuda.is_available():
        raise BadInput(f"model.device={model.device}", "PyTorch finds no CUDA device here", "model.device=cpu")
    return model.device


def load(job: JobConfig) -> Loaded:
    """Load the model of a job.

    Errors: BadInput, one line, for whatever cannot be loaded whole.
    """
    model = job.model
    source = str(model.pretrained) if kind_of(model).required else _embedded()
    path = Path(source).expanduser()
    local = path.is_dir()
    adapter = _adapter(model, path if local else None)
    device = device_of(model)
    dtype = ("bfloat16" if device.startswith("cuda") else "float32") if model.dtype == "auto" else model.dtype
    given = {k: v for k, v in model.args.items() if k != "quantization_config"}
    if model.attn_implementation:
        given["attn_implementation"] = model.attn_implementation
    try:
        lm = Transformers(
            quantization=model.args.get("quantization_config"),
            pretrained=str(path) if local else source,
            revision=model.revision or "main",
            tokenizer=str(Path(model.tokenizer).expanduser()) if model.tokenizer else None,
            dtype=dtype,
            device=device,
            batch_size=1 if model.batch_size == AUTO else model.batch_size,
            max_length=model.max_length,
            parallelize=model.parallelize,
            trust_remote_code=model.trust_remote_code,
            gguf_file=model.gguf_file,
            peft=adapter,
            **given,
        )
    except Exception as e:  # transformers, safetensors, peft and the hub raise dozens of types; each ends as one line
        raise _refusal(source, local, model, e) from e
    _forget_generation_config(lm)
    lm.can = replace(kind_of(model).can)
    lm.declares_bos = get_tokenizer_config(lm.tokenizer.name_or_path).get("add_bos_token") is True
    config = lm.model.config
    identity = {
        "model": source if kind_of(model).required else model.name,
        "model_revision": None if local else getattr(config, "_commit_hash", None) or model.revision,
        "model_hash": folder_hash(path) if local else None,
        "model_parameters": lm.model.num_parameters(),
        "adapter": model.adapter,
        "adapter_hash": folder_hash(Path(adapter)) if adapter and Path(adapter).is_dir() else None,
        "quantization": _quantization(config),
        "attn_implementation": getattr(config, "_attn_implementation", None),
        "model_args": model.args or None,
        "dtype": str(lm.model.dtype).removeprefix("torch."),
        "device": str(lm.device),
        "max_length": lm.max_length,
        "tokenizer_hash": value_hash(lm.tokenizer.get_vocab()),
        "cuda": torch.version.cuda,
    }
    return Loaded(lm, identity)


def _quantization(config: Any) -> Any:
    found: Any = getattr(config, "quantization_config", None)
    found = found.to_dict() if hasattr(found, "to_dict") else found
    return json.loads(json.dumps(found, default=str)) if found else None


def _adapter(model: ModelConfig, folder: Path | None) -> str | None:
    """Give the adapter to load, as a folder or a hub id.

    Errors: BadInput where the model's own folder holds an adapter: transformers would load another base in its place.
    """
    if folder is not None and (folder / "adapter_config.json").is_file():
        base = json.loads((folder / "adapter_config.json").read_text()).get("base_model_name_or_path") or "BASE"
        whole = any(folder.glob("model*.safetensors")) or any(folder.glob("pytorch_model*.bin"))
        what = "an adapter beside full weights, and transformers would load neither as it is" if whole else "an adapter"
        raise BadInput(
            f"model.pretrained={model.pretrained}",
            f"the folder holds {what}; name the full model, and the folder of the adapter alone",
            f"model.pretrained={base} model.adapter={folder}",
        )
    if model.adapter is None:
        return None
    path = Path(model.adapter).expanduser()
    if path.is_dir() and not (path / "adapter_config.json").is_file():
        raise BadInput(f"model.adapter={model.adapter}", "the folder holds no adapter_config.json")
    return str(path) if path.is_dir() else model.adapter


def _embedded() -> str:
    """Find the embedded model, converted on its first use."""
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
    if isinstance(error, ImportError):
        return BadInput(given, f"needs a package that is not installed ({first_line(error)})")
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
