"""Results of loops that a kernel had better keep for itself: granted before the program is cut, or planned once more.

    c, ys = scan[jaxpr=f length=7] c0 xs
    d, zs = scan[jaxpr=g length=7 reverse=True] c ys    →    keep ys, for g reads it in another order of steps
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from jaxpr2triton.graph.demands import TooManyPlaces
from jaxpr2triton.ir.dataflow import needed_for
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Eqn, Var
from jaxpr2triton.ir.region import keep_p
from jaxpr2triton.ir.scans import LOOPS, scan_of
from jaxpr2triton.plan.decisions import WISHES, Dims, KeepMore, Wish
from jaxpr2triton.plan.partition.cuts import Cuts
from jaxpr2triton.plan.partition.keeping import crowded_in, held_along
from jaxpr2triton.plan.partition.program import Program
from jaxpr2triton.plan.refusal import refuse_loops


def kept_in_steps(program: Program) -> Wish | None:
    """What steps make and want at too many places: it is written once, and read at all of them."""
    found: dict[Var, Dims] = {}
    instead: list[KeepMore] = []  # of each loop what its own steps want first
    for eqn in program.loops:
        try:
            found |= crowded_in([scan_of(eqn)], program.decisions)
        except TooManyPlaces as crowded:
            instead.append(kept_instead(program, crowded, program.loops))
    if instead:
        return replace(instead[0], wanted=tuple(dict(pair for each in instead for pair in each.wanted).items()))
    refusal = refuse_loops(program.loops, "what its steps want at too many places cannot be kept")
    why = "a step would compute the same at very many places"
    return KeepMore(tuple(found.items()), refusal, why) if found else None


def kept_from_the_start(cuts: Cuts) -> Wish | None:
    """What one loop puts out and another one reads in another order of steps: no walk is needed to know that."""
    loops = [scan_of(eqn) for eqn in cuts.loops]
    if not cuts.decisions.chooses or len(loops) < 2:
        return None
    orders: dict[Var, set[tuple[bool, bool, int]]] = {}  # in which a value is read by loops
    by_reader = {id(loop.eqn): (loop.conditional, loop.reverse, loop.length) for loop in loops}
    for eqn in reversed(cuts.inside):
        read = {by_reader[id(eqn)]} if id(eqn) in by_reader else set().union(*(orders.get(v, ()) for v in eqn.outvars))
        for atom in variables(eqn.invars) if read else ():
            orders.setdefault(atom, set()).update(read)
    values = [
        result
        for loop in loops
        for _, result in loop.ys
        if orders.get(result, set()) - {by_reader[id(loop.eqn)]} and result not in cuts.decisions.kept
    ]
    return kept_by_choice(cuts, values)


def kept_by_choice(cuts: Cuts, values: list[Var]) -> Wish | None:
    """The wish to keep these values, and what is made with them, where loops alone read them."""
    if not cuts.decisions.chooses:
        return None
    together = _made_step_by_step(cuts, values)
    apart = _not_for_loops(cuts) | cuts.decisions.declined
    if all(value not in together or value in apart or value in cuts.roots for value in values):
        return None
    along = _dims_of_results(cuts)
    if isinstance(along, WISHES):
        return along
    wanted = (var for var in together if var not in apart)  # roots too, if it comes to that
    return KeepMore(tuple((var, along.get(var, ())) for var in wanted), None)


def kept_instead(program: Program, crowded: TooManyPlaces, loops: Iterable[Eqn]) -> KeepMore:
    """What a loop in a body makes, and is wanted at too many places there, has to be kept."""
    if crowded.dims is None:
        refusal = refuse_loops(loops, "a result of a loop in its body is read at several places")
        wanted = {**dict.fromkeys(crowded.beside, ()), crowded.variable: crowded.along}
        return KeepMore(tuple(wanted.items()), refusal)
    refusal = refuse_loops(program.inside, "what a loop has made is read in another order than it is kept")
    return KeepMore(((crowded.variable, crowded.dims),), refusal)


def _dims_of_results(program: Program) -> dict[Var, Dims] | Wish:
    """The dimensions along which what the loops put out is kept."""
    try:
        return {result: dims for eqn in program.loops for result, dims in held_along(eqn).items()}
    except TooManyPlaces as crowded:
        return kept_instead(program, crowded, program.loops)


def _made_step_by_step(program: Program, values: list[Var]) -> list[Var]:
    """Whatever the loops that make these values put out step by step, and what is kept of that."""
    found: list[Var] = []
    for eqn in program.jaxpr.eqns:
        if any(value in eqn.outvars for value in values):
            if eqn.primitive.name in LOOPS:
                found += [result for _, result in scan_of(eqn).ys]
            elif eqn.primitive is keep_p:
                found += eqn.outvars
    return found


def _not_for_loops(cuts: Cuts) -> set[Var]:
    """What is wanted in memory, by XLA or by the user, is made of these outside of loops."""
    roots, inside = set(cuts.roots), set(cuts.inside)

    def goes_on(eqn: Eqn, needed: bool) -> bool:
        return eqn not in inside or (needed and eqn.primitive.name not in LOOPS)

    return needed_for(cuts.jaxpr.eqns, roots, goes_on) - roots
