"""vLLM in this process as the model: continuous batching, prefix caching, a seed for each answer.

Measured with vLLM 0.32 on a CPU: the n answers of one request with seed s are those of n requests with seeds s, s + 1,
..., and in float32 neither company nor order changes them. `docs/log.md` has the figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from evalsweep.config import AUTO, JobConfig, ModelConfig
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.contract import Loaded
from evalsweep.engine.models.lm_eval_requests import told
from evalsweep.engine.models.requests import CAPPED, ENDED, GENERATE, STOPPED, Answer, Request, Tell, stops
from evalsweep.engine.models.text import Detokenizer
from evalsweep.engine.models.thinking import Thinking
from evalsweep.engine.models.tokenized import Tokenized
from evalsweep.errors import BadInput, first_line
from evalsweep.provenance import folder_hash, text_hash, value_hash
from evalsweep.record import Alarm

SEEDS = "SHA-256 of seed|prompt, first 64 bits modulo 2**31, plus the number of the sample"
COLDEST = 0.01  # vLLM raises smaller temperatures to this one
INVARIANT = "VLLM_BATCH_INVARIANT"


class Vllm(Tokenized):
    """A model in vLLM. `llm` is vLLM's own object, `lora` its request for an adapter, or None."""

    thinking: Thinking

    def __init__(self, llm: Any, lora: Any, model: ModelConfig) -> None:
        super().__init__()
        self.llm, self.lora = llm, lora
        self.tokenizer = llm.get_tokenizer()
        self.text = Detokenizer(self.tokenizer)
        self.max_length = int(llm.llm_engine.model_config.max_model_len)
        self.can = replace(kind_of(model).can, deterministic=True if is_invariant() else None)

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job; see `contract.Backend`. Errors: BadInput for a temperature that vLLM would change."""
        if 0 < job.temperature < COLDEST:
            raise BadInput(
                f"temperature={job.temperature:g} model=vllm", f"vLLM would raise it to {COLDEST}", "temperature=0.01"
            )
        self.thinking_toks = job.model.max_thinking_toks or 0
        self.thinking = Thinking(tuple(job.model.thinking))
        return self.begin_template(job)

    def close(self) -> None:
        """Shut the engine down, which would else keep its weights and its cache of 4 GiB and more."""
        self.llm.llm_engine.engine_core.shutdown()

    def numbers(self, answers: Sequence[Answer]) -> dict[str, float | None]:
        """Add up the tokens that were generated."""
        return {"tokens": float(sum(a.counts.get("tokens", 0) for a in answers))}

    def details(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Report how answers get their seeds."""
        return {"request_seeds": SEEDS}

    def alarms(self, job: JobConfig, answers: Sequence[Answer]) -> list[Alarm]:
        """Report that answers may depend on their company, where vLLM does not promise that they do not."""
        found = self.template.alarms(job.task.name) if self.template else []
        if self.can.deterministic:
            return found
        line = (
            f"vLLM's answers of {job.task.name} may depend on what is computed beside them: {INVARIANT}=1 prevents "
            "that, on a GPU of compute capability 8.0 or more"
        )
        return [*found, Alarm("batch_dependent", line)]

    def look_at(self, prompt: str) -> None:
        """Compare a prompt with its tokens; see `contract.Backend`."""
        if self.template is not None:
            self.template.compare(prompt, self.encode)

    def answer(self, requests: Sequence[Request], tell: Tell) -> None:
        """Answer requests of one kind; see `contract.Backend`."""
        if requests[0].kind != GENERATE:
            told(self, requests, tell)
            return
        again = self._ask(_runs(requests), tell, stopping=True)
        self._ask(again, tell, stopping=False)

    def _ask(self, groups: Sequence[list[Request]], tell: Tell, stopping: bool) -> list[list[Request]]:
        """Answer groups of requests, a prompt each; give those that were stopped where stop strings do not count."""
        if not groups:
            return []
        prompts = [{"prompt_token_ids": self._prompt(group[0])} for group in groups]
        settings = [self._settings(group, stopping) for group in groups]
        found = self.llm.generate(prompts, settings, use_tqdm=False, lora_request=self.lora)
        again = []
        for group, prompt, output in zip(groups, prompts, found, strict=True):
            for request, choice in zip(group, sorted(output.outputs, key=lambda o: o.index), strict=True):
                opened = self.opens_thinking(request.prompt, self.thinking.tags)
                text, ended = self._text(prompt["prompt_token_ids"], choice)
                if stopping and ended == STOPPED and self.thinking.is_within_quiet(text, request.settings, opened):
                    again.append([request])
                    continue
                text = self.thinking.cut(text, request.settings, opened)
                counts = {"tokens": float(len(choice.token_ids))}
                tell(request, self.thinking.answer(text, ended, opened, counts=counts))
        return again

    def _prompt(self, request: Request) -> list[int]:
        room = int(self.max_length or 0) - int(request.settings["max_gen_toks"]) - self.thinking_toks
        tokens = self.encode(request.prompt) or [self.prefix_token_id]
        return tokens[-room:]

    def sent(self, request: Request) -> dict[str, Any]:
        """Give the settings of a request as they are sent; see `contract.Backend`."""
        asked = request.settings
        return {
            "temperature": float(asked["temperature"]) if asked["do_sample"] else 0.0,
            **{k: v for k, v in asked.items() if k in ("top_p", "top_k", "min_p", "repetition_penalty")},
            "max_tokens": int(asked["max_gen_toks"]) + self.thinking_toks,
            "stop": stops(asked),
            "max_thinking_toks": self.thinking_toks or None,
        }

    def _settings(self, group: Sequence[Request], stopping: bool) -> Any:
        from vllm import SamplingParams

        first = group[0]
        sent = {k: v for k, v in self.sent(first).items() if k != "max_thinking_toks"}
        base = int(text_hash(f"{first.seed}|{first.prompt}"), 16) % 2**31
        return SamplingParams(
            **{**sent, "stop": sent["stop"] if stopping else []},
            n=len(group),
            seed=None if first.seed is None else base + first.sample,
            skip_special_tokens=False,
            spaces_between_special_tokens=False,
        )

    def _text(self, prompt: list[int], choice: Any) -> tuple[str, str]:
        """Give an answer's text and how it ended; vLLM's own text is not used: special tokens must be told apart."""
        tokens = list(choice.token_ids)
        ended = CAPPED if choice.finish_reason == "length" else ENDED
        if isinstance(choice.stop_reason, str):
            ended = STOPPED
        elif ended == ENDED and tokens:
            tokens.pop()  # the end token
        return self.text.plain(prompt, tokens, self.thinking.tags), ended

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, **_: Any
    ) -> list[tuple[float, bool]]:
        """Score continuations: each request is (its texts, ids of the context, ids of the continuation)."""
        from vllm import SamplingParams

        room = int(self.loglikelihood_length or 0)
        prompts = [{"prompt_token_ids": [*context, *continuation][-room:]} for _, context, continuation in requests]
        settings = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1)
        found = self.llm.generate(prompts, settings, use_tqdm=False, lora_request=self.lora)
        answers = []
        for (texts, _context, continuation), output in zip(requests, found, strict=True):
            ids = output.prompt_token_ids[-len(continuation) :]
            entries = [at[token] for at, token in zip(output.prompt_logprobs[-len(ids) :], ids, strict=True)]
            answers.append((float(sum(e.logprob for e in entries)), all(e.rank == 1 for e in entries)))
            self.cache_hook.add_partial("loglikelihood", texts, answers[-1])
        return answers


def _runs(requests: Sequence[Request]) -> list[list[Request]]:
    """Part requests into what vLLM takes as one: a prompt, settings, a seed, and samples that follow each other."""

    def alike(request: Request) -> tuple[str, str, str]:
        return request.prompt, repr(sorted(request.settings.items())), str(request.seed)

    groups: list[list[Request]] = []
    for request in sorted(requests, key=lambda r: (alike(r), r.sample)):
        last = groups[-1][-1] if groups else None
        if last is not None and alike(last) == alike(request) and last.sample + 1 == request.sample:
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups


def is_invariant() -> bool:
    """Tell whether vLLM is asked to make answers independent of their batch."""
    return os.environ.get(INVARIANT, "0") == "1"


def load(job: JobConfig) -> Loaded:
    """Load a model into vLLM.

    Errors: BadInput, one line, for whatever cannot be loaded.
    """
    model = job.model
    on_gpu = torch.cuda.is_available()
    if on_gpu and torch.cuda.get_device_capability() >= (8, 0):
        os.environ.setdefault(INVARIANT, "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # else a caller needs `if __name__ == "__main__"`
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if not on_gpu:
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # threads bound to busy cores wait for each other
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")  # GiB; else vLLM wants 92% of the machine's memory
    path = Path(str(model.pretrained)).expanduser()
    source = str(path) if path.is_dir() else str(model.pretrained)
    try:
        import vllm
        from vllm.lora.request import LoRARequest

        settings = _settings(model, source, on_gpu)
        llm = vllm.LLM(**settings)
    except Exception as e:  # vLLM raises dozens of types; each ends as one line
        raise BadInput(
            f"model.pretrained={model.pretrained}", f"vLLM cannot load it ({type(e).__name__}: {first_line(e)})"
        ) from e
    adapter = Path(model.adapter).expanduser() if model.adapter else None
    lm = Vllm(llm, LoRARequest("adapter", 1, str(adapter)) if adapter else None, model)
    identity = {
        "model": model.pretrained,
        "model_revision": None if path.is_dir() else model.revision,
        "model_hash": folder_hash(path) if path.is_dir() else None,
        "adapter": model.adapter,
        "adapter_hash": folder_hash(adapter) if adapter and adapter.is_dir() else None,
        "model_args": settings,
        "vllm": vllm.__version__,
        "batch_invariant": is_invariant(),
        "dtype": str(llm.llm_engine.model_config.dtype).removeprefix("torch."),
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "max_length": lm.max_length,
        "tokenizer_hash": value_hash(lm.tokenizer.get_vocab()),
        "cuda": torch.version.cuda,
    }
    return Loaded(lm, identity)


def _settings(model: ModelConfig, source: str, on_gpu: bool) -> dict[str, Any]:
    """Give the arguments of `vllm.LLM`; those of the user go first."""
    settings: dict[str, Any] = {
        "model": source,
        "revision": model.revision,
        "tokenizer": model.tokenizer,
        "dtype": ("auto" if on_gpu else "float32") if model.dtype == "auto" else model.dtype,
        "max_model_len": model.max_length,
        **({} if model.batch_size == AUTO else {"max_num_seqs": model.batch_size}),
        "trust_remote_code": model.trust_remote_code,
        "enable_prefix_caching": True,
        "seed": 0,
    }
    if not on_gpu:
        # a seeded request whose prompt comes in chunks dies on the CPU: a prompt must fit into one
        config = AutoConfig.from_pretrained(source, trust_remote_code=model.trust_remote_code).get_text_config()
        longest = model.max_length or int(getattr(config, "max_position_embeddings", 0)) or 8192
        settings |= {"max_num_batched_tokens": max(longest, 2048), "enforce_eager": True}
    if model.adapter:
        rank = json.loads((Path(model.adapter).expanduser() / "adapter_config.json").read_text()).get("r", 16)
        settings |= {"enable_lora": True, "max_lora_rank": max(16, int(rank))}
    return {k: v for k, v in settings.items() if v is not None} | model.args
