"""Carries that a loop only adds to, and what it adds to them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import bind_equation
from jaxpr2triton.ir.evaluate import read
from jaxpr2triton.ir.scans import Body
from jaxpr2triton.normalize.arrays.sum_parts import padded_parts
from jaxpr2triton.rules.linear import linear_in

Link = tuple[Any, int]  # an equation that is linear in the operand at this position, whose others no step changes
ADDS = ("add", "add_any")


@dataclass(frozen=True)
class Term:
    """`links(leaf)`, a part of what is added in a step; the link next to the leaf comes first."""

    leaf: Any
    maker: Any  # the leaf's equation, or None
    links: tuple[Link, ...] = ()
    negative: bool = False
    spread_to: tuple[int, ...] | None = None  # the shape before the links, if the leaf is a scalar that fills an array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.leaf.aval.shape) if self.spread_to is None else self.spread_to


def accumulated(body: Body) -> dict[int, tuple[tuple[Any, bool], ...]]:
    """For each carry of which the body does nothing but add to it: what it adds, and whether negated.

    g1 = add_any g a;  g2 = sub g1 b  in (g2,)    →    {0: ((a, False), (b, True))}
    """
    users: dict[Any, list[Any]] = {}
    for eqn in body.jaxpr.eqns:
        for atom in eqn.invars:
            if not isinstance(atom, jex.Literal):
                users.setdefault(atom, []).append(eqn)
    outputs = Counter(atom for atom in body.jaxpr.outvars if not isinstance(atom, jex.Literal))
    found = {}
    for position, (before, after) in enumerate(zip(body.befores, body.afters)):
        addends: list[tuple[Any, bool]] = []
        current = before
        while current is not after and len(users.get(current, ())) == 1 and not outputs[current]:
            (eqn,) = users[current]
            name = eqn.primitive.name
            if name not in ADDS and not (name == "sub" and eqn.invars[0] is current):
                break
            other = eqn.invars[1] if eqn.invars[0] is current else eqn.invars[0]
            addends.append((other, name == "sub"))
            current = eqn.outvars[0]
        if current is after and addends and outputs[after] == 1 and not users.get(after):
            found[position] = tuple(addends)
    return found


class Terms:
    """Takes addends apart, through everything linear, down to the equations whose operands are better summed."""

    def __init__(self, body: Body, wanted: Callable[[Any], bool]) -> None:
        self._eqns = body.jaxpr.eqns
        self._producers = {var: eqn for eqn in self._eqns for var in eqn.outvars}
        self._invariant = body.invariants()
        self._wanted = wanted  # equation → is it better to sum its operands over the steps than its result?

    def of(self, atom: Any, negative: bool = False) -> list[Term]:
        """The terms of a sum; one term, the atom itself, if none of its parts is worth the trouble."""
        whole = Term(atom, None if isinstance(atom, jex.Literal) else self._producers.get(atom), (), negative)
        if whole.maker is None or self.is_invariant(atom):
            return [Term(atom, None, (), negative)]
        eqn = whole.maker
        if atom not in self._apart:
            return [whole]
        if _is_sum(eqn):
            signs = negative, negative is not (eqn.primitive.name == "sub")
            parts = [term for part, sign in zip(eqn.invars, signs) for term in self._part(part, sign, atom.aval.shape)]
        elif eqn.primitive.name == "concatenate":
            pieces = [(pad, self.of(piece, negative)) for pad, piece in zip(padded_parts(eqn), eqn.invars)]
            parts = [replace(term, links=(*term.links, (pad, 0))) for pad, terms in pieces for term in terms]
        else:
            position = self._linear_in(eqn)
            assert position is not None  # it has parts
            deeper = self.of(eqn.invars[position], negative)
            parts = [replace(term, links=(*term.links, (eqn, position))) for term in deeper]
        return parts

    @cached_property
    def _apart(self) -> set[Any]:
        """What is taken apart, as a wanted part is among its terms; but not where one value is there in many ways."""
        apart: set[Any] = set()
        terms: dict[Any, int] = {}  # of what has a wanted one among them
        for eqn in self._eqns:
            parts = self._parts_of(eqn)
            count = sum(terms.get(part, 1) for part in parts)
            made = [var for var in eqn.outvars if not self.is_invariant(var)]
            if not terms.keys().isdisjoint(parts) and count <= policy.COMMON.terms_of_a_sum:
                apart.update(made)
                terms.update((var, count) for var in made)
            elif self._wanted(eqn):
                terms.update((var, 1) for var in made)
        return apart

    def _parts_of(self, eqn: Any) -> list[Any]:
        """The operands that a result is a sum of, or that it is proportional to."""
        if _is_sum(eqn):
            parts = [atom for atom in eqn.invars if atom.aval.shape == eqn.outvars[0].aval.shape]
        elif eqn.primitive.name == "concatenate":
            parts = list(eqn.invars)
        else:
            position = self._linear_in(eqn)
            parts = [] if position is None else [eqn.invars[position]]
        return [atom for atom in parts if not isinstance(atom, jex.Literal)]

    def _part(self, atom: Any, negative: bool, shape: tuple[int, ...]) -> list[Term]:
        if atom.aval.shape == shape:
            return self.of(atom, negative)
        return [Term(atom, None, (), negative, shape)]

    def is_invariant(self, atom: Any) -> bool:
        return isinstance(atom, jex.Literal) or atom in self._invariant

    def is_wanted(self, term: Term) -> bool:
        return term.maker is not None and self._wanted(term.maker)

    def moving_operand(self, eqn: Any) -> int | None:
        """The position of the only operand that changes from step to step, if there is just one."""
        moving = [place for place, atom in enumerate(eqn.invars) if not self.is_invariant(atom)]
        return moving[0] if len(moving) == 1 else None

    def _linear_in(self, eqn: Any) -> int | None:
        """The operand that the result is proportional to, if nothing else about it changes from step to step."""
        moving = self.moving_operand(eqn)
        return moving if moving in linear_in(eqn) else None


def _is_sum(eqn: Any) -> bool:
    return eqn.primitive.name in (*ADDS, "sub")


def spread(value: Any, shape: tuple[int, ...]) -> Any:
    """A scalar that stands for a whole array, or what has dimensions of 1 and stands for more, as that array."""
    if jnp.shape(value) == tuple(shape):
        return value
    return lax.broadcast_in_dim(value, shape, range(len(shape)) if jnp.ndim(value) else ())


def apply(links: Sequence[Link], value: Any, env: dict[Any, Any]) -> Any:
    """What the links make of a value; `env` holds their other operands."""
    for eqn, position in links:
        operands = [value if place == position else read(env, atom) for place, atom in enumerate(eqn.invars)]
        (value,) = bind_equation(eqn, operands)
    return value


def others(links: Iterable[Link]) -> list[Any]:
    """What links read besides the value that goes through them."""
    return [atom for eqn, position in links for place, atom in enumerate(eqn.invars) if place != position]


def count(var: Any) -> int:
    return math.prod(var.aval.shape)


def nbytes(var: Any) -> int:
    return count(var) * var.aval.dtype.itemsize
