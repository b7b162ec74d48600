"""Which of the sums that a loop carries are better taken after the loop, and how."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import jax.extend.core as jex

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import elements, frozen, nbytes
from jaxpr2triton.ir.scanned import scanned_p
from jaxpr2triton.ir.scans import Body
from jaxpr2triton.normalize.loops.accumulators import Link, Term, Terms, accumulated
from jaxpr2triton.normalize.loops.coupled import Coupling
from jaxpr2triton.rules.rows import ADDED

LAYOUT = ("transpose", "reshape", "squeeze")


@dataclass(frozen=True)
class LaneSum:
    """Terms of one form that are carried in one sum, before `delayed` dimensions of each are summed."""

    position: int
    terms: tuple[Term, ...]
    moving: int | None  # the operand of the makers that is summed, unless two of them change from step to step
    delayed: tuple[int, ...]  # dimensions of the operand of a reduce_sum; or pairs of a contraction of two operands

    @property
    def maker(self) -> Any:
        return self.terms[0].maker

    @property
    def link(self) -> Link | None:
        """The maker, if all of it comes after the loop."""
        axes = self.maker.params.get("axes", self.delayed)
        return (self.maker, self.moving) if self.moving is not None and set(axes) == set(self.delayed) else None


@dataclass(frozen=True)
class Stacked:
    """A term that is summed after the loop, from what its operands were in each step."""

    position: int
    term: Term
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class Factor:
    """An operand as `links(root)`, where the root is read or written in every step, or is going to be."""

    root: Any
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Plan:
    body: Body
    kept: Mapping[int, tuple[Term, ...]]  # carried position → what is added in the loop as before
    lanes: tuple[LaneSum, ...]
    stacked: tuple[Stacked, ...]
    stacks: tuple[Any, ...]  # the roots that the loop has to write

    @property
    def removed(self) -> frozenset[int]:
        """Carried positions that are gone."""
        return frozenset(position for position, kept in self.kept.items() if not kept)

    def delayed_terms(self) -> Iterator[Term]:
        yield from (term for lane in self.lanes for term in lane.terms)
        yield from (each.term for each in self.stacked)


def plan_of(body: Body) -> Plan | None:
    """What to take out of a loop with this body, or None."""
    sums = accumulated(body)
    if not sums:
        return None
    chooser = _Chooser(body, sums)
    split = {p: [t for addend in addends for t in chooser.terms.of(*addend)] for p, addends in sums.items()}
    return chooser.plan(split)


class _Chooser:
    def __init__(self, body: Body, sums: Mapping[int, Sequence[tuple[Any, bool]]]) -> None:
        self.body = body
        self.terms = Terms(body, self._is_worth_it)
        self._producers = body.dependences.definitions
        self._mixing = mixing_of_the_rest(body, sums, body.ys)
        carried = [var for position, var in enumerate(body.befores) if position not in sums]
        anyway = [*body.xs, *body.ys, *carried]
        self._usual = max(map(elements, anyway), default=1)
        self._sweeps = any(eqn.primitive is scanned_p for eqn in body.jaxpr.eqns)  # then lanes meet in any case
        self._carried = max(map(elements, carried), default=1)
        self._stored = sum(map(nbytes, anyway))
        self._held = max((held for var in body.consts if (held := self._of_an_index(var)) < elements(var)), default=0)
        self._free = {*body.xs, *(atom for atom in body.ys if not isinstance(atom, jex.Literal))}  # in memory anyway

    def plan(self, split: Mapping[int, Sequence[Term]]) -> Plan | None:
        """Each term where it costs least: in a sum of lanes, summed after the loop, or added in the loop as before.

        g' = g + reduce_sum[axes=(0,)] (a * x) + dot_general h u + c
            →    reduce_sum in lanes;  dot_general of the stacked h and u;  c kept
        """
        terms = [(position, term) for position, found in split.items() for term in found]
        kept = [pair for pair in terms if not self.terms.is_wanted(pair[1])]
        lanes: dict[tuple[Any, ...], list[Term]] = {}  # position and form → the terms
        stacked: list[Stacked] = []
        stacks: list[Any] = []

        for position, term in self._in_order(terms):
            factors = self._factors(term)
            new = self._not_in_memory(factors)
            if self._by_lanes(term, bool(new)):
                lanes.setdefault((position, *self._form(term)), []).append(term)
            elif factors and sum(map(nbytes, new)) <= policy.COMMON.times * self._stored:
                stacked.append(Stacked(position, term, factors))
                stacks.extend(new)
                self._free.update(new)
            else:
                kept.append((position, term))

        sums = tuple(self._lane_sum(key[0], found) for key, found in lanes.items())
        touched = {lane.position for lane in sums} | {each.position for each in stacked}
        if not touched:
            return None
        left = {p: tuple(term for place, term in kept if place == p) for p in split if p in touched}
        return Plan(self.body, left, sums, tuple(stacked), tuple(stacks))

    def _in_order(self, terms: Sequence[tuple[int, Term]]) -> list[tuple[int, Term]]:
        """Those worth delaying, products first: what they have the loop write, the others then read for nothing."""
        wanted = [pair for pair in terms if self.terms.is_wanted(pair[1])]
        return sorted(wanted, key=lambda pair: not self._is_product(pair[1].maker))

    def _not_in_memory(self, factors: Sequence[Factor]) -> list[Any]:
        """The roots that the loop would have to write for these factors."""
        return [root for root in dict.fromkeys(factor.root for factor in factors) if root not in self._free]

    def _lane_sum(self, position: int, terms: Sequence[Term]) -> LaneSum:
        maker = terms[0].maker
        return LaneSum(position, tuple(terms), self.terms.moving_operand(maker), self._delayed(maker))

    def _is_worth_it(self, eqn: Any) -> bool:
        if self._is_product(eqn):
            return bool(self._delayed(eqn)) or self._of_a_lane(eqn) > max(policy.COMMON.carried_unnoticed, self._held)
        operand = self._summand(eqn)
        if operand is None or self._shared(eqn):
            return operand is not None
        if eqn.primitive.name == "reduce_sum":
            return elements(operand) <= self._usual and not self._sweeps
        return max(policy.COMMON.carried_unnoticed, elements(operand)) < elements(eqn.outvars[0])

    def _by_lanes(self, term: Term, costs_bytes: bool) -> bool:
        if self._is_product(term.maker):
            return bool(self._delayed(term.maker)) and self._of_a_lane(term.maker) <= policy.COMMON.of_a_lane
        operand = self._summand(term.maker)
        if term.maker.primitive.name == "reduce_sum" and not costs_bytes and elements(operand) > self._carried:
            return False
        lanes = math.prod(operand.aval.shape[d] for d in self._shared(term.maker))
        return elements(operand) <= max(policy.COMMON.times * self._usual, policy.COMMON.of_a_lane * lanes)

    def _of_an_index(self, var: Any) -> int:
        """The elements of an array for one index of the dimensions that programs can share out."""
        return math.prod(size for d, size in enumerate(var.aval.shape) if not self._mixing.is_apart(var, d))

    def _of_a_lane(self, product: Any) -> int:
        """The elements of a contraction, for one index of the batch dimensions that programs can share out."""
        batch = product.params["dimension_numbers"][1][0]
        apart = [d for d in batch if self._mixing.is_apart(product.invars[0], d)]
        return elements(product.outvars[0]) // math.prod(product.invars[0].aval.shape[d] for d in apart)

    def _is_product(self, eqn: Any) -> bool:
        return eqn.primitive.name == "dot_general" and self.terms.moving_operand(eqn) is None

    def _summand(self, eqn: Any) -> Any:
        """The operand that may be summed over the steps in place of the result."""
        position = self.terms.moving_operand(eqn) if eqn.primitive.name in ADDED else None
        return None if position is None else eqn.invars[position]

    def _shared(self, eqn: Any) -> tuple[int, ...]:
        """Which dimensions of the summand are summed, and could be shared out among programs otherwise."""
        position = self.terms.moving_operand(eqn) or 0
        dot = eqn.primitive.name == "dot_general"
        dims = eqn.params["dimension_numbers"][0][position] if dot else eqn.params["axes"]
        return tuple(d for d in dims if self._mixing.is_apart(eqn.invars[position], d))

    def _delayed(self, eqn: Any) -> tuple[int, ...]:
        if self._is_product(eqn):
            pairs = zip(*eqn.params["dimension_numbers"][0])
            apart = (all(map(self._mixing.is_apart, eqn.invars, pair)) for pair in pairs)
            return tuple(k for k, found in enumerate(apart) if found)
        if eqn.primitive.name != "reduce_sum":
            return ()
        whole = elements(eqn.invars[0]) <= self._usual and not self._sweeps
        return tuple(eqn.params["axes"]) if whole else self._shared(eqn)

    def _factors(self, term: Term) -> tuple[Factor, ...]:
        """What is to be there for every step if the term is summed after the loop; nothing if it cannot be."""
        operands = evaluate.variables(term.maker.invars)
        if not self._is_product(term.maker) and term.maker.primitive.name != "reduce_sum":
            return ()
        return tuple(map(self._factor, operands)) if len(operands) == len(term.maker.invars) else ()

    def _factor(self, atom: Any) -> Factor:
        read = self._traced_back(atom, (*LAYOUT, "convert_element_type"))
        return read if read.root in self._free else self._traced_back(atom, LAYOUT)

    def _traced_back(self, atom: Any, through: Sequence[str]) -> Factor:
        links: list[Link] = []
        while (eqn := self._producers.get(atom)) is not None and eqn.primitive.name in through and len(eqn.invars) == 1:
            links.append((eqn, 0))
            atom = eqn.invars[0]
        return Factor(atom, tuple(reversed(links)))

    def _form(self, term: Term) -> tuple[Any, ...]:
        """Terms of the same form are summed together."""
        first = term.maker, self.terms.moving_operand(term.maker)
        return (self._delayed(term.maker), *(_link_form(*link) for link in (first, *term.links)))


def _link_form(eqn: Any, position: int | None) -> tuple[Any, ...]:
    operands = [_identity(atom) for place, atom in enumerate(eqn.invars) if position is not None and place != position]
    types = tuple((atom.aval.shape, str(atom.aval.dtype)) for atom in eqn.invars)
    return eqn.primitive.name, frozen(eqn.params), position, tuple(operands), types


def _identity(atom: Any) -> Any:
    return ("literal", frozen(atom.val)) if isinstance(atom, jex.Literal) else atom


def mixing_of_the_rest(body: Body, sums: Mapping[int, Sequence[tuple[Any, bool]]], put_out: Sequence[Any]) -> Coupling:
    """What is mixed by everything that leads to other carried values or to what is put out, but the sums themselves."""
    terms = Terms(body, lambda eqn: eqn.primitive.name in ADDED)
    targets = [after for position, after in enumerate(body.afters) if position not in sums]
    targets += put_out
    for atom, negative in chain.from_iterable(sums.values()):
        for term in terms.of(atom, negative):
            targets += term.maker.invars if terms.is_wanted(term) else [term.leaf]
    eqns = evaluate.needed(body.jaxpr.eqns, targets, ())
    pairs = [pair for position, pair in enumerate(zip(body.befores, body.afters)) if position not in sums]
    ties = [((b, d), (a, d)) for b, a in pairs if not isinstance(a, jex.Literal) for d in range(len(b.aval.shape))]
    return Coupling(eqns, ties)
