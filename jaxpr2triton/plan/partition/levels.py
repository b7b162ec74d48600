"""How many kernels or XLA equations come before each root, and before each equation that XLA keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.ir.region import IN_MEMORY
from jaxpr2triton.plan.partition.cuts import Cuts


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
        self._read = cuts.loaded.keys() - cuts.shared  # what is read wherever it is wanted
        self._operands = [variables(eqn.invars) for eqn in cuts.jaxpr.eqns]
        self._waits: list[Collection[Var]] = [*self._operands]  # with what the kernels of chains read
        self._last_effect = 0
        self._chains: dict[Var, Sequence[Var]] = {}  # of each root that the kernel of another one makes
        self._beside: dict[Var, set[Var]] = {}  # what that kernel reads for it
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
            if eqn.effects or not changed.isdisjoint(waits):
                before = self._known(eqn)
                self._see(eqn, operands)
                if self._known(eqn) != before:
                    changed.update(eqn.outvars)

    def _known(self, eqn: Eqn) -> list[tuple[int | None, ...]]:
        facts = self._written, self._here, self._later
        return [tuple(each.get(var) for each in facts) for var in eqn.outvars]

    def _lead(self, chain: Sequence[Var]) -> None:
        for root in chain[1:]:
            self._chains[root] = chain
            if root not in self._beside:
                self._beside[root] = operands_of(self._cuts, [root])
                place = self._cuts.makers[root]
                self._waits[place] = {*self._waits[place], *self._beside[root], root}

    def _see(self, eqn: Eqn, operands: Sequence[Var]) -> None:
        """Find the levels of what an equation makes, from those of its operands."""
        cuts, written = self._cuts, self._written
        before = max((written.get(atom, 0) for atom in operands), default=0)
        if eqn in self._is_outside:
            if eqn.effects:
                before = self._last_effect = max(before, self._last_effect)
            self.outside[eqn] = before
            self.of.update(dict.fromkeys(eqn.outvars, before))
            written.update(dict.fromkeys(eqn.outvars, before + 1))
            return
        if eqn in self._in_memory or eqn.primitive in IN_MEMORY:
            written[eqn.outvars[0]] = before
        level = max((cuts.levels[var] for var in eqn.outvars), default=0)
        here_too = [atom not in cuts.loaded for atom in operands]
        seen = [(self._later if made else written).get(atom, 0) for atom, made in zip(operands, here_too)]
        again = [atom not in self._read and cuts.levels[atom] == level for atom in operands]
        own = max((self._here.get(atom, 0) if a else n for atom, n, a in zip(operands, seen, again)), default=0)
        self._here.update(dict.fromkeys(eqn.outvars, own))
        self._later.update(dict.fromkeys(eqn.outvars, max(seen, default=0)))
        for var in (var for var in eqn.outvars if var in self._is_root):
            self.of[var] = self._in_chain(var) if var in self._chains else own
            written[var] = self.of[var] + 1

    def _in_chain(self, root: Var) -> int:
        """What comes before a root that the kernel of another one makes, which it reads."""
        chain = self._chains[root]
        read = self._beside[root].difference(chain)
        return max([self.of[chain[0]], *(self._written.get(atom, 0) for atom in read)])


def operands_of(cuts: Cuts, roots: Sequence[Var]) -> set[Var]:
    """What a kernel takes from memory, also what it turns out not to read."""
    memory = cuts.memory(roots)
    return {atom for eqn in cuts.below(roots) for atom in variables(eqn.invars) if atom in memory}
