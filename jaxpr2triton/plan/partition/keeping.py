"""Results of loops that a kernel writes into a buffer of its own, to read them again: where the program says so.

c, ys = scan[jaxpr=f] c0 xs          c, ys = scan[jaxpr=f] c0 xs
d, zs = scan[jaxpr=g] c ys      →    kept = keep[dims=(0,)] ys
                                     d, zs = scan[jaxpr=g] c kept
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from jaxpr2triton.graph.covered import is_short_contraction, why_not
from jaxpr2triton.graph.propagate_demands import facts_of
from jaxpr2triton.ir import build
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, Literal, Var
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.ir.scans import LOOPS, Scan, scan_of
from jaxpr2triton.plan.decisions import Decisions, Dims, Extent, KeepMore, Wish
from jaxpr2triton.plan.partition.sources import inherit_source


@dataclass
class Copies:
    """What is kept of the loops of one program, written into it again for each set of decisions.

    A body for which nothing is decided otherwise stays the same object each time, for loops are known by their bodies.
    """

    sources: dict[Var, Var] = field(default_factory=dict)  # what was kept → of what it is a copy
    bodies: dict[int, int] = field(default_factory=dict)  # bodies of loops that keep something → as they were at first
    # Programs before and after, by what is kept of them.
    made: dict[tuple[object, ...], tuple[Closed, Closed]] = field(default_factory=dict)

    def source(self, var: Var) -> Var:
        return self.sources.get(var, var)

    def body(self, body: int) -> int:
        """Of a loop as it was at first."""
        return self.bodies.get(body, body)

    def of_sources(self, wish: Wish) -> Wish:
        """The same wish about what the program had at first."""
        if not isinstance(wish, KeepMore):
            return wish
        return replace(wish, wanted=tuple((self.source(var), dims) for var, dims in wish.wanted))

    def written_out(self, closed: Closed, decisions: Decisions, outermost: bool = True) -> Closed:
        """The program with its `keep` equations."""
        kept = [var for var in _defined_in(closed.jaxpr) if decisions.dims_of(var) is not None]
        if not kept:
            return closed
        key = id(closed), *((id(var), decisions.dims_of(var), _for_all(var, decisions)) for var in kept)
        if key not in self.made:
            self.made[key] = closed, closed.replace(jaxpr=self._rewritten(closed.jaxpr, decisions, outermost))
            self.bodies[id(self.made[key][1])] = id(closed)
            inherit_source(self.made[key][1], closed)
        return self.made[key][1]

    def _rewritten(self, jaxpr: Jaxpr, decisions: Decisions, outermost: bool) -> Jaxpr:
        standing: dict[Var, Var] = {}
        for_all: dict[Var, Var] = {}
        eqns, factors = self._given(jaxpr, decisions)
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "dot_general":
                eqn = build.reading(eqn, factors)
            if not outermost or why_not(eqn) is None or is_short_contraction(eqn):  # XLA finds it in memory anyway
                eqn = build.reading(eqn, standing)
            if eqn.primitive.name in LOOPS:
                body = self.written_out(eqn.params["jaxpr"], decisions, False)
                eqn = eqn.replace(params={**eqn.params, "jaxpr": body})
            eqns.append(eqn)
            for var in eqn.outvars:
                if (dims := decisions.dims_of(var)) is not None:
                    copy = build.variable(var)
                    self.sources[copy] = var
                    eqns.append(build.after(eqn, keep_p, [var], [copy], dims=dims))
                    standing[var] = copy
                    if _for_all(var, decisions):
                        for_all[var] = copy
        return build.with_equations(jaxpr, eqns, [build.now(atom, for_all) for atom in jaxpr.outvars])

    def _given(self, jaxpr: Jaxpr, decisions: Decisions) -> tuple[list[Eqn], dict[Var, Var]]:
        """What a body is given and keeps, as all that it multiplies with a matrix: for its contractions only."""
        eqns, copies = [], dict[Var, Var]()
        for var in jaxpr.invars:
            if (dims := decisions.dims_of(var)) is not None:
                reader = next(eqn for eqn in jaxpr.eqns if var in eqn.invars)
                copies[var] = build.variable(var)
                self.sources[copies[var]] = var
                eqns.append(build.after(reader, keep_p, [var], [copies[var]], dims=dims))
        return eqns, copies


def _for_all(var: Var, decisions: Decisions) -> bool:
    """Whether what the body gives out is read from memory as well."""
    return var not in decisions.kept or decisions.kept[var].extent is not Extent.STEPS


def held_along(eqn: Eqn) -> dict[Var, tuple[int, ...]]:
    """For all that a loop puts out: its steps, and the dimensions of which a program has all anyway.

    Wherever along those a value is wanted, it is written once.
    """
    scan = scan_of(eqn)
    facts = facts_of(scan)
    return {
        result: (0, *(d for d, kind in enumerate(facts.of(atom), 1) if kind in facts.held))
        for atom, result in scan.ys
        if not isinstance(atom, Literal)
    }


def crowded_in(loops: Iterable[Scan], decisions: Decisions) -> tuple[tuple[Var, Dims], ...]:
    """What steps of these loops want at too many places and is not kept yet, and along which dimensions."""
    found = {var: dims for scan in loops for var, dims in facts_of(scan).crowded.items()}
    return tuple((var, dims) for var, dims in found.items() if var not in decisions.kept)


def _defined_in(jaxpr: Jaxpr) -> Iterator[Var]:
    yield from jaxpr.invars
    for eqn in jaxpr.eqns:
        yield from eqn.outvars
        if eqn.primitive.name in LOOPS:
            yield from _defined_in(eqn.params["jaxpr"].jaxpr)
