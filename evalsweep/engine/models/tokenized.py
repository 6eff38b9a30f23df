"""What backends share that count a prompt's tokens with a tokenizer of transformers, and are no model of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval import utils
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM

from evalsweep.config import JobConfig
from evalsweep.engine.models.template import Template
from evalsweep.errors import BadInput


class Tokenized(TemplateLM):
    """A backend whose tokenizer is here. `tokenizer` is None where a server was given without one."""

    tokenizer: Any
    template: Template | None = None
    rows: int | None = None
    max_length: int | None

    @property
    def loglikelihood_length(self) -> int | None:
        """Give the tokens that a context and its continuation share: a server wants to write one more."""
        return None if self.max_length is None else self.max_length - 1

    @property
    def tokenizer_name(self) -> str:
        """Name the tokenizer for lm_eval's caches, which are not used."""
        return str(self.tokenizer.name_or_path) if self.tokenizer is not None else ""

    def begin_template(self, job: JobConfig) -> dict[str, Any]:
        """Get the chat template ready for a job, and give its part of the identity. Errors: BadInput."""
        if self.tokenizer is None:
            return {"chat_template_hash": None}
        model = job.model.pretrained or job.model.name
        self.template = Template(self.tokenizer, job.model.template_args, job.prompt.placement)
        if job.model.apply_chat_template:
            if not self.template.source:
                raise BadInput("model.apply_chat_template=true", f"the tokenizer of {model} has no chat template")
            self.template.check_system(job.prompt.system, model)
        return self.template.identity()

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation as text."""
        assert self.template is not None  # a template without a tokenizer was refused
        return self.template.render(chat_history, add_generation_prompt)

    def opens_thinking(self, prompt: str, tags: Sequence[str]) -> bool:
        """Tell whether the prompt, as it is sent, ends within the thinking part."""
        return self.template is not None and self.template.opens_thinking(prompt, tags)

    def encode(self, text: str) -> list[int]:
        """Give the token ids that a prompt is sent as."""
        return self.tok_encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Give the text of token ids, special tokens included."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def begin_token(self) -> tuple[int | None, bool]:
        """Give the begin token, and whether the tokenizer puts one before a text."""
        if self.tokenizer is None:
            return None, False
        bos = self.tokenizer.bos_token_id
        return bos, bos is not None and list(self.tokenizer("a")["input_ids"])[:1] == [bos]

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        bos = self.tokenizer.bos_token
        if add_special_tokens is None and bos and string.startswith(bos):
            add_special_tokens = False
        given = {} if add_special_tokens is None else {"add_special_tokens": add_special_tokens}
        return list(self.tokenizer.encode(string, **given))

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        found = self.tokenizer.bos_token_id
        found = self.tokenizer.eos_token_id if found is None else found
        if found is None:
            raise BadInput(
                "the model's tokenizer",
                "has neither a begin nor an end token, so that nothing stands before the first token of a text",
                "model.tokenizer=DIR, a tokenizer with a begin token",
            )
        return int(found)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Fail: texts are asked for with `answer`; lm_eval's class has this method by another name."""
        raise NotImplementedError("see `contract.Backend.answer`")

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        if self.max_length is None:
            raise BadInput(
                f"task={requests[0].task_name}",
                "goes through texts window by window, for which the model's length is needed",
                "model.max_length=4096",
            )
        found = []
        for request in requests:
            windows = [
                utils.make_disjoint_window(window)
                for window in utils.get_rolling_token_windows(
                    token_list=self.tok_encode(request.args[0], add_special_tokens=False),
                    prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length - 1,
                    context_len=1,
                )
            ]
            scores = self._loglikelihood_tokens([((None, None), *window) for window in windows])
            found.append(float(sum(value for value, _ in scores)))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found
