"""The spaces of roots, and which of them have an equation in their kernel."""

from __future__ import annotations

from collections import UserDict

from jaxpr2triton.graph.space import Space
from jaxpr2triton.ir.jaxprs import Eqn, Var


class Spaces(UserDict[Var, Space]):
    """The space of each root; it knows the roots of each equation, as they are noted and dropped."""

    def __init__(self) -> None:
        self._order: dict[Var, int] = {}  # of roots, as they were first noted
        self._owners: dict[int, dict[Var, None]] = {}  # space, by id → the roots whose it is
        self._computing: dict[int, dict[int, None]] = {}  # equation → the spaces it is part of, by ids
        super().__init__()

    def __setitem__(self, root: Var, space: Space) -> None:
        self._forget(root)
        super().__setitem__(root, space)
        if id(space) not in self._owners:  # the results of one loop share a space
            for eqn in space.computes:
                self._computing.setdefault(eqn, {})[id(space)] = None
        self._owners.setdefault(id(space), {})[root] = None
        self._order.setdefault(root, len(self._order))

    def __delitem__(self, root: Var) -> None:
        self._forget(root)
        super().__delitem__(root)

    def _forget(self, root: Var) -> None:
        space = self.get(root)
        if space is not None:
            del self._owners[id(space)][root]
        if space is not None and not self._owners[id(space)]:
            del self._owners[id(space)]
            for eqn in space.computes:
                del self._computing[eqn][id(space)]

    def computing(self, eqn: Eqn) -> list[Var]:
        """The roots whose kernels compute an equation, in the order in which they were first noted."""
        found = (root for space in self._computing.get(id(eqn), ()) for root in self._owners[space])
        return sorted(found, key=self._order.__getitem__)
