"""An answer as text: the decoding of prompt and answer together, less the prompt.

An answer's tokens decoded alone are another text: SentencePiece drops the space that begins them, and other decoders
join or clean what stands at a text's begin. Nothing is stripped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

CONTEXT = 32  # tokens of the prompt that are decoded with an answer: what decoders do to a begin is long past by then


class Detokenizer:
    """Makes text of an answer's tokens, with the prompt before them.

    `plain` leaves special tokens out, `marked` keeps them.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)

    def plain(self, prompt: Sequence[int], answer: Sequence[int]) -> str:
        """Give the answer without special tokens, as transformers' own decoding does."""
        return self._after(prompt, answer, True)

    def marked(self, prompt: Sequence[int], answer: Sequence[int]) -> str:
        """Give the answer with its special tokens spelled out, for tags and stop strings that are such tokens."""
        return self._after(prompt, answer, False)

    def _after(self, prompt: Sequence[int], answer: Sequence[int], skip: bool) -> str:
        before = list(prompt[-CONTEXT:])
        if skip:
            before = [token for token in before if token not in self._special]
            answer = [token for token in answer if token not in self._special]
        head, whole = self._decode(before), self._decode([*before, *answer])
        if whole.startswith(head):
            return whole[len(head) :]
        # the prompt ends within a letter of several tokens: its replacement mark is complete only with the answer
        return whole[len(head.rstrip("\ufffd")) :]

    def _decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def cut(text: str, stop: Sequence[str], quiet: Callable[[str], list[tuple[int, int]]]) -> str:
    """Cut a text before its first stop string that lies outside of the quiet regions."""
    at = first_stop(text, stop, quiet)
    return text if at is None else text[:at]


def first_stop(text: str, stop: Sequence[str], quiet: Callable[[str], list[tuple[int, int]]]) -> int | None:
    """Find the first stop string outside of the quiet regions of a text; None where there is none."""
    regions: list[tuple[int, int]] | None = None
    best: int | None = None
    for word in stop:
        start = text.find(word)
        while start >= 0 and (best is None or start < best):
            regions = quiet(text) if regions is None else regions
            if not any(a <= start < b for a, b in regions):
                best = start
                break
            start = text.find(word, start + 1)
    return best
