"""Equal equations → one of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax
import jax.extend.core as jex

from jaxpr2triton.ir import build
from jaxpr2triton.ir.jaxprs import Closed, frozen
from jaxpr2triton.normalize.rewrite import constant

COMMUTATIVE = frozenset({"add", "add_any", "mul", "and", "or", "xor", "eq", "ne"})
STATEFUL = frozenset({"rng_uniform", "infeed", "create_token", "empty", "empty2"})


def share_equal(closed: Closed) -> Closed:
    """Compute once what is written twice; the first of the lines is kept.

        b = exp a;  c = exp a;  d = add b c   →   b = exp a;  d = add b b

    Equal are: primitive, parameters by their structure, operands (in either order where that does not matter), types.
    Left alone: equations with effects, and equations whose parameters cannot be compared.
    """
    first: dict[Hashable, Any] = {}
    instead: dict[Any, Any] = {}
    eqns = []
    for eqn in closed.jaxpr.eqns:
        eqn = build.reading(eqn, instead) if instead else eqn
        known = eqn if eqn.effects or eqn.primitive.name in STATEFUL else _first_like(eqn, first)
        if known is eqn:
            eqns.append(eqn)
        else:
            instead.update(zip(eqn.outvars, known.outvars))
    if not instead:
        return closed
    return build.with_equations(closed, eqns, [build.now(atom, instead) for atom in closed.jaxpr.outvars])


def _first_like(eqn: Any, first: dict[Hashable, Any]) -> Any:
    key = equality(eqn)
    return eqn if key is None else first.setdefault(key, eqn)


def equality(eqn: Any) -> Hashable | None:
    """What equal equations have in common; None if a parameter cannot be compared."""
    try:
        key = _key(eqn)
        hash(key)
    except TypeError:  # a parameter without a hash
        return None
    return key


def _key(eqn: Any) -> Hashable:
    operands = tuple(map(_operand_key, eqn.invars))
    if len(operands) == 2 and eqn.primitive.name in COMMUTATIVE and operands[1] < operands[0]:
        operands = operands[::-1]
    types = tuple([(var.aval.shape, var.aval.dtype, var.aval.weak_type) for var in eqn.outvars])
    return eqn.primitive, frozen(eqn.params) if eqn.params else None, operands, types, id(eqn.ctx)


def _operand_key(atom: Any) -> tuple[Any, ...]:
    """The tuples of variables and of constants have different lengths, and parts that can be ordered."""
    if not isinstance(atom, jex.Literal):
        return ("", id(atom))
    known = constant(atom.val)
    if known is None:  # the array that a literal may hold is nobody else's
        return ("", id(atom.val))
    return (str(known.dtype), known.tobytes(), bool(jax.typeof(atom.val).weak_type))
