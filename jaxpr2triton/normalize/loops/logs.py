"""Sums of exponentials as logarithms, found among the equations that they are written as.

    m = max x y;  d = sub x y;  select (d != d) (x + y) (m + log1p (exp (-|d|)))        →    logaddexp x y

What `jax.nn.logsumexp` makes of a stack of two is written so before (`pairs_of_logs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Literal, Var
from jaxpr2triton.normalize.calls.dead import remove_dead
from jaxpr2triton.normalize.loops.rings import Ring
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, rewrite

NAME = "logaddexp"
ADDS = ("add", "add_any")
MOVED = ("broadcast_in_dim", "reshape")


@dataclass(frozen=True)
class Link:
    """One step of the way from what is carried to what it is next: an equation, or the last one of several."""

    name: str
    invars: tuple[Atom, ...]
    outvars: tuple[Var, ...]
    eqn: Eqn


def link_of(eqn: Eqn) -> Link:
    return Link(eqn.primitive.name, tuple(eqn.invars), tuple(eqn.outvars), eqn)


def joined(eqns: Sequence[Eqn], targets: Sequence[Atom]) -> tuple[Link, ...]:
    """The equations that the targets need, those of each such sum as one."""
    makers = {var: eqn for eqn in eqns for var in eqn.outvars}
    wanted, found = set(evaluate.variables(targets)), list[Link]()
    for eqn in reversed(eqns):
        if wanted.isdisjoint(eqn.outvars):
            continue
        operands = added(eqn, makers)
        link = link_of(eqn) if operands is None else Link(NAME, operands, tuple(eqn.outvars), eqn)
        wanted.update(evaluate.variables(link.invars))
        found.append(link)
    return tuple(reversed(found))


def added(eqn: Eqn, makers: Mapping[Var, Eqn]) -> tuple[Atom, Atom] | None:
    """The x and y of which this is the logarithm of exp x + exp y."""
    if eqn.primitive.name != "select_n" or len(eqn.invars) != 3:
        return None
    flag, usual, otherwise = (_made(atom, makers) for atom in eqn.invars)
    difference = _made(_operand(flag, "ne"), makers)
    if difference is None or difference.primitive.name != "sub" or flag is None or flag.invars[0] is not flag.invars[1]:
        return None
    x, y = difference.invars
    if _is_of(otherwise, ADDS, x, y) and usual is not None and usual.primitive.name in ADDS:
        for one, other in (usual.invars, usual.invars[::-1]):
            if _is_of(_made(one, makers), ("max",), x, y) and _is_log1p(other, difference.outvars[0], makers):
                return x, y
    return None


def _is_log1p(atom: Atom, difference: Var, makers: Mapping[Var, Eqn]) -> bool:
    """Whether it is the logarithm of 1 + exp(-|x|)."""
    for name in ("log1p", "exp", "neg", "abs"):
        found = _operand(_made(atom, makers), name)
        if found is None:
            return False
        atom = found
    return atom is difference


def _made(atom: Atom | None, makers: Mapping[Var, Eqn]) -> Eqn | None:
    return None if atom is None or isinstance(atom, Literal) else makers.get(atom)


def _operand(eqn: Eqn | None, name: str) -> Atom | None:
    """The first operand of such an equation."""
    return None if eqn is None or eqn.primitive.name != name else eqn.invars[0]


def _is_of(eqn: Eqn | None, names: Sequence[str], x: Atom, y: Atom) -> bool:
    """Whether it is one of these of both, in any order."""
    if eqn is None or eqn.primitive.name not in names:
        return False
    first, second = eqn.invars
    return (_same(first, x) and _same(second, y)) or (_same(first, y) and _same(second, x))


def _same(one: Atom, other: Atom) -> bool:
    if isinstance(one, Literal) and isinstance(other, Literal):
        return bool(one.val == other.val)
    return one is other


def pairs_of_logs(closed: Closed) -> Closed:
    """The logarithm of a sum of exponentials of two, along an axis of them, as that of each pair.

        g = concatenate x[None] y[None];  m = reduce_max g;  k = select (is_finite m) 0 m
        log |reduce_sum (exp (g - k))| + k        →    logaddexp x y

    Left alone: more than two; sums with weights.
    """
    changed = rewrite(closed, _as_pair, named(set(ADDS)))
    return closed if changed is closed else remove_dead(changed)


def _as_pair(node: Node, rewriter: Rewriter) -> list[Value] | None:
    for log, shift in (node.args, node.args[::-1]):
        operands = _stacked(log, shift, rewriter)
        if operands is not None and all(jnp.shape(each) == node.out_avals[0].shape for each in operands):
            return rewriter.expand(Ring.LOGS.plus, operands)
    return None


def _stacked(log: Value, shift: Value, rewriter: Rewriter) -> list[Value] | None:
    """The two whose exponentials are summed there, shifted by their maximum where it is finite."""
    logarithm = _operand_of(log, rewriter, "log")
    size = _operand_of(logarithm, rewriter, "abs")
    total = rewriter.maker(logarithm if size is None else size)
    maximum = _maximum(shift, rewriter)
    if total is None or total.name != "reduce_sum" or maximum is None:
        return None
    difference = rewriter.maker(_operand_of(total.args[0], rewriter, "exp"))
    joined = rewriter.maker(maximum.args[0])
    if difference is None or difference.name != "sub" or joined is None or joined.name != "concatenate":
        return None
    is_shifted = _operand_of(difference.args[1], rewriter, *MOVED) is shift
    is_along = maximum.params["axes"] == total.params["axes"] == (joined.params["dimension"],)
    if not (is_shifted and is_along) or difference.args[0] is not maximum.args[0] or len(joined.args) != 2:
        return None
    return [_operand_of(each, rewriter, *MOVED) for each in joined.args]


def _maximum(shift: Value, rewriter: Rewriter) -> Node | None:
    """What finds the maximum that this is, where it is finite, and otherwise 0."""
    chosen = rewriter.maker(shift)
    if chosen is None or chosen.name != "select_n":
        return None
    flag, zero, largest = chosen.args
    found = rewriter.maker(largest)
    is_finite = _operand_of(flag, rewriter, "is_finite") is largest
    is_zero = _is_zero(_operand_of(zero, rewriter, "broadcast_in_dim"), zero)
    return found if found is not None and found.name == "reduce_max" and is_finite and is_zero else None


def _operand_of(value: Value, rewriter: Rewriter, *names: str) -> Value:
    """The first operand of what makes it, if that is one of these."""
    maker = rewriter.maker(value)
    return None if maker is None or maker.name not in names else maker.args[0]


def _is_zero(*values: Value) -> bool:
    """Whether one of them is the number 0."""
    return any(isinstance(value, (int, float, np.number, np.ndarray)) and np.all(value == 0) for value in values)
