"""Causal language models of transformers: lm_eval's model, with answers that do not depend on their batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers.quantizers import AutoQuantizationConfig

from evalsweep.config import DecodingConfig, JobConfig
from evalsweep.engine.models.contract import Capabilities
from evalsweep.engine.models.draw import TOLERANCE, TOLERANCE_16_BITS, WARPERS, Settings
from evalsweep.engine.models.generation import Generator, Rounding
from evalsweep.engine.models.noise import STREAM
from evalsweep.engine.models.requests import ENDED, Answers, Request, sample_numbers
from evalsweep.engine.models.template import Template
from evalsweep.engine.models.text import Detokenizer, cut
from evalsweep.engine.models.thinking import quiet_regions
from evalsweep.errors import BadInput
from evalsweep.record import Alarm

# A fixed number, not a share of what is free: the batches, and with them the rounding, depend on the prompts alone.
LOGITS_BYTES = 2 * 2**30


@dataclass
class Report:
    """What loading says of the weights of a checkpoint."""

    unexpected: tuple[str, ...] = ()


class _Whole:
    """A model class of transformers whose missing weights are an error: transformers itself fills them at random."""

    def __init__(self, auto: Any, report: Report) -> None:
        self.auto = auto
        self.report = report

    def from_pretrained(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("quantization_config") is None:
            # not the same as leaving it out: None takes the checkpoint's own settings away
            kwargs.pop("quantization_config", None)
        model, loading = self.auto.from_pretrained(*args, output_loading_info=True, **kwargs)
        missing = sorted(loading["missing_keys"])
        if missing:
            raise OSError(f"{len(missing)} weights are missing, {missing[0]} first")
        self.report.unexpected = tuple(sorted(loading["unexpected_keys"]))
        return model


class Transformers(HFLM):
    """lm_eval's model, with answers that do not depend on their batch, and batches that shrink as prompts grow.

    lm_eval keeps the logits of every position of a batch: 32 five-shot prompts of 2,000 tokens over a vocabulary
    of 49,152 are 12.6 GB in float32, and twice that with their log-softmax. Here one copy stays below `LOGITS_BYTES`.
    """

    batch_size_per_gpu: int
    AUTO_MODEL_CLASS: Any
    can: Capabilities
    answers: Answers
    template: Template
    _checked: bool = False  # that the model's batches agree with its rows alone
    declares_bos: bool = False  # whether the tokenizer's configuration says that it puts a begin token

    def __init__(self, quantization: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.quantization = quantization
        self.loading = Report()
        super().__init__(**kwargs)
        self.text = Detokenizer(self.tokenizer)

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job; see `contract.Backend`."""
        model = job.model
        self.seed, self.batch_size_per_gpu, self.tolerance = job.seed, model.batch_size, model.tie_tolerance
        self.thinking_toks = model.max_thinking_toks or 0
        self.answers = Answers(model.thinking)
        self.rounding = Rounding()
        self.template = Template(self.tokenizer, model.template_args, job.prompt.placement)
        if model.apply_chat_template:
            if not self.template.source:
                raise BadInput(
                    "model.apply_chat_template=true", f"{model.pretrained or model.name} has no chat template"
                )
            self.template.check_system(job.prompt.system, model.pretrained or model.name)
        return self.template.identity()

    def close(self) -> None:
        """Do nothing: the memory of the weights goes with the object."""

    def encode(self, text: str) -> list[int]:
        """Give the token ids that a prompt is sent as."""
        return list(self.tok_encode(text))

    def decode(self, tokens: Any) -> str:
        """Give the text of token ids, special tokens included."""
        return str(self.tok_decode(tokens, skip_special_tokens=False))

    def begin_token(self) -> tuple[int | None, bool]:
        """Give the begin token, and whether the tokenizer puts one before a text, or declares that it does."""
        bos = self.tokenizer.bos_token_id
        # said in its configuration (which transformers does not always heed), or done
        puts_one = list(self.tokenizer("a")["input_ids"])[:1] == [bos]
        return bos, bos is not None and (puts_one or self.declares_bos)

    def numbers(self) -> dict[str, float | None]:
        """Report the tokens that were generated and the near-ties among them."""
        return {k: float(getattr(self.rounding, k)) for k in ("tokens", "near_ties", "flipped")}

    def details(self) -> dict[str, Any]:
        """Report what was seen of rounding."""
        return {"rounding": asdict(self.rounding)}

    def alarms(self, job: JobConfig) -> list[Alarm]:
        """Report rounding beyond its tolerance, memory that ran out, weights that were left out, tokens that differ."""
        found = []
        tolerance = max((float(sent.get("tie_tolerance", 0.0)) for sent in self.answers.sent), default=0.0)
        if self.rounding.largest > tolerance > 0:
            line = (
                f"rounding moved the logits of {job.task.name} by up to {self.rounding.largest:.2g}, more than the "
                f"tolerance of {tolerance:g} within which near-ties are decided alone: texts may depend on "
                f"model.batch_size; model.tie_tolerance={2 * self.rounding.largest:.2g} or model.dtype=float32 closes "
                "this"
            )
            found.append(Alarm("rounding", line))
        if self.rounding.smallest_batch is not None:
            line = f"out of memory: the batch went down from {job.model.batch_size} to {self.rounding.smallest_batch}"
            found.append(Alarm("memory", line))
        if self.loading.unexpected:
            names = self.loading.unexpected
            line = f"{len(names)} weights of the checkpoint are not in the model and were left out, {names[0]} first"
            found.append(Alarm("unexpected_weights", line))
        return found + self.template.alarms(job.task.name)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation. lm_eval's own method drops a system prompt that the template refuses."""
        return self.template.render(chat_history, add_generation_prompt)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        if add_special_tokens is None and self.prefix_token_id is None:  # lm_eval's method decodes it
            return list(self.tokenizer.encode(string))
        tokens: list[int] = super().tok_encode(string, add_special_tokens, **kwargs)
        return tokens

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        if self.prefix_token_id is None and any(not request.args[0] for request in requests):
            raise self._no_prefix()
        for request in requests[:1]:
            self.template.compare(str(request.args[0]), self.encode)
        answers: list[tuple[float, bool]] = super().loglikelihood(requests, disable_tqdm=disable_tqdm)
        return answers

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        if self.prefix_token_id is None:
            raise self._no_prefix()
        answers: list[float] = super().loglikelihood_rolling(requests, disable_tqdm=disable_tqdm)
        return answers

    def _no_prefix(self) -> BadInput:
        return BadInput(
            "the model's tokenizer",
            "has neither a begin nor an end token, so that nothing stands before the first token of a text",
            "model.tokenizer=DIR, a tokenizer with a begin token",
        )

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
                    tokens[prompt] = self._prompt_tokens(prompt)
                opened = self.template.opens_thinking(prompt, self.answers.tags)
                wanted.append(Request(prompt, tokens[prompt][-longest:], samples[i], i, opened))
            for prompt in [requests[i].args[0] for i in positions if requests[i].doc_id == 0][:1]:
                self.template.compare(prompt, self.encode)
            self._generate(wanted, settings, requests, answers)
        return answers

    def _prompt_tokens(self, prompt: str) -> tuple[int, ...]:
        tokens = tuple(self.encode(prompt))
        if tokens:
            return tokens
        if self.prefix_token_id is None:
            raise self._no_prefix()
        return (self.prefix_token_id,)

    def _generate(
        self, wanted: list[Request], settings: Settings, requests: list[Instance], answers: list[str]
    ) -> None:
        def tell(request: Request, new: list[int], ended: str) -> None:
            instance = requests[request.position]
            shown = new[:-1] if ended == ENDED else new  # an end token need not be one that decoding leaves out
            text = self._text(request, shown, settings)
            answers[request.position] = self.answers.keep(instance, request.sample, text, ended, request.opened)
            self.cache_hook.add_partial("generate_until", instance.args, answers[request.position])

        pad = self.tokenizer.pad_token_id
        if pad is None or pad >= self.model.get_input_embeddings().num_embeddings:
            pad = 0  # lm_eval adds a pad token to a tokenizer that has none, which the model does not know
        generator = Generator(self.model, self.text.marked, pad, self.rounding)
        if not self._checked:
            generator.check(self.encode("The quick brown fox jumps over the lazy dog. Answer: 12"))
            self._checked = True
        generator.generate(wanted, settings, self.batch_size_per_gpu, tell)

    def _text(self, request: Request, new: list[int], settings: Settings) -> str:
        """Give an answer up to its first stop string."""
        text = self.text.plain(request.tokens, new, self.answers.tags)
        return cut(text, settings.stop, lambda said: settings.quiet(said, request.opened))

    def _settings(self, asked: dict[str, Any]) -> Settings:
        """Make the settings of a request, each of which acts or is refused; note them as sent."""
        asked = dict(asked)
        stop = [asked["until"]] if isinstance(asked["until"], str) else list(asked["until"] or [])
        fences = not asked.pop("stop_in_fences", True)
        neutral = {**asdict(DecodingConfig()), "temperature": 0.0, "max_gen_toks": 0, "until": []}
        if unknown := sorted(set(asked) - set(neutral)):
            raise BadInput(f"generation setting {unknown[0]}", "is not one that evalsweep's generator has")
        ends = self.model.generation_config.eos_token_id
        ends = {self.eot_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
        default = TOLERANCE.get(self.model.dtype, TOLERANCE_16_BITS)
        warpers = {k: v for k, v in asked.items() if k in WARPERS and v != neutral[k]}
        end_text = [] if self.eot_token_id is None else [self.decode(self.eot_token_id)]
        tags = self.answers.tags
        settings = Settings(
            seed=self.seed,
            temperature=float(asked["temperature"]) if asked["do_sample"] else 0.0,
            max_gen_toks=int(asked["max_gen_toks"]) + self.thinking_toks,
            stop=tuple(dict.fromkeys([*filter(None, stop), *end_text])),
            end_tokens=frozenset(ends),
            tolerance=default if self.tolerance is None else self.tolerance,
            warpers=warpers,
            quiet=lambda text, opened: quiet_regions(text, tags, opened, fences),
        )
        self.answers.note_sent(
            {
                **{k: v for k, v in asked.items() if k != "until"},
                **({"max_thinking_toks": self.thinking_toks} if self.thinking_toks else {}),
                "stop": list(settings.stop),
                **({"stop_in_fences": False} if fences else {}),
                "end_tokens": sorted(settings.end_tokens),
                "tie_tolerance": settings.tolerance,
                "sampler": STREAM if settings.temperature else "greedy",
            }
        )
        return settings

    def _create_model(self, *args: Any, **kwargs: Any) -> None:
        # lm_eval hands a checkpoint's own settings over a second time, of which transformers warns
        given = self.quantization
        kwargs["quantization_config"] = AutoQuantizationConfig.from_dict(given) if given else None
        auto: Any = self.AUTO_MODEL_CLASS
        self.AUTO_MODEL_CLASS = _Whole(auto, self.loading)
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
