"""Results of loops that a kernel writes into a buffer of its own, to read them again: where the program says so.

c, ys = scan[jaxpr=f] c0 xs          c, ys = scan[jaxpr=f] c0 xs
d, zs = scan[jaxpr=g] c ys      →    kept = keep[dims=(0,)] ys
                                     d, zs = scan[jaxpr=g] c kept
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import jax.extend.core as jex

from jaxpr2triton.errors import KeepsTooMuch, WantsToKeep
from jaxpr2triton.graph.covered import is_short_contraction, why_not
from jaxpr2triton.graph.walk import facts_of
from jaxpr2triton.ir import build
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.ir.scans import LOOPS, scan_of


class Extent(IntEnum):
    """How much of a result is kept, and for whom; each step is tried when the one before it does not suffice."""

    STEPS = 1  # along the steps of its loop, for all that reads it but what the body gives out
    STEPS_FOR_ALL = 2
    WHOLE = 3  # along all of its dimensions


@dataclass
class Keeping:
    """What is kept of the loops of one program."""

    extents: dict[Any, Extent] = field(default_factory=dict)  # by variable
    along: dict[Any, tuple[int, ...]] = field(default_factory=dict)  # along which dimensions, if not as usual
    by_choice: set[Any] = field(default_factory=set)  # those that a kernel's end could bring into memory as well
    chooses: bool = True  # whether anything is to be kept by choice
    declined: set[Any] = field(default_factory=set)  # what is not
    pieces: dict[Any, tuple[int, ...]] = field(default_factory=dict)  # what is kept along just these dimensions
    whole: set[Any] = field(default_factory=set)  # what is not
    sources: dict[Any, Any] = field(default_factory=dict)  # what was kept → of what it is a copy
    made: dict[Any, Any] = field(default_factory=dict)  # programs, by what they are made from

    def add(self, wish: WantsToKeep) -> None:
        """Keep more; if there is no more to be kept, do as the wish says otherwise."""
        grown = False
        for var in wish.variables:
            source = self.sources.get(var, var)
            if source in self.pieces:
                self.make_whole([source])
                grown = True
                continue
            extent, dims = self.extents.get(source, 0), wish.dims.get(var, ())
            more = not set(dims) <= set(self._dims(source) or ())
            if more:
                self.along[source] = tuple(sorted({*dims, *self.along.get(source, ())}))
            if not (more and extent) and extent < Extent.WHOLE:
                self.extents[source] = Extent(extent + 1)
                more = True
            grown |= more
            if wish.otherwise is None:
                self.by_choice.add(source)
        if not grown:
            if wish.otherwise is not None:
                raise wish.otherwise
            self.give_up_choices()

    def is_choice(self, var: Any) -> bool:
        """Whether a kept variable could come into memory at the end of a kernel as well."""
        return self.sources.get(var, var) in self.by_choice

    def wanted_in_pieces(self, dims: Mapping[Any, tuple[int, ...]]) -> dict[Any, tuple[int, ...]]:
        """Those of which that has not been tried."""
        known = {*self.pieces, *self.whole, *self.extents}
        return {var: along for var, along in dims.items() if self.sources.get(var, var) not in known}

    def make_whole(self, variables: Iterable[Any]) -> None:
        for var in list(variables):
            del self.pieces[var]
            self.whole.add(var)

    def decline(self, problem: KeepsTooMuch) -> None:
        for var in problem.variables:
            self.declined.add(var)
            self.by_choice.discard(var)
            self.extents.pop(var, None)

    def give_up_choices(self) -> None:
        """Keep nothing that a kernel's end could bring into memory."""
        for var in self.by_choice:
            self.extents.pop(var, None)
        self.by_choice.clear()
        self.chooses = False

    def written_out(self, closed: Any, outermost: bool = True) -> Any:
        """The program with its `keep` equations; the same object each time, for loops are known by their bodies."""
        made = [(id(var), self._dims(var)) for var in _defined_in(closed.jaxpr)]
        relevant = tuple(pair for pair in made if pair[1] is not None)
        if not relevant:
            return closed
        key = (id(closed), relevant)
        if key not in self.made:
            self.made[key] = closed, closed.replace(jaxpr=self._rewritten_jaxpr(closed.jaxpr, outermost))
        return self.made[key][1]

    def _dims(self, var: Any) -> tuple[int, ...] | None:
        """Along which dimensions a variable is kept, if it is."""
        extent, rank = self.extents.get(var), len(getattr(var.aval, "shape", ()))
        if extent is None:
            return self.pieces.get(var)
        if var in self.along and extent is not Extent.WHOLE:
            return self.along[var]
        return tuple(range(rank if extent is Extent.WHOLE else min(rank, 1)))

    def _rewritten_jaxpr(self, jaxpr: Any, outermost: bool) -> Any:
        standing: dict[Any, Any] = {}
        for_all: dict[Any, Any] = {}
        eqns = []
        for eqn in jaxpr.eqns:
            if not outermost or why_not(eqn) is None or is_short_contraction(eqn):  # XLA finds it in memory anyway
                eqn = build.reading(eqn, standing)
            if eqn.primitive.name in LOOPS:
                eqn = eqn.replace(params={**eqn.params, "jaxpr": self.written_out(eqn.params["jaxpr"], False)})
            eqns.append(eqn)
            for var in eqn.outvars:
                if (dims := self._dims(var)) is not None:
                    copy = build.variable(var)
                    self.sources[copy] = var
                    eqns.append(build.after(eqn, keep_p, [var], [copy], dims=dims))
                    standing[var] = copy
                    if self.extents.get(var) != Extent.STEPS:
                        for_all[var] = copy
        return build.with_equations(jaxpr, eqns, [build.now(atom, for_all) for atom in jaxpr.outvars])


def held_along(eqn: Any) -> dict[Any, tuple[int, ...]]:
    """For all that a loop puts out: its steps, and the dimensions of which a program has all anyway.

    Wherever along those a value is wanted, it is written once.
    """
    scan = scan_of(eqn)
    facts = facts_of(scan)
    return {
        result: (0, *(d for d, kind in enumerate(facts.of(atom), 1) if kind in facts.held))
        for atom, result in scan.ys
        if not isinstance(atom, jex.Literal)
    }


def _defined_in(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield from eqn.outvars
        if eqn.primitive.name in LOOPS:
            yield from _defined_in(eqn.params["jaxpr"].jaxpr)
