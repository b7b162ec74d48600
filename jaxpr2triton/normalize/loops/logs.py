"""Sums of exponentials as logarithms, found among the equations that they are written as.

    m = max x y;  d = sub x y;  select (d != d) (x + y) (m + log1p (exp (-|d|)))        →    logaddexp x y
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var

NAME = "logaddexp"
ADDS = ("add", "add_any")


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
        operands = _added(eqn, makers)
        link = link_of(eqn) if operands is None else Link(NAME, operands, tuple(eqn.outvars), eqn)
        wanted.update(evaluate.variables(link.invars))
        found.append(link)
    return tuple(reversed(found))


def _added(eqn: Eqn, makers: Mapping[Var, Eqn]) -> tuple[Atom, Atom] | None:
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
