"""What XLA takes for equations, in microseconds: launches, what passes through memory, what is computed.

    def step(x, v):                                  N-body, x and v f32[1024,3], in a step of a scan
        d = x[None] - x[:, None]
        pull = (d * rsqrt((d * d).sum(-1)) ** 3).sum(1)
        return x + v, v + pull
            →    Taken(launches=6, launching=9.0, working=3.2)

XLA runs a loop from the host, some launches for each step; five or more are a CUDA graph. A launch shares out what it
computes over all processors. Elementwise work is fused into what reads it: a sum reads what is in memory of all that
leads to it, products and sorts read what was written for them, and so do the next steps. It is a lower bound where
fusions compute something twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxpr2triton._compat import called_jaxpr, operands_of_call
from jaxpr2triton.graph.covered import is_short_contraction
from jaxpr2triton.ir.hashing import threefry_p
from jaxpr2triton.ir.jaxprs import Atom, Closed, Eqn, Jaxpr, Literal, Var, equations, jaxprs_in, nbytes_of
from jaxpr2triton.ir.kernel import Alone, Launches
from jaxpr2triton.ir.launches import APART, SUMS, is_loop, launches_outside_loops, trip_count
from jaxpr2triton.ir.region import in_place_p, moved_by, region_p
from jaxpr2triton.ir.scanned import scanned_p
from jaxpr2triton.ir.scans import UNKNOWN
from jaxpr2triton.plan.library import library_time
from jaxpr2triton.plan.partition.sources import source_of
from jaxpr2triton.policy import Policy
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.rows import TABLE

PARTS = ("dynamic_slice", "gather")  # read no more of an array than they are
RANDOM = ("random_bits", "threefry2x32")


@dataclass(frozen=True)
class Taken:
    """Of all that is launched for equations, one after the other."""

    launches: int = 0
    launching: float = 0.0  # µs
    working: float = 0.0  # µs of all processors
    pending: int = 0  # launches that have no price yet, as it depends on how many follow each other

    def __add__(self, other: Taken) -> Taken:
        return Taken(
            self.launches + other.launches,
            self.launching + other.launching,
            self.working + other.working,
            self.pending + other.pending,
        )

    @property
    def microseconds(self) -> float:
        return self.launching + self.working

    def priced(self, launch: float) -> Taken:
        """Where a launch takes so many microseconds."""
        return replace(self, launching=self.launching + self.pending * launch, pending=0)

    def times(self, count: int) -> Taken:
        return Taken(count * self.launches, count * self.launching, count * self.working, count * self.pending)


LAUNCH = Taken(1, pending=1)


def time_of_xla(closed: Closed, policy: Policy) -> Taken:
    """Of a whole program. A launch outside of loops is one after a break."""
    return _whole(closed, policy)[0].priced(policy.products.launch_after_gap_us)


def launches_alone(closed: Closed, policy: Policy) -> Alone:
    """Of a whole program, as it was traced: those of its loops, and all others."""
    taken, loops = _whole(closed, policy)
    in_loops = sum(time_of_loop(loop, policy).launches for loop in loops)
    return Alone(taken.launches - in_loops, tuple((loop.primitive.name, launches_of(loop, policy)) for loop in loops))


def _whole(closed: Closed, policy: Policy) -> tuple[Taken, Sequence[Eqn]]:
    """All of it, launches outside of loops pending; and its loops, but for those in others."""
    walk = _Walk(policy)
    found = walk.whole(closed.jaxpr)
    others = launches_outside_loops(closed) - found.pending
    return found + Taken(others, pending=others), walk.loops


def launches_of(loop: Eqn, policy: Policy, step: Taken | None = None) -> Launches:
    """Of one step, and how many there are; `step` is what one computes, where it is known to be made of kernels."""
    return Launches(_one_step(loop, policy, step).launches, trip_count(loop))


def time_of_loop(loop: Eqn, policy: Policy, step: Taken | None = None) -> Taken:
    """Of all steps; of a `while` as if it had a few, and of asking whether there is another one after each."""
    steps = trip_count(loop)
    if steps is None:
        steps = 0 if loop.params.get("seldom") else UNKNOWN
    return _one_step(loop, policy, step).times(steps)


def _one_step(loop: Eqn, policy: Policy, step: Taken | None) -> Taken:
    loop = source_of(loop)
    if step is None:
        step = sum((_of_step(body, policy) for body in jaxprs_in(loop) if body.eqns), Taken())
    fixed = policy.loops.loop_overhead_launches
    step = _launched(step + Taken(fixed, pending=fixed), policy)
    return step if trip_count(loop) is not None else step + Taken(launching=policy.loops.asking)


def time_of_step(body: Closed, policy: Policy) -> Taken:
    """Of what a step computes, without what a loop needs anyway; its launches are pending."""
    return _of_step(body.jaxpr, policy)


def time_of_parts(program: Closed, kernels: Mapping[str, float], steps: Mapping[int, Taken], policy: Policy) -> Taken:
    """Of a program that is cut into kernels, what XLA runs of it included; launches outside of loops are pending.

    `kernels` says what each of those takes without its launch, and `steps` what the steps of those loops take, by their
    places, whose steps are made of kernels.
    """
    found = Taken()
    for place, eqn in enumerate(program.jaxpr.eqns):
        if eqn.primitive is region_p and eqn.params["name"] in kernels:
            found += LAUNCH + Taken(working=kernels[eqn.params["name"]])
        else:
            found += time_of_equation(eqn, policy, steps.get(place))
    return found


def time_of_equation(eqn: Eqn, policy: Policy, step: Taken | None = None) -> Taken:
    """Of one that XLA runs by itself, its launches pending but for those of loops; `step` as in `launches_of`."""
    if is_loop(eqn):
        return time_of_loop(eqn, policy, step)
    if isinstance(TABLE.get(eqn.primitive.name), Indexing):
        return Taken()
    found = _Walk(policy).alone(eqn)
    return found if found.launches else found + LAUNCH


def is_known(eqn: Eqn) -> bool:
    """Whether no loop in it is of a length that the device finds out; else times are for `UNKNOWN` steps of each."""
    every = (eqn, *(each for body in jaxprs_in(eqn) for each in equations(body)))
    return all(trip_count(each) is not None for each in every if is_loop(each))


def _launched(step: Taken, policy: Policy) -> Taken:
    """With what launches take that follow each other: less, if there are enough of them for a graph."""
    in_a_graph = step.pending >= policy.loops.launches_of_a_graph
    return step.priced(policy.loops.graph_launch_us if in_a_graph else policy.products.launch_after_gap_us)


def _of_step(body: Jaxpr, policy: Policy) -> Taken:
    return LAUNCH + _Walk(policy).whole(body)


@dataclass(frozen=True)
class _Value:
    """What is in memory of all that leads to a value: the bits of a number."""

    read: int
    level: int  # launches before it, one after the other
    is_stored: bool = False


@dataclass
class _Walk:
    """Goes through equations as XLA fuses them; the launches of what is fused are counted by others."""

    policy: Policy
    sizes: list[int] = field(default_factory=list)  # bytes of each array in memory
    passes: dict[object, tuple[int, int]] = field(default_factory=dict)  # what a launch reads, and bytes that it writes
    values: dict[Var, _Value] = field(default_factory=dict)
    scans: set[tuple[object, ...]] = field(default_factory=set)
    loops: list[Eqn] = field(default_factory=list)

    def whole(self, jaxpr: Jaxpr) -> Taken:
        for var in (*jaxpr.constvars, *jaxpr.invars):
            self.values[var] = self._new(var, 0)
        found = self._through(jaxpr)
        return found + self._stored(jaxpr.outvars)

    def alone(self, eqn: Eqn) -> Taken:
        """An equation whose operands are in memory."""
        return self._of(eqn) + self._stored(eqn.outvars)

    def _stored(self, atoms: Sequence[Atom]) -> Taken:
        """All passes through memory, when these values are there at the end."""
        for atom in atoms:
            self._store(atom)
        passed = sum(self._bytes(bits) + written for bits, written in self.passes.values())
        return Taken(working=self.policy.target.moving(passed))

    def _through(self, jaxpr: Jaxpr) -> Taken:
        return sum(map(self._of, jaxpr.eqns), Taken())

    def _of(self, eqn: Eqn) -> Taken:
        name = eqn.primitive.name
        if (call := called_jaxpr(name, eqn.params)) is not None:
            return self._called(eqn, call[0])
        if eqn.primitive is in_place_p:
            return LAUNCH + self._written(eqn)
        if name.startswith(SUMS) and "axes" in eqn.params:
            return self._reduced(eqn)
        if not _is_apart(eqn):
            return self._fused(eqn)
        for atom in eqn.invars:
            self._store(atom)
        level = 1 + max((self._value(atom).level for atom in eqn.invars), default=0)
        self.values.update({var: self._new(var, level) for var in eqn.outvars})
        if is_loop(eqn):
            self.loops.append(eqn)
            return time_of_loop(eqn, self.policy)
        if name == "cond":
            branches = [_Walk(self.policy).whole(branch) for branch in jaxprs_in(eqn)]
            return LAUNCH + min(branches, key=lambda each: (each.pending, each.microseconds))
        if eqn.primitive is scanned_p:
            return self._scanned(eqn)
        if name.startswith("cum"):
            return _of_scan(eqn, self.policy)
        if name == "dot_general":
            return LAUNCH + Taken(working=library_time(eqn, self.policy))
        moved = nbytes_of(*(atom.aval for atom in (*eqn.invars, *eqn.outvars)))
        return LAUNCH + Taken(working=self.policy.target.moving(moved) + _computed(eqn, self.policy))

    def _called(self, eqn: Eqn, inner: Jaxpr) -> Taken:
        operands: Sequence[Atom] = operands_of_call(eqn.primitive.name, eqn.params, eqn.invars)
        for var in inner.constvars:
            self.values[var] = self._new(var, 0)
        self.values.update(zip(inner.invars, map(self._value, operands)))
        found = self._through(inner)
        self.values.update(zip(eqn.outvars, map(self._value, inner.outvars)))
        return found

    def _written(self, eqn: Eqn) -> Taken:
        """A part of an array, in place: what the rest is stays in memory."""
        self.values.update({var: self._new(var, 1 + self._value(eqn.invars[0]).level) for var in eqn.outvars})
        return Taken(working=self.policy.target.moving(moved_by(eqn)))

    def _reduced(self, eqn: Eqn) -> Taken:
        """Sums of arrays of one shape along the same dimensions, made at one time, are one launch."""
        before = [self._value(atom) for atom in eqn.invars]
        level = max(value.level for value in before)
        launch = (level, eqn.invars[0].aval.shape, eqn.params["axes"])
        found = Taken() if launch in self.passes else LAUNCH
        self._pass(launch, _joined(before), nbytes_of(*(var.aval for var in eqn.outvars)))
        self.values.update({var: self._new(var, level + 1) for var in eqn.outvars})
        return found + Taken(working=_computed(eqn, self.policy))

    def _scanned(self, eqn: Eqn) -> Taken:
        """All results of one are made at once."""
        scan = (eqn.params["combine"], eqn.params["axis"], *eqn.invars)
        found = Taken() if scan in self.scans else _of_scan(eqn, self.policy)
        self.scans.add(scan)
        return found

    def _fused(self, eqn: Eqn) -> Taken:
        before = [self._value(atom) for atom in eqn.invars]
        level = max((value.level for value in before), default=0)
        is_moved = isinstance(TABLE.get(eqn.primitive.name), Indexing)
        if eqn.primitive.name in PARTS and before[0].is_stored:
            part = self._new(eqn.outvars[0], level)
            values = [replace(part, read=part.read | _joined(before[1:]), is_stored=False)]
        elif _is_in_place(eqn) and before[0].is_stored:
            self._pass(eqn, _joined(before[1:]), nbytes_of(eqn.invars[1].aval))
            values = [self._new(eqn.outvars[0], level)]
        else:
            same = len(before) == 1 and eqn.primitive.name in ("reshape", "squeeze") and before[0].is_stored
            values = [_Value(_joined(before), level, same)] * len(eqn.outvars)
        self.values.update(zip(eqn.outvars, values))
        return Taken() if is_moved else Taken(working=_computed(eqn, self.policy))

    def _store(self, atom: Atom) -> None:
        """Bring a value into memory, with others of its shape that can be made at one time."""
        value = self._value(atom)
        if isinstance(atom, Literal) or value.is_stored:
            return
        self._pass((value.level, getattr(atom.aval, "shape", ())), value.read, nbytes_of(atom.aval))
        self.values[atom] = self._new(atom, value.level)

    def _pass(self, launch: object, read: int, written: int) -> None:
        before, more = self.passes.get(launch, (0, 0))
        self.passes[launch] = before | read, more + written

    def _new(self, var: Var, level: int) -> _Value:
        self.sizes.append(nbytes_of(var.aval))
        return _Value(1 << (len(self.sizes) - 1), level, True)

    def _value(self, atom: Atom) -> _Value:
        if isinstance(atom, Literal):
            return _Value(0, 0)
        if atom not in self.values:
            self.values[atom] = self._new(atom, 0)
        return self.values[atom]

    def _bytes(self, bits: int) -> int:
        return sum(size for place, size in enumerate(self.sizes) if bits >> place & 1)


def _is_apart(eqn: Eqn) -> bool:
    """Whether it needs what it reads in memory, and has a launch of its own, or many."""
    name = eqn.primitive.name
    if is_loop(eqn) or name == "cond" or eqn.primitive is scanned_p:
        return True
    return name.startswith(APART) and name != "reduce_precision" and not is_short_contraction(eqn)


def _joined(values: Sequence[_Value]) -> int:
    return functools.reduce(lambda bits, value: bits | value.read, values, 0)


def _is_in_place(eqn: Eqn) -> bool:
    return eqn.primitive.name == "dynamic_update_slice"


def _of_scan(eqn: Eqn, policy: Policy) -> Taken:
    """A scan along an axis is written out: there and back, with half as many elements each time."""
    size = eqn.outvars[0].aval.shape[eqn.params["axis"]]
    rounds = 2 * max(size - 1, 1).bit_length()
    combine = eqn.params["combine"].closed.jaxpr.eqns if eqn.primitive is scanned_p else [eqn]
    moved = 2 * nbytes_of(*(atom.aval for atom in (*eqn.invars, *eqn.outvars)))
    working = _issued(2 * eqn.outvars[0].aval.size, sum(map(_weight, combine)), policy) + policy.target.moving(moved)
    return Taken(rounds, working=working, pending=rounds)


def _computed(eqn: Eqn, policy: Policy) -> float:
    atoms = (*(eqn.invars if eqn.primitive.name.startswith(APART) else ()), *eqn.outvars)
    elements = max((math.prod(getattr(atom.aval, "shape", ())) for atom in atoms), default=1)
    return _issued(elements, _weight(eqn), policy)


def _weight(eqn: Eqn) -> int:
    """Instructions for each element. Both words of a hash are made at once, and random bits are of both."""
    name = eqn.primitive.name
    row = TABLE.get(threefry_p.name if name in RANDOM else name)
    return row.weight // (1 + (name == threefry_p.name)) if isinstance(row, Pointwise) else 1


def _issued(elements: int, instructions: int, policy: Policy) -> float:
    """Microseconds of so many instructions for each element; a warp that is alone waits for itself."""
    target = policy.target
    cycles = instructions * max(elements / (target.processors * target.cores), policy.cost.alone)
    return cycles / (1000 * target.clock)
