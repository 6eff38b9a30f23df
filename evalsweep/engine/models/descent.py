"""How a model reads a forest of prompts: each node once, nodes beside each other in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch

from evalsweep.engine.models.forward import Forward, Rows
from evalsweep.engine.models.prefixes import Node


def descend(
    forward: Forward,
    nodes: Sequence[Node],
    fits: Callable[[Sequence[Node]], bool],
    above: Rows | None = None,
    places: Sequence[int] = (),
) -> Iterator[tuple[Rows, torch.Tensor, list[Node]]]:
    """Read nodes and all below them, a batch at a time.

    Args:
        forward: reads with the model.
        nodes: beside each other; what a batch has below it is read before the next one.
        fits: whether some nodes may be read in one batch; a single one always is.
        above: what was read before, where the nodes do not begin a text.
        places: the row of `above` that each node goes on from.

    Yields:
        The rows of a batch, the logits of the last `keep` positions of its nodes (rows, keep, vocabulary), and the
        nodes. The rows stay as they are until the next batch is asked for, and must not be changed.
    """
    open_ = deque(zip(places or [0] * len(nodes), nodes, strict=True))
    while open_:
        batch = [open_.popleft()]
        while open_ and fits([*(node for _, node in batch), open_[0][1]]):
            batch.append(open_.popleft())
        read = [node for _, node in batch]
        tokens, keep = [node.tokens for node in read], max(1, *(node.keep for node in read))
        if above is None:
            rows, logits = forward.read(None, tokens, keep)
        else:
            rows, logits = forward.read_below(above, [place for place, _ in batch], tokens, keep)
        yield rows, logits, read
        del logits
        below = [(r, child) for r, node in enumerate(read) for child in node.children]
        if below:
            yield from descend(forward, [child for _, child in below], fits, rows, [r for r, _ in below])
