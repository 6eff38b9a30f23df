"""Text from a causal model, token by token: each answer depends on its own request and not on the batch it is in."""

from __future__ import annotations

import copy
import inspect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from evalsweep.engine.models.draw import Prompted, Row, scores
from evalsweep.engine.models.noise import gumbel
from evalsweep.engine.models.requests import ENDED, STOPPED
from evalsweep.engine.models.text import first_stop
from evalsweep.errors import BadInput


class Generator:
    """Generates with one model.

    Args:
        model: of transformers.
        decode: makes text of a prompt's and an answer's token ids: the answer's text, special tokens kept.
        pad_token: any token; what it stands for is masked.

    `smallest_batch` is the number of rows of a batch after memory ran out, None where it never did.
    """

    def __init__(self, model: Any, decode: Callable[[Sequence[int], Sequence[int]], str], pad_token: int) -> None:
        self.model = model
        self.decode = decode
        self.pad_token = pad_token
        self.smallest_batch: int | None = None
        # an adapter of PEFT stands around the model and hands all arguments on
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._known = set(inspect.signature(inner.forward).parameters)
        # transformers renames the argument, model by model, and warns of the old name
        names = [n for n in ("cache", "past_key_values", "cache_params") if n in self._known]
        if not names:
            raise BadInput(
                type(inner).__name__,
                "keeps its state in a way that evalsweep's generator does not know; tasks of log-likelihoods work",
                "task=sample_choice",
            )
        self._cache = names[0]

    def generate(
        self,
        requests: Sequence[Prompted],
        rows: int,
        tell: Callable[[Row], None],
    ) -> None:
        """Answer every request, in an order of its own; `tell` gets each row when it has ended.

        The samples, seeds and temperatures of a prompt share its prefill, at most `rows` answers grow at once, and a
        finished one leaves the batch. Out of memory, the batch is halved and what it held begins anew, with the same
        result.

        Errors: torch.OutOfMemoryError where a single row does not fit.
        """
        bunches = list(_bunches(requests, rows))
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            while bunches:
                finished: list[Row] = []
                full = False
                try:
                    self._answer(bunches[0], rows, finished, pool)
                except torch.OutOfMemoryError:
                    if rows == 1:
                        raise
                    full = True
                for row in finished:
                    tell(row)
                if not full:
                    bunches = bunches[1:]
                    continue
                # outside of the handler, whose traceback holds the tensors
                rows //= 2
                self.smallest_batch = rows
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                done = {id(row.of) for row in finished}
                left = [r for bunch in bunches for group in bunch for r in group if id(r) not in done]
                bunches = list(_bunches(left, rows))

    @torch.inference_mode()
    def check(self, tokens: Sequence[int]) -> None:
        """Compare a padded batch that goes on from its cache with rows alone without one, on two prompts of `tokens`.

        Some architectures keep a state that padding or a batch disturbs, and say nothing.

        Errors: BadInput where the logits differ by more than rounding can, or are no numbers.
        """
        long, short = list(tokens), list(tokens[len(tokens) // 2 :])
        cache, mask, logits = self._prefill([long, short])
        check_finite(logits, ["a first prompt, before any question was asked"] * 2)
        best = logits.argmax(-1)
        mask = torch.cat([mask, torch.ones(2, 1, dtype=mask.dtype)], 1)
        batch = self._logits(best[:, None], mask, cache)
        for row, prompt in enumerate((long, short)):
            alone = self._logits(torch.tensor([[*prompt, int(best[row])]]), None, None)[0]
            given = torch.isfinite(alone)  # some models mask a part of their vocabulary with -inf
            moved = float((batch[row] - alone)[given].abs().max() / alone[given].std())
            if not moved < (0.01 if self.model.dtype == torch.float32 else 0.5):
                raise BadInput(
                    type(self.model).__name__,
                    f"gives other logits in a batch than alone (by {moved:.1g} of their spread): it keeps its state in "
                    "a way that evalsweep's generator cannot batch; tasks of log-likelihoods work",
                    "task=sample_choice",
                )

    @torch.inference_mode()
    def _answer(
        self,
        bunch: Sequence[Sequence[Prompted]],
        rows: int,
        finished: list[Row],
        pool: ThreadPoolExecutor,
    ) -> None:
        prefilled, mask, logits = self._prefill([group[0].tokens for group in bunch])
        wanted = [(i, request) for i, group in enumerate(bunch) for request in group]
        slices = list(_slices(wanted, rows))
        for n, part in enumerate(slices):
            cache = prefilled if n == len(slices) - 1 else copy.deepcopy(prefilled)
            index = torch.tensor([i for i, _ in part])
            cache.reorder_cache(index)  # each layer takes it to its own device
            alive = [Row(request) for _, request in part]
            self._grow(alive, cache, mask[index], logits[index], finished, pool)

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """The prompts' cache, their mask (prompts, longest) and the logits after each, padded on the left."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[self.pad_token] * (longest - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        cache = DynamicCache(config=self.model.config)
        return cache, mask, self._logits(ids, mask, cache)

    def _grow(
        self,
        alive: list[Row],
        cache: Any,
        mask: torch.Tensor,
        logits: torch.Tensor,
        finished: list[Row],
        pool: ThreadPoolExecutor,
    ) -> None:
        noise = _noise_ahead(pool, alive, logits.shape[-1])
        while True:
            tokens = self._choose(alive, logits, noise)
            staying = []
            for r, (row, token) in enumerate(zip(alive, tokens, strict=True)):
                row.new.append(token)
                if self._has_ended(row) or len(row.new) >= row.of.settings.max_gen_toks:
                    finished.append(row)
                else:
                    staying.append(r)
            if not staying:
                return
            if len(staying) < len(alive):
                index = torch.tensor(staying)
                cache.reorder_cache(index)  # each layer takes it to its own device
                mask, alive, tokens = mask[index], [alive[r] for r in staying], [tokens[r] for r in staying]
            mask = torch.cat([mask, torch.ones(len(mask), 1, dtype=mask.dtype)], 1)
            noise = _noise_ahead(pool, alive, logits.shape[-1])  # while the model computes
            logits = self._logits(torch.tensor(tokens)[:, None], mask, cache)

    def _logits(self, ids: torch.Tensor, mask: torch.Tensor | None, cache: Any) -> torch.Tensor:
        """Logits after the last token of each row, float32 on the processor, (rows, vocabulary)."""
        device = self.model.device
        given: dict[str, Any] = {"input_ids": ids.to(device), "use_cache": cache is not None}
        if cache is not None:
            given[self._cache] = cache
        if mask is not None:
            given["attention_mask"] = mask.to(device)
            position = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            given["position_ids"] = position.to(device)
        given["logits_to_keep"] = 1
        optional = {"position_ids", "logits_to_keep"} - self._known  # some models place their tokens by the mask
        logits: torch.Tensor = self.model(**{k: v for k, v in given.items() if k not in optional}).logits
        return logits[:, -1].float().cpu()

    def _choose(
        self, alive: Sequence[Row], logits: torch.Tensor, noise: Sequence[Future[np.ndarray] | None]
    ) -> list[int]:
        check_finite(logits, [f"token {len(row.new) + 1} of an answer to '{_end_of(row)}'" for row in alive])
        drawn = [None if n is None else torch.from_numpy(n.result()) for n in noise]
        chosen = [0] * len(alive)
        alike: dict[int, list[int]] = {}
        for r, row in enumerate(alive):
            alike.setdefault(id(row.of.settings), []).append(r)
        for part in alike.values():
            rows, own = [alive[r] for r in part], logits if len(part) == len(alive) else logits[part]
            for r, token in zip(part, self._choose_alike(rows, own, [drawn[r] for r in part]), strict=True):
                chosen[r] = token
        return chosen

    def _choose_alike(
        self, alive: Sequence[Row], logits: torch.Tensor, drawn: Sequence[torch.Tensor | None]
    ) -> list[int]:
        """Choose the next tokens of rows that share their settings."""
        settings = alive[0].of.settings
        found, edges = scores(alive, logits, settings, drawn)
        best: list[int]
        best, second = (t.tolist() for t in found.topk(2).indices.T)
        unit = settings.temperature or 1.0  # scores are in logits / temperature
        for r, row in enumerate(alive):
            gap = unit * float(found[r, best[r]] - found[r, second[r]])
            if not (gap < settings.tolerance or edges[r]):
                continue
            own = scores([row], self._alone(row), settings, [drawn[r]])[0][0]
            moved = abs(unit * float(own[best[r]] - own[second[r]]) - gap)
            row.near_ties += 1
            if math.isfinite(moved):
                row.moved = max(row.moved, moved)
            chosen = int(own.argmax())
            row.flipped += chosen != best[r]
            best[r] = chosen
        return best

    def _alone(self, row: Row) -> torch.Tensor:
        """The logits of a row computed in the one shape that no batch can change: alone, unpadded, without a cache."""
        return self._logits(torch.tensor([row.tokens]), None, None)

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


def check_finite(logits: torch.Tensor, where: Sequence[str]) -> None:
    """Stop where the model gave no numbers: NaN or +inf anywhere, or nothing but -inf, which some models mask with.

    Errors: BadInput that says where; `where` has a place for each row of logits (rows, vocabulary).
    """
    largest = logits.max(-1).values  # NaN where any is
    for row in (~torch.isfinite(largest)).nonzero().flatten().tolist():
        raise BadInput(
            where[row],
            f"the model's logits are {float(largest[row])}: no score can be made of them; the weights may be broken, "
            "or their dtype too narrow",
            "model.dtype=float32",
        )


def _end_of(row: Row) -> str:
    return " ".join(row.of.request.prompt[-60:].split())


def _noise_ahead(pool: ThreadPoolExecutor, alive: Sequence[Row], size: int) -> list[Future[np.ndarray] | None]:
    """Draw the noise of each row's next token; None for rows that draw nothing."""
    return [pool.submit(gumbel, row.key, len(row.new), size) if row.of.settings.temperature else None for row in alive]


def _bunches(requests: Sequence[Prompted], rows: int) -> Iterator[list[list[Prompted]]]:
    """Requests by prompt, longest prompt first, as many prompts as have their samples in `rows`; at least one."""
    groups: dict[tuple[int, ...], list[Prompted]] = {}
    for request in requests:
        groups.setdefault(request.tokens, []).append(request)
    bunch: list[list[Prompted]] = []
    for tokens in sorted(groups, key=lambda t: (-len(t), t)):
        if bunch and sum(map(len, bunch)) + len(groups[tokens]) > rows:
            yield bunch
            bunch = []
        bunch.append(groups[tokens])
    yield bunch


def _slices(wanted: list[tuple[int, Prompted]], rows: int) -> Iterator[list[tuple[int, Prompted]]]:
    """As few parts of at most `rows` as there can be, and as even."""
    size = math.ceil(len(wanted) / math.ceil(len(wanted) / rows))
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]
