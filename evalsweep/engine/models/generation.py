"""Text from a causal model, token by token: each answer depends on its own request and not on the batch it is in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from evalsweep.engine.models.descent import descend
from evalsweep.engine.models.draw import Prompted, Row, Settings, scores
from evalsweep.engine.models.forward import Forward, Rows, check_largest
from evalsweep.engine.models.prefixes import Node, forest
from evalsweep.engine.models.requests import ENDED, STOPPED
from evalsweep.engine.models.text import first_stop


class Generator:
    """Generates with one model.

    Args:
        forward: reads tokens with it.
        decode: makes text of a prompt's and an answer's token ids: the answer's text, special tokens kept.
        shares: False: each answer reads its whole prompt, and a batch ends before the next one begins.

    `smallest_batch` is the number of rows of a batch after memory ran out, None where it never did.
    """

    def __init__(
        self, forward: Forward, decode: Callable[[Sequence[int], Sequence[int]], str], shares: bool = True
    ) -> None:
        self.forward, self.decode, self.shares = forward, decode, shares
        self.smallest_batch: int | None = None

    def generate(self, requests: Sequence[Prompted], rows: int, tell: Callable[[Row], None]) -> None:
        """Answer every request, in an order of its own; `tell` gets each row when it has ended.

        What prompts share from their first token on is read once, and so is a prompt of many samples, seeds and
        temperatures. At most `rows` answers grow at once; one that is finished makes room for the next. Out of memory,
        the batch is halved and what it held begins anew, with the same result.

        Errors: torch.OutOfMemoryError where a single row does not fit.
        """
        done: set[int] = set()

        def finished(row: Row) -> None:
            done.add(id(row.of))
            tell(row)

        while left := [request for request in requests if id(request) not in done]:
            try:
                self._answer(left, rows, finished)
            except torch.OutOfMemoryError:
                if rows == 1:
                    raise
                rows = self.smallest_batch = rows // 2
            # outside of the handler, whose traceback holds the tensors
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    @torch.inference_mode()
    def _answer(self, requests: Sequence[Prompted], most: int, finished: Callable[[Row], None]) -> None:
        joins = self.shares and self.forward.joins
        waiting = _Waiting(self.forward, requests, self.shares)
        batch: _Batch | None = None
        free: list[int] = []  # rows of the batch whose answers have ended
        while True:
            while batch is None or joins:
                new = waiting.begin(most - len(batch.alive) + len(free) if batch else most)
                if new is None:
                    break
                ended = self._choose(new, finished)
                if len(ended) == len(new.alive):
                    continue
                new.drop(ended)
                if batch is None:
                    batch = new
                else:
                    batch.replace(free, new)
                    free = free[len(new.alive) :]
            if batch is None:
                return
            batch.drop(free)
            batch.logits = self.forward.read(batch.rows, [[row.new[-1]] for row in batch.alive])[1][:, 0]
            free = self._choose(batch, finished)
            if len(free) == len(batch.alive):
                batch, free = None, []

    def _choose(self, batch: _Batch, finished: Callable[[Row], None]) -> list[int]:
        """Give each row of a batch its next token; tell those that end with it, and give their numbers."""
        parts: dict[int, list[int]] = {}
        for r, row in enumerate(batch.alive):
            parts.setdefault(id(row.of.settings), []).append(r)
        seen = [self._candidates(batch, part) for part in parts.values()]
        numbers = torch.cat(seen).tolist()  # all that leaves the model's device
        ended = []
        for r, (best, second, gap, edge, largest) in zip((r for p in parts.values() for r in p), numbers, strict=True):
            row = batch.alive[r]
            check_largest(largest, f"token {len(row.new) + 1} of an answer to '{_end_of(row)}'")
            unclear = gap < row.of.settings.tolerance or edge
            row.new.append(self._decide(row, int(best), int(second), gap) if unclear else int(best))
            if self._has_ended(row) or len(row.new) >= row.of.settings.max_gen_toks:
                finished(row)
                ended.append(r)
        return sorted(ended)

    def _candidates(self, batch: _Batch, part: Sequence[int]) -> torch.Tensor:
        """For rows of the same settings: the next token, the second, by how many logits, if at an edge, largest logit.

        Shape (rows, 5).
        """
        alive = [batch.alive[r] for r in part]
        logits = batch.logits if len(part) == len(batch.alive) else batch.logits[list(part)]
        settings = alive[0].of.settings
        found, edges = scores(alive, logits, settings)
        best = found.topk(2)
        gap = _unit(settings) * (best.values[:, 0] - best.values[:, 1])
        columns = [*best.indices.T, gap, edges, logits.max(-1).values]
        return torch.stack([column.to(found.dtype) for column in columns], 1)

    def _decide(self, row: Row, best: int, second: int, gap: float) -> int:
        """Give the next token that a row has alone, where rounding could decide it."""
        settings = row.of.settings
        own = scores([row], self.forward.alone(row.tokens), settings)[0][0]
        chosen = int(own.argmax())
        moved = abs(_unit(settings) * float(own[best] - own[second]) - gap)
        row.near_ties += 1
        row.flipped += chosen != best
        if math.isfinite(moved):
            row.moved = max(row.moved, moved)
        return chosen

    def _has_ended(self, row: Row) -> bool:
        settings = row.of.settings
        if row.new[-1] in settings.end_tokens:
            row.ended = ENDED
            return True
        if settings.stop:
            # a token is a byte or more; a few more come before, so that no cut within a letter hides a stop string
            longest = max(len(stop.encode("utf-8", "surrogatepass")) for stop in settings.stop)
            recent = row.new[-longest - 8 :]
            tail = self.decode(row.tokens[: len(row.tokens) - len(recent)], recent)
            if any(stop in tail for stop in settings.stop):
                # where stop strings do not count is seen from the whole answer
                said = self.decode(row.of.tokens, row.new)
                if first_stop(said, settings.stop, lambda text: settings.quiet(text, row.of.opened)) is not None:
                    row.ended = STOPPED
                    return True
        return False


@dataclass
class _Batch:
    """Answers that grow together: what was read of each, and the logits of its next token, (rows, vocabulary)."""

    rows: Rows
    logits: torch.Tensor
    alive: list[Row]

    def drop(self, ended: Sequence[int]) -> None:
        if ended:
            self.alive = [self.alive[r] for r in self.rows.drop(ended)]

    def replace(self, slots: Sequence[int], new: _Batch) -> None:
        self.rows.replace(slots, new.rows)
        for slot, row in zip(slots, new.alive, strict=False):
            self.alive[slot] = row
        self.alive += new.alive[len(slots) :]


class _Waiting:
    """Requests whose answers have not begun, by prompt, the longest first."""

    def __init__(self, forward: Forward, requests: Sequence[Prompted], shares: bool) -> None:
        by_prompt: dict[object, list[Prompted]] = {}
        for request in requests:
            by_prompt.setdefault(request.tokens if shares else id(request), []).append(request)
        self.by_prompt = list(by_prompt.values())
        prompts = [group[0].tokens for group in self.by_prompt]
        nodes = forest(prompts, [len(p) - 1 for p in prompts], shares and forward.joins)
        self._leaves = descend(forward, nodes, self._fits)
        self._room = 0
        self._rows: Rows | None = None
        self._own = False  # whether nobody else needs the rows: no answer that begins later, no prompt that goes on
        self._logits = torch.empty(0)
        self._ready: deque[tuple[int, Prompted]] = deque()  # requests whose prompts are read, with their rows

    def begin(self, room: int) -> _Batch | None:
        """Begin at most `room` answers, None where there is no room or nothing waits."""
        self._room = room
        while room and not self._ready:
            found = next(self._leaves, None)
            if found is None:
                return None
            self._rows, self._logits, nodes = found
            ended = [(r, prompt) for r, node in enumerate(nodes) for prompt in node.ends]
            self._ready.extend((r, request) for r, prompt in ended for request in self.by_prompt[prompt])
            self._own = len(self._ready) == len(nodes) and not any(node.children for node in nodes)
        if not room or self._rows is None:
            return None
        begun = [self._ready.popleft() for _ in range(min(room, len(self._ready)))]
        index, alive = [r for r, _ in begun], [Row(request) for _, request in begun]
        if self._own and index == list(range(len(self._rows))):
            rows, self._rows = self._rows, None
            return _Batch(rows, self._logits[:, -1], alive)
        return _Batch(self._rows.take(index), self._logits[index, -1], alive)

    def _fits(self, nodes: Sequence[Node]) -> bool:
        return sum(len(self.by_prompt[prompt]) for node in nodes for prompt in node.below) <= self._room


def _unit(settings: Settings) -> float:
    """Give what makes logits of scores, which are in logits / temperature."""
    return settings.temperature or 1.0


def _end_of(row: Row) -> str:
    return " ".join(row.of.request.prompt[-60:].split())
