"""What is known about a jaxpr while it is being cut into kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.space import Space, space_of
from jaxpr2triton.ir.evaluate import needed_in
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Var
from jaxpr2triton.ir.once import Without, makers_of
from jaxpr2triton.ir.region import boundary_p, chunked_p
from jaxpr2triton.ir.scans import LOOPS
from jaxpr2triton.plan.decisions import Decisions
from jaxpr2triton.plan.partition.because import SHARED
from jaxpr2triton.plan.partition.shared import levels_in, shared_values
from jaxpr2triton.policy import Policy


@dataclass
class Cuts:
    """What is known about a jaxpr while it is being cut."""

    jaxpr: Jaxpr
    classes: Classes
    inside: list[Eqn]  # equations that kernels compute
    outside: list[Eqn]  # equations that stay with XLA
    loaded: dict[Var, int]  # variables that are in memory
    views: list[Eqn]  # reshapes of what is in memory: XLA renames the buffer, nothing is launched
    roots: list[Var]  # variables that some kernel has to write
    decisions: Decisions
    policy: Policy
    shared: set[Var] = field(default_factory=set)  # those in memory that kernels of their own level compute
    because: dict[Var, str] = field(default_factory=dict)  # why a value is in memory although kernels make it
    spaces: dict[Var, Space] = field(default_factory=dict)
    computed_once: set[Var] = field(default_factory=set)  # in memory, instead of computed for each window it is in
    at_once: dict[Var, Var] = field(default_factory=dict)  # roots, and the one whose kernel makes them as well
    reads_instead: bool = False  # whether some kernel reads what it could have computed from much
    depths: dict[Var, int] = field(default_factory=dict)  # of roots: kernels one after the other, as far as is known
    in_memory: list[Var] = field(init=False)  # the variables in `loaded`, by their numbers
    _order: dict[Var, int] = field(default_factory=dict)  # of roots, as they were first noted
    _owners: dict[int, dict[Var, None]] = field(default_factory=dict)  # space, by id → the roots whose it is
    _computing: dict[int, dict[int, None]] = field(default_factory=dict)  # equation → the spaces it is part of, by ids
    _rooted: set[Var] = field(init=False)
    makers: Mapping[Var, int] = field(init=False)  # the position of the equation of each value
    levels: Mapping[Var, int] = field(init=False)  # how many equations of XLA's come before each value
    _within: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.in_memory = list(self.loaded)
        self._rooted = set(self.roots)
        self.makers = makers_of(self.jaxpr)
        self._within = frozenset(self.makers[eqn.outvars[0]] for eqn in self.inside if eqn.outvars)
        self.levels = levels_in(self.jaxpr, self._within)
        if not any(eqn.primitive.name in LOOPS for eqn in self.inside):  # a loop is one kernel, however much it reads
            for value in shared_values(
                self.jaxpr, self._within, self.levels, self.loaded, self.roots, self.policy.cuts.reads
            ):
                self.add_root(value, SHARED)
                self.shared.add(value)

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

    def is_inside(self, value: Var) -> bool:
        """Whether an equation that kernels compute makes a value."""
        return self.makers.get(value) in self._within

    def below(self, roots: Iterable[Var]) -> list[Eqn]:
        """The equations that a kernel of these roots computes."""
        roots = list(roots)
        return needed_in(self.jaxpr, roots, self.memory(roots), self._within)

    def memory(self, roots: Sequence[Var]) -> Mapping[Var, int]:
        """What a kernel of these roots finds in memory, by number: it computes what it writes."""
        first = min(self.levels[root] for root in roots)
        return Without(self.loaded, [*roots, *(value for value in self.shared if self.levels[value] >= first)])

    def space_of(
        self, roots: Sequence[Var], may_repeat: bool = False, union: bool = False, without: Sequence[Var] = ()
    ) -> Space | None:
        memory = Without(self.memory(roots), without) if without else self.memory(roots)
        return space_of(self.jaxpr, roots, self.classes, memory, may_repeat, union)

    def note(self, root: Var, space: Space) -> None:
        """Note what a kernel of this root would be."""
        self._forget(root)
        self.spaces[root] = space
        if id(space) not in self._owners:  # the results of one loop share a space
            for eqn in space.computes:
                self._computing.setdefault(eqn, {})[id(space)] = None
        self._owners.setdefault(id(space), {})[root] = None
        self.depths[root] = 1 + max((self.depths.get(self.in_memory[number], 0) for number in space.buffers), default=0)
        self._order.setdefault(root, len(self._order))

    def _forget(self, root: Var) -> None:
        space = self.spaces.get(root)
        if space is not None:
            del self._owners[id(space)][root]
        if space is not None and not self._owners[id(space)]:
            del self._owners[id(space)]
            for eqn in space.computes:
                del self._computing[eqn][id(space)]

    def readers_of(self, eqn: Eqn) -> list[Var]:
        """The roots whose kernels compute an equation, in the order in which they were first noted."""
        found = (root for space in self._computing.get(id(eqn), ()) for root in self._owners[space])
        return sorted(found, key=self._order.__getitem__)

    def drop_root(self, value: Var) -> None:
        """Let it be computed where it is read."""
        self._forget(value)
        del self.spaces[value]
        del self.loaded[value]  # its number is nobody else's
        self._rooted.discard(value)
        self.roots.remove(value)

    def add_root(self, value: Var, why: str) -> None:
        """Let a value be in memory; `why` is one sentence about it, or about what reads it."""
        self.because[value] = why
        self.shared.discard(value)
        if value not in self.loaded:
            self.loaded[value] = len(self.in_memory)
            self.in_memory.append(value)
        if value not in self._rooted:
            self._rooted.add(value)
            self.roots.append(value)
