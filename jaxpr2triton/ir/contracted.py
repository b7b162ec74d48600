"""What a contraction sums, and which equations lead to a comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var


def terms_of(eqn: Eqn) -> int:
    """How many terms a `dot_general` has for each of its results."""
    (dims, _), _ = eqn.params["dimension_numbers"]
    return math.prod(eqn.invars[0].aval.shape[dim] for dim in dims)


def compared(eqns: Sequence[Eqn]) -> Iterator[Eqn]:
    """What leads to a comparison of two values for being equal, the last equation first.

    Not with a number, which nothing that is rounded has to be, and not of one value with itself, as NaN is not.
    """
    makers = {var: eqn for eqn in eqns for var in eqn.outvars}
    found: set[Atom] = set()
    for eqn in reversed(eqns):
        if _asks_for_equals(eqn, makers) or not found.isdisjoint(eqn.outvars):
            found.update(variables(eqn.invars))
            yield eqn


def _asks_for_equals(eqn: Eqn, makers: dict[Var, Eqn]) -> bool:
    if eqn.primitive.name not in ("eq", "ne"):
        return False
    one, other = eqn.invars
    return one is not other and not any(_is_number(each, makers) for each in eqn.invars)


def _is_number(atom: Atom, makers: dict[Var, Eqn]) -> bool:
    """Whether it is one known number everywhere."""
    while not isinstance(atom, Literal):
        maker = makers.get(atom)
        if maker is None or maker.primitive.name != "broadcast_in_dim":
            return False
        atom = maker.invars[0]
    return True
