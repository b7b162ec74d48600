"""What is known of a program before any of it is cut: what kernels compute, and what has to be in memory anyway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

from jaxpr2triton.graph.classes import Classes, classes_of
from jaxpr2triton.graph.covered import is_short_contraction, why_not
from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.ir.region import IN_MEMORY, boundary_p, chunked_p
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.plan.decisions import Decisions
from jaxpr2triton.plan.partition.shared import levels_in
from jaxpr2triton.plan.refusal import body_of, is_refused
from jaxpr2triton.policy import Policy


@dataclass
class Program:
    """A program, and what follows from it alone; nothing here changes while it is cut."""

    jaxpr: Jaxpr
    decisions: Decisions
    policy: Policy
    classes: Classes = field(init=False)
    inside: list[Eqn] = field(init=False)  # equations that kernels compute
    loops: list[Eqn] = field(init=False)  # the loops among these
    outside: list[Eqn] = field(init=False)  # equations that stay with XLA
    views: list[Eqn] = field(init=False)  # reshapes of what is in memory: XLA renames the buffer, nothing is launched
    numbered: Sequence[Var] = field(init=False)  # all variables: what a kernel reads is known by its number here
    numbers: Mapping[Var, int] = field(init=False)
    given: list[Var] = field(init=False)  # in memory before any kernel, or written by XLA
    written: list[Var] = field(init=False)  # what kernels write for the user or for XLA
    makers: Mapping[Var, int] = field(init=False)  # the position of the equation of each value
    levels: Mapping[Var, int] = field(init=False)  # how many equations of XLA's come before each value
    _within: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        jaxpr = self.jaxpr
        self.classes, self.makers = classes_of(jaxpr), makers_of(jaxpr)
        self.numbered = [*jaxpr.constvars, *jaxpr.invars, *self.makers]
        self.numbers = {var: number for number, var in enumerate(self.numbered)}
        self.inside, self.outside = inside_and_outside(jaxpr, self.decisions)
        self.loops = [eqn for eqn in self.inside if eqn.primitive.name in LOOPS]
        self._within = frozenset(self.makers[eqn.outvars[0]] for eqn in self.inside if eqn.outvars)
        self.levels = levels_in(jaxpr, self._within)

        aliases = {eqn.outvars[0]: eqn.invars[0] for eqn in jaxpr.eqns if eqn.primitive in IN_MEMORY}
        wanted = [*jaxpr.outvars, *(v for eqn in self.outside for v in eqn.invars), *aliases.values()]
        found = [*jaxpr.invars, *(v for eqn in self.outside for v in eqn.outvars), *aliases]
        self.given = list(dict.fromkeys(found))
        self.views = _views(self.inside, set(self.given), wanted, set(aliases.values()))
        computed = {var for eqn in self.inside for var in eqn.outvars} - {eqn.outvars[0] for eqn in self.views}
        written = dict.fromkeys(variables([*wanted, *(eqn.invars[0] for eqn in self.views)]))
        self.written = [var for var in written if var in computed]

    @cached_property
    def in_chunks(self) -> dict[Var, tuple[int, int]]:
        """What is written in chunks on purpose: along which dimension, and how far apart chunks begin."""
        found = {eqn.invars[0]: (eqn.params["dim"], 1) for eqn in self.jaxpr.eqns if eqn.primitive is boundary_p}
        sizes = [eqn for eqn in self.jaxpr.eqns if eqn.primitive is chunked_p]
        return found | {eqn.outvars[0]: (eqn.params["dim"], eqn.params["size"]) for eqn in sizes}

    def is_shared_out(self, space: Space) -> bool:
        """Whether chunks are what its programs share: then there are as many programs as there should be."""
        chunks: set[Axis] = set()
        for output, place in zip(space.outputs, space.places):
            if output in self.in_chunks:
                dim, size = self.in_chunks[output]
                chunks |= {axis for axis in place[dim].axes if place[dim].coefficient(axis) == size}
        return bool(chunks) and chunks.isdisjoint(space.inner)

    def maker(self, value: Var) -> Eqn:
        """The equation that makes a value."""
        return self.jaxpr.eqns[self.makers[value]]

    def computed_by(self, space: Space) -> list[Eqn]:
        """The equations that a kernel computes."""
        return [eqn for eqn in self.inside if id(eqn) in space.computes]

    def is_inside(self, value: Var) -> bool:
        """Whether an equation that kernels compute makes a value."""
        return self.makers.get(value) in self._within


def inside_and_outside(jaxpr: Jaxpr, decisions: Decisions) -> tuple[list[Eqn], list[Eqn]]:
    """The equations that kernels compute, and those that stay with XLA; boundaries and flags are neither."""
    loops = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in LOOPS]
    kept = {body_of(eqn) for eqn in loops if not is_refused(eqn, decisions) and why_not(eqn) is None}
    inside: list[Eqn] = []
    outside: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if eqn.primitive in IN_MEMORY:
            continue
        if eqn.primitive.name in LOOPS:
            kernel_can = body_of(eqn) in kept
        else:
            refusal = why_not(eqn)
            kernel_can = refusal is None or (bool(kept) and is_short_contraction(eqn))
        (inside if kernel_can else outside).append(eqn)
    return inside, outside


def _views(inside: list[Eqn], given: Set[Var], wanted: Iterable[Atom], chunked: Set[Atom]) -> list[Eqn]:
    """The equations that rename an array and whose results are wanted in memory: writing the operand is enough.

    What is written in chunks on purpose keeps its shape.
    """
    targets = {v for v in variables(wanted) if v not in chunked}
    views = []
    for eqn in reversed(inside):
        if eqn.outvars[0] not in targets or not _is_view(eqn, given):
            continue
        for operand in variables(eqn.invars):
            views.append(eqn)
            if operand not in given:
                targets.add(operand)
    return views[::-1]


def _is_view(eqn: Eqn, given: Set[Var]) -> bool:
    """Whether the result is the operand by another name; a kernel squeezes what it computes itself as it writes it."""
    if eqn.primitive.name == "squeeze":
        return not isinstance(eqn.invars[0], Literal) and eqn.invars[0] in given
    return eqn.primitive.name == "reshape" and eqn.params["dimensions"] is None
