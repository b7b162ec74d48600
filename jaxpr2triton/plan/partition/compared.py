"""Sums that are compared for being equal, as with their own maximum: they are made once.

    m = reduce_max[axes=(1,)] (dot_general x w);   g = eq (dot_general x w) m      the gradient of a maximum asks so

Two kernels with other blocks add up the terms in another order, and no two numbers of theirs would be equal.
"""

from __future__ import annotations

import math

from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal
from jaxpr2triton.plan.partition import because
from jaxpr2triton.plan.partition.criteria import elements
from jaxpr2triton.plan.partition.cuts import Cuts


def sums_once(cuts: Cuts) -> None:
    """Let them be in memory, but for those of pairs, which are more than there is in memory."""
    most = max((elements(var) for var in cuts.loaded), default=0)
    compared: set[Atom] = set()
    for eqn in reversed(cuts.inside):
        if _asks_for_equals(cuts, eqn) or not compared.isdisjoint(eqn.outvars):
            compared.update(variables(eqn.invars))
            if _adds_up(eqn, cuts.policy.axes.unrolled_sum) and elements(eqn.outvars[0]) <= most:
                cuts.add_root(eqn.outvars[0], because.COMPARED)


def _asks_for_equals(cuts: Cuts, eqn: Eqn) -> bool:
    """Whether two values are compared for being equal; not with a number, and not one with itself, as NaN is not."""
    if eqn.primitive.name not in ("eq", "ne"):
        return False
    one, other = eqn.invars
    return one is not other and not any(_is_number(cuts, each) for each in eqn.invars)


def _is_number(cuts: Cuts, atom: Atom) -> bool:
    """Whether it is one known number everywhere."""
    if isinstance(atom, Literal):
        return True
    maker = cuts.maker(atom) if cuts.is_inside(atom) else None
    return maker is not None and maker.primitive.name == "broadcast_in_dim" and _is_number(cuts, maker.invars[0])


def _adds_up(eqn: Eqn, unrolled: int) -> bool:
    """Whether an equation adds up more floats than are variables, in an order that depends on the kernel."""
    if eqn.primitive.name not in ("dot_general", "reduce_sum", "cumsum") or not is_float(eqn.outvars[0].aval.dtype):
        return False
    if eqn.primitive.name == "dot_general":
        (dims, _), _ = eqn.params["dimension_numbers"]
    else:
        dims = eqn.params["axes"] if eqn.primitive.name == "reduce_sum" else (eqn.params["axis"],)
    return math.prod(eqn.invars[0].aval.shape[dim] for dim in dims) > unrolled
