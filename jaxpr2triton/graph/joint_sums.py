"""Sums of which nothing but a sum is read: their terms are added before the lanes are.

a = dot_general x u
b = dot_general h w         →       tl.sum(x * u + h * w, axis=0)
c = add a b

Contractions are found before their nodes are made, so that each counts once; all others in the finished graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxpr2triton.graph.builder import Builder
from jaxpr2triton.graph.nodes import Compute, Graph, Node, Place, Reduce, Store, axes_of, operands_of, with_operands
from jaxpr2triton.graph.reads import Elements, Filling, Read, Terms
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import ZERO, Axis
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import once
from jaxpr2triton.rules.rows import ADDED

SUMS = ("add", "add_any")


@dataclass(frozen=True)
class Sum:
    """The equation of the first contraction, the terms of all, and the axes they are summed along."""

    first: Eqn
    terms: tuple[Node, ...]
    over: tuple[Axis, ...]


Found = dict[Read, Sum | None]


@once
def only_summed(jaxpr: Jaxpr) -> dict[Var, Eqn]:
    """Results of contractions, and of sums of those, that one sum reads and nothing else → the equation of each.

    Sums of 16 bits are rounded one by one, as JAX does.
    """
    reads = Counter(var for eqn in jaxpr.eqns for var in variables(eqn.invars))
    reads.update(variables(jaxpr.outvars))
    found: dict[Var, Eqn] = {}
    summed: set[Var] = set()
    for eqn in reversed(jaxpr.eqns):
        name = eqn.primitive.name
        if name not in (*SUMS, "dot_general"):
            continue
        (out,) = eqn.outvars
        if np.dtype(out.aval.dtype).itemsize < 4:
            continue
        if out in summed and reads[out] == 1:
            found[out] = eqn
        if name in SUMS:
            summed.update(var for var in variables(eqn.invars) if var.aval.shape == out.aval.shape)
    return found


def build(builder: Builder, eqn: Eqn, asked: Elements, place: Place) -> Node | None:
    """One sum of the terms of all, if an equation sums contractions along the same axes."""
    if eqn.primitive.name not in SUMS or (found := _terms_of_sum(builder, asked.operands)) is None:
        return None
    first, terms, over = found.first, found.terms, found.over
    axes, dtype, positions = axes_of(terms) - frozenset(over), np.dtype(eqn.outvars[0].aval.dtype), (ZERO,) * len(terms)
    return builder.make(
        ("reduce", id(eqn), terms, over),
        lambda n: Reduce(n, axes, dtype, first, terms, over, positions, place, eqn),
    )


def _terms_of_sum(builder: Builder, reads: Sequence[Read]) -> Sum | None:
    """The terms of all contractions below a sum, which may be as deep as the program is long: so no recursion."""
    found: Found = {}
    summed = only_summed(builder.demands.jaxpr)
    stack = _values(reads)[::-1]
    if not any(atom in summed for atom, _ in stack):
        return None
    while stack:
        read = stack[-1]
        waiting = None if read in found else _waiting(builder, summed, read)
        inner = waiting[1].operands if waiting is not None and isinstance(waiting[1], Elements) else ()
        missing = [each for each in _values(inner) if each not in found]
        if missing:
            stack.extend(reversed(missing))
            continue
        stack.pop()
        if waiting is None:
            found.setdefault(read, None)
            continue
        eqn, asked = waiting
        found[read] = _terms(builder, eqn, asked) if isinstance(asked, Terms) else _added(found, inner)
        if found[read] is None:
            builder.apart.add(read)
    return _added(found, reads)


def _values(reads: Sequence[Read]) -> list[Read]:
    return [read for read in reads if not isinstance(read[0], Literal)]


def _waiting(builder: Builder, summed: Mapping[Var, Eqn], read: Read) -> tuple[Eqn, Elements | Terms] | None:
    """The equation of what was left for the sum that reads it, and is not made yet; with what it reads."""
    atom, demand = read
    if isinstance(atom, Literal | Filling) or atom not in summed:
        return None
    asked = builder.demands.reads.get((atom, demand))
    if (atom, demand) in builder.nodes or read in builder.apart or not isinstance(asked, Elements | Terms):
        return None
    return summed[atom], asked


def _terms(builder: Builder, eqn: Eqn, asked: Terms) -> Sum:
    dtype = np.dtype(eqn.outvars[0].aval.dtype)
    return Sum(eqn, tuple(builder.term(left, right, dtype) for left, right in asked.factors), asked.over)


def _added(found: Mapping[Read, Sum | None], reads: Sequence[Read]) -> Sum | None:
    """The terms of two operands together."""
    if len(_values(reads)) < len(reads):
        return None
    first, second = (found[read] for read in reads)
    if first is None or second is None:
        return None
    if not first.over or set(first.over) != set(second.over) or axes_of(first.terms) != axes_of(second.terms):
        return None
    return Sum(first.first, (*first.terms, *second.terms), first.over)


def join_sums(graph: Graph) -> Graph:
    """The graph with one sum where two, along the same axes of the same lanes, are only added to each other."""
    reads = Counter(operand for node in graph.nodes for operand in operands_of(node))
    reads.update(store.value for store in graph.stores)
    reads.update(graph.computed.values())  # places read them
    standing: dict[Node, Node] = {}
    dropped: set[Node] = set()
    order: list[Node] = []
    for node in graph.nodes:
        now = with_operands(node, standing)
        is_sum = isinstance(now, Compute) and now.eqn.primitive.name in SUMS
        if isinstance(now, Compute) and is_sum and all(reads[each] == 1 for each in operands_of(node)):
            joined = _joined(now)
            if joined is not None:
                dropped.update(now.operands)
                now = joined
        standing[node] = now
        order.append(now)
    if not dropped:
        return graph
    kept = [node for node in order if node not in dropped]
    numbered = {node: number for number, node in enumerate(kept)}
    final: dict[Node, Node] = {}
    for node in kept:
        final[node] = replace(with_operands(node, final), number=numbered[node])
    stores = tuple(Store(s.output, s.place, final[standing[s.value]]) for s in graph.stores)
    computed = {key: final[standing[node]] for key, node in graph.computed.items()}
    return Graph(tuple(final.values()), stores, computed)


def _joined(node: Compute) -> Reduce | None:
    one, other = node.operands
    if not isinstance(one, Reduce) or not isinstance(other, Reduce) or one is other:
        return None
    if any(each.eqn.primitive.name not in ADDED for each in (one, other)):
        return None
    dtypes = {node.dtype, *(each.dtype for each in (one, other)), *(o.dtype for o in (*one.operands, *other.operands))}
    if len(dtypes) > 1 or node.dtype.itemsize < 4 or not one.over or set(one.over) != set(other.over):
        return None
    if axes_of(one.operands) != axes_of(other.operands):
        return None
    operands, positions = (*one.operands, *other.operands), (*one.positions, *other.positions)
    return replace(one, number=node.number, operands=operands, positions=positions, place=node.place, total=node.eqn)
