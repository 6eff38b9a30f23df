"""Log-likelihoods of continuations by a causal model: what texts share is read once, and no other logits are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from evalsweep.engine.models.descent import descend
from evalsweep.engine.models.forward import Forward
from evalsweep.engine.models.prefixes import Node, forest

Text = tuple[tuple[int, ...], int]  # the tokens of a text, and how many of them, from the last one back, are scored


def log_likelihoods(
    forward: Forward,
    texts: Sequence[Text],
    rows: int,
    positions: int,
    tell: Callable[[int, float, bool], None],
) -> int | None:
    """Score the ends of texts.

    Args:
        forward: reads with the model.
        texts: each of two tokens or more, with a token at least that is not scored.
        rows: of a batch, at the most.
        positions: whose logits are held at once, at the most: a batch has fewer rows where more of each are wanted.
        tell: gets the number of a text, the log-likelihood of its end (natural logarithm), and whether greedy decoding
            would give that end.

    Returns:
        The rows of a batch after memory ran out, None where it never did.

    Errors: torch.OutOfMemoryError where a single row does not fit.
    """
    done: set[int] = set()
    smallest = None

    def scored(number: int, score: float, greedy: bool) -> None:
        done.add(number)
        tell(number, score, greedy)

    while left := [number for number in range(len(texts)) if number not in done]:
        try:
            _Scorer(texts, left, positions).run(forward, rows, scored)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise
            rows = smallest = rows // 2
        # outside of the handler, whose traceback holds the tensors
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return smallest


class _Scorer:
    def __init__(self, texts: Sequence[Text], left: Sequence[int], positions: int) -> None:
        self.texts, self.positions = texts, positions
        by_read: dict[tuple[int, ...], list[int]] = {}  # the last token of a text is scored and not read
        for number in left:
            by_read.setdefault(texts[number][0][:-1], []).append(number)
        self.read = list(by_read)
        self.of = list(by_read.values())
        self.totals = dict.fromkeys(left, (0.0, True))

    def run(self, forward: Forward, rows: int, tell: Callable[[int, float, bool], None]) -> None:
        wanted = [min(self._first(number) for number in numbers) for numbers in self.of]
        nodes = forest(self.read, wanted, most=self.positions)

        def fits(batch: Sequence[Node]) -> bool:
            return len(batch) <= rows and len(batch) * max(node.keep for node in batch) <= self.positions

        with torch.inference_mode():
            for _, logits, batch in descend(forward, nodes, fits):
                self._add(logits, batch)
                del logits
                for number in (number for node in batch for end in node.ends for number in self.of[end]):
                    tell(number, *self.totals[number])

    def _first(self, number: int) -> int:
        """Give the first position of a text whose logits score a token."""
        tokens, scored = self.texts[number]
        return len(tokens) - scored - 1

    def _add(self, logits: torch.Tensor, batch: Sequence[Node]) -> None:
        """Add what the logits of a batch say of the tokens after them, (rows, keep, vocabulary)."""
        at: list[tuple[int, int, int]] = []  # row, position among the kept ones, the token that is scored
        whose: list[int] = []
        kept = logits.shape[1]
        for r, node in enumerate(batch):
            end = node.start + len(node.tokens)
            for number in (number for read in node.below for number in self.of[read]):
                tokens = self.texts[number][0]
                for position in range(max(self._first(number), end - node.keep), min(end, len(tokens) - 1)):
                    at.append((r, kept - end + position, tokens[position + 1]))
                    whose.append(number)
        if not at:
            return
        row, position, token = torch.tensor(at, device=logits.device).T
        best = logits.argmax(-1)[row, position] == token
        found = logits[row, position, token] - logits.logsumexp(-1)[row, position]
        for number, score, is_best in zip(whose, found.tolist(), best.tolist(), strict=True):
            total, greedy = self.totals[number]
            self.totals[number] = total + score, greedy and bool(is_best)
