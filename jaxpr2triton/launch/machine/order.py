"""In which order lanes that went apart take turns, so that they meet again where a device lets them meet.

The blocks of a kernel are put in an order in which every loop is in one piece, before what comes after it, and every
way through a branch comes before the place where the ways meet. Lanes that are further back in it go first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import networkx as nx

from jaxpr2triton.launch.machine.ptx import Instruction


def ranks(body: Sequence[Instruction]) -> list[int]:
    """The place of each instruction's block in that order."""
    starts = sorted(
        {0}
        | {n + 1 for n, each in enumerate(body) if each.name in _ENDS}
        | {n for n, each in enumerate(body) if not each.opcode}
    )
    starts = [start for start in starts if start < len(body)]
    block_of = {label.target: n for n, label in enumerate(body) if not label.opcode}
    graph = nx.DiGraph()
    graph.add_nodes_from(starts)
    for start, end in zip(starts, [*starts[1:], len(body)]):
        last = body[end - 1]
        if last.name == "bra":
            graph.add_edge(start, block_of[last.target])
        if end < len(body) and (last.name not in _ENDS or last.guard):
            graph.add_edge(start, end)
    order = {start: place for place, start in enumerate(_in_order(graph, starts))}
    found, place = [], 0
    for number in range(len(body)):
        place = order.get(number, place)
        found.append(place)
    return found


_ENDS = ("bra", "ret", "exit", "trap")


def _in_order(graph: nx.DiGraph, blocks: Sequence[int]) -> Iterator[int]:
    """`blocks` are in the order of the text."""
    inside = graph.subgraph(blocks)
    pieces = nx.condensation(inside)
    for number in nx.lexicographical_topological_sort(pieces, key=lambda piece: min(pieces.nodes[piece]["members"])):
        members = sorted(pieces.nodes[number]["members"])
        if len(members) == 1:
            yield members[0]
            continue
        entered = [block for block in members if any(before not in members for before in graph.predecessors(block))]
        head = (entered or members)[0]
        yield head
        yield from _in_order(graph, [block for block in members if block != head])
