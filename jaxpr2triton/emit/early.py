"""What a step reads from memory before it does anything else.

    for t in range(512):
        x_read = tl.load(x_ptr + t * 8192 + row[None, :] * 128 + col[:, None])
        dot = tl.dot(u, h.to(tl.bfloat16))
        x = x_read.to(tl.float32)

Products of matrices meet at barriers, before which nothing moves that stands behind them; and to give a tile the layout
of a product, which is done where it is cast, threads exchange it at barriers of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.graph.nodes import Collected, Load, Node, Recurrence, Store, operands_of
from jaxpr2triton.ir.dataflow import reachable


def read_in_a_step(loops: Sequence[Recurrence], clients: Sequence[Collected | Store], body: Scope) -> list[Load]:
    """The loads at places that are known, of all that a step needs and is not written yet, in their order."""
    def unwritten(nodes: Iterable[Node]) -> Iterator[Node]:
        return (node for node in nodes if body.find(node) is None)

    tops = [value for loop in loops for value in loop.nexts]
    for client in clients:
        tops.extend([client.value] if isinstance(client, Store) else operands_of(client))
    needed = reachable(unwritten(tops), lambda node: unwritten(operands_of(node)))
    loads = [node for node in needed if isinstance(node, Load) and not operands_of(node)]
    return sorted(loads, key=lambda load: load.number)
