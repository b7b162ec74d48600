"""Values that a kernel would compute from much although an earlier kernel has computed them: they had better be read.

    k1 = kernel(y0, a, b, c, d)        y1 is computed in both from five arrays; with y1 in memory
    k2 = kernel(y0, a, b, c, d, k1)    the second reads y1 and k1, and so do all that come later

Between XLA's equations their levels decide on that, before anything is cut (`shared.py`). Here there are none, and it
is seen only while kernels end because values are wanted at too many places: the steps of a solver, written out.
"""

from __future__ import annotations

from collections.abc import Iterator

from jaxpr2triton.graph.nodes import Compute, Load, Node, operands_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.dataflow import forward, reachable
from jaxpr2triton.ir.jaxprs import Var
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.shared import NOTED_AT_MOST


def computed_before(cuts: Cuts, root: Var, space: Space) -> list[Var]:
    """The values to be in memory, in order, if that spares reading many arrays; none on the way to another of them."""
    reads = cuts.policy.cuts.reads
    if cuts.outside or space.steps or len(space.buffers) <= reads:
        return []
    many = [node for node, large in _made_from_many(cuts, space, reads) if large > reads]
    again = [node for node in many if _is_made_before(cuts, root, node)]
    inner = {operand for node in again for operand in operands_of(node)}
    tops = [node for node in again if node not in inner]
    saved = len(space.buffers) - len(_read_beside(space, frozenset(tops)))
    return list(dict.fromkeys(node.eqn.outvars[0] for node in tops)) if saved > reads else []


def _is_made_before(cuts: Cuts, root: Var, node: Compute) -> bool:
    """Whether an earlier kernel than this root's computes it; the root itself is none."""
    readers = cuts.spaces.computing(node.eqn)
    return node.eqn.outvars[0] is not root and any(cuts.depths[reader] < cuts.depths[root] for reader in readers)


def _made_from_many(cuts: Cuts, space: Space, most: int) -> Iterator[tuple[Compute, int]]:
    """What is computed from more arrays than `most`, with how many of them are as large as it is, about."""

    def transfer(node: Node, below: list[frozenset[int]]) -> frozenset[int]:
        found = frozenset((node.buffer,)) if isinstance(node, Load) else frozenset[int]()
        for each in below:
            if len(found) <= NOTED_AT_MOST:
                found |= each
        return found

    for node, found in forward(space.graph.nodes, operands_of, transfer).items():
        if isinstance(node, Compute) and len(found) > most:
            size = node.eqn.outvars[0].aval.size
            yield node, sum(cuts.numbered[number].aval.size * 2 > size for number in found)


def _read_beside(space: Space, tops: frozenset[Node]) -> set[int]:
    """The buffers that a kernel reads for something else than these values."""
    stored = (store.value for store in space.graph.stores if store.value not in tops)
    beside = reachable(stored, lambda node: (each for each in operands_of(node) if each not in tops))
    return {node.buffer for node in beside if isinstance(node, Load)}
