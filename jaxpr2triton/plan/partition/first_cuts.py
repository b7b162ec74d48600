"""Where kernels end whatever they are: at contractions beside loops, after many products, and at the ends of loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from jaxpr2triton import policy as numbers
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.ir.dataflow import forward_equations
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Var
from jaxpr2triton.ir.once import readers_of
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.plan.decisions import Decisions
from jaxpr2triton.plan.library import ends_of_walks, is_light
from jaxpr2triton.plan.partition import cut_reasons
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.ends import end_of
from jaxpr2triton.plan.partition.lanes import read_in, read_together
from jaxpr2triton.plan.partition.sources import is_spread
from jaxpr2triton.plan.refusal import body_of
from jaxpr2triton.policy import Policy

NOTHING: Mapping[Var, str] = MappingProxyType({})


def first_cuts(jaxpr: Jaxpr, decisions: Decisions, policy: Policy, brought: Mapping[Var, str] = NOTHING) -> Cuts:
    """The program with what needs no look at its kernels; what is to be `brought` into memory is there."""
    cuts = Cuts(jaxpr, decisions, policy)
    _cut_contractions(cuts)
    _cut_chains(cuts)
    _cut_walks(cuts)
    for value, why in brought.items():
        cuts.add_root(value, why)
    _cut_after_loops(cuts)
    return cuts


def _cut_contractions(cuts: Cuts) -> None:
    """Let contractions have kernels of their own, where there are loops: what a loop makes for them is in memory."""
    of_loops = forward_equations(cuts.inside, lambda eqn, below: eqn.primitive.name in LOOPS or any(below))
    if not any(of_loops.values()):
        return
    for eqn in cuts.inside:
        if eqn.primitive.name == "dot_general" and not is_short_contraction(eqn):
            for value in variables(eqn.invars):
                if of_loops.get(value) and value not in cuts.loaded and cuts.is_inside(value):
                    for each in read_together(cuts, value):
                        cuts.add_root(each, cut_reasons.CONTRACTED)
            cuts.add_root(eqn.outvars[0], cut_reasons.CONTRACTED)


def _cut_chains(cuts: Cuts) -> None:
    """End kernels after so many contractions of each other, so that no walk sees all layers of a network."""
    most, depths, ends = numbers.COMMON.few, dict[Atom, int](), set[Atom]()
    for eqn in cuts.inside:
        depth = max((depths.get(atom, 0) for atom in variables(eqn.invars)), default=0)
        if eqn.primitive.name == "dot_general" and not is_short_contraction(eqn):
            depth += 1
            if depth == most:
                ends.add(end := end_of(cuts, eqn, eqn.outvars[0]))
                cuts.add_root(end, cut_reasons.LINKS)
        depths.update((var, 0 if var in ends else depth) for var in eqn.outvars)


def _cut_walks(cuts: Cuts) -> None:
    """End kernels after all chains that walk, where one value is made of several: each has rows of its own.

    concatenate [dq, dk, dv]    →    the rows of dq are queries, those of dk and dv keys
    """
    makers = {eqn.outvars[0]: eqn for eqn in cuts.inside if eqn.outvars}
    lasts = [last for last in ends_of_walks(cuts.jaxpr, cuts.policy) if last in makers]
    ends = [_turned(cuts, end_of(cuts, makers[last], last)) for last in lasts]
    if len(ends) < 2:
        return
    for eqn in makers.values():
        for joined in _joined_factors(eqn, makers):
            cuts.add_root(joined, cut_reasons.FACTORS)
    for end in _meeting(cuts, ends):
        cuts.add_root(end, cut_reasons.JOINED)


def _meeting(cuts: Cuts, ends: Sequence[Var]) -> list[Var]:
    """Those of which one value is made, with nothing between that is not light."""
    met: dict[Atom, frozenset[Var]] = {end: frozenset([end]) for end in ends}
    for eqn in cuts.inside:
        found = frozenset[Var]().union(*(met.get(atom, ()) for atom in variables(eqn.invars)))
        if is_light(eqn) and found:
            met.update((var, found) for var in eqn.outvars if var not in ends)
    several = frozenset[Var]().union(*(each for each in met.values() if len(each) > 1))
    return [end for end in dict.fromkeys(ends) if end in several]


def _joined_factors(eqn: Eqn, makers: Mapping[Var, Eqn]) -> Iterator[Var]:
    """The factors of a product that are put together of parts, as queries of rotated halves.

    Each kernel would have to take its sums, and its results, apart into as many.
    """
    for value in variables(eqn.invars) if eqn.primitive.name == "dot_general" else ():
        while (maker := makers.get(value)) and maker.primitive.name in ("transpose", "reshape", "convert_element_type"):
            (value,) = variables(maker.invars)
        if maker is not None and maker.primitive.name == "concatenate":
            yield value


def _turned(cuts: Cuts, value: Var) -> Var:
    """What alone is read of a value, in another order: as the rows of others, with which one kernel makes it."""
    readers = readers_of(cuts.jaxpr)
    while len(readers[value]) == 1 and (reader := readers[value][0]) and reader.primitive.name == "transpose":
        (value,) = reader.outvars
    return value


def _cut_after_loops(cuts: Cuts) -> None:
    """Let all that is read of some loops come into memory, so that no other kernel runs them again.

    Nor does anything else share a kernel with a loop that is spread.
    """
    for eqn in cuts.loops:
        if body_of(eqn) in cuts.decisions.ended or is_spread(eqn):
            for value in eqn.outvars:
                if value in read_in(cuts.jaxpr):
                    cuts.add_root(value, cut_reasons.wanted_often(eqn))
