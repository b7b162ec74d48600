"""What XLA takes for equations, in microseconds: launches, what passes through memory, what is computed.

    def step(x, v):                                  N-body, x and v f32[1024,3], in a step of a scan
        d = x[None] - x[:, None]
        pull = (d * rsqrt((d * d).sum(-1)) ** 3).sum(1)
        return x + v, v + pull
            →    Taken(launches=6, launching=9.0, working=4.2)

XLA runs a loop from the host, some launches for each step. A launch shares out what it computes over all processors.
Elementwise work is fused into what reads it, so that of each sum its result is written and read, and besides that what
a step carries on, reads of its place, and puts out. It is a lower bound where fusions compute something twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var, jaxprs_in
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.scanned import scanned_p
from jaxpr2triton.ir.scans import UNKNOWN
from jaxpr2triton.plan.library import bytes_of, library_time
from jaxpr2triton.policy import Policy
from jaxpr2triton.report.launches import APART, launches_alone, launches_of
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.rows import TABLE

IN_PLACE = frozenset({"dynamic_slice", "dynamic_update_slice", "gather"})  # no more of an array than they are to read


@dataclass(frozen=True)
class Taken:
    """Of all that is launched for equations, one after the other."""

    launches: int = 0
    launching: float = 0.0  # µs
    working: float = 0.0  # µs of all processors

    def __add__(self, other: Taken) -> Taken:
        return Taken(
            self.launches + other.launches, self.launching + other.launching, self.working + other.working
        )

    @property
    def microseconds(self) -> float:
        return self.launching + self.working

    def times(self, count: int) -> Taken:
        return Taken(count * self.launches, count * self.launching, count * self.working)


def time_of_xla(closed: Closed, policy: Policy) -> Taken:
    """Of a whole program. A launch outside of loops is one after a break; those of a step follow each other."""
    beside = launches_alone(closed).beside_loops
    found = Taken(beside, beside * policy.products.launch)
    inner = closed.jaxpr
    found += _inside(inner, policy, is_apart=False)
    arrays = {atom: None for atom in (*inner.invars, *inner.outvars) if not isinstance(atom, Literal)}
    return found + Taken(working=_moving(bytes_of(*(atom.aval for atom in arrays)), policy))


def time_of_loop(loop: Eqn, policy: Policy) -> Taken:
    """Of all steps; of a `while` as if it had a few, and of asking whether there is another one after each."""
    return all_steps(loop, sum((_of_step(body, policy) for body in jaxprs_in(loop)), Taken()), policy)


def time_of_step(body: Closed, policy: Policy) -> Taken:
    """Of what a step computes, without what a loop needs anyway."""
    return _of_step(body.jaxpr, policy)


def _of_step(body: Jaxpr, policy: Policy) -> Taken:
    fused = Taken(1, policy.loops.launch) if body.eqns else Taken()
    return fused + _inside(body, policy) + _moved_by(body, policy)


def all_steps(loop: Eqn, step: Taken, policy: Policy) -> Taken:
    """Of all steps of a loop that XLA runs, by what one of them takes."""
    launches = launches_of(loop)
    assert launches is not None
    fixed = policy.loops.launches_of_a_step
    step += Taken(fixed, fixed * policy.loops.launch)
    if launches.steps is None:
        step += Taken(launching=policy.loops.asking)
    seldom = bool(loop.params.get("seldom"))
    return step.times(launches.steps if launches.steps is not None else 0 if seldom else UNKNOWN)


def time_of_equation(eqn: Eqn, policy: Policy, is_apart: bool = True) -> Taken:
    """Of a loop, or of what it is in a step of one; what is fused into others has no launch of its own.

    `is_apart` says whether all others have one each, or are counted by somebody else.
    """
    launch = Taken(1, policy.loops.launch) if is_apart else Taken()
    name = eqn.primitive.name
    if launches_of(eqn) is not None:
        return time_of_loop(eqn, policy)
    if eqn.primitive is scanned_p:
        return _of_scan(eqn, policy)
    if name == "cond":
        branches = [_inside(branch, policy) for branch in jaxprs_in(eqn)]
        return launch + min(branches, key=lambda each: each.microseconds)
    if name == "dot_general":
        return (Taken() if is_short_contraction(eqn) else launch) + Taken(working=library_time(eqn, policy))
    if inner := list(jaxprs_in(eqn)):
        return sum((_inside(body, policy, is_apart) for body in inner), Taken())
    if name.startswith(APART) and name != "reduce_precision":
        made = bytes_of(*(var.aval for var in eqn.outvars))
        return launch + Taken(working=_computed(eqn, policy) + _moving(2 * made, policy))
    return Taken(working=_computed(eqn, policy))


def _inside(jaxpr: Jaxpr, policy: Policy, is_apart: bool = True) -> Taken:
    """Of all equations; an associative scan of several results is one."""
    scans = {_scan_of(eqn): eqn for eqn in reversed(jaxpr.eqns) if eqn.primitive is scanned_p}
    eqns = (eqn for eqn in jaxpr.eqns if eqn.primitive is not scanned_p or scans[_scan_of(eqn)] is eqn)
    return sum((time_of_equation(eqn, policy, is_apart) for eqn in eqns), Taken())


def _scan_of(eqn: Eqn) -> tuple[object, ...]:
    return (eqn.params["combine"], eqn.params["axis"], *map(id, eqn.invars))


def _of_scan(eqn: Eqn, policy: Policy) -> Taken:
    """An associative scan is written out: there and back, with half as many elements each time."""
    size = eqn.outvars[0].aval.shape[eqn.params["axis"]]
    rounds = 2 * max(size - 1, 1).bit_length()
    combine = eqn.params["combine"].closed.jaxpr
    elements = 2 * eqn.outvars[0].aval.size
    instructions = sum(_weight(each) for each in combine.eqns)
    moved = 2 * sum(bytes_of(atom.aval) for atom in eqn.invars)
    working = _issued(elements, instructions, policy) + _moving(moved, policy)
    return Taken(rounds, rounds * policy.loops.launch, working)


def _computed(eqn: Eqn, policy: Policy) -> float:
    elements = max((atom.aval.size for atom in (*eqn.invars, *eqn.outvars) if hasattr(atom.aval, "size")), default=1)
    if isinstance(TABLE.get(eqn.primitive.name), Indexing):
        return 0.0
    return _issued(elements, _weight(eqn), policy)


def _weight(eqn: Eqn) -> int:
    row = TABLE.get(eqn.primitive.name)
    return row.weight if isinstance(row, Pointwise) else 1


def _issued(elements: int, instructions: int, policy: Policy) -> float:
    """Microseconds of so many instructions for each element; a warp that is alone waits for itself."""
    target = policy.target
    cycles = instructions * max(elements / (target.processors * target.cores), policy.cost.alone)
    return cycles / (1000 * target.clock)


def _moved_by(body: Jaxpr, policy: Policy) -> Taken:
    """What a step reads of what is there before, and what it writes."""
    readers: dict[Var, list[Eqn | None]] = {}
    makers = {var: eqn for eqn in body.eqns for var in eqn.outvars}
    for eqn in body.eqns:
        for place, atom in enumerate(eqn.invars):
            if not isinstance(atom, Literal):
                in_place = place == 0 and _is_in_place(eqn)
                readers.setdefault(atom, []).append(None if in_place else eqn)
    given = dict.fromkeys(body.invars)
    read = [var for var in given if any(each is not None for each in readers.get(var, []))]
    written = [atom for atom in body.outvars if _is_written(atom, given, makers)]
    return Taken(working=_moving(bytes_of(*(atom.aval for atom in (*read, *written))), policy))


def _is_in_place(eqn: Eqn) -> bool:
    return eqn.primitive.name in IN_PLACE or eqn.primitive.name.startswith("scatter")


def _is_written(atom: Atom, given: dict[Var, None], makers: dict[Var, Eqn]) -> bool:
    """Whether all of it is: not what is handed on as it is, or changed at some places."""
    if isinstance(atom, Literal) or atom in given:
        return False
    maker = makers.get(atom)
    return maker is None or not _is_in_place(maker)


def _moving(count: int, policy: Policy) -> float:
    return count / policy.target.memory_rate / 1000


def time_of_parts(
    program: Closed, kernels: Mapping[str, float], steps: Mapping[int, Taken], policy: Policy, launch: float
) -> Taken:
    """Of a program that is cut into kernels, what XLA runs of it included.

    `kernels` says what each of those takes without its `launch`, and `steps` what the steps of loops take that are made
    of kernels, by the places of these loops.
    """
    found = Taken()
    for place, eqn in enumerate(program.jaxpr.eqns):
        if place in steps:
            found += all_steps(eqn, steps[place], policy)
        elif eqn.primitive is region_p and eqn.params["name"] in kernels:
            found += Taken(1, launch, kernels[eqn.params["name"]])
        elif launches_of(eqn) is not None:
            found += time_of_loop(eqn, policy)
        elif not isinstance(TABLE.get(eqn.primitive.name), Indexing):
            each = time_of_equation(eqn, policy)
            launches = max(each.launches, 1)
            found += Taken(launches, launches * launch, each.working)
    return found
