"""How large values may be, as far as the equations that make them tell.

Products of matrices of 16 bits count as moderate; what is given may be any number, as one that hides elements is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from jaxpr2triton.graph.spans import LARGE
from jaxpr2triton.ir.dataflow import postorder
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import maker_of
from jaxpr2triton.rules.products import factor_dtype

SAME_SIZE = (
    *("reshape", "squeeze", "broadcast_in_dim", "transpose", "convert_element_type", "rounded", "neg", "copy"),
    *("stop_gradient", "select_n", "max", "min"),
)
BOUNDED = ("tanh", "logistic")  # by 1


def is_moderate(jaxpr: Jaxpr, top: Atom) -> bool:
    """Whether a value is a product of matrices of 16 bits that nothing makes larger, or has some bound."""
    maker, known = partial(maker_of, jaxpr), dict[Atom, bool]()

    def parts(atom: Atom) -> Sequence[Var]:
        eqn = maker(atom)
        return variables(eqn.invars) if eqn is not None and eqn.primitive.name in (*SAME_SIZE, "mul", "div") else ()

    def holds(atom: Atom) -> bool:
        return _is_at_most(atom, LARGE) if isinstance(atom, Literal) else known[atom]

    def is_scaled(value: Atom, factor: Atom) -> bool:
        """Whether a value is multiplied with a number and is no larger then, or has a bound."""
        eqn = maker(value)
        is_bounded = eqn is not None and eqn.primitive.name in BOUNDED
        return _is_at_most(factor, LARGE if is_bounded else 1) and holds(value)

    for each in postorder([top], parts, known):
        eqn = maker(each)
        known[each] = eqn is not None and _stays_moderate(eqn, holds, is_scaled)
    return known[top]


def _stays_moderate(eqn: Eqn, holds: Callable[[Atom], bool], is_scaled: Callable[[Atom, Atom], bool]) -> bool:
    match eqn.primitive.name, eqn.invars:
        case "dot_general", _:
            return has_16_bits(eqn)
        case "mul", [one, other]:
            return is_scaled(one, other) or is_scaled(other, one)
        case "div", [one, Literal() as other]:
            return bool(abs(other.val) >= 1) and holds(one)
        case "select_n", [_, *cases]:
            return all(map(holds, cases))
        case name, operands:
            return name in BOUNDED or (name in SAME_SIZE and all(map(holds, operands)))
    return False


def has_16_bits(eqn: Eqn) -> bool:
    """Whether a contraction multiplies factors of 16 bits."""
    dtype = factor_dtype(eqn)
    return dtype is not None and dtype.itemsize == 2


def _is_at_most(atom: Atom, bound: float) -> bool:
    """Whether it is a number of at most this size, or one that hides what it stands for."""
    return isinstance(atom, Literal) and bool(abs(atom.val) <= bound or np.isinf(atom.val))
