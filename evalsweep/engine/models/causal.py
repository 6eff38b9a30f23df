"""Causal language models of transformers: lm_eval's model, with answers that do not depend on their batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM
from transformers.quantizers import AutoQuantizationConfig

from evalsweep.config import AUTO, DecodingConfig, JobConfig
from evalsweep.engine.models.contract import Capabilities
from evalsweep.engine.models.draw import TOLERANCE, TOLERANCE_16_BITS, WARPERS, Prompted, Row, Settings
from evalsweep.engine.models.forward import Forward
from evalsweep.engine.models.generation import Generator
from evalsweep.engine.models.likelihood import log_likelihoods
from evalsweep.engine.models.lm_eval_requests import told
from evalsweep.engine.models.noise import STREAM
from evalsweep.engine.models.requests import ENDED, GENERATE, LOGLIKELIHOOD, ROLLING, Answer, Request, Tell, stops
from evalsweep.engine.models.template import Template
from evalsweep.engine.models.text import Detokenizer, cut
from evalsweep.engine.models.thinking import Thinking
from evalsweep.errors import BadInput
from evalsweep.record import Alarm

# A fixed number, not a share of what is free: the batches, and with them the rounding, depend on the prompts alone.
LOGITS_BYTES = 2 * 2**30
WHOLE_ROWS = 16  # of a batch of whole texts, where model.batch_size=auto


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
    thinking: Thinking
    template: Template
    smallest_batch: int | None = None  # rows of a batch after memory ran out
    shares: bool = True  # whether what prompts have in common is read once
    rows: int | None = None  # of a batch, where model.batch_size=auto
    _reader: Forward | BadInput | None = None  # made when it is first needed
    declares_bos: bool = False  # whether the tokenizer's configuration says that it puts a begin token

    def __init__(self, quantization: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.quantization = quantization
        self.loading = Report()
        super().__init__(**kwargs)
        self.text = Detokenizer(self.tokenizer)

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job; see `contract.Backend`."""
        model = job.model
        self.batch_size_per_gpu = 1 if model.batch_size == AUTO else model.batch_size
        self.finds_rows, self.shares = model.batch_size == AUTO, job.engine.share
        self.tolerance = model.tie_tolerance
        self.thinking_toks = model.max_thinking_toks or 0
        self.thinking = Thinking(tuple(model.thinking))
        self.template = Template(self.tokenizer, model.template_args, job.prompt.placement)
        if model.apply_chat_template:
            if not self.template.source:
                raise BadInput(
                    "model.apply_chat_template=true", f"{model.pretrained or model.name} has no chat template"
                )
            self.template.check_system(job.prompt.system, model.pretrained or model.name)
        return self.template.identity()

    @property
    def loglikelihood_length(self) -> int:
        """Give the tokens that a context and its continuation share: the last one is not read, only scored."""
        return int(self.max_length) + 1

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

    def numbers(self, answers: Sequence[Answer]) -> dict[str, float | None]:
        """Add up the tokens that were generated and the near-ties among them."""
        return {k: float(sum(a.counts.get(k, 0) for a in answers)) for k in ("tokens", "near_ties", "flipped")}

    def details(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Report what was seen of rounding."""
        return {"rounding": {**self.numbers(answers), "largest": _moved(answers)}}

    def alarms(self, job: JobConfig, answers: Sequence[Answer]) -> list[Alarm]:
        """Report rounding beyond its tolerance, memory that ran out, weights that were left out, tokens that differ."""
        found = []
        tolerance, moved = self._tolerance(), _moved(answers)
        if moved > tolerance > 0:
            line = (
                f"rounding moved the logits of {job.task.name} by up to {moved:.2g}, more than the "
                f"tolerance of {tolerance:g} within which near-ties are decided alone: texts may depend on "
                f"model.batch_size; model.tie_tolerance={2 * moved:.2g} or model.dtype=float32 closes "
                "this"
            )
            found.append(Alarm("rounding", line))
        if self.smallest_batch is not None:
            line = f"out of memory: the batch went down from {self.batch_size_per_gpu} to {self.smallest_batch}"
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

    def answer(self, requests: Sequence[Request], tell: Tell) -> None:
        """Answer requests of one kind; see `contract.Backend`."""
        kind = requests[0].kind
        if kind == GENERATE:
            self._write(requests, tell)
            return
        if self.prefix_token_id is None and (kind == ROLLING or any(not request.prompt for request in requests)):
            raise self._no_prefix()
        told(self, requests, tell)

    def look_at(self, prompt: str) -> None:
        """Compare a prompt with its tokens; see `contract.Backend`."""
        self.template.compare(prompt, self.encode)

    def _no_prefix(self) -> BadInput:
        return BadInput(
            "the model's tokenizer",
            "has neither a begin nor an end token, so that nothing stands before the first token of a text",
            "model.tokenizer=DIR, a tokenizer with a begin token",
        )

    def _write(self, requests: Sequence[Request], tell: Tell) -> None:
        settings: dict[str, Settings] = {}
        tokens: dict[str, tuple[int, ...]] = {}
        wanted = []
        for request in requests:
            asked = repr(sorted(request.settings.items()))
            if asked not in settings:
                settings[asked] = self._settings(request)
            if request.prompt not in tokens:
                tokens[request.prompt] = self._prompt_tokens(request.prompt)
            longest = self.max_length - settings[asked].max_gen_toks
            opened = self.template.opens_thinking(request.prompt, self.thinking.tags)
            wanted.append(Prompted(request, tokens[request.prompt][-longest:], settings[asked], opened))
        self._generate(wanted, tell)

    def _prompt_tokens(self, prompt: str) -> tuple[int, ...]:
        tokens = tuple(self.encode(prompt))
        if tokens:
            return tokens
        if self.prefix_token_id is None:
            raise self._no_prefix()
        return (self.prefix_token_id,)

    def _generate(self, wanted: list[Prompted], tell: Tell) -> None:
        def done(row: Row) -> None:
            settings = row.of.settings
            new = row.new[:-1] if row.ended == ENDED else row.new  # an end token need not be one that decoding drops
            text = self.text.plain(row.of.tokens, new, self.thinking.tags)
            text = cut(text, settings.stop, lambda said: settings.quiet(said, row.of.opened))
            counts = {"tokens": len(row.new), "near_ties": row.near_ties, "flipped": row.flipped, "moved": row.moved}
            tell(row.of.request, self.thinking.answer(text, row.ended, row.of.opened, counts=counts))

        generator = Generator(self._forward(), self.text.marked, self.shares)
        try:
            longest = max(len(p.tokens) + p.settings.max_gen_toks for p in wanted)
            generator.generate(wanted, self._batch_size(longest), done)
        finally:
            self.smallest_batch = generator.smallest_batch or self.smallest_batch

    def _forward(self) -> Forward:
        """Give what reads tokens with the model. Errors: BadInput for a model whose batches are not its rows alone."""
        if isinstance(self._reader, BadInput):
            raise self._reader
        if self._reader is None:
            pad = self.tokenizer.pad_token_id
            if pad is None or pad >= self.model.get_input_embeddings().num_embeddings:
                pad = 0  # lm_eval adds a pad token to a tokenizer that has none, which the model does not know
            try:
                reader = Forward(self.model, pad)
                reader.check(self.encode("The quick brown fox jumps over the lazy dog. Answer: 12"))
            except BadInput as e:
                self._reader = e
                raise
            self._reader = reader
        return self._reader

    def sent(self, request: Request) -> dict[str, Any]:
        """Give the settings of a request as they are sent; see `contract.Backend`."""
        settings = self._settings(request)
        fences = not request.settings.get("stop_in_fences", True)
        return {
            **{k: v for k, v in request.settings.items() if k not in ("until", "stop_in_fences")},
            **({"max_thinking_toks": self.thinking_toks} if self.thinking_toks else {}),
            "stop": list(settings.stop),
            **({"stop_in_fences": False} if fences else {}),
            "end_tokens": sorted(settings.end_tokens),
            "tie_tolerance": settings.tolerance,
            "sampler": STREAM if settings.temperature else "greedy",
        }

    def _settings(self, request: Request) -> Settings:
        """Make the settings of a request, each of which acts or is refused."""
        asked = {k: v for k, v in request.settings.items() if k != "stop_in_fences"}
        neutral = {**asdict(DecodingConfig()), "temperature": 0.0, "max_gen_toks": 0, "until": []}
        if unknown := sorted(set(asked) - set(neutral)):
            raise BadInput(f"generation setting {unknown[0]}", "is not one that evalsweep's generator has")
        ends = self.model.generation_config.eos_token_id
        ends = {self.eot_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}
        end_text = [] if self.eot_token_id is None else [self.decode([self.eot_token_id])]
        return Settings(
            temperature=float(asked["temperature"]) if asked["do_sample"] else 0.0,
            max_gen_toks=int(asked["max_gen_toks"]) + self.thinking_toks,
            stop=tuple(dict.fromkeys([*stops(asked), *end_text])),
            end_tokens=frozenset(ends),
            tolerance=self._tolerance(),
            warpers={k: v for k, v in asked.items() if k in WARPERS and v != neutral[k]},
            quiet=lambda text, opened: self.thinking.quiet(text, request.settings, opened),
        )

    def _tolerance(self) -> float:
        default = TOLERANCE.get(self.model.dtype, TOLERANCE_16_BITS)
        return default if self.tolerance is None else self.tolerance

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
        if not self._joins():
            return self._in_whole(requests, disable_tqdm)
        texts = []
        for _, context, continuation in requests:
            whole = (*context, *continuation)[-(self.max_length + 1) :]  # the last token is scored and not read
            texts.append((whole, len(continuation)))
        answers: list[Any] = [None] * len(requests)

        def tell(number: int, score: float, greedy: bool) -> None:
            answers[number] = score, greedy
            if requests[number][0] is not None:  # parts of a text have no name
                self.cache_hook.add_partial(LOGLIKELIHOOD, requests[number][0], answers[number])

        positions = max(1, LOGITS_BYTES // (4 * int(self.model.config.get_text_config().vocab_size)))
        rows = self._batch_size(max(len(tokens) for tokens, _ in texts))
        smallest = log_likelihoods(self._forward(), texts, rows, positions, tell)
        self.smallest_batch = smallest or self.smallest_batch
        return answers

    def _batch_size(self, tokens: int) -> int:
        """Give the rows of a batch: what was asked for, or as many of so many tokens as fit."""
        if self.finds_rows:
            self.rows = self.batch_size_per_gpu = self._forward().fitting(tokens)
        return self.batch_size_per_gpu

    def _joins(self) -> bool:
        """Give whether the model can read on from what texts share."""
        if not self.shares:
            return False
        try:
            return self._forward().joins
        except BadInput:  # log-likelihoods need no batch that goes on
            return False

    def _in_whole(self, requests: list[Any], disable_tqdm: bool) -> list[Any]:
        """Have lm_eval's own method read each text from its beginning, in batches that shrink as texts grow."""
        if self.finds_rows:
            self.rows = self.batch_size_per_gpu = WHOLE_ROWS
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
                    most = self.smallest_batch = size // 2
                    if torch.cuda.is_available():
                        torch.cuda.empty_cache()
                    continue
                prompts = prompts[size:]
                for i, answer in zip(indices, found, strict=True):
                    answers[i] = answer
        finally:
            self.batch_size_per_gpu = asked
        return answers


def _moved(answers: Sequence[Answer]) -> float:
    """Give the most by which rounding was seen to move a difference of two logits."""
    return max((a.counts.get("moved", 0.0) for a in answers), default=0.0)
