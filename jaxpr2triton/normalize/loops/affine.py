"""What a loop carries, by how the next value depends on the one before: as it is, not at all, or affinely.

    c' = a * c + b        where a and b have nothing to do with c, and each element of c' with one element of c only
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxpr2triton._compat import source_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.ir.scans import Body

Array = Any
Pair = tuple[Array | None, Array | None]  # a and b, of which None is a 1, and a 0


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
    if not all(_is_link(eqn, waiting, before) for eqn in links):
        return None
    read = _read_elsewhere(body, place, links)
    is_read = not read.isdisjoint({before, *(var for eqn in links for var in eqn.outvars)} - {after})
    adds = all(_adds(eqn, waiting) for eqn in links)
    kind = Kind.TOTAL if adds and not is_read and after not in read else Kind.RUNNING
    return Carried(place, kind, before, after, links, is_read)


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


def _is_link(eqn: Eqn, waiting: set[Var], before: Var) -> bool:
    """Whether it is affine in what waits for the carried value, element by element."""
    places = [place for place, atom in enumerate(eqn.invars) if not isinstance(atom, Literal) and atom in waiting]
    shapes = {atom.aval.shape for atom in [*evaluate.variables(eqn.invars), *eqn.outvars]} - {before.aval.shape}
    if eqn.effects or any(var.aval.dtype != before.aval.dtype for var in eqn.outvars):
        return False
    match eqn.primitive.name:
        case "add" | "add_any" | "sub" | "neg" | "copy" | "convert_element_type":
            plain = True
        case "mul":
            plain = len(places) == 1
        case "div":
            plain = places == [0] and jnp.issubdtype(before.aval.dtype, jnp.floating)
        case "select_n":
            plain = 0 not in places
            shapes -= {()}  # one flag for all
        case _:
            return False
    same = all(eqn.invars[place].aval.dtype == before.aval.dtype for place in places)
    return plain and same and not shapes


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

    for eqn in carried.links:
        pairs = [pair(atom) for atom in eqn.invars]
        values = [of(atom) if each is None else None for atom, each in zip(eqn.invars, pairs)]
        with source_of(eqn):
            known[eqn.outvars[0]] = _through(eqn.primitive.name, pairs, values, full)
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
