"""What a loop carries, by how the next value depends on the one before: as it is, not at all, or affinely.

    c' = a * c + b        where a and b have nothing to do with c, and each element of c' with one element of c only

Or in another ring: `max(c + a, b)`, where an addition takes the place of the product, and a maximum that of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxpr2triton._compat import source_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.ir.scans import Body

Array = Any
Pair = tuple[Array | None, Array | None]  # a and b, of which None is the ring's one, and its zero


class Ring(Enum):
    """What combines the steps: the number that changes nothing as a, and the one that does so as b."""

    SUMS = 1, 0
    MAXIMA = 0, -math.inf
    MINIMA = 0, math.inf

    @property
    def one(self) -> float:
        return self.value[0]

    @property
    def zero(self) -> float:
        return self.value[1]

    def step(self, c: Array, a: Array, b: Array) -> Array:
        match self:
            case Ring.SUMS:
                return lax.add(lax.mul(a, c), b)
            case Ring.MAXIMA:
                return lax.max(lax.add(c, a), b)
            case Ring.MINIMA:
                return lax.min(lax.add(c, a), b)

    def both(self, a: Array, then: Array) -> Array:
        """The coefficient of two steps."""
        return lax.mul(a, then) if self is Ring.SUMS else lax.add(a, then)


EXTREMA = {Ring.MAXIMA: "max", Ring.MINIMA: "min"}


class Kind(Enum):
    SAME = auto()  # what it began as, in all steps
    SHIFT = auto()  # of the step before alone
    TOTAL = auto()  # a sum over the steps, of which only the end is read
    RUNNING = auto()  # affine, and read in each step


@dataclass(frozen=True)
class Carried:
    """One value that a scan carries."""

    place: int  # among all that it carries
    kind: Kind
    before: Var
    after: Atom
    links: tuple[Eqn, ...] = ()  # the equations from the one to the other, all elementwise
    read: bool = False  # whether `before` is read by anything else
    ring: Ring = Ring.SUMS

    @property
    def given(self) -> list[Var]:
        """What the links read besides."""
        made = {self.before, *(var for eqn in self.links for var in eqn.outvars)}
        read = evaluate.variables(atom for eqn in self.links for atom in eqn.invars)
        return [var for var in dict.fromkeys(read) if var not in made]


def carried_by(body: Body) -> list[Carried] | None:
    """All that a scan carries, each after those that it depends on; None if some of it has to go step by step."""
    before = {var: place for place, var in enumerate(body.befores)}
    depends: dict[Var, frozenset[int]] = {var: frozenset((place,)) for var, place in before.items()}
    for eqn in body.jaxpr.eqns:
        places = (depends.get(var, frozenset()) for var in evaluate.variables(eqn.invars))
        depends.update(dict.fromkeys(eqn.outvars, frozenset[int]().union(*places)))
    found: dict[int, Carried] = {}
    for place, (var, after) in enumerate(zip(body.befores, body.afters)):
        one = _one(body, place, var, after, depends)
        if one is None:
            return None
        found[place] = one
    return _in_order(found, depends)


def _one(body: Body, place: int, before: Var, after: Atom, depends: Mapping[Var, frozenset[int]]) -> Carried | None:
    if after is before:
        return Carried(place, Kind.SAME, before, after, (), True)
    if isinstance(after, Literal) or place not in depends.get(after, frozenset()):
        return Carried(place, Kind.SHIFT, before, after, (), _is_read(body, before))
    waiting = {var for var, places in depends.items() if place in places}
    needed = evaluate.needed(body.jaxpr.eqns, [after], ())
    links = tuple(eqn for eqn in needed if not waiting.isdisjoint(eqn.outvars))
    ring = next((ring for ring in Ring if all(_is_link(eqn, waiting, before, ring) for eqn in links)), None)
    if ring is None:
        return None
    read = _read_elsewhere(body, place, links)
    is_read = not read.isdisjoint({before, *(var for eqn in links for var in eqn.outvars)} - {after})
    adds = all(_adds(eqn, waiting) for eqn in links)
    kind = Kind.TOTAL if adds and not is_read and after not in read else Kind.RUNNING
    return Carried(place, kind, before, after, links, is_read, ring)


def _read_elsewhere(body: Body, place: int, links: Sequence[Eqn]) -> set[Var]:
    """What is read by anything but the links, and what it leads to, but for this carried value."""
    beside = [eqn for eqn in body.jaxpr.eqns if eqn not in set(links)]
    others = [*body.ys, *(atom for p, atom in enumerate(body.afters) if p != place)]
    return set(evaluate.variables([*others, *(atom for eqn in beside for atom in eqn.invars)]))


def _is_read(body: Body, before: Var) -> bool:
    read = evaluate.variables([*body.ys, *body.afters, *(atom for eqn in body.jaxpr.eqns for atom in eqn.invars)])
    return before in read


def _adds(eqn: Eqn, waiting: set[Var]) -> bool:
    """Whether it adds something else to what is carried."""
    places = [place for place, atom in enumerate(eqn.invars) if not isinstance(atom, Literal) and atom in waiting]
    return places in {"add": ([0], [1]), "add_any": ([0], [1]), "sub": ([0],)}.get(eqn.primitive.name, ())


def _is_link(eqn: Eqn, waiting: set[Var], before: Var, ring: Ring) -> bool:
    """Whether it is affine in what waits for the carried value, element by element."""
    places = [place for place, atom in enumerate(eqn.invars) if not isinstance(atom, Literal) and atom in waiting]
    shapes = {atom.aval.shape for atom in [*evaluate.variables(eqn.invars), *eqn.outvars]} - {before.aval.shape}
    if eqn.effects or any(var.aval.dtype != before.aval.dtype for var in eqn.outvars):
        return False
    if eqn.primitive.name == "select_n":
        shapes -= {()}  # one flag for all
    same = all(eqn.invars[place].aval.dtype == before.aval.dtype for place in places)
    is_float = jnp.issubdtype(before.aval.dtype, jnp.floating)
    plain = _is_plain(eqn.primitive.name, places, is_float) if ring is Ring.SUMS else False
    if ring in EXTREMA:
        plain = is_float and _is_plain_extremum(eqn.primitive.name, places, EXTREMA[ring])
    return plain and same and not shapes


def _is_plain(name: str, places: Sequence[int], is_float: bool) -> bool:
    match name:
        case "add" | "add_any" | "sub" | "neg" | "copy" | "convert_element_type":
            return True
        case "mul":
            return len(places) == 1
        case "div":
            return places == [0] and is_float
        case "select_n":
            return 0 not in places
        case _:
            return False


def _is_plain_extremum(name: str, places: Sequence[int], extremum: str) -> bool:
    match name:
        case "copy" | "convert_element_type":
            return True
        case "add" | "add_any":
            return len(places) == 1
        case "sub":
            return places == [0]
        case "select_n":
            return 0 not in places
        case _:
            return name == extremum


def _in_order(found: Mapping[int, Carried], depends: Mapping[Var, frozenset[int]]) -> list[Carried] | None:
    """Each after what it depends on; None if two of them depend on each other."""
    order: list[Carried] = []
    there: set[int] = set()
    while len(order) < len(found):
        ready = [
            each
            for place, each in found.items()
            if place not in there
            and (isinstance(each.after, Literal) or depends.get(each.after, frozenset()) - {place} <= there)
        ]
        if not ready:
            return None
        order.extend(ready)
        there.update(each.place for each in ready)
    return order


def coefficients(carried: Carried, env: Mapping[Var, Array]) -> Pair:
    """a and b of a step, where `env` has what the links read besides."""
    aval = carried.before.aval
    known: dict[Var, Pair] = {carried.before: (None, None)}

    def full(number: Any) -> Array:
        return lax.full(aval.shape, number, aval.dtype)

    def of(atom: Atom) -> Array:
        value = evaluate.read(dict(env), atom)
        if isinstance(atom, Literal):
            return full(value) if atom.aval.dtype == aval.dtype else jnp.asarray(value, atom.aval.dtype)
        return value

    def pair(atom: Atom) -> Pair | None:
        return None if isinstance(atom, Literal) else known.get(atom)

    through = _through if carried.ring is Ring.SUMS else partial(_through_extremum, carried.ring)
    for eqn in carried.links:
        pairs = [pair(atom) for atom in eqn.invars]
        values = [of(atom) if each is None else None for atom, each in zip(eqn.invars, pairs)]
        with source_of(eqn):
            known[eqn.outvars[0]] = through(eqn.primitive.name, pairs, values, full)
    assert not isinstance(carried.after, Literal)
    return known[carried.after]


def _through(name: str, pairs: Sequence[Pair | None], values: Sequence[Array], full: Callable[[Any], Array]) -> Pair:
    """What becomes of pairs, and of values that are no pairs, in an equation."""
    a, b = next(each for each in pairs if each is not None)
    other: Array = next((value for value in values if value is not None), None)
    match name:
        case "neg":
            return full(-1) if a is None else lax.neg(a), None if b is None else lax.neg(b)
        case "mul":
            return other if a is None else lax.mul(a, other), None if b is None else lax.mul(b, other)
        case "div":
            return lax.div(full(1) if a is None else a, other), None if b is None else lax.div(b, other)
        case "add" | "add_any" if other is not None:
            return a, other if b is None else lax.add(b, other)
        case "sub" if pairs[1] is None:
            return a, lax.neg(other) if b is None else lax.sub(b, other)
        case "add" | "add_any" | "sub" | "select_n":
            return _of_several(name, pairs, values, full)
        case _:  # the same number in another place
            return a, b


def _of_several(
    name: str, pairs: Sequence[Pair | None], values: Sequence[Array], full: Callable[[Any], Array]
) -> Pair:
    """Of a sum of two pairs, or a choice among pairs and values."""

    def whole(pair: Pair | None, value: Array) -> tuple[Any, Any]:
        if pair is None:
            return full(0), value
        a, b = pair
        return full(1) if a is None else a, full(0) if b is None else b

    first = 1 if name == "select_n" else 0
    scales, offsets = zip(*map(whole, pairs[first:], values[first:]))
    if name == "select_n":
        return lax.select_n(values[0], *scales), lax.select_n(values[0], *offsets)
    do = lax.sub if name == "sub" else lax.add
    return do(*scales), do(*offsets)


def _through_extremum(
    ring: Ring, name: str, pairs: Sequence[Pair | None], values: Sequence[Array], full: Callable[[Any], Array]
) -> Pair:
    """The same where numbers are added, and compared with others."""
    a, b = next(each for each in pairs if each is not None)
    other: Array = next((value for value in values if value is not None), None)
    match name:
        case "add" | "add_any":
            return other if a is None else lax.add(a, other), None if b is None else lax.add(b, other)
        case "sub":
            return lax.neg(other) if a is None else lax.sub(a, other), None if b is None else lax.sub(b, other)
        case "max" | "min" | "select_n":
            first = 1 if name == "select_n" else 0
            whole = [
                (full(ring.zero), value) if each is None else filled(each, ring, full)
                for each, value in zip(pairs[first:], values[first:])
            ]
            choose = partial(lax.select_n, values[0]) if first else getattr(lax, name)
            scales, offsets = zip(*whole)
            return choose(*scales), choose(*offsets)
        case _:  # the same number in another place
            return a, b


def filled(pair: Pair, ring: Ring, full: Callable[[Any], Array]) -> tuple[Array, Array]:
    """With what changes nothing in place of nothing."""
    a, b = pair
    return full(ring.one) if a is None else a, full(ring.zero) if b is None else b
