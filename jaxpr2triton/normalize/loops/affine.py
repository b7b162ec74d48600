"""What a loop carries, by how the next value depends on the one before: as it is, not at all, or affinely.

    c' = a * c + b        where a and b have nothing to do with c, and each element of c' with one element of c only

Values that read each other are one vector of them, and a is a matrix: `c' = a * c + d + b; d' = e * c`. Or in another
ring: `max(c + a, b)`, where an addition takes the place of the product, and a maximum that of the sum; or the logarithm
of a sum of exponentials, `logaddexp(c + a, b)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import jax.numpy as jnp

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Aval, Eqn, Literal, Var
from jaxpr2triton.ir.scans import Body
from jaxpr2triton.normalize.loops.logs import Link, joined, link_of
from jaxpr2triton.normalize.loops.rings import JOINS, Ring


class Kind(Enum):
    SAME = auto()  # what it began as, in all steps
    SHIFT = auto()  # of the step before alone
    TOTAL = auto()  # a sum over the steps, of which only the end is read
    RUNNING = auto()  # affine, and read in each step


@dataclass(frozen=True)
class Carried:
    """One value that a scan carries, or a few that read each other."""

    places: tuple[int, ...]  # among all that it carries
    kind: Kind
    befores: tuple[Var, ...]
    afters: tuple[Atom, ...]
    links: tuple[Eqn, ...] = ()  # the equations from the ones to the others, all elementwise
    read: bool = False  # whether any of `befores` is read by anything else
    ring: Ring = Ring.SUMS
    steps: tuple[Link, ...] = ()  # the links, those of a logarithm of a sum as one

    @property
    def given(self) -> list[Var]:
        """What the links read besides."""
        made = {*self.befores, *(var for eqn in self.links for var in eqn.outvars)}
        read = evaluate.variables(atom for eqn in self.links for atom in eqn.invars)
        return [var for var in dict.fromkeys(read) if var not in made]


def carried_by(body: Body) -> list[Carried] | None:
    """All that a scan carries, each after those that it depends on; None if some of it has to go step by step."""
    found = groups_of(body)
    known = [each for _, each in found if each is not None]
    return known if len(known) == len(found) else None


def groups_of(body: Body) -> list[tuple[list[int], Carried | None]]:
    """The places of values that depend on each other, after those that they depend on; None: step by step."""
    depends = body.dependences.reached_by
    return [
        (each, _one(body, each[0], depends) if len(each) == 1 else _several(body, each, depends))
        for each in map(list, body.dependences.recurrences)
    ]


def _one(body: Body, place: int, depends: Mapping[Var, frozenset[int]]) -> Carried | None:
    before, after = body.befores[place], body.afters[place]
    if after is before:
        return Carried((place,), Kind.SAME, (before,), (after,), (), True)
    if isinstance(after, Literal) or place not in depends[after]:
        return Carried((place,), Kind.SHIFT, (before,), (after,), (), _is_read(body, before))
    found = _several(body, [place], depends)
    if found is None or found.read or after in _read_elsewhere(body, [place], found.links):
        return found
    waiting = {var for var, places in depends.items() if place in places}
    adds = found.ring is Ring.SUMS and all(_adds(eqn, waiting) for eqn in found.links)
    return replace(found, kind=Kind.TOTAL) if adds else found


def _several(body: Body, places: Sequence[int], depends: Mapping[Var, frozenset[int]]) -> Carried | None:
    """What is affine in what it was, by itself or together with others."""
    befores, afters = tuple(body.befores[p] for p in places), tuple(body.afters[p] for p in places)
    aval = befores[0].aval
    if len(places) > policy.COMMON.coupled or any(_differ(var.aval, aval) for var in befores):
        return None
    waiting = {var for var, found in depends.items() if not found.isdisjoint(places)}
    links = tuple(eqn for eqn in evaluate.needed(body.jaxpr.eqns, afters, ()) if not waiting.isdisjoint(eqn.outvars))
    whole = tuple(map(link_of, links))
    ways = ((ring, joined(links, afters) if ring is Ring.LOGS else whole) for ring in Ring)
    fitting = (way for way in ways if all(_is_link(link, waiting, befores[0], way[0]) for link in way[1]))
    ring, steps = next(fitting, (None, ()))
    if ring is None:
        return None
    made = {*befores, *(var for eqn in links for var in eqn.outvars)} - set(evaluate.variables(afters))
    made |= set(befores)  # which may be what another one is afterwards
    read = not made.isdisjoint(_read_elsewhere(body, places, links))
    return Carried(tuple(places), Kind.RUNNING, befores, afters, links, read, ring, steps)


def _differ(one: Aval, other: Aval) -> bool:
    return one.shape != other.shape or one.dtype != other.dtype


def _read_elsewhere(body: Body, places: Sequence[int], links: Sequence[Eqn]) -> set[Var]:
    """What is read by anything but the links, and what it leads to, but for these carried values."""
    beside = [eqn for eqn in body.jaxpr.eqns if eqn not in set(links)]
    others = [*body.ys, *(atom for p, atom in enumerate(body.afters) if p not in places)]
    return set(evaluate.read_by(beside, others))


def _is_read(body: Body, before: Var) -> bool:
    return before in evaluate.read_by(body.jaxpr.eqns, body.jaxpr.outvars)


def _adds(eqn: Eqn, waiting: set[Var]) -> bool:
    """Whether it adds something else to what is carried."""
    places = [place for place, atom in enumerate(eqn.invars) if not isinstance(atom, Literal) and atom in waiting]
    return places in {"add": ([0], [1]), "add_any": ([0], [1]), "sub": ([0],)}.get(eqn.primitive.name, ())


def _is_link(link: Link, waiting: set[Var], before: Var, ring: Ring) -> bool:
    """Whether it is affine in what waits for the carried value, element by element."""
    places = [place for place, atom in enumerate(link.invars) if not isinstance(atom, Literal) and atom in waiting]
    waited = [link.invars[place] for place in places]
    beside = {atom.aval.shape for atom in evaluate.variables(link.invars)} - {before.aval.shape, ()}  # or one for all
    if link.eqn.effects:
        return False
    same = not any(_differ(atom.aval, before.aval) for atom in [*waited, *link.outvars])
    is_float = jnp.issubdtype(before.aval.dtype, jnp.floating)
    plain = _is_plain(link.name, places, is_float) if ring is Ring.SUMS else False
    if ring in JOINS:
        plain = is_float and _is_plain_join(link.name, places, JOINS[ring])
    return plain and same and not beside


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


def _is_plain_join(name: str, places: Sequence[int], join: str) -> bool:
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
            return name == join
