"""How far a program is cut: what is in memory, why, and what the kernel of each root would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.graph.space import Space, space_of
from jaxpr2triton.ir.evaluate import needed_in
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.ir.once import Without
from jaxpr2triton.plan.partition.cut_reasons import SHARED, wanted_often
from jaxpr2triton.plan.partition.program import Program
from jaxpr2triton.plan.partition.shared import shared_values
from jaxpr2triton.plan.partition.spaces import Spaces


@dataclass
class Cuts(Program):
    """A program, and where its kernels end."""

    loaded: dict[Var, int] = field(init=False)  # variables that are in memory, and their numbers
    roots: list[Var] = field(init=False)  # variables that some kernel has to write
    shared: set[Var] = field(default_factory=set)  # those in memory that kernels of their own level compute
    because: dict[Var, str] = field(default_factory=dict)  # why a value is in memory although kernels make it
    spaces: Spaces = field(default_factory=Spaces)  # of each root
    depths: dict[Var, int] = field(default_factory=dict)  # of roots: kernels one after the other, as far as is known
    computed_once: set[Var] = field(default_factory=set)  # in memory, instead of computed for each window it is in
    reads_instead: bool = False  # whether some kernel reads what it could have computed from much
    _rooted: set[Var] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.roots, self.loaded = list(self.written), {var: self.numbers[var] for var in self.given}
        self._rooted = set(self.roots)
        if not self.loops:  # a loop is one kernel, however much it reads
            most = self.policy.cuts.reads
            for value in shared_values(self.jaxpr, self._within, self.levels, self.loaded, self.roots, most):
                self.add_root(value, SHARED)
                self.shared.add(value)

    def below(self, roots: Iterable[Var]) -> list[Eqn]:
        """The equations that a kernel of these roots computes."""
        roots = list(roots)
        return needed_in(self.jaxpr, roots, self.memory(roots), self._within)

    def memory(self, roots: Sequence[Var]) -> Mapping[Var, int]:
        """What a kernel of these roots finds in memory, by number: it computes what it writes."""
        first = min(self.levels[root] for root in roots)
        return Without(self.loaded, [*roots, *(value for value in self.shared if self.levels[value] >= first)])

    def space_of(
        self, roots: Sequence[Var], union: bool = False, without: Sequence[Var] = (), alone: bool = False
    ) -> Space | None:
        """What a kernel of these roots would be; None if they have no axes in common.

        If it is `alone`, it is seen as the emitter will see it, without what the rest of the program says of its axes.
        """
        memory = Without(self.memory(roots), without) if without else self.memory(roots)
        classes = Classes(self.below(roots)) if alone else self.classes
        return space_of(self.jaxpr, roots, classes, memory, alone, union)

    def joint_space(self, roots: Sequence[Var], union: bool = False, without: Sequence[Var] = ()) -> Space | None:
        """The same, for what need not be one kernel: None too, where it would want a value at too many places."""
        try:
            return self.space_of(roots, union, without)
        except TooManyPlaces:
            return None

    def note(self, root: Var, space: Space) -> None:
        """Note what a kernel of this root would be."""
        self.spaces[root] = space
        self.depths[root] = 1 + max((self.depths.get(self.numbered[number], 0) for number in space.buffers), default=0)

    def drop_root(self, value: Var) -> None:
        """Let it be computed where it is read."""
        del self.spaces[value]
        del self.loaded[value]
        self._rooted.discard(value)
        self.roots.remove(value)

    def add_root(self, value: Var, why: str) -> None:
        """Let a value be in memory; `why` is one sentence about it, or about what reads it."""
        self.because[value] = why
        self.shared.discard(value)
        self.loaded[value] = self.numbers[value]
        if value not in self._rooted:
            self._rooted.add(value)
            self.roots.append(value)

    def cut(self, *values: Var, why: str = "") -> list[Var]:
        """Put values of one equation into memory; returns the roots that have to be looked at again."""
        eqn = self.maker(values[0])
        for value in values:
            self.add_root(value, why or wanted_often(eqn))
        return [*values, *self.spaces.computing(eqn)]
