"""The prompts of a task as they are made: of which shots, how much too long, and with how many begin tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lm_eval.models.huggingface import HFLM

from evalsweep.engine.shots import Shots
from evalsweep.errors import BadInput
from evalsweep.provenance import value_hash
from evalsweep.record import Shot


@dataclass(frozen=True)
class Prompt:
    """What is known of the prompt of one document; `lost` counts tokens and whole shots that do not reach the model."""

    shots: list[Shot] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)


class Prompts:
    """Stands around the making of a task's prompts: tells the sampler whose turn it is, and notes what came of it."""

    def __init__(self, task: Any, lm: Any, on_truncation: str) -> None:
        self.task = task
        self.lm = lm
        self.on_truncation = on_truncation
        self.made: dict[str, Prompt] = {}
        self._texts: dict[str, Any] = {}
        self._kept = False
        tokenizer = lm.tokenizer if isinstance(lm, HFLM) else None
        self._bos = getattr(tokenizer, "bos_token_id", None)
        self._wants_bos = False
        if tokenizer is not None and self._bos is not None:
            # said in its configuration (which transformers does not always heed), or done
            self._wants_bos = lm.declares_bos or list(tokenizer("a")["input_ids"])[:1] == [self._bos]
        self._make = task.fewshot_context
        task.fewshot_context = self._fewshot_context

    def keep(self) -> None:
        """From now on the prompts are given as they were made."""
        self._kept = True

    def of(self, doc: dict[str, Any]) -> Prompt:
        return self.made.get(value_hash(doc), Prompt())

    def _fewshot_context(self, doc: dict[str, Any], num_fewshot: int, **kwargs: Any) -> Any:
        """In place of the task's own method of that name."""
        key = value_hash(doc)
        if self._kept:
            return self._texts[key]
        sampler = self.task.sampler if isinstance(getattr(self.task, "sampler", None), Shots) else None
        if sampler is not None:
            sampler.scored, sampler.given = doc, []
        prompt = self._make(doc, num_fewshot=num_fewshot, **kwargs)
        flags: list[str] = []
        lost: dict[str, int] = {}
        over = self._over(doc, prompt)
        if over > 0 and self.on_truncation == "error":
            raise BadInput(
                "on_truncation=error",
                f"the prompt '{str(prompt)[-60:].strip()}' of {self.task.task_name} is {over} tokens too long for the "
                "model's length less the answer's",
                "on_truncation=drop_shots",
            )
        if over > 0 and self.on_truncation == "drop_shots":
            kept = num_fewshot
            while over > 0 and kept > 0:
                kept -= 1
                prompt = self._make(doc, num_fewshot=kept, **kwargs)
                over = self._over(doc, prompt)
            if sampler is not None and kept == 0:
                sampler.given = []
            flags, lost = ["dropped_shots"], {"tokens": 0, "shots": num_fewshot - kept}
        shots = [sampler.shot(i) for i in sampler.given] if sampler is not None else []
        if over > 0:
            flags, lost = [*flags, "truncated"], {"tokens": over, "shots": self._cut_off(prompt, over, shots)}
        elif sampler is not None and len(shots) < num_fewshot and not flags:
            flags = ["fewer_shots"]
        if sampler is not None and shots:
            flags += sampler.copies(doc)
        flags += self._begin_tokens(prompt)
        self.made[key] = Prompt(shots, flags, lost)
        self._texts[key] = prompt
        return prompt

    def _over(self, doc: dict[str, Any], prompt: Any) -> int:
        """By how many tokens the prompt is too long, so that lm_eval cuts it from the left; unknown for servers."""
        if not isinstance(self.lm, HFLM) or not isinstance(prompt, str):
            return 0
        if self.task.OUTPUT_TYPE == "generate_until":
            room = self.lm.max_length - self.task.config.generation_kwargs["max_gen_toks"]
            return len(self.lm.tok_encode(prompt)) - int(room)
        if self.task.OUTPUT_TYPE == "loglikelihood_rolling":
            return 0  # goes through a long text window by window
        choices = self.task.doc_to_choice(doc) if self.task.config.doc_to_choice else [self.task.doc_to_target(doc)]
        longest = max(map(str, choices), key=len)
        whole = self.lm.tok_encode(f"{prompt}{self.task.config.target_delimiter}{longest}")
        return len(whole) - int(self.lm.max_length) - 1

    def _cut_off(self, prompt: str, over: int, shots: list[Shot]) -> int:
        """How many whole shots lie in the part that is cut off."""
        kept = str(self.lm.tok_decode(self.lm.tok_encode(prompt)[over:]))
        start = len(prompt) - len(kept)
        ends, place = [], 0
        for shot in shots:
            found = prompt.find(shot.text, place)
            if found < 0:
                return 0  # a chat template has written the shots in its own way
            place = found + len(shot.text)
            ends.append(place)
        return sum(end <= start for end in ends)

    def _begin_tokens(self, prompt: Any) -> list[str]:
        """Whether the begin token (BOS) comes twice, or not at all where the tokenizer is to put one."""
        if self._bos is None or not isinstance(prompt, str):
            return []
        tokens = self.lm.tok_encode(prompt[:64])  # the begin is all that counts
        if tokens[:2] == [self._bos, self._bos]:
            return ["double_bos"]
        return ["missing_bos"] if self._wants_bos and tokens[:1] != [self._bos] else []
