"""Values that a kernel would compute again and again, for each window that they are in: better, each is kept.

    d_x[y] = Σ_k g[y - k] w[k]         g = f(…) is computed 25 times, if it is read in 25 windows
        →
    g in memory, and  d_x[y] = Σ_k g[y - k] w[k]  in a kernel that reads it

It pays where what is spared takes longer than to write and read an element, and, all in all, a launch.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxpr2triton.graph.nodes import Compute, Node, operands_of
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.jaxprs import Eqn, Var, elements
from jaxpr2triton.plan.partition.criteria import size_of
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.rules.rows import TABLE


def computed_again(cuts: Cuts, space: Space, root: Var) -> list[Var]:
    """The last value that had better be in memory for that reason, if there is one."""
    if space.steps:
        return []
    target, launch = cuts.policy.target, cuts.policy.loops.graph_launch_us
    work: dict[Eqn, int] = {}
    nodes: dict[Eqn, list[Compute]] = {}
    for node in space.graph.of_kind(Compute):
        if node.eqn.outvars[0] in cuts.makers:
            work[node.eqn] = work.get(node.eqn, 0) + size_of(node.axes) * TABLE[node.eqn.primitive.name].flops
            nodes.setdefault(node.eqn, []).append(node)
    spared = {eqn: total - _once(eqn) for eqn, total in work.items()}
    if target.computing(sum(each for each in spared.values() if each > 0)) < launch:
        return []
    for eqn in reversed(nodes):
        result = eqn.outvars[0]
        if result is root or result in cuts.loaded or spared[eqn] <= 0:
            continue
        saved = sum(spared.get(each, 0) for each in _below(nodes[eqn]))
        if target.computing(saved) > max(launch, target.moving(8 * elements(result))):
            return [result]
    return []


def _once(eqn: Eqn) -> int:
    return elements(eqn.outvars[0]) * TABLE[eqn.primitive.name].flops


def _below(nodes: Iterable[Node]) -> dict[Eqn, None]:
    """The equations that something is computed by, on the way to these."""
    return dict.fromkeys(node.eqn for node in reachable(nodes, operands_of) if isinstance(node, Compute))
