"""Graphs whose edges have a direction: the cheapest cut, what lies in loops, and where all ways lead through.

{0: [1], 1: [2, 3], 2: [1], 3: []} is a graph, by what follows each of its nodes:

    0 ─→ 1 ─→ 3        pieces      (0,)  (1, 2)  (3,)
         ↓↑            dominators  0 of 1,  1 of 2 and of 3
         2

Nothing here calls itself, since programs may be long; and nothing depends on the order of a set.
"""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Graph = Mapping[int, Collection[int]]  # the nodes that follow each; one that only follows others needs no entry
Edge = tuple[Hashable, Hashable, int | None]  # from, to, and what it costs to cut it; None if it cannot be cut

_SOURCE, _SINK = 0, 1  # their numbers


def backwards(after: Graph) -> dict[int, list[int]]:
    """The same graph with its edges turned round, and an entry for each node.

    {0: [1, 2], 1: [2]}  →  {0: [], 1: [0], 2: [0, 1]}
    """
    before: dict[int, list[int]] = {node: [] for node in after}
    for node, others in after.items():
        for other in others:
            before.setdefault(other, []).append(node)
    return before


def _left(after: Graph, starts: Iterable[int], seen: set[int]) -> list[int]:
    """What the starts lead to past what was seen, depth first: each node when all that it leads to has been left."""
    found = []
    for start in starts:
        way = [] if start in seen else [(start, iter(after.get(start, ())))]
        seen.add(start)
        while way:
            node, others = way[-1]
            other = next((each for each in others if each not in seen), None)
            if other is None:
                found.append(node)
                way.pop()
            else:
                seen.add(other)
                way.append((other, iter(after.get(other, ()))))
    return found


def pieces(after: Graph) -> list[tuple[int, ...]]:
    """The strongly connected components, each before those that it leads to, and else those of smaller nodes first.

    {0: [3, 1], 1: [2], 2: [1], 3: []}  →  (0,)  (1, 2)  (3,)
    """
    before, seen = backwards(after), set[int]()
    # Kosaraju: what was left last leads to all that it can ever be reached from
    found = [_left(before, [node], seen) for node in reversed(_left(after, after, set()))]
    whole = {min(members): tuple(sorted(members)) for members in found if members}
    name = {node: first for first, members in whole.items() for node in members}
    ways_in = Counter(name[other] for node in after for other in after[node] if name[other] != name[node])
    ready, order = [first for first in whole if not ways_in[first]], []
    heapq.heapify(ready)
    while ready:
        first = heapq.heappop(ready)
        order.append(whole[first])
        for other in (name[other] for node in whole[first] for other in after.get(node, ()) if name[other] != first):
            ways_in[other] -= 1
            if not ways_in[other]:
                heapq.heappush(ready, other)
    return order


def dominators(after: Graph, start: int) -> dict[int, int]:
    """The last node before each through which all ways from the start lead; of all that is reached but the start.

    {0: [1, 2], 1: [3], 2: [3]}  →  {1: 0, 2: 0, 3: 0}

    Cooper, Harvey and Kennedy: "A simple, fast dominance algorithm".
    """
    before, left = backwards(after), _left(after, [start], set())
    rank = {node: n for n, node in enumerate(left)}
    found = {start: start}

    def meeting(one: int, other: int) -> int:
        while one != other:
            if rank[one] < rank[other]:
                one = found[one]
            else:
                other = found[other]
        return one

    changed = True
    while changed:
        changed = False
        for node in reversed(left[:-1]):
            above = functools.reduce(meeting, (each for each in before[node] if each in found))
            changed |= found.get(node) != above
            found[node] = above
    del found[start]
    return found


def behind_cut(edges: Iterable[Edge], source: Hashable, sink: Hashable) -> set[Hashable]:
    """The sink's side of the minimum cut between two nodes: of cuts of the same cost that nearest to the sink.

    Costs are whole numbers of any size; what costs nothing or less is cut anyway.

        a ─3→ b ─3→ c ─None→ d        from a to d:  {c, d}, since of both edges that cost 3 the second is nearer
    """
    open_edges = [edge for edge in edges if edge[2] is None or edge[2] > 0]
    # more than all that can be cut costs together: what costs so much is in no finite cut
    endless = 1 + sum(capacity for _, _, capacity in open_edges if capacity is not None)
    numbers: dict[Hashable, int] = {source: _SOURCE, sink: _SINK}
    pipes = _Pipes([], [], [[], []])
    for start, end, capacity in open_edges:
        for node, room in ((start, endless if capacity is None else capacity), (end, 0)):
            number = numbers.setdefault(node, len(numbers))
            if number == len(pipes.leaving):
                pipes.leaving.append([])
            pipes.leaving[number].append(len(pipes.room))
            pipes.room.append(room)
        pipes.leads_to.extend((numbers[end], numbers[start]))
    if source == sink or _pour(pipes) >= endless:
        raise ValueError(f"no finite cut lies between {source!r} and {sink!r}")
    levels = _levels(pipes)
    return {node for node, number in numbers.items() if levels[number] < len(levels)}


@dataclass(frozen=True)
class _Pipes:
    """Edges by number; `number ^ 1` is the same edge walked backwards, where what flows can be taken back."""

    leads_to: list[int]
    room: list[int]  # what more can flow
    leaving: list[list[int]]  # the edges of each node


@dataclass(frozen=True)
class _Heights:
    """How far from the sink each node is known to be, or further, and what that means for it."""

    levels: list[int]  # the number of nodes where the sink is out of reach
    peers: list[set[int]]  # the nodes of each level that are in reach
    turns: list[int]  # of each node's edges, the one that is tried next
    waiting: list[tuple[int, int]]  # a heap of the nodes from which something may go on, the highest first


def _pour(pipes: _Pipes) -> int:
    """Let all that can reach the sink flow there, and say how much that is; the rest stays where it gets stuck.

    Push-relabel. What is furthest from the sink goes on first: what joins on a long way is moved as one.
    """
    leads_to, room, leaving = pipes.leads_to, pipes.room, pipes.leaving
    held = [0] * len(leaving)
    for edge in leaving[_SOURCE]:
        held[leads_to[edge]] += room[edge]
        room[edge ^ 1] += room[edge]
        room[edge] = 0
    heights = _heights(pipes, held)
    levels, turns, waiting = heights.levels, heights.turns, heights.waiting
    while waiting:
        node = heapq.heappop(waiting)[1]
        edges, turn, below = leaving[node], turns[node], levels[node] - 1
        while held[node] and turn < len(edges):
            edge = edges[turn]
            there = leads_to[edge]
            if not room[edge] or levels[there] != below:
                turn += 1
                continue
            amount = min(held[node], room[edge])
            room[edge] -= amount
            room[edge ^ 1] += amount
            held[node] -= amount
            if not held[there] and there != _SINK:
                heapq.heappush(waiting, (-below, there))
            held[there] += amount
        turns[node] = turn
        if held[node]:
            _lift(pipes, heights, node)
    return held[_SINK]


def _heights(pipes: _Pipes, held: Sequence[int]) -> _Heights:
    levels = _levels(pipes)
    peers: list[set[int]] = [set() for _ in range(len(levels) + 1)]
    for node, level in enumerate(levels):
        if level < len(levels):
            peers[level].add(node)
    waiting = [(-level, node) for node, level in enumerate(levels) if held[node] and 0 < level < len(levels)]
    heapq.heapify(waiting)
    return _Heights(levels, peers, [0] * len(levels), waiting)


def _lift(pipes: _Pipes, heights: _Heights, node: int) -> None:
    """Raise a node none of whose edges leads down any more to just above the lowest that it still leads to.

    One that was alone on its level was the last way down for all that are higher: they are out of reach, and so is it.
    Without that they would be raised one by one, past all levels there are.
    """
    levels, peers, far = heights.levels, heights.peers, len(heights.levels)
    level = levels[node]
    if len(peers[level]) == 1:
        while peers[level]:  # no level is left out, so above an empty one nothing is in reach
            for each in peers[level]:
                levels[each] = far
            peers[level].clear()
            level += 1
        return
    peers[level].remove(node)
    levels[node] = 1 + min(levels[pipes.leads_to[edge]] for edge in pipes.leaving[node] if pipes.room[edge])
    heights.turns[node] = 0
    if levels[node] < far:
        peers[levels[node]].add(node)
        heapq.heappush(heights.waiting, (-levels[node], node))


def _levels(pipes: _Pipes) -> list[int]:
    """How many edges with room lead from each node to the sink; as many as there are nodes where it is out of reach."""
    far = len(pipes.leaving)
    levels = [far] * far
    levels[_SINK] = 0
    reached = [_SINK]
    for node in reached:  # which grows meanwhile
        for edge in pipes.leaving[node]:
            other = pipes.leads_to[edge]
            if levels[other] == far and pipes.room[edge ^ 1]:
                levels[other] = levels[node] + 1
                reached.append(other)
    return levels
