"""Any other backend of lm_eval as the model: it answers as it likes, and an alarm names the promises it cannot keep."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import get_model, model_registry

from evalsweep.config import DecodingConfig, JobConfig
from evalsweep.engine.models.backends import kind_of
from evalsweep.engine.models.contract import Capabilities, Loaded
from evalsweep.engine.models.requests import Answers, sample_numbers
from evalsweep.engine.models.template import Template, into_user
from evalsweep.errors import BadInput, did_you_mean, first_line
from evalsweep.provenance import value_hash
from evalsweep.record import Alarm

UNKNOWN = "unknown"  # how an answer ended
_STATED = ("until", "max_gen_toks", "do_sample", "temperature")


class Foreign(LM):
    """A backend of lm_eval. `inner` is lm_eval's own object; settings that were not asked for are left to it."""

    answers: Answers
    max_length = None
    tokenizer_name = ""  # for lm_eval's caches, which are not used

    def __init__(self, inner: Any, can: Capabilities) -> None:
        super().__init__()
        self.inner, self.can = inner, can

    @property
    def cache_hook(self) -> Any:
        return self.inner.cache_hook

    @cache_hook.setter
    def cache_hook(self, hook: Any) -> None:
        if hasattr(self, "inner"):  # the base class sets one before there is an inner model
            self.inner.cache_hook = hook

    def begin(self, job: JobConfig) -> dict[str, Any]:
        """Get ready for a job; see `contract.Backend`."""
        self.answers = Answers(job.model.thinking)
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

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        asked = [self._asked(request) for request in requests]
        found = self._answered(self.inner.generate_until, asked)
        numbers = sample_numbers(requests)
        return [
            self.answers.keep(request, sample, str(text), UNKNOWN, self._opened(str(request.args[0])))
            for request, sample, text in zip(requests, numbers, found, strict=True)
        ]

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        return list(self._answered(self.inner.loglikelihood, requests))

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        return list(self._answered(self.inner.loglikelihood_rolling, requests))

    def _asked(self, request: Instance) -> Instance:
        """Give the request with the settings that lm_eval's backends know, and others where they were asked for."""
        neutral = {f.name: f.default for f in fields(DecodingConfig)}
        settings = {
            k: v
            for k, v in request.args[1].items()
            if k in _STATED or (k in neutral and v != neutral[k] and k != "num_beams")
        }
        if not settings["do_sample"]:
            settings["temperature"] = 0.0
        self.answers.note_sent(settings)
        asked = copy.copy(request)
        asked.arguments = (request.args[0], settings)
        return asked

    def _answered(self, method: Any, requests: Sequence[Instance]) -> Any:
        try:
            return method(list(requests))
        except (NotImplementedError, AssertionError, ValueError, TypeError) as e:
            raise BadInput(
                f"model.backend={type(self.inner).__name__}",
                f"lm_eval's backend cannot answer {method.__name__} ({type(e).__name__}: {first_line(e)})",
            ) from e

    def _opened(self, prompt: str) -> bool:
        return self.template is not None and self.template.opens_thinking(prompt, self.answers.tags)

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError("see `can.counts_tokens`")

    def decode(self, tokens: Sequence[int]) -> str:
        raise NotImplementedError("see `can.counts_tokens`")

    def begin_token(self) -> tuple[int | None, bool]:
        return None, False

    def close(self) -> None:
        """Do nothing: no model is held here."""

    def numbers(self) -> dict[str, float | None]:
        """Report that nobody counts the tokens."""
        return {"tokens": None}

    def details(self) -> dict[str, Any]:
        """Report nothing; see `contract.Backend`."""
        return {}

    def alarms(self, job: JobConfig) -> list[Alarm]:
        """Report what is not promised of answers that lm_eval's own backend gives."""
        line = (
            f"lm_eval's backend {job.model.backend} answers {job.task.name}: not promised are answers that depend on "
            "their request alone (and not on batch, order or limit), a seed for each answer, no settings of the "
            "model's own, and that cut prompts and answers are noticed"
        )
        return [Alarm("foreign_backend", line)]


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
    device = None if model.device == "auto" else model.device
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
