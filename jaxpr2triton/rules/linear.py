"""In which operands an equation is linear: f(a x + b y) is a f(x) + b f(y), while the others are held.

    mul x w, dot_general x w          in 0, and in 1
    neg x, reduce_sum x               in 0
    transpose x, pad x 0.0            in 0, since each element is one of x or zero
    pad x y, add x y, exp x           in none

Of floats, up to their rounding; a conversion to integers is not linear.
"""

from __future__ import annotations

from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp

from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import Reduction
from jaxpr2triton.rules.rows import TABLE
from jaxpr2triton.rules.sweeps import Sweep


def linear_in(eqn: Any) -> tuple[int, ...]:
    """The positions of the operands in each of which the equation is linear."""
    if not _is_float(eqn.outvars[0]):
        return ()
    return tuple(place for place in _by_row(eqn) if _is_float(eqn.invars[place]))


def _by_row(eqn: Any) -> tuple[int, ...]:
    row = TABLE.get(eqn.primitive.name)
    match row:
        case Pointwise() | Reduction() | Sweep():
            return row.linear_in
        case Indexing():
            moved = tuple(place for place, atom in enumerate(eqn.invars) if not _is_zero(atom))
            return moved if len(moved) == 1 else ()
    return (0, 1) if eqn.primitive.name == "dot_general" else ()


def _is_float(atom: Any) -> bool:
    return jnp.issubdtype(atom.aval.dtype, jnp.inexact)


def _is_zero(atom: Any) -> bool:
    return isinstance(atom, jex.Literal) and jnp.ndim(atom.val) == 0 and bool(atom.val == 0)
