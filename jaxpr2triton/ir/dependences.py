"""What depends on what in a loop, within a step and from one step to the next.

    x, c, s = scan (λ x c s u. let y = sin x + u; z = y * c; t = s + z in (y, z, t)) x0 c0 s0 us

    reached_by   y: {0}   z: {0, 1}   t: {0, 1, 2}       the carried places that a value is made of
    needs        0: {0}   1: {0, 1}   2: {0, 1, 2}       those that what is carried on is made of
    recurrences  (0,)  (1,)  (2,)                        places that depend on each other, each after what it needs
    waited_for   y, z, t                                 what leads to a carried value

All of it is found when it is asked for, and once for each loop.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dataflow import computable, forward_equations
from jaxpr2triton.ir.digraph import backwards, pieces
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var


@dataclass(frozen=True)
class Dependences:
    eqns: Sequence[Eqn]
    given: Sequence[Var]  # to a step: the constants, what is carried, and its part of the xs
    consts: Sequence[Var]
    befores: Sequence[Var]
    afters: Sequence[Atom]

    @cached_property
    def definitions(self) -> Mapping[Var, Eqn]:
        """The equation that makes each variable."""
        return {var: eqn for eqn in self.eqns for var in eqn.outvars}

    @cached_property
    def invariant(self) -> frozenset[Var]:
        """What is the same in every step."""
        return frozenset(computable(self.eqns, self.consts))

    @cached_property
    def reached_by(self) -> Mapping[Var, frozenset[int]]:
        """The places of the carried values that each value is made of in a step."""
        nothing = frozenset[int]()
        given = dict.fromkeys(self.given, nothing) | {var: frozenset((n,)) for n, var in enumerate(self.befores)}
        return forward_equations(self.eqns, lambda _, below: nothing.union(*below), given)

    @cached_property
    def needs(self) -> Mapping[int, frozenset[int]]:
        """For each place those that its next value is made of."""
        made = (frozenset[int]() if isinstance(after, Literal) else self.reached_by[after] for after in self.afters)
        return dict(enumerate(made))

    @cached_property
    def recurrences(self) -> Sequence[tuple[int, ...]]:
        """The strongly connected components of the places, each after those that it needs."""
        return pieces(backwards(self.needs))

    @cached_property
    def waited_for(self) -> frozenset[Var]:
        """What equations make that leads to a carried value of the next step."""
        needed = evaluate.needed(self.eqns, self.afters, ())
        return frozenset(var for eqn in needed for var in eqn.outvars)


_KNOWN: weakref.WeakKeyDictionary[Jaxpr, dict[tuple[int, int], Dependences]] = weakref.WeakKeyDictionary()


def dependences_of(jaxpr: Jaxpr, num_consts: int, num_carry: int) -> Dependences:
    """Those of a loop that runs this; forgotten with it."""
    known = _KNOWN.setdefault(jaxpr, {})
    key = num_consts, num_carry
    if key not in known:
        given, first = [*jaxpr.constvars, *jaxpr.invars], len(jaxpr.constvars) + num_consts
        befores, afters = given[first : first + num_carry], jaxpr.outvars[:num_carry]
        known[key] = Dependences(jaxpr.eqns, given, given[:first], befores, afters)
    return known[key]
