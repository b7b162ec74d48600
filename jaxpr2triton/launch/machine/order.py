"""In which order lanes that went apart take turns, so that they meet again where a device lets them meet.

The blocks of a kernel are put in an order in which every loop is in one piece, before what comes after it, and every
way through a branch comes before the place where the ways meet. Lanes that are further back in it go first.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import networkx as nx

from jaxpr2triton.launch.machine.ptx import Instruction

_ENDS = ("bra", "ret", "exit", "trap")


@dataclass
class Flow:
    """The blocks of a kernel, each known by its first instruction."""

    body: Sequence[Instruction]
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    branches: dict[int, int] = field(default_factory=dict)  # the last instruction of each block
    order: list[int] = field(default_factory=list)
    loops: list[frozenset[int]] = field(default_factory=list)  # a loop before those in it

    @property
    def ranks(self) -> list[int]:
        """The place of each instruction's block in the order."""
        places = {start: place for place, start in enumerate(self.order)}
        found, place = [], 0
        for number in range(len(self.body)):
            place = places.get(number, place)
            found.append(place)
        return found

    def ways_out(self, lines: Set[int]) -> set[int]:
        """The branches that leave a loop of the source, which is known by the lines that begin one.

        What lies at such a line and leaves no loop may be anything: compilers join conditions.
        """
        found = set()
        for loop in self.loops:
            for block in loop:
                last = self.branches[block]
                leaves = any(after not in loop for after in self.graph.successors(block))
                if leaves and self.body[last].guard and self.body[last].line in lines:
                    found.add(last)
        return found


def flow_of(body: Sequence[Instruction]) -> Flow:
    flow = Flow(body)
    labels = {n for n, each in enumerate(body) if not each.opcode}
    starts = sorted({0} | labels | {n + 1 for n, each in enumerate(body[:-1]) if each.name in _ENDS})
    block_of = {body[label].target: label for label in labels}
    flow.graph.add_nodes_from(starts)
    for start, end in zip(starts, [*starts[1:], len(body)]):
        last = body[end - 1]
        flow.branches[start] = end - 1
        if last.name == "bra":
            flow.graph.add_edge(start, block_of[last.target])
        if end < len(body) and (last.name not in _ENDS or last.guard):
            flow.graph.add_edge(start, end)
    _put_in_order(flow, starts)
    return flow


def _put_in_order(flow: Flow, blocks: Sequence[int]) -> None:
    """`blocks` are in the order of the text."""
    inside = flow.graph.subgraph(blocks)
    pieces = nx.condensation(inside)
    for number in nx.lexicographical_topological_sort(pieces, key=lambda piece: min(pieces.nodes[piece]["members"])):
        members = sorted(pieces.nodes[number]["members"])
        if len(members) > 1 or inside.has_edge(members[0], members[0]):
            flow.loops.append(frozenset(members))
        entered = (block for block in members if any(b not in members for b in flow.graph.predecessors(block)))
        first = next(entered, members[0])
        flow.order.append(first)
        if len(members) > 1:
            _put_in_order(flow, [block for block in members if block != first])
