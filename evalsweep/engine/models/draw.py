"""The draw of the next token, from the logits and the noise of each row, and whether rounding could decide it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

from evalsweep.engine.models import noise
from evalsweep.engine.models.requests import CAPPED, Request

# Two logits closer than this, in logits, are a near-tie, which batches of different shapes may decide differently.
# Measured on the embedded model between batch shapes: differences move by at most 4e-5 in float32. In 16 bits they move
# by up to 0.5, and to decide all of that anew would cost more than the generation itself: there a part is left.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
TOLERANCE_16_BITS = 0.05

# In the order in which transformers applies them.
WARPERS: dict[str, Any] = {
    "repetition_penalty": transformers.RepetitionPenaltyLogitsProcessor,
    "no_repeat_ngram_size": transformers.NoRepeatNGramLogitsProcessor,
    "top_k": transformers.TopKLogitsWarper,
    "top_p": transformers.TopPLogitsWarper,
    "min_p": transformers.MinPLogitsWarper,
    "typical_p": transformers.TypicalLogitsWarper,
    "epsilon_cutoff": transformers.EpsilonLogitsWarper,
    "eta_cutoff": transformers.EtaLogitsWarper,
}


@dataclass(frozen=True, eq=False)
class Settings:
    """What decides an answer besides the model and the request.

    `warpers` are transformers' own, by their names; `quiet` gives the regions of an answer's text in which stop strings
    do not count, told whether the prompt has opened the thinking part.
    """

    temperature: float  # 0: greedy
    max_gen_toks: int
    stop: tuple[str, ...]
    end_tokens: frozenset[int]
    tolerance: float
    warpers: dict[str, Any] = field(default_factory=dict)
    quiet: Callable[[str, bool], list[tuple[int, int]]] = lambda _text, _opened: []


@dataclass(frozen=True, eq=False)
class Prompted:
    """A request and what it is to the model: its tokens, and whether these end within the thinking part."""

    request: Request
    tokens: tuple[int, ...]
    settings: Settings
    opened: bool = False


@dataclass
class Row:
    """An answer as it grows: its new tokens, how it ended, and what was seen of rounding.

    `near_ties` counts the tokens that rounding might have decided, `flipped` those in which the batch would have chosen
    another token than the row alone; `moved` is the most by which a difference of two logits moved between the two.
    """

    of: Prompted
    new: list[int] = field(default_factory=list)
    ended: str = CAPPED
    near_ties: int = 0
    flipped: int = 0
    moved: float = 0.0

    def __post_init__(self) -> None:
        request = self.of.request
        self.key = noise.stream_key(request.seed or 0, request.prompt, request.sample)

    @property
    def tokens(self) -> list[int]:
        """Prompt and answer so far."""
        return [*self.of.tokens, *self.new]


def scores(alive: Sequence[Row], logits: torch.Tensor, settings: Settings) -> tuple[torch.Tensor, torch.Tensor]:
    """Perturb the logits of some rows; the argmax of each row is its next token.

    Args:
        alive: the rows.
        logits: float32 (rows, vocabulary), on any device, which is where all is computed.
        settings: theirs, the same for all.

    Returns:
        Logits when greedy, else logits / temperature, warped, plus noise: (rows, vocabulary), -inf for tokens that no
        noise could make the largest. And whether a token at the edge of what warpers cut off decides: bool (rows,).
    """
    for name in ("repetition_penalty", "no_repeat_ngram_size"):
        if name in settings.warpers:
            # row by row, on its own tokens: padding would be penalised with the rest
            process = WARPERS[name](settings.warpers[name])
            rows = [torch.tensor([row.tokens], device=logits.device) for row in alive]
            logits = torch.cat([process(ids, logits[r : r + 1].clone()) for r, ids in enumerate(rows)])
    whole = logits.to(noise.wide(logits.device))
    if not settings.temperature:
        return whole, torch.zeros(len(alive), dtype=torch.bool, device=logits.device)
    whole = whole / settings.temperature
    kept = whole
    for name, make in WARPERS.items():
        if name in settings.warpers and name not in ("repetition_penalty", "no_repeat_ngram_size"):
            kept = make(settings.warpers[name])(None, kept)
    near = settings.tolerance / settings.temperature
    # the largest has the smallest noise at the least, and another the largest at the most
    wanted = whole >= kept.amax(-1, keepdim=True) - (noise.LARGEST - noise.SMALLEST) - 2 * near
    streams = torch.tensor([[*noise.halves(row.key), len(row.new)] for row in alive], device=logits.device)
    drawn = noise.gumbel(streams[:, :2], streams[:, 2], wanted)
    return kept + drawn, _at_the_edge(whole, kept, drawn, settings)


def _at_the_edge(whole: torch.Tensor, kept: torch.Tensor, drawn: torch.Tensor, settings: Settings) -> torch.Tensor:
    """For each row, whether the choice hangs on a token that rounding may let in, or out, of what warpers keep.

    All warpers but typical_p keep the likeliest tokens. The last of these and the first that is cut off are at the
    edge, with all that are within the tolerance of them; typical_p has no such order, and each of its tokens counts.
    """
    if "typical_p" in settings.warpers:
        return torch.ones(len(whole), dtype=torch.bool, device=whole.device)
    if kept is whole:
        return torch.zeros(len(whole), dtype=torch.bool, device=whole.device)
    out = torch.isinf(kept)
    inf, near = torch.inf, settings.tolerance / settings.temperature
    last = whole.masked_fill(out, inf).amin(-1, keepdim=True)
    first = whole.masked_fill(~out, -inf).amax(-1, keepdim=True)  # -inf where nothing is cut off
    chosen = (kept + drawn).argmax(-1, keepdim=True)
    at = whole.gather(-1, chosen)
    may_leave = (at <= torch.maximum(last, first + near)) & ~torch.isinf(first)
    may_enter = out & (whole >= torch.minimum(first, last - near))
    rivals = (whole + drawn).masked_fill(~may_enter, -inf).amax(-1, keepdim=True)
    return (may_leave | (rivals > (kept + drawn).gather(-1, chosen))).squeeze(-1)
