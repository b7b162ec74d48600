"""Sums that are compared for being equal, as with their own maximum: they are made once.

    m = reduce_max[axes=(1,)] (dot_general x w);   g = eq (dot_general x w) m      the gradient of a maximum asks so

Two kernels with other blocks add up the terms in another order, and no two numbers of theirs would be equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.contracted import compared, terms_of
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.jaxprs import Eqn, Literal, Var
from jaxpr2triton.plan.partition import because
from jaxpr2triton.plan.partition.criteria import elements, loads_of
from jaxpr2triton.plan.partition.cuts import Cuts


def contractions_once(cuts: Cuts) -> None:
    """Let contractions be in memory, of which each kernel chooses the blocks, or the sums that they are part of."""
    for eqn in compared(cuts.inside):
        if eqn.primitive.name == "dot_general" and _adds_up(eqn, cuts.policy.axes.unrolled_sum):
            cuts.add_root(eqn.outvars[0], because.COMPARED)


def made_otherwise(cuts: Cuts) -> list[Var]:
    """The other sums that a kernel makes, and reads what a kernel of other axes has made of them, or both put out.

    Not those of pairs, which memory has no room for.
    """
    written = (var for var in cuts.jaxpr.outvars if not isinstance(var, Literal))
    most = max(map(elements, (*cuts.loaded, *written)), default=0)
    found = []
    for eqn in compared(cuts.inside):
        result = eqn.outvars[0]
        if _adds_up(eqn, cuts.policy.axes.unrolled_sum) and result not in cuts.loaded and elements(result) <= most:
            makers = {root: space for root in cuts.roots if id(eqn) in (space := cuts.spaces[root]).computes}
            if any(_reads_of_others(cuts, space, makers) for space in makers.values()) or _are_put_out(cuts, makers):
                found.append(result)
    return found


def _reads_of_others(cuts: Cuts, space: Space, makers: Mapping[Var, Space]) -> bool:
    return any(var in makers and _sizes(makers[var]) != _sizes(space) for var in loads_of(cuts, space))


def _are_put_out(cuts: Cuts, makers: Mapping[Var, Space]) -> bool:
    """By one kernel, beside one of other axes: who reads that may compare both, as the gradient of a maximum does."""
    return any(var in cuts.jaxpr.outvars for var in makers) and len(set(map(_sizes, makers.values()))) > 1


def _sizes(space: Space) -> tuple[int, ...]:
    return tuple(sorted(axis.size for axis in space.axes))


def _adds_up(eqn: Eqn, unrolled: int) -> bool:
    """Whether an equation adds up more floats than are variables, in an order that depends on the kernel."""
    name = eqn.primitive.name
    if name not in ("dot_general", "reduce_sum", "cumsum") or not is_float(eqn.outvars[0].aval.dtype):
        return False
    if name == "dot_general":
        return terms_of(eqn) > unrolled
    dims = eqn.params["axes"] if name == "reduce_sum" else (eqn.params["axis"],)
    return math.prod(eqn.invars[0].aval.shape[dim] for dim in dims) > unrolled
