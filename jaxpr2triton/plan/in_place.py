"""Which writes XLA does in place: those of a part of an array that the program is given, and gives back.

    cache:bf16[8,4096,512] = scatter old [i] row       where `old` is an operand, and `cache` a result

A kernel would copy the rest of the array. XLA writes nothing but the part, where the array is donated, or carried by a
loop; else it copies the array as well, which takes a launch more than a kernel. Left alone are writes into arrays that
are copied in the time of a launch, those whose old array is read by something else later on, and those whose result
only other equations read: there the choice between old and new is made on the way.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxpr2triton.errors import WhyNot
from jaxpr2triton.graph.covered import why_not
from jaxpr2triton.ir import build
from jaxpr2triton.ir.dataflow import needed_for
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Var, nbytes
from jaxpr2triton.ir.region import in_place_p
from jaxpr2triton.plan.library import is_light
from jaxpr2triton.policy import Policy

UPDATE = {"dynamic_update_slice": 1, "scatter": 2}  # which operand is written
SHAPES = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim")


def left_in_place(closed: Closed, policy: Policy) -> Closed:
    """The program with those writes as equations of XLA's, each with what computes where it writes.

    What was computed for that alone is still there, for nobody.
    """
    jaxpr = closed.jaxpr
    large = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in UPDATE and _is_worth_a_launch(eqn, policy)]
    if not large:
        return closed
    wanted, found = _wanted_in_memory(jaxpr, large), set[Eqn]()
    in_memory: set[Var] = set(jaxpr.invars)
    for eqn in jaxpr.eqns:
        is_there = not in_memory.isdisjoint(variables(eqn.invars[:1]))
        if eqn in large and is_there and eqn.outvars[0] in wanted and _is_last(jaxpr, eqn):
            found.add(eqn)
        if eqn in found or why_not(eqn) is not None or (_is_view(eqn) and is_there):
            in_memory.update(eqn.outvars)
    eqns = [_with_its_place(closed, eqn) if eqn in found else eqn for eqn in jaxpr.eqns]
    return build.with_equations(closed, eqns) if found else closed


def _with_its_place(closed: Closed, write: Eqn) -> Eqn:
    """One equation for a write, for what computes its place, and for what only gives its update another shape."""
    name, jaxpr = write.primitive.name, closed.jaxpr
    few = max(atom.aval.size for n, atom in enumerate(write.invars[1:], 1) if n != UPDATE[name])
    beside = [eqn for eqn in jaxpr.eqns if _is_beside(eqn, few)]
    place = needed_for(beside, variables(write.invars[1:]), lambda eqn, needed: needed)
    eqns = [eqn for eqn in beside if not place.isdisjoint(eqn.outvars)]
    made = {var for eqn in eqns for var in eqn.outvars}
    read = dict.fromkeys(var for eqn in (*eqns, write) for var in variables(eqn.invars) if var not in made)
    names = [f"operand_{number}" for number in range(len(read))]
    inner = build.excerpt(closed, [*eqns, write], list(read), write.outvars, [*names, "whole"])
    written, whole = map(nbytes, (write.invars[UPDATE[name]], write.outvars[0]))
    why = WhyNot(f"XLA writes {written:,} bytes in place, where a kernel would copy {whole:,}")
    return write.replace(primitive=in_place_p, invars=list(read), params={"jaxpr": inner, "why": why})


def _is_beside(eqn: Eqn, few: int) -> bool:
    """Whether it computes no more than a few numbers, or the same numbers in another shape."""
    if len(eqn.outvars) != 1 or not hasattr(eqn.outvars[0].aval, "shape"):
        return False
    made = eqn.outvars[0].aval.size
    return (made <= few and is_light(eqn)) or (eqn.primitive.name in SHAPES and eqn.invars[0].aval.size == made)


def _is_worth_a_launch(eqn: Eqn, policy: Policy) -> bool:
    """Whether to copy the array takes longer than to launch the write, and to write and read its update first."""
    saved = 2 * nbytes(eqn.outvars[0]) - 3 * nbytes(eqn.invars[UPDATE[eqn.primitive.name]])
    return why_not(eqn) is None and policy.target.moving(saved) > policy.loops.graph_launch_us


def _wanted_in_memory(jaxpr: Jaxpr, writes: Iterable[Eqn]) -> set[Var]:
    """What the caller, XLA's equations or other writes read, and what that is a view of."""
    wanted = set(variables(jaxpr.outvars))
    for eqn in reversed(jaxpr.eqns):
        if why_not(eqn) is not None:
            wanted.update(variables(eqn.invars))
        elif (eqn in writes or _is_view(eqn)) and eqn.outvars[0] in wanted:
            wanted.update(variables(eqn.invars[:1]))
    return wanted


def _is_last(jaxpr: Jaxpr, write: Eqn) -> bool:
    """Whether nothing reads the old array but this, and what has to be there before this."""
    old = _all_names(jaxpr, write.invars[0])
    if not old.isdisjoint(variables(jaxpr.outvars)):
        return False
    before = needed_for(jaxpr.eqns, variables(write.invars[1:]), lambda eqn, needed: needed)
    readers = (eqn for eqn in jaxpr.eqns if eqn is not write and not old.isdisjoint(variables(eqn.invars)))
    return all(_is_view(eqn) or not before.isdisjoint(eqn.outvars) for eqn in readers)


def _all_names(jaxpr: Jaxpr, atom: Atom) -> set[Var]:
    """An array, and all that is a view of it."""
    views = [eqn for eqn in jaxpr.eqns if _is_view(eqn)]
    found = set(variables([atom]))
    for eqn in reversed(views):
        if eqn.outvars[0] in found:
            found.update(variables(eqn.invars))
    for eqn in views:
        if not found.isdisjoint(variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


def _is_view(eqn: Eqn) -> bool:
    return eqn.primitive.name == "reshape" and eqn.params["dimensions"] is None
