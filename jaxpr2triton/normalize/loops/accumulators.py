"""Carries that a loop only adds to, and what it adds to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import bind_equation
from jaxpr2triton.ir.dataflow import postorder, readers_of
from jaxpr2triton.ir.evaluate import read, variables
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
    users = readers_of(body.jaxpr.eqns, lambda eqn: variables(eqn.invars))
    outputs = Counter(variables(body.jaxpr.outvars))
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
        self._producers = body.dependences.definitions
        self._invariant = body.dependences.invariant
        self._wanted = wanted  # equation → is it better to sum its operands over the steps than its result?

    def of(self, atom: Any, negative: bool = False) -> list[Term]:
        """The terms of a sum; one term, the atom itself, if none of its parts is worth the trouble."""
        found: dict[Any, list[Term]] = {}
        for each in postorder([atom], self._summed, found, key=id):
            found[id(each)] = self._terms(each, found)
        return list(map(_negated, found[id(atom)])) if negative else found[id(atom)]

    def _summed(self, atom: Any) -> Sequence[Any]:
        """The parts of a sum, of an array put together, or of what is proportional to something."""
        eqn = None if isinstance(atom, jex.Literal) else self._producers.get(atom)
        if eqn is None or self.is_invariant(atom):
            return ()
        position = self._linear_in(eqn)
        if _is_sum(eqn):
            return [part for part in eqn.invars if part.aval.shape == atom.aval.shape]
        return eqn.invars if eqn.primitive.name == "concatenate" else [] if position is None else [eqn.invars[position]]

    def _terms(self, atom: Any, known: Mapping[int, list[Term]]) -> list[Term]:
        """The terms of a sum with a wanted one among them; of one with too many, or without, the sum itself."""
        whole = Term(atom, None if isinstance(atom, jex.Literal) else self._producers.get(atom))
        eqn = whole.maker
        if eqn is None or self.is_invariant(atom):
            return [Term(atom, None)]
        position = self._linear_in(eqn)
        if _is_sum(eqn):
            signs = False, eqn.primitive.name == "sub"
            pairs = [(self._part(part, known, atom.aval.shape), sign) for part, sign in zip(eqn.invars, signs)]
            parts = [each for terms, sign in pairs for each in (map(_negated, terms) if sign else terms)]
        elif eqn.primitive.name == "concatenate":
            pieces = [(pad, known[id(piece)]) for pad, piece in zip(padded_parts(eqn), eqn.invars)]
            parts = [replace(term, links=(*term.links, (pad, 0))) for pad, terms in pieces for term in terms]
        elif position is not None:
            parts = [replace(term, links=(*term.links, (eqn, position))) for term in known[id(eqn.invars[position])]]
        else:
            return [whole]
        is_worth_it = len(parts) <= policy.COMMON.one_by_one and any(map(self.is_wanted, parts))
        return parts if is_worth_it else [whole]

    def _part(self, atom: Any, known: Mapping[int, list[Term]], shape: tuple[int, ...]) -> list[Term]:
        if atom.aval.shape == shape:
            return known[id(atom)]
        return [Term(atom, None, spread_to=shape)]

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


def _negated(term: Term) -> Term:
    return replace(term, negative=not term.negative)


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
