"""Any other backend of lm_eval as the model: it answers as it likes, and an alarm names the promises it cannot keep."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from lm_eval.api.registry import get_model, model_registry

from evalsweep.config import DecodingConfig, JobConfig
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.contract import Capabilities, Loaded
from evalsweep.engine.models.forward import check_finite
from evalsweep.engine.models.lm_eval_requests import instance_of, told
from evalsweep.engine.models.requests import GENERATE, Answer, Request, Tell
from evalsweep.engine.models.template import Template, into_user
from evalsweep.engine.models.thinking import Thinking
from evalsweep.errors import BadInput, did_you_mean, first_line
from evalsweep.provenance import value_hash
from evalsweep.record import Alarm

UNKNOWN = "unknown"  # how an answer ended
_STATED = ("until", "max_gen_toks", "do_sample", "temperature")


class Foreign:
    """A backend of lm_eval. `inner` is lm_eval's own object; settings that were not asked for are left to it."""

    max_length: int | None = None
    rows: int | None = None
    loglikelihood_length: int | None = None

    def __init__(self, inner: Any, can: Capabilities) -> None:
        self.inner, self.can = inner, can
        module = getattr(inner, "model", None)
        self.checks_numbers = isinstance(module, torch.nn.Module)
        if isinstance(module, torch.nn.Module):
            module.register_forward_hook(_check_logits)

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job; see `contract.Backend`."""
        self.thinking = Thinking(tuple(job.model.thinking))
        self.placement = job.prompt.placement
        tokenizer = getattr(self.inner, "tokenizer", None)
        self.template = Template(tokenizer, job.model.template_args, self.placement) if tokenizer is not None else None
        source = self.template.source if self.template else None
        if not source:
            return {"chat_template_hash": None}
        if job.model.apply_chat_template and self.template:
            self.template.check_system(job.prompt.system, str(job.model.backend))
        return {"chat_template_hash": value_hash(source)}

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> Any:
        """Render a conversation here where the backend has a tokenizer, else by the backend."""
        if self.template and self.template.source:
            return self.template.render(chat_history, add_generation_prompt)
        messages = into_user(chat_history) if self.placement == "user" else chat_history
        return self.inner.apply_chat_template(messages, add_generation_prompt)

    def answer(self, requests: Sequence[Request], tell: Tell) -> None:
        """Answer requests of one kind; see `contract.Backend`."""
        kind = requests[0].kind
        try:
            if kind != GENERATE:
                told(self.inner, requests, tell)
                return
            asked = [instance_of(replace(request, settings=self.sent(request))) for request in requests]
            found = self.inner.generate_until(asked, disable_tqdm=True)
        except (NotImplementedError, AssertionError, ValueError, TypeError) as e:
            raise BadInput(
                f"model.backend={type(self.inner).__name__}",
                f"lm_eval's backend cannot answer {kind} ({type(e).__name__}: {first_line(e)})",
            ) from e
        for request, text in zip(requests, found, strict=True):
            tell(request, self.thinking.answer(str(text), UNKNOWN, self._opened(request.prompt)))

    def sent(self, request: Request) -> dict[str, Any]:
        """Give the settings that lm_eval's backends know, and others where they were asked for."""
        neutral = {f.name: f.default for f in fields(DecodingConfig)}
        settings = {
            k: v
            for k, v in request.settings.items()
            if k in _STATED or (k in neutral and v != neutral[k] and k != "num_beams")
        }
        return settings if settings["do_sample"] else {**settings, "temperature": 0.0}

    def look_at(self, prompt: str) -> None:
        """Do nothing: the backend makes the tokens; see `contract.Backend`."""

    def _opened(self, prompt: str) -> bool:
        return self.template is not None and self.template.opens_thinking(prompt, self.thinking.tags)

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError("see `can.counts_tokens`")

    def decode(self, tokens: Sequence[int]) -> str:
        raise NotImplementedError("see `can.counts_tokens`")

    def begin_token(self) -> tuple[int | None, bool]:
        return None, False

    def close(self) -> None:
        """Do nothing: no model is held here."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, float | None]:
        """Report that nobody counts the tokens."""
        return {"tokens": None}

    def details(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Report nothing; see `contract.Backend`."""
        return {}

    def alarms(self, job: JobConfig, answers: Sequence[Answer]) -> list[Alarm]:
        """Report what is not promised of answers that lm_eval's own backend gives."""
        line = (
            f"lm_eval's backend {job.model.backend} answers {job.task.name}: not promised are answers that depend on "
            "their request alone (and not on batch, order or limit), a seed for each answer, no settings of the "
            "model's own, that cut prompts and answers are noticed, that a system prompt reaches the model"
            + ("" if self.checks_numbers else ", and that broken numbers (NaN) are")
        )
        return [Alarm("foreign_backend", line)]


def _check_logits(_module: Any, _inputs: Any, output: Any) -> None:
    """Stop where the model of a backend gives no numbers. Errors: BadInput."""
    logits = getattr(output, "logits", None)
    if isinstance(logits, torch.Tensor) and logits.dim() == 3:
        check_finite(logits[:, -1], ["the next token of a prompt"] * len(logits))


def _device(kind: Any) -> str | None:
    """Give the device for a backend whose own default is a GPU, where there is none; else leave it to the backend."""
    own = inspect.signature(kind.__init__).parameters.get("device")
    gpu = own is not None and str(own.default).startswith("cuda")
    return "cpu" if gpu and not torch.cuda.is_available() else None


def load(job: JobConfig) -> Loaded:
    """Make lm_eval's backend.

    Errors: BadInput, one line, for a name that lm_eval does not know, or whatever the backend itself raises.
    """
    model = job.model
    name = str(model.backend)
    given = f"model.backend={name}"
    try:
        kind: Any = get_model(name)
    except (KeyError, ValueError) as e:
        known = sorted(map(str, model_registry.keys()))
        raise BadInput(
            given, f"lm_eval has no such backend{did_you_mean(name, known)}; it has {', '.join(known)}"
        ) from e
    except ImportError as e:
        raise BadInput(given, f"needs a package that is not installed ({first_line(e)})") from e
    device = _device(kind) if model.device == "auto" else model.device
    try:
        inner = kind.create_from_arg_obj(dict(model.args), {"batch_size": model.batch_size, "device": device})
    except Exception as e:  # a backend may raise anything; it ends as one line
        raise BadInput(given, f"cannot be made with {model.args} ({type(e).__name__}: {first_line(e)})") from e
    lm = Foreign(inner, kind_of(model).can)
    identity = {
        "model": model.args.get("pretrained") or model.args.get("model") or name,
        "backend": f"lm_eval {name}",
        "model_args": model.args or None,
        "model_revision": None,
        "model_hash": None,
        "dtype": "unknown: the backend decides",
        "device": str(getattr(inner, "device", None) or "unknown: the backend decides"),
        "max_length": None,
        "cuda": None,
    }
    return Loaded(lm, identity)
