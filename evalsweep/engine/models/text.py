"""An answer as text: the decoding of prompt and answer together, less the prompt.

An answer's tokens decoded alone are another text: SentencePiece drops the space that begins them, and other decoders
join or clean what stands at a text's begin. Nothing is stripped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

CONTEXT = 32  # tokens of the prompt that are decoded with an answer: what decoders do to a begin is long past by then
BROKEN = "\ufffd"  # what decoders write for bytes that make no letter


class Detokenizer:
    """Makes text of an answer's tokens, with the prompt before them.

    `plain` leaves special tokens out, `marked` keeps them; `special` has them by their ids.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.special = special_tokens(tokenizer)

    def plain(self, prompt: Sequence[int], answer: Sequence[int], tags: Sequence[str] = ()) -> str:
        """Give the answer without special tokens, as transformers' own decoding does; those that are tags are kept."""
        return self._after(prompt, answer, {token for token, text in self.special.items() if text not in tags})

    def marked(self, prompt: Sequence[int], answer: Sequence[int]) -> str:
        """Give the answer with its special tokens spelled out, for tags and stop strings that are such tokens."""
        return self._after(prompt, answer, set())

    def _after(self, prompt: Sequence[int], answer: Sequence[int], left_out: set[int]) -> str:
        before = [token for token in prompt[-CONTEXT:] if token not in left_out]
        answer = [token for token in answer if token not in left_out]
        head = self._decode(before)
        for _ in range(3):  # a letter has four bytes at most
            if not head.startswith(BROKEN):
                break
            # begun within a letter: SentencePiece's decoder would give up every byte from there on, the answer's too
            before = before[1:]
            head = self._decode(before)
        whole = self._decode([*before, *answer])
        if whole.startswith(head):
            return whole[len(head) :]
        if head.endswith(BROKEN):
            # the prompt ends within a letter of several tokens: its replacement mark is complete only with the answer
            return whole[len(head.rstrip(BROKEN)) :]
        # bytes that make no letter, and SentencePiece's decoder gives up those of the prompt before them too; an answer
        # that begins with bytes begins with no space, and so loses nothing alone
        return self._decode(answer)

    def _decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def special_tokens(tokenizer: Any) -> dict[int, str]:
    """Give the tokens that transformers' own decoding leaves out, by their ids.

    A fast tokenizer leaves out those that its file marks as special, many of which it has no name for; another one
    those that it names.
    """
    if tokenizer.is_fast:
        return {token: str(added) for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    return dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))


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
