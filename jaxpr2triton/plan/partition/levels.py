"""How many kernels or XLA equations come before each root, and before each equation that XLA keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.ir.region import IN_MEMORY
from jaxpr2triton.plan.partition.cuts import Cuts


@dataclass(frozen=True, slots=True)
class _Operands:
    """What an equation reads, by where kernels find it."""

    every: Sequence[Var]
    read: Sequence[Var]  # in memory
    made: Sequence[Var]  # … and all else
    again: Sequence[Var]  # what kernels of its own level compute, also of what is in memory for others
    read_only: Sequence[Var]  # in memory, but for that
    made_before: Sequence[Var]  # … and all else, but for that


def _most(levels: Mapping[Var, int], values: Sequence[Var]) -> int:
    return max([levels.get(value, 0) for value in values]) if values else 0


class Levels:
    """The levels of a program that is cut, and of whose roots some may be made in `chains`, each by one kernel.

    A root counts for those that read it from memory; a kernel that computes it again does not wait for it. It waits for
    all operands of its equations, also for those that it turns out not to read: they are operands of its region. So all
    that needs a loop waits for all that the loop reads, and can be of one kernel:

        c, d, ys, zs = scan c0 d0 xs k     # only d and zs need k, which another kernel writes: ys waits as well

    Equations with effects wait for each other, so that they stay in their order.
    """

    def __init__(self, cuts: Cuts, chains: Iterable[Sequence[Var]] = ()) -> None:
        self.of: dict[Var, int] = {}  # by root, and by result of XLA's equations
        self.outside: dict[Eqn, int] = {}
        self._cuts = cuts
        self._written: dict[Var, int] = {}  # what comes before a value is in memory, if anything does
        # what comes before a kernel can compute a value …
        self._here: dict[Var, int] = {}  # … for a root with as many XLA equations before
        self._later: dict[Var, int] = {}  # … for a root with more of them, which finds shared values in memory
        self._is_outside, self._is_root = frozenset(cuts.outside), frozenset(cuts.roots)
        self._in_memory = frozenset(cuts.views)
        self._last_effect = 0
        self._chains: dict[Var, Sequence[Var]] = {}  # of each root that the kernel of another one makes
        self._beside: dict[Var, set[Var]] = {}  # what that kernel reads for it
        self._operands = [self._operands_of(eqn) for eqn in cuts.jaxpr.eqns]
        self._waits: list[Collection[Var]] = [each.every for each in self._operands]  # with what chains' kernels read
        for chain in chains:
            self._lead(chain)
        for eqn, operands in zip(cuts.jaxpr.eqns, self._operands):
            self._see(eqn, operands)

    def chain(self, roots: Sequence[Var]) -> None:
        """Let the kernel of the first of these roots make them all; only what waits for them is seen again."""
        self._lead(roots)
        self._last_effect = 0
        changed = set(roots)
        for eqn, operands, waits in zip(self._cuts.jaxpr.eqns, self._operands, self._waits):
            if (eqn.effects or not changed.isdisjoint(waits)) and self._see(eqn, operands):
                changed.update(eqn.outvars)

    def _operands_of(self, eqn: Eqn) -> _Operands:
        cuts, every = self._cuts, variables(eqn.invars)
        level = max((cuts.levels[var] for var in eqn.outvars), default=0)
        unwritten = {atom for atom in every if atom not in cuts.loaded}
        again = {atom for atom in every if (atom in unwritten or atom in cuts.shared) and cuts.levels[atom] == level}
        return _Operands(
            every,
            read=[atom for atom in every if atom not in unwritten],
            made=[atom for atom in every if atom in unwritten],
            again=[atom for atom in every if atom in again],
            read_only=[atom for atom in every if atom not in unwritten and atom not in again],
            made_before=[atom for atom in every if atom in unwritten and atom not in again],
        )

    def _lead(self, chain: Sequence[Var]) -> None:
        for root in chain[1:]:
            self._chains[root] = chain
            if root not in self._beside:
                self._beside[root] = operands_of(self._cuts, [root])
                place = self._cuts.makers[root]
                self._waits[place] = {*self._waits[place], *self._beside[root], root}

    def _see(self, eqn: Eqn, operands: _Operands) -> bool:
        """Find the levels of what an equation makes, from those of its operands; whether any has changed."""
        written, here, later = self._written, self._here, self._later
        if eqn in self._is_outside:
            before = _most(written, operands.every)
            if eqn.effects:
                before = self._last_effect = max(before, self._last_effect)
            is_new = self.outside.get(eqn) != before
            self.outside[eqn] = before
            self.of.update(dict.fromkeys(eqn.outvars, before))
            written.update(dict.fromkeys(eqn.outvars, before + 1))
            return is_new
        is_new = False
        if eqn in self._in_memory or eqn.primitive in IN_MEMORY:
            before, var = _most(written, operands.every), eqn.outvars[0]
            is_new = written.get(var) != before
            written[var] = before
        seen = max(_most(written, operands.read), _most(later, operands.made))
        own = max(_most(here, operands.again), _most(written, operands.read_only), _most(later, operands.made_before))
        for var in eqn.outvars:
            is_new |= here.get(var) != own or later.get(var) != seen
            here[var], later[var] = own, seen
            if var in self._is_root:
                level = self._in_chain(var) if var in self._chains else own
                is_new |= self.of.get(var) != level
                self.of[var], written[var] = level, level + 1
        return is_new

    def _in_chain(self, root: Var) -> int:
        """What comes before a root that the kernel of another one makes, which it reads."""
        chain = self._chains[root]
        read = self._beside[root].difference(chain)
        return max([self.of[chain[0]], *(self._written.get(atom, 0) for atom in read)])


def operands_of(cuts: Cuts, roots: Sequence[Var]) -> set[Var]:
    """What a kernel takes from memory, also what it turns out not to read."""
    memory = cuts.memory(roots)
    return {atom for eqn in cuts.below(roots) for atom in variables(eqn.invars) if atom in memory}
