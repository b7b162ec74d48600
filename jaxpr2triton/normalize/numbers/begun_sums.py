"""Sums that are zero are 0.0 where a program asks for the sign of a zero: a sum begins with 0.0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, Var
from jaxpr2triton.ir.once import maker_of
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, primitive_names, rewrite_planned, spread
from jaxpr2triton.rules.indexing import MOVES

SUMS = {"reduce_sum", "cumsum"}
ASKED: Mapping[str, tuple[int, ...]] = {"div": (1,), "rsqrt": (0,), "atan2": (0, 1), "bitcast_convert_type": (0,)}
# Where a zero comes in, a zero of the same sign may come out.
KEEP_ZERO = {*MOVES, "neg", "mul", "div", "max", "min", "copy", "rounded", "stop_gradient", "convert_element_type"} | {
    *("sqrt", "cbrt", "sign", "floor", "ceil", "round", "select_n", "clamp", "reduce_max", "reduce_min"),
    *("sin", "tan", "tanh", "asin", "atan", "sinh", "asinh", "atanh", "expm1", "log1p", "erf"),
}
POSITIVE = {"exp", "exp2", "abs", "square", "logistic", "cosh"}
POSITIVE_OF_POSITIVE = {*MOVES, "add", "mul", "div", "max", "sqrt", "copy", "stop_gradient", "convert_element_type"}


def begin_sums(closed: Closed) -> Closed:
    """Tell sums that are nothing but -0.0 from those that add it to what they begin with, if it makes a difference.

        s = reduce_sum a;  b = div 1.0 s    →    s' = reduce_sum a;  s = select_n (eq s' 0.0) s' 0.0;  b = div 1.0 s

    Kernels add up what there is. Asked for the sign of a zero are divisors, angles and bits. Left alone: sums whose
    terms have no sign, as squares and exponentials, sums of one term, and products of matrices.
    """
    if not primitive_names(closed) & SUMS:
        return closed
    asked = _Asked(closed).found()
    return rewrite_planned(closed, SUMS, lambda eqn: True if eqn.outvars[0] in asked else None, _begun)


def _begun(node: Node, plan: bool, rewriter: Rewriter) -> list[Value]:
    (total,) = rewriter.again(node)
    zero = spread(np.zeros((), total.dtype)[()], total.shape, rewriter) if total.ndim else np.zeros((), total.dtype)[()]
    return [lax.select(lax.eq(total, zero), zero if total.ndim else jnp.asarray(zero), total)]


class _Asked:
    def __init__(self, closed: Closed) -> None:
        self.jaxpr, self.eqns = closed.jaxpr, closed.jaxpr.eqns
        self.positive: dict[Var, bool] = {}
        for eqn in self.eqns:
            self.positive.update(dict.fromkeys(eqn.outvars, self._is_positive(eqn)))

    def found(self) -> set[Var]:
        """The sums of which the sign is asked for where they are zero."""
        asked: set[Var] = set()
        for eqn in reversed(self.eqns):
            name = eqn.primitive.name
            places = {*ASKED.get(name, ())}
            if name in KEEP_ZERO and not asked.isdisjoint(eqn.outvars):
                places |= {place for place, _ in enumerate(eqn.invars) if not self._is_begun(eqn, place)}
            asked.update(atom for place, atom in enumerate(eqn.invars) if place in places and isinstance(atom, Var))
        return {var for eqn in self.eqns for var in eqn.outvars if var in asked and self._may_be_minus_zero(eqn)}

    def _may_be_minus_zero(self, eqn: Eqn) -> bool:
        if eqn.primitive.name not in SUMS or not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.floating):
            return False
        (terms,) = eqn.invars
        axes = eqn.params["axes"] if eqn.primitive.name == "reduce_sum" else (eqn.params["axis"],)
        return math.prod(terms.aval.shape[axis] for axis in axes) > 1 and not self._has_no_sign(terms)

    def _is_begun(self, eqn: Eqn, place: int) -> bool:
        """Whether a zero is not taken from there, as it is asked for before."""
        which = maker_of(self.jaxpr, eqn.invars[0]) if eqn.primitive.name == "select_n" else None
        return which is not None and which.primitive.name == "eq" and which.invars[0] is eqn.invars[place]

    def _has_no_sign(self, atom: Atom) -> bool:
        if isinstance(atom, Literal):
            value = np.asarray(atom.val)
            return value.dtype.kind != "c" and not np.signbit(value.astype(np.float64)).any()
        return self.positive.get(atom, False)

    def _is_positive(self, eqn: Eqn) -> bool:
        """Whether it has no sign wherever it is a number."""
        name, operands = eqn.primitive.name, eqn.invars
        if name == "convert_element_type" and np.dtype(operands[0].aval.dtype).kind in "bu":
            return True
        if name in POSITIVE or (name == "mul" and operands[0] is operands[1]):
            return True
        if name == "integer_pow":
            return eqn.params["y"] % 2 == 0 or self._has_no_sign(operands[0])
        if name == "select_n":
            return all(map(self._has_no_sign, operands[1:]))
        if name == "max":
            return any(map(self._has_no_sign, operands))
        if name in SUMS:
            return self._has_no_sign(operands[0])
        return name in POSITIVE_OF_POSITIVE and bool(operands) and all(map(self._has_no_sign, _values(eqn)))


def _values(eqn: Eqn) -> list[Any]:
    """The operands that are numbers of the result, and no places."""
    return [atom for atom in eqn.invars if jnp.issubdtype(atom.aval.dtype, jnp.floating)] or list(eqn.invars)
