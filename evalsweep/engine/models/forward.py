"""Rows of tokens that a causal model has read, and how it reads on: no row's logits depend on the others."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from evalsweep.errors import BadInput

ROOM = 64  # tokens that a cache gets room for beyond those it holds
# Rows beyond which a larger batch was not seen to be faster: on two cores, and for GPUs by the sizes of their batches.
MOST, MOST_ON_GPU = 64, 256
WIDEST = 64  # bytes for each token of the vocabulary, of a row whose next token is chosen: logits, noise, comparisons


class Layer(DynamicLayer):
    """Keys and values of one layer, with room to grow: transformers' own layer copies all of them at each token.

    `keys` and `values` are a part, `count` rows and the columns from `begin` to `end`, of two larger tensors. Those
    hold numbers everywhere: a masked column is multiplied by zero, not left out.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.begin = self.end = self.count = 0
        self._own: torch.Tensor | None = None  # which of the columns that come next are to be written

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[Any, Any]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._hold(key_states[:, :, :0], value_states[:, :, :0], before=0, after=key_states.shape[-2])
        new = key_states.shape[-2]
        if self.end + new > self._keys.shape[-2]:
            self._hold(self.keys, self.values, before=0, after=new + ROOM)
        self.end += new
        for held, states in ((self._keys, key_states), (self._values, value_states)):
            columns = held[: self.count, :, self.end - new : self.end]
            columns[:] = states if self._own is None else torch.where(self._own, states, columns)
        self._own = None
        return self._view()

    def rows(self, index: torch.Tensor, own: torch.Tensor | None = None) -> Layer:
        """Give a copy of some rows, moved to the right by the columns of what is read next that are not their own.

        So the tokens of a row stand side by side, whatever was read in one batch: windows count columns.

        Args:
            index: int64, rows of this layer.
            own: bool (rows, columns to be read), False on the left where a row has fewer tokens; None where none has.
        """
        other = Layer()
        other.is_initialized, other.device = True, self.device
        index = index.to(self.device)
        if own is None:
            other._hold(self.keys[index], self.values[index], before=0, after=ROOM)
            return other
        own = own.to(self.device)
        columns, wider = self.end - self.begin, self.end - self.begin + own.shape[1]
        source = torch.arange(wider, device=self.device) - (~own).sum(1, keepdim=True)
        source = source.clamp(0, columns - 1)[:, None, :, None]
        keys, values = (
            t[index].gather(2, source.expand(-1, t.shape[1], -1, t.shape[3])) for t in (self.keys, self.values)
        )
        other._hold(keys, values, before=0, after=ROOM)
        other.end, other._own = columns, own[:, None, :, None]
        other._view()
        return other

    def drop(self, count: int, moved: torch.Tensor, to: torch.Tensor) -> None:
        """Leave out all but the first rows, where some that stood behind them have moved to."""
        moved, to = moved.to(self.device), to.to(self.device)
        self.keys[to], self.values[to] = self.keys[moved], self.values[moved]
        self.count = count
        self._view()

    def narrow(self, columns: int) -> None:
        """Leave out all but the last columns."""
        self.begin = self.end - columns
        self._view()

    def widen(self, columns: int) -> None:
        """Have at least so many columns, the further ones on the left, with numbers that stand for nothing."""
        missing = columns - (self.end - self.begin)
        if missing > self.begin:
            self._hold(self.keys, self.values, before=missing, after=ROOM)
        self.begin = min(self.begin, self.end - columns)
        self._view()

    def put(self, slots: torch.Tensor, other: Layer) -> None:
        """Write the first rows of another layer, of no more columns than there are here, in the place of some."""
        slots, first, columns = slots.to(self.device), slice(len(slots)), other.end - other.begin
        self._keys[slots, :, self.end - columns : self.end] = other.keys[first]
        self._values[slots, :, self.end - columns : self.end] = other.values[first]

    def append(self, other: Layer) -> None:
        """Add other rows of as many columns."""
        self._hold(torch.cat([self.keys, other.keys]), torch.cat([self.values, other.values]), before=0, after=ROOM)

    def _hold(self, keys: torch.Tensor, values: torch.Tensor, before: int, after: int) -> None:
        self._keys, self._values = _with_room(keys, before, after), _with_room(values, before, after)
        self.begin, self.end, self.count = before, before + keys.shape[-2], keys.shape[0]
        self._view()

    def _view(self) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys, self.values = (t[: self.count, :, self.begin : self.end] for t in (self._keys, self._values))
        return self.keys, self.values


def _with_room(held: torch.Tensor, before: int, after: int) -> torch.Tensor:
    rows, heads, columns, size = held.shape
    whole = held.new_zeros(rows, heads, before + columns + after, size)
    whole[:, :, before : before + columns] = held
    return whole


class Rows:
    """What a model has read: a cache, and which of its columns are whose.

    Args:
        cache: of transformers.
        mask: int64 (rows, columns), 1 where a row has a token.
        spans: for each row how many columns, from the last one back, hold its tokens.
    """

    def __init__(self, cache: Any, mask: torch.Tensor, spans: list[int]) -> None:
        self.cache, self.mask, self.spans = cache, mask, spans

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def joins(self) -> bool:
        """Whether rows of other lengths can come beside these: all that the cache holds are columns of tokens."""
        return all(type(layer) is Layer for layer in self.cache.layers)

    def take(self, index: Sequence[int]) -> Rows:
        """Give a copy of some rows, each as often as it is named."""
        at = torch.tensor(index, device=self.mask.device)
        if self.joins:
            cache = self._copy(at)
        else:
            cache = copy.deepcopy(self.cache)
            cache.reorder_cache(at)  # each layer takes it to its own device
        found = Rows(cache, self.mask[at], [self.spans[i] for i in index])
        found.narrow()
        return found

    def branch(self, index: Sequence[int], own: torch.Tensor) -> Rows:
        """Give a copy of some rows that is about to read tokens, `own` of them each: bool (rows, columns)."""
        at = torch.tensor(index, device=self.mask.device)
        pads = (~own).sum(1, keepdim=True)
        # a token of this batch follows those before it, and the columns that are not its own stand before all
        columns = torch.arange(self.mask.shape[1] + own.shape[1], device=own.device) - pads
        mask = torch.cat([self.mask[at], torch.ones_like(own, dtype=self.mask.dtype)], 1)
        mask = mask.gather(1, columns.clamp(min=0)) * (columns >= 0)
        spans = [self.spans[i] + n for i, n in zip(index, own.sum(1).tolist(), strict=True)]
        return Rows(self._copy(at, None if bool(own.all()) else own), mask, spans)

    def _copy(self, at: torch.Tensor, own: torch.Tensor | None = None) -> Any:
        cache = copy.copy(self.cache)
        cache.layers = [layer.rows(at, own) if layer.is_initialized else Layer() for layer in self.cache.layers]
        return cache

    def drop(self, gone: Sequence[int]) -> list[int]:
        """Leave out some rows; gives the former numbers of the others, in their new order.

        Rows from the end fill the gaps, so that no other is copied.
        """
        count = len(self) - len(gone)
        order = [r for r in range(len(self)) if r not in set(gone)]
        if self.joins:
            to, moved = [r for r in gone if r < count], [r for r in order if r >= count]
            order = list(range(count))
            for place, r in zip(to, moved, strict=True):
                order[place] = r
            for layer, _ in self._with(self):
                layer.drop(count, torch.tensor(moved, dtype=torch.long), torch.tensor(to, dtype=torch.long))
        else:
            self.cache.reorder_cache(torch.tensor(order))
        self.mask, self.spans = self.mask[order], [self.spans[r] for r in order]
        self.narrow()
        return order

    def replace(self, slots: Sequence[int], other: Rows) -> None:
        """Put other rows in the place of some, in this order; those that find none are added at the end."""
        put, own = min(len(slots), len(other)), other.mask.shape[1]
        self._widen(max(self.mask.shape[1], own))
        if put:
            at = torch.tensor(slots[:put], device=self.mask.device)
            for layer, new in self._with(other):
                layer.put(at, new)
            self.mask[at] = torch.nn.functional.pad(other.mask[:put], (self.mask.shape[1] - own, 0))
            for slot, span in zip(slots, other.spans, strict=False):
                self.spans[slot] = span
        if put < len(other):
            rest = other.take(range(put, len(other))) if put else other
            rest._widen(self.mask.shape[1])
            for layer, new in self._with(rest):
                layer.append(new)
            self.mask, self.spans = torch.cat([self.mask, rest.mask]), self.spans + rest.spans
        self.narrow()

    def _with(self, other: Rows) -> Iterator[tuple[Layer, Layer]]:
        layers = zip(self.cache.layers, other.cache.layers, strict=True)
        return ((a, b) for a, b in layers if a.is_initialized)

    def _widen(self, columns: int) -> None:
        self.mask = torch.nn.functional.pad(self.mask, (columns - self.mask.shape[1], 0))
        for layer, _ in self._with(self):
            layer.widen(columns)

    def narrow(self) -> None:
        """Leave out the columns that no row has a token in any more."""
        columns = max(self.spans)
        if self.joins and columns < self.mask.shape[1]:
            self.mask = self.mask[:, -columns:]
            for layer, _ in self._with(self):
                layer.narrow(columns)


class Forward:
    """Reads tokens with one model.

    Args:
        model: of transformers.
        pad_token: any token; what it stands for is masked.

    `token_bytes` is what the cache takes for a token, and `state_bytes` what it takes for a row of any length; both are
    known once `check` has run.

    Errors: BadInput for a model that keeps no cache.
    """

    def __init__(self, model: Any, pad_token: int) -> None:
        self.model, self.pad_token = model, pad_token
        self.token_bytes = self.state_bytes = 0
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
        kinds = {type(layer) for layer in DynamicCache(config=model.config).layers}
        # a state holds what came before, and a chunk begins at a column: others' tokens are not only masked there
        chunks = getattr(model.config.get_text_config(), "attention_chunk_size", None)
        self.joins = bool(kinds) and kinds <= {DynamicLayer, DynamicSlidingWindowLayer} and not chunks

    def read(self, rows: Rows | None, tokens: Sequence[Sequence[int]], keep: int = 1) -> tuple[Rows, torch.Tensor]:
        """Read on, each row one token; or, where there are no rows yet, whole texts.

        Gives the rows, which are the same object, and the logits after the last `keep` tokens of each: float32, on the
        model's device, (rows, keep, vocabulary). Where a row has fewer tokens the first ones stand for nothing.
        """
        ids, own = self._padded(tokens)
        mask = own.long()
        if rows is None:
            cache = DynamicCache(config=self.model.config)
            if self.joins:
                cache.layers = [Layer() for _ in cache.layers]
            rows = Rows(cache, mask, [len(t) for t in tokens])
        else:
            rows.mask = torch.cat([rows.mask, mask], 1)
            rows.spans = [span + 1 for span in rows.spans]
        return rows, self._logits(ids, rows.mask, rows.cache, keep)

    def read_below(
        self, above: Rows, places: Sequence[int], tokens: Sequence[Sequence[int]], keep: int = 1
    ) -> tuple[Rows, torch.Tensor]:
        """Read on from copies of the rows `places` of `above`, each its tokens; gives what `read` gives."""
        ids, own = self._padded(tokens)
        rows = above.branch(places, own)
        logits = self._logits(ids, rows.mask, rows.cache, keep)
        rows.narrow()
        return rows, logits

    def _padded(self, tokens: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Give token ids (rows, longest), padded on the left, and which are the rows' own, on the model's device."""
        longest = max(map(len, tokens))
        ids = torch.tensor([[self.pad_token] * (longest - len(t)) + list(t) for t in tokens])
        own = torch.tensor([[False] * (longest - len(t)) + [True] * len(t) for t in tokens])
        return ids, own.to(self.model.device)

    def alone(self, tokens: Sequence[int]) -> torch.Tensor:
        """Give the logits after some tokens, computed in the one shape that no batch can change: unpadded, no cache.

        Shape (1, vocabulary).
        """
        return self._logits(torch.tensor([list(tokens)]), None, None, 1)[:, 0]

    def fitting(self, tokens: int) -> int:
        """Give how many rows of so many tokens fit into half of the memory that is free, and are worth it."""
        cuda = self.model.device.type == "cuda"
        free = torch.cuda.mem_get_info(self.model.device)[0] if cuda else psutil.virtual_memory().available
        logits = WIDEST * int(self.model.config.get_text_config().vocab_size)
        row = self.token_bytes * tokens + self.state_bytes + logits
        return max(1, min(MOST_ON_GPU if cuda else MOST, free // 2 // row))

    def _logits(self, ids: torch.Tensor, mask: torch.Tensor | None, cache: Any, keep: int) -> torch.Tensor:
        device = self.model.device
        given: dict[str, Any] = {"input_ids": ids.to(device), "use_cache": cache is not None}
        if cache is not None:
            given[self._cache] = cache
        if mask is not None:
            given["attention_mask"] = mask
            given["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        given["logits_to_keep"] = keep
        optional = {"position_ids", "logits_to_keep"} - self._known  # some models place their tokens by the mask
        logits: torch.Tensor = self.model(**{k: v for k, v in given.items() if k not in optional}).logits
        return logits[:, -keep:].float()

    @torch.inference_mode()
    def check(self, tokens: Sequence[int]) -> None:
        """Compare rows of a batch, read in parts and joined, with the same rows alone, on prompts of `tokens`.

        Some architectures keep a state that padding or a batch disturbs, and say nothing. One that only rows which are
        read in parts, or join later, disturb is read whole from then on.

        Errors: BadInput where the logits differ by more than rounding can, or are no numbers.
        """
        long, short = list(tokens), list(tokens[len(tokens) // 2 :])
        rows, logits = self.read(None, [long, short])
        check_finite(logits[:, 0], ["a first prompt, before any question was asked"] * 2)
        self.token_bytes = _bytes(rows.cache, ("keys", "values")) // (2 * len(long))
        self.state_bytes = _bytes(rows.cache, ("conv_states", "recurrent_states")) // 2
        best: list[int] = logits[:, 0].argmax(-1).tolist()
        logits = self.read(rows, [[token] for token in best])[1]
        moved = max(self._moved(logits[r, 0], [*p, best[r]]) for r, p in enumerate((long, short)))
        if not moved < self._bound():
            raise BadInput(
                type(self.model).__name__,
                f"gives other logits in a batch than alone (by {moved:.1g} of their spread): it keeps its state in "
                "a way that evalsweep's generator cannot batch; tasks of log-likelihoods work",
                "task=sample_choice",
            )
        self.joins = self.joins and self._parts(long, short, best) < self._bound()

    def _parts(self, long: list[int], short: list[int], best: list[int]) -> float:
        """How far logits move where two rows share a beginning, and a third comes beside them."""
        begun, _ = self.read(None, [long])
        shared, _ = self.read_below(begun, [0, 0], [short, short[-2:]])
        later, _ = self.read(None, [short])
        shared.replace([0], later)
        logits = self.read(shared, [best[1:], best[:1]])[1]
        wholes = [*short, best[1]], [*long, *short[-2:], best[0]]
        return max(self._moved(logits[r, 0], whole) for r, whole in enumerate(wholes))

    def _moved(self, logits: torch.Tensor, tokens: Sequence[int]) -> float:
        alone = self.alone(tokens)[0]
        given = torch.isfinite(alone)  # some models mask a part of their vocabulary with -inf
        return float((logits - alone)[given].abs().max() / alone[given].std())

    def _bound(self) -> float:
        return 0.01 if self.model.dtype == torch.float32 else 0.5


def _bytes(cache: Any, names: Sequence[str]) -> int:
    """Give what the tensors of some names take in a cache's layers, each of which has those of its kind."""
    found = [getattr(layer, name, None) for layer in cache.layers for name in names]
    parts = [part for of in found for part in (of.values() if isinstance(of, dict) else [of]) if part is not None]
    return sum(int(part.numel()) * part.element_size() for part in parts)


def check_finite(logits: torch.Tensor, where: Sequence[str]) -> None:
    """Stop where the model gave no numbers: NaN or +inf anywhere, or nothing but -inf, which some models mask with.

    Errors: BadInput that says where; `where` has a place for each row of logits (rows, vocabulary).
    """
    for row, largest in enumerate(logits.max(-1).values.tolist()):  # NaN where any is
        check_largest(largest, where[row])


def check_largest(largest: float, where: str) -> None:
    """Stop where the largest of a row of logits is no number. Errors: BadInput that says where."""
    if not math.isfinite(largest):
        raise BadInput(
            where,
            f"the model's logits are {largest}: no score can be made of them; the weights may be broken, or their "
            "dtype too narrow",
            "model.dtype=float32",
        )
