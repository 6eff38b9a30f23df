"""Chat templates: what one does to a system prompt, what it says of its own accord, and rendering."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2
from transformers import AutoTokenizer

from evalsweep.config import JobConfig
from evalsweep.engine.models import embedded
from evalsweep.errors import BadInput, first_line
from evalsweep.provenance import value_hash
from evalsweep.record import Alarm

SYSTEM, USER, ASSISTANT = "EVALSWEEP SYSTEM", "EVALSWEEP USER", "EVALSWEEP ASSISTANT"
WORDS = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
# The conversations that evalsweep sends after a system prompt: a question, after shots, with words to begin with.
_SHAPES = (
    ("user",),
    ("user", "assistant", "user"),
    ("user", "assistant") * 5 + ("user",),
    ("user", "assistant"),
    ("user", "assistant", "user", "assistant"),
)
TAKEN = "taken"
# How a template fails to give a system prompt its own place: what is said of it.
_FAULTS = {
    "refused": "refuses a system prompt",
    "dropped": "drops a system prompt without a word",
    "merged": "moves a system prompt into the user's turn",
    "doubled": "writes a system prompt more than once",
}
_REFUSES = (jinja2.TemplateError, ValueError, TypeError, KeyError)  # what rendering raises
# What begins and ends turns, also where it is no token of the tokenizer's own: <|im_start|>, <s>, [INST].
_MARK = re.compile(r"<[^<>\n]{1,40}>|\[/?[A-Z_]{1,40}\]")


class Template:
    """The chat template of a tokenizer, with the arguments that a job gives it.

    `sent` is the first conversation that was rendered, with its text; `differs` counts the tokens in which it was sent
    otherwise.
    """

    def __init__(self, tokenizer: Any, arguments: dict[str, Any], placement: str = "system") -> None:
        self.tokenizer, self.arguments, self.placement = tokenizer, arguments, placement
        self.sent: tuple[list[dict[str, str]], bool, str] | None = None
        self.differs = 0
        self._treatments: dict[tuple[str, ...], str] = {}

    @property
    def source(self) -> Any:
        """The template's text, or its texts by name; None where the tokenizer has none."""
        return getattr(self.tokenizer, "chat_template", None)

    def render(self, history: Sequence[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation; one that ends with words of the assistant is left open for more of them.

        Errors: BadInput, with the template's own words, for a conversation that it refuses.
        """
        messages = into_user(history) if self.placement == "user" else list(history)
        if messages and messages[0]["role"] == "system":
            self._check_place(messages)
        text = self._render_or_refuse(messages, add_generation_prompt)
        if self.sent is None:
            self.sent = messages, add_generation_prompt, text
        return text

    def _render_or_refuse(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        try:
            return self._render(messages, add_generation_prompt)
        except jinja2.UndefinedError as e:  # mostly a begin or end token that this tokenizer does not have
            why = f"the chat template uses what neither the tokenizer nor model.template_args gives ({first_line(e)})"
            raise BadInput("model.apply_chat_template=true", why) from e
        except _REFUSES as e:
            roles = ", ".join(message["role"] for message in messages)
            raise BadInput(
                "model.apply_chat_template=true", f"the chat template refuses the turns {roles} ({first_line(e)})"
            ) from e

    def _render(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                **self.arguments,
            )
        )

    def compare(self, prompt: str, encode: Callable[[str], list[int]]) -> None:
        """Compare the first conversation, as it is sent, with the template's own tokens; `alarms` tells what differs.

        `prompt` is any that is sent: another one, or one that is left open for more words, is not compared.
        """
        if self.sent is None or not self.sent[1] or not prompt or not self.sent[2].endswith(prompt):
            return
        own = self.tokenizer.apply_chat_template(
            self.sent[0], tokenize=True, return_dict=False, add_generation_prompt=True, **self.arguments
        )
        own, sent = list(own), encode(prompt)
        self.differs = abs(len(own) - len(sent)) or sum(a != b for a, b in zip(own, sent, strict=True))

    def alarms(self, task: str) -> list[Alarm]:
        """Report prompts that reach the model with other tokens than the template gives."""
        if not self.differs:
            return []
        line = (
            f"the prompts of {task} reach the model with other tokens than the chat template gives: {self.differs} "
            "differ in the first one; often it is a begin token (BOS) that the tokenizer adds"
        )
        return [Alarm("template_tokens", line)]

    def _check_place(self, messages: list[dict[str, str]]) -> None:
        """Refuse a conversation whose system message, often a task's own description, is not sent once.

        One that is moved into the user's turn is sent; `check_system` has refused that for `prompt.system`.
        """
        treatment = self._treatment(tuple(message["role"] for message in messages[1:]))
        if treatment in ("refused", "dropped", "doubled"):
            raise BadInput(
                "model.apply_chat_template=true",
                f"the chat template {_FAULTS[treatment]}, and so what this task says before its questions "
                f"('{' '.join(messages[0]['content'].split())[:60]}'); put it into the user's turn",
                "prompt.placement=user",
            )

    def treatment(self) -> str:
        """Find what becomes of a system prompt: it is `taken`, `refused`, `dropped`, `merged` or `doubled`.

        One conversation of the kinds that are sent is enough for any but `taken`. A template that fails without a
        system prompt too is `unusable`.
        """
        found = [self._treatment(shape) for shape in _SHAPES]
        if found[0] == "unusable":
            return "unusable"
        return next((one for one in found if one not in (TAKEN, "unusable")), TAKEN)

    def _treatment(self, shape: tuple[str, ...]) -> str:
        """Find what becomes of a system prompt before turns of these roles."""
        if shape not in self._treatments:
            self._treatments[shape] = self._try(shape)
        return self._treatments[shape]

    def _try(self, shape: tuple[str, ...]) -> str:
        opens = shape[-1] == "user"
        turns = [{"role": role, "content": f"{WORDS[role]} {i}"} for i, role in enumerate(shape)]
        try:
            given = self._render([{"role": "system", "content": SYSTEM}, *turns], opens)
        except _REFUSES:
            with suppress(BadInput):
                self._render_or_refuse(turns, opens)
                return "refused"
            return "unusable"
        times = given.count(SYSTEM)
        if times != 1 or given.count(USER) != shape.count("user"):
            return "dropped" if times == 0 else "doubled"
        between = given[given.index(SYSTEM) + len(SYSTEM) : given.index(USER)]
        # marks between the two, such as Llama 2's <</SYS>>, give it a place of its own within a turn
        return TAKEN if between.strip() or given.index(USER) < given.index(SYSTEM) else "merged"

    def check_system(self, system: str | None, model: str) -> None:
        """Refuse a system prompt that would not reach the model as one.

        Errors: BadInput, unless the job asks for the user's turn; with the template's words where it is unusable.
        """
        if system is None or self.placement == "user":
            return
        treatment = self.treatment()
        if treatment == "unusable":
            self._render_or_refuse([{"role": "user", "content": USER}])  # raises
        if treatment != TAKEN:
            raise BadInput(
                f"prompt.system={system[:60]!r}",
                f"the chat template of {model} {_FAULTS[treatment]}, so the score would not be what the record says; "
                "put it into the user's turn, or go without it (prompt=none)",
                "prompt.placement=user",
            )

    def opens_thinking(self, prompt: str, tags: Sequence[str]) -> bool:
        """Tell whether a rendered prompt ends within the thinking part."""
        if not tags:
            return False
        tail = prompt[prompt.rfind(tags[0]) :] if tags[0] in prompt else ""
        return bool(tail) and tail.rstrip() == tags[0]

    def identity(self) -> dict[str, Any]:
        """Give what a record holds of the template: its hash, and what it says of its own accord."""
        if not self.source:
            return {"chat_template_hash": None}
        return {
            "chat_template_hash": value_hash(self.source),
            "template_arguments": self.arguments or None,
            "system_prompt_is": self.treatment() if self.placement == "system" else "in the user's turn",
            **self._own_text(),
        }

    def _own_text(self) -> dict[str, Any]:
        """Give the system prompt that is inserted where none is given, what is added to any, and whether it has a date.

        `template_generation_prompt` tells whether it opens the assistant's turn when asked to.
        """
        user = [{"role": "user", "content": USER}]
        found: dict[str, Any] = {"template_has_date": "strftime_now" in str(self.source)}
        try:
            bare = self._render(user)
            found["template_generation_prompt"] = self._opens_turn(user, bare)
            given = self._render([{"role": "system", "content": SYSTEM}, *user])
        except _REFUSES:
            return found  # a template that takes no system message, or not this conversation
        before, system, after = given.partition(SYSTEM)
        added = self._words(before) if system else ""  # else it is dropped, and `before` is the whole conversation
        inserted = None
        if system and bare.startswith(before) and bare.endswith(after):
            inserted = str(bare[len(before) : len(bare) - len(after)]).strip()
        return {"template_system_prompt": inserted or None, "template_system_text": added or None, **found}

    def _opens_turn(self, user: list[dict[str, str]], bare: str) -> bool:
        """Tell whether a rendered prompt leaves nothing to write before the assistant's words.

        Llama 2's and Mistral's templates have no generation prompt and need none: the end of the user's turn is one.
        """

        def whole(messages: list[dict[str, str]]) -> str:
            return str(
                self.tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=False, **self.arguments
                )
            )

        if bare != whole(user):
            return True
        answered = whole([*user, {"role": "assistant", "content": ASSISTANT}])
        return answered.startswith(bare) and answered[len(bare) :].lstrip().startswith(ASSISTANT)

    def _words(self, text: str) -> str:
        """Give a template's text without its marks and the names of roles; empty where nothing is said."""
        for mark in (*self.tokenizer.all_special_tokens, *self.tokenizer.get_added_vocab()):
            text = text.replace(mark, " ")
        text = _MARK.sub(" ", text)
        names = ("system", "user")
        said = [word for word in re.findall(r"[A-Za-z]{2,}", text) if word.lower() not in names]
        return " ".join(text.split()) if len(said) > 1 else ""


def into_user(history: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Move the system prompt of a conversation to the begin of the user's first turn."""
    messages = [dict(message) for message in history]
    if not messages or messages[0]["role"] != "system":
        return messages
    system = messages.pop(0)["content"]
    first = next((message for message in messages if message["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": system}, *messages]
    first["content"] = f"{system}\n\n{first['content']}"
    return messages


def tokenizer_of(job: JobConfig) -> Any:
    """Load the tokenizer of a job's model without the model. Errors: as transformers raises them."""
    model = job.model
    source = model.tokenizer or model.pretrained or embedded.locate()
    path = Path(source).expanduser()
    return AutoTokenizer.from_pretrained(
        str(path) if path.is_dir() else source,
        revision=model.revision or "main",
        trust_remote_code=model.trust_remote_code,
        **({"gguf_file": model.gguf_file} if model.gguf_file and not model.tokenizer else {}),
    )


def look(job: JobConfig) -> None:
    """Find before the first job whether there is a chat template, and what it does to the system prompt.

    Errors: BadInput for a template that has no place for it, or a model that has no template.
    """
    try:
        tokenizer = tokenizer_of(job)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError):
        return  # whatever is wrong with the model is told as it is loaded
    template = Template(tokenizer, job.model.template_args, job.prompt.placement)
    name = job.model.tokenizer or job.model.pretrained or job.model.name
    if not template.source:
        raise BadInput(
            "model.apply_chat_template=true", f"{name} has no chat template", "model.apply_chat_template=false"
        )
    template.check_system(job.prompt.system, name)
