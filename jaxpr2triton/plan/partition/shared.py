"""Values that kernels of several levels would each compute from much: one writes them, and the later ones read them.

    x1 = x0 + a1                                             x3 is in memory for all kernels of later levels:
    x2 = x1 + a2          →                                  one at its own level writes it, beside what it makes of it
    x3 = x2 + a3

A level counts the equations before a value that stay with XLA. Without this each layer of a network would add up what
all layers before it have put out, and the bytes read, and the time to plan, would grow with the square of the layers.
It leaves alone what is wanted at one level only, where kernels have it in common anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from jaxpr2triton.ir.dataflow import forward_equations
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Jaxpr, Var
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import TABLE

NOTED_AT_MOST = 16  # arrays that are remembered of what a value is computed from


def levels_in(jaxpr: Jaxpr, inside: Container[int]) -> Mapping[Var, int]:
    """How many equations that stay with XLA come before each value, one after the other."""
    left = {id(eqn) for number, eqn in enumerate(jaxpr.eqns) if number not in inside}
    given = dict.fromkeys((*jaxpr.constvars, *jaxpr.invars), 0)
    return forward_equations(jaxpr.eqns, lambda eqn, before: max(before, default=0) + (id(eqn) in left), given)


def shared_values(
    jaxpr: Jaxpr,
    inside: Container[int],
    levels: Mapping[Var, int],
    loaded: Container[Var],
    roots: Collection[Var],
    reads: int,
) -> list[Var]:
    """The values to be in memory, in order; what is computed from so many arrays or fewer is computed again."""
    wanted = _wanted_at(jaxpr, inside, levels, loaded, frozenset(roots))
    found: list[Var] = []
    sources: dict[Var, frozenset[Var]] = {}
    for number, eqn in enumerate(jaxpr.eqns):
        if number not in inside:
            continue
        operands = variables(eqn.invars)
        below = frozenset().union(*(sources.get(atom, frozenset((atom,))) for atom in operands))
        if len(below) > NOTED_AT_MOST:
            below = max((sources.get(atom, frozenset()) for atom in operands), key=len)
        sources.update(dict.fromkeys(eqn.outvars, below))
        value, is_pointwise = eqn.outvars[0], isinstance(TABLE.get(eqn.primitive.name), Pointwise)
        large = [atom for atom in below if atom.aval.size * 2 > value.aval.size]  # others are read at no cost
        levels_of_readers = wanted.get(value, 0)
        here_too = levels_of_readers >> levels[value] & 1
        if is_pointwise and len(large) > reads and here_too and levels_of_readers.bit_count() > 1:
            found.append(value)
            sources[value] = frozenset((value,))
    return found


def _wanted_at(
    jaxpr: Jaxpr, inside: Container[int], levels: Mapping[Var, int], loaded: Container[Var], roots: Container[Var]
) -> Mapping[Var, int]:
    """The levels of the roots that are computed from each value, as bits."""
    wanted: dict[Var, int] = {}
    for number, eqn in reversed(list(enumerate(jaxpr.eqns))):
        if number not in inside:
            continue
        bits = 0
        for out in eqn.outvars:
            wanted[out] = wanted.get(out, 0) | (1 << levels[out] if out in roots else 0)
            bits |= wanted[out]
        for atom in variables(eqn.invars):
            if atom not in loaded:
                wanted[atom] = wanted.get(atom, 0) | bits
    return wanted
