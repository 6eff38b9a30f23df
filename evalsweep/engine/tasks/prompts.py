"""The prompts of a task as they are made: of which shots, how much too long, and with how many begin tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from evalsweep.engine.models.contract import Backend
from evalsweep.engine.tasks.shots import Shots
from evalsweep.errors import BadInput
from evalsweep.record import Shot


@dataclass(frozen=True)
class Prompt:
    """What is known of the prompt of one document; `lost` counts tokens and whole shots that do not reach the model."""

    shots: list[Shot] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)


class Prompts:
    """Stands around the making of a task's prompts: tells the sampler whose turn it is, and notes what came of it.

    `made` holds what is known by the documents' numbers.
    """

    def __init__(self, task: Any, lm: Backend, on_truncation: str, thinking_toks: int = 0) -> None:
        self.task = task
        self.on_truncation = on_truncation
        self.thinking_toks = thinking_toks
        self.made: dict[int, Prompt] = {}
        self.tokens = Tokens(lm)
        self._texts: dict[int, Any] = {}
        self._latest = Prompt()
        self._kept = False
        self._make, self._request = task.fewshot_context, task.construct_requests
        task.fewshot_context, task.construct_requests = self._fewshot_context, self._construct_requests

    def keep(self) -> None:
        """From now on the prompts are given as they were made."""
        self._kept = True

    def _construct_requests(self, doc: dict[str, Any], ctx: Any, **kwargs: Any) -> Any:
        """In place of the task's own method of that name, which is told the document's number."""
        number = kwargs["metadata"][1]
        if self._kept:
            ctx = self._texts[number]
        else:
            self._texts[number], self.made[number] = ctx, self._latest
        return self._request(doc=doc, ctx=ctx, **kwargs)

    def _fewshot_context(self, doc: dict[str, Any], num_fewshot: int, **kwargs: Any) -> Any:
        """In place of the task's own method of that name."""
        if self._kept:
            return ""
        sampler = self.task.sampler if isinstance(getattr(self.task, "sampler", None), Shots) else None
        if sampler is not None:
            sampler.begin(doc)
        prompt = self._make(doc, num_fewshot=num_fewshot, **kwargs)
        flags: list[str] = []
        lost: dict[str, int] = {}
        over = self._over(doc, prompt)
        if over > 0 and self.on_truncation == "error":
            raise BadInput(
                "on_truncation=error",
                f"the prompt '{' '.join(str(prompt)[-60:].split())}' of {self.task.task_name} is {over} tokens too "
                "long for the model's length less the answer's",
                "on_truncation=drop_shots",
            )
        if over > 0 and self.on_truncation == "drop_shots" and sampler is not None:
            sampler.fewer()
            kept = num_fewshot
            while over > 0 and kept > 0:
                kept -= 1
                prompt = self._make(doc, num_fewshot=kept, **kwargs)
                over = self._over(doc, prompt)
            sampler.given = sampler.given[:kept]
            flags, lost = ["dropped_shots"], {"tokens": 0, "shots": num_fewshot - kept}
        given = sampler.given if sampler is not None else []
        if over > 0:
            cut = self._cut_off(prompt, over, [sampler.pieces(i) for i in given] if sampler is not None else [])
            flags, lost = [*flags, "truncated"], {"tokens": over, "shots": lost.get("shots", 0) + cut}
        elif sampler is not None and len(given) < num_fewshot and not flags:
            flags = ["fewer_shots"]
        if sampler is not None and given:
            flags += sampler.copies(doc)
        flags += self.tokens.begin_flags(prompt[0] if isinstance(prompt, list) else prompt, cut=over > 0)
        self._latest = Prompt([sampler.shot(i) for i in given] if sampler is not None else [], flags, lost)
        return prompt

    def _over(self, doc: dict[str, Any], prompt: Any) -> int:
        """By how many tokens the prompt is too long, so that lm_eval cuts it from the left; 0 where that is unknown."""
        asks, config = self.task.OUTPUT_TYPE, self.task.config
        if self.tokens.length is None or asks == "loglikelihood_rolling":  # which goes through a text window by window
            return 0
        if asks == "generate_until":
            answer = int(config.generation_kwargs["max_gen_toks"]) + self.thinking_toks
            return self.tokens.over([prompt], self.tokens.length - answer)
        if isinstance(prompt, list):  # a context for each choice, and one ending for all
            ends = [self.task.doc_to_target(doc)]
        else:
            ends = self.task.doc_to_choice(doc) if config.doc_to_choice else [self.task.doc_to_target(doc)]
        contexts = prompt if isinstance(prompt, list) else [prompt]
        wholes = [f"{context}{config.target_delimiter}{end}" for context in contexts for end in ends]
        return self.tokens.over(wholes, int(self.tokens.lm.loglikelihood_length or 0))

    def _cut_off(self, prompt: Any, over: int, shots: list[list[str]]) -> int:
        """How many whole shots lie in the part that is cut off; their pieces stand in the prompt as they are."""
        if isinstance(prompt, list):
            prompt = max(prompt, key=len)
        start = len(prompt) - len(self.tokens.after(prompt, over))
        place = lost = 0
        for pieces in shots:
            for piece in pieces:
                found = prompt.find(piece, place)
                place = found + len(piece) if found >= 0 else place
            lost += place <= start
        return lost


class Tokens:
    """Counts the tokens of prompts, where the backend can and knows its length; elsewhere nothing is found too long."""

    def __init__(self, lm: Backend) -> None:
        self.lm = lm
        self.counts = lm.can.counts_tokens
        self.length = lm.max_length if self.counts and lm.can.knows_length else None
        self._bos, self._wants_bos = lm.begin_token() if self.counts else (None, False)

    def over(self, texts: list[str], room: int) -> int:
        """By how many tokens the longest of the texts exceeds the room; 0 or less where all fit."""
        # a token is a byte at least, so that short texts need not be counted; two are for begin and end
        doubtful = [text for text in texts if len(text.encode("utf-8", "surrogatepass")) + 2 > room]
        return max((len(self.lm.encode(text)) - room for text in doubtful), default=0)

    def after(self, text: str, over: int) -> str:
        """What is left of a text when so many of its tokens are cut off."""
        return self.lm.decode(self.lm.encode(text)[over:])

    def begin_flags(self, prompt: str, cut: bool) -> list[str]:
        """Whether the begin token (BOS) comes twice, or not at all where the tokenizer is to put one."""
        if self._bos is None:
            return []
        tokens = [] if cut else self.lm.encode(prompt[:64])  # the begin is all that counts
        if tokens[:2] == [self._bos, self._bos]:
            return ["double_bos"]
        return ["missing_bos"] if self._wants_bos and tokens[:1] != [self._bos] else []
