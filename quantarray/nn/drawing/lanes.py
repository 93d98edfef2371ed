"""Places of the boxes of a drawing: a rank from top to bottom, and a lane from left to right.

The longest path is straight in lane 0. Branches, and edges that pass boxes, take lanes beside it, short ones first, so
that a shortcut is drawn as a line or a column beside what it skips.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

Edge = tuple[int, int]  # box, and a box below it


class Places(NamedTuple):
    """A rank and a lane for each box, and the lane in which each edge passes the ranks between its boxes."""

    ranks: list[int]
    lanes: list[int]
    routes: dict[Edge, int]


def place(boxes: int, edges: Iterable[Edge]) -> Places:
    """Put boxes 0 .. boxes - 1, each below those from which it has an edge.

    >>> place(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    Places(ranks=[0, 1, 2, 3], lanes=[0, 0, 0, 0], routes={(0, 1): 0, (1, 2): 0, (2, 3): 0, (0, 3): 1})
    """
    edges = list(dict.fromkeys(edges))
    before: list[list[int]] = [[] for _ in range(boxes)]
    below: list[list[int]] = [[] for _ in range(boxes)]
    for a, b in edges:
        before[b].append(a)
        below[a].append(b)
    ranks, heights = [0] * boxes, [0] * boxes
    for b in range(boxes):
        ranks[b] = max((ranks[a] + 1 for a in before[b]), default=0)
    for a in reversed(range(boxes)):
        heights[a] = max((heights[b] + 1 for b in below[a]), default=0)
    for a in reversed(range(boxes)):  # a box without others above, such as a second input, goes where it is needed
        if not before[a] and below[a]:
            ranks[a] = min(ranks[b] for b in below[a]) - 1
    lanes, routes = _lanes(_chains(below, ranks, heights), before, below, ranks)
    spans = sorted((ranks[b] - ranks[a], a, b) for a, b in edges if (a, b) not in routes and ranks[b] - ranks[a] > 1)
    for _, a, b in spans:
        routes[a, b] = lanes.first_free(ranks[a] + 1, ranks[b] - 1)
    return Places(ranks, lanes.of, {(a, b): routes.get((a, b), lanes.of[b]) for a, b in edges})


def _chains(below: list[list[int]], ranks: list[int], heights: list[int]) -> list[list[int]]:
    """Divide the boxes into paths; the first is the longest of all, from top to bottom."""
    chains, seen = [], [False] * len(below)
    for first in sorted(range(len(below)), key=lambda a: (-heights[a], ranks[a])):
        if seen[first]:
            continue
        chain: list[int] = []
        at: int | None = first
        while at is not None:
            chain.append(at)
            seen[at] = True
            at = min((b for b in below[at] if not seen[b]), key=lambda b: (-heights[b], b), default=None)
        chains.append(chain)
    return chains


class _Lanes:
    """A lane for each box, and the ranks that are taken in each lane."""

    def __init__(self, boxes: int) -> None:
        self.of = [0] * boxes
        self.taken: list[set[int]] = []

    def first_free(self, top: int, bottom: int) -> int:
        """Take ranks top .. bottom of the first lane in which they are free, and return it."""
        ranks = set(range(top, bottom + 1))
        lane = next((i for i, taken in enumerate(self.taken) if not taken & ranks), len(self.taken))
        if lane == len(self.taken):
            self.taken.append(set())
        self.taken[lane] |= ranks
        return lane


def _lanes(
    chains: list[list[int]], before: list[list[int]], below: list[list[int]], ranks: list[int]
) -> tuple[_Lanes, dict[Edge, int]]:
    """Return the lanes of boxes, and of the edges within chains and at their ends, which share the chain's lane."""
    lanes, routes = _Lanes(len(ranks)), {}

    def length(chain: list[int]) -> int:
        return ranks[chain[-1]] - ranks[chain[0]]

    for chain in [chains[0], *sorted(chains[1:], key=length)] if chains else []:
        first, last = chain[0], chain[-1]
        entry = max(before[first], key=lambda a: ranks[a], default=None)
        leave = min(below[last], key=lambda b: ranks[b], default=None)
        top = ranks[first] if entry is None else ranks[entry] + 1
        bottom = ranks[last] if leave is None else ranks[leave] - 1
        lane = lanes.first_free(top, bottom)
        pairs = [*pairwise(chain)]
        pairs += [(entry, first)] if entry is not None else []
        pairs += [(last, leave)] if leave is not None else []
        for box in chain:
            lanes.of[box] = lane
        routes.update(dict.fromkeys(pairs, lane))
    return lanes, routes
