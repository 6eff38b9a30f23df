"""What prompts share from their first token on, as a forest: each node's tokens are read once for all below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MIN_SHARED = 16  # tokens: a shorter common part is not worth a node
MIN_SAVED = 64  # tokens that a node must save, since it costs a forward pass of its own
MAX_DEPTH = 8  # nodes below each other


@dataclass(frozen=True)
class Node:
    """A part of some sequences of tokens.

    Args:
        tokens: what follows those of the node above.
        start: how many tokens stand before it.
        keep: of how many of its tokens, from the last one back, the logits are wanted.
        ends: the numbers of the sequences that end with it.
        below: the numbers of all sequences that go through it.
        longest: tokens of the longest of these, from their beginning.
    """

    tokens: tuple[int, ...]
    start: int
    keep: int
    ends: tuple[int, ...]
    below: tuple[int, ...]
    longest: int
    children: list[Node] = field(default_factory=list)


def forest(
    sequences: Sequence[tuple[int, ...]], wanted: Sequence[int], shares: bool = True, most: int | None = None
) -> list[Node]:
    """Build the forest of some sequences, the longest first.

    Args:
        sequences: token ids, none empty, none twice.
        wanted: for each sequence the first position whose logits are wanted.
        shares: False: each sequence is a node of its own.
        most: of how many positions one node may give logits; a longer one is split.
    """
    return _Builder(sequences, wanted, most).build(shares)


class _Builder:
    def __init__(self, sequences: Sequence[tuple[int, ...]], wanted: Sequence[int], most: int | None) -> None:
        self.sequences, self.wanted, self.most = sequences, wanted, most
        self.order = sorted(range(len(sequences)), key=sequences.__getitem__)
        pairs = zip(self.order, self.order[1:], strict=False)
        self.common = [_common(sequences[a], sequences[b]) for a, b in pairs]  # of neighbours in `order`

    def build(self, shares: bool) -> list[Node]:
        if not shares:
            return _longest_first([self._leaf(i, 0) for i in range(len(self.order))])
        return self._part(0, len(self.order), 0, 0)

    def _part(self, low: int, high: int, start: int, depth: int) -> list[Node]:
        """Give the nodes of order[low:high], which share `start` tokens that nodes above hold."""
        nodes = []
        for first, last in self._runs(low, high, start + MIN_SHARED):
            if last - first == 1 or depth == MAX_DEPTH:
                nodes += [self._leaf(i, start) for i in range(first, last)]
                continue
            shared = min(self.common[first : last - 1])
            if (shared - start) * (last - first - 1) < MIN_SAVED:
                for a, b in self._runs(first, last, shared + 1):
                    nodes += self._part(a, b, start, depth + 1) if b - a > 1 else [self._leaf(a, start)]
                continue
            ends = [i for i in range(first, last) if len(self.sequences[self.order[i]]) == shared]
            rest = first + len(ends)  # a sequence that is the beginning of others stands before them
            nodes.append(self._node(first, last, start, shared, self._part(rest, last, shared, depth + 1), len(ends)))
        return _longest_first(nodes)

    def _runs(self, low: int, high: int, least: int) -> list[tuple[int, int]]:
        """Part order[low:high] where neighbours share fewer than `least` tokens."""
        cuts = [i + 1 for i in range(low, high - 1) if self.common[i] < least]
        return list(zip([low, *cuts], [*cuts, high], strict=True))

    def _leaf(self, i: int, start: int) -> Node:
        return self._node(i, i + 1, start, len(self.sequences[self.order[i]]), [], 1)

    def _node(self, low: int, high: int, start: int, end: int, children: list[Node], ends: int) -> Node:
        below = tuple(self.order[low:high])
        tokens = self.sequences[below[0]][:end]
        wanted = min(self.wanted[i] for i in below)
        longest = max(len(self.sequences[i]) for i in below)
        # from the end back, so that each piece stands above the next
        piece, ended = end, below[:ends]
        while True:
            split = self.most is not None and piece - max(start, wanted) > self.most
            begin = piece - self.most if split and self.most else start
            keep = max(0, piece - max(begin, wanted))
            node = Node(tokens[begin:piece], begin, keep, ended, below, longest, children)
            if begin == start:
                return node
            piece, children, ended = begin, [node], ()


def _longest_first(nodes: list[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (-node.longest, node.tokens))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Count the tokens that two sequences share from the first on."""
    same, end = 0, min(len(a), len(b)) + 1
    while end - same > 1:  # by halves: slices are compared much faster than their tokens one by one
        middle = (same + end) // 2
        if a[same:middle] == b[same:middle]:
            same = middle
        else:
            end = middle
    return same
