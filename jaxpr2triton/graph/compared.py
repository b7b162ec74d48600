"""What is compared is one value: copies of a value that meet in a decision are made at one place.

    s = dot_general x w                                        s is added up twice, in two orders:
    m = reduce_max s                  kernel 0: s, m           no element of the second copy need be the maximum
    e = eq s m                        kernel 1: s, e (m)       of the first one

A decision compares two values, or reads where a comparison has said. Its operands lead back, through what only moves or
chooses and rounds nothing, to the values they were chosen of. Where both lead back to one value, that has to be made at
one place: it is one node of one kernel, or what was written into one buffer. What is computed again place by place, of
operands that are made at one place, has the same bits each time, and counts as made there; sums, products of matrices
and running sums have not, as each kernel adds up in an order of its own. A value of 16 bits is another one in memory
than in the kernel that made it, unless it was rounded there.

What a program puts out, or hands to a loop of XLA's, may be compared there; and what an extreme was chosen of may be
computed again there, of other results. Where a program measures the rounding of a sum, its operands are compared with
each other: in `(a + b) - a` both a are one.

`apart` finds the copies of which that does not hold. It asks nothing but the partitioned program and the graphs of its
kernels, so that it can be asked of a plan in the making as well as of the one that is to be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from jaxpr2triton._compat import user_frame
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.nodes import Compute, Graph, Node, Place, Reduce, Swept, operands_of
from jaxpr2triton.graph.origins import (
    COMPARISONS,
    LOOK_UP,
    SUMS,
    Cone,
    Kernel,
    Origins,
    Step,
    Value,
    chooses,
    is_narrow,
    made_by,
    moved,
    moved_by,
)
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, Var, jaxprs_in
from jaxpr2triton.ir.region import region_p
from jaxpr2triton.ir.rounded import rounded_p


@dataclass(frozen=True)
class Copy:
    """What was made twice, by this equation, for the sake of one decision."""

    eqn: Eqn
    decision: str  # the primitive that decides, or what else may
    compared: Eqn  # whose copies meet there: this equation's own, or those of one that is made of it
    kernels: tuple[int, ...]  # the steps that make it

    def __str__(self) -> str:
        frame = user_frame(self.eqn)
        at = f" at {frame}" if frame else ""
        where = f"by {len(self.kernels)} kernels" if len(self.kernels) > 1 else "twice by one kernel"
        return f"a `{self.eqn.primitive.name}`{at} is made {where}, and `{self.decision}` compares it with its copy"


def apart(steps: Sequence[Step], outputs: Sequence[Var]) -> list[Copy]:
    """The values that are made at several places, and meet in a decision; each once, in the order of the program."""
    return _Program(steps, outputs).broken()


def check_compared(program: Jaxpr, planned: Mapping[str, Closed], graphs: Mapping[str, Graph]) -> None:
    """All that meets in a decision of a program is made at one place; `planned` are the regions, by their names."""
    steps: list[Step] = []
    for eqn in program.eqns:
        name = eqn.params["name"] if eqn.primitive is region_p else ""
        if name not in graphs:
            steps.append(eqn)
            continue
        own = dict(_equal_ones(planned[name].jaxpr, eqn.params["jaxpr"].jaxpr))
        steps.append(Kernel(graphs[name], eqn.invars, eqn.outvars, own))
    if copies := apart(steps, variables(program.outvars)):
        raise CompilerBug("; ".join(map(str, copies)))


def _equal_ones(first: Jaxpr, other: Jaxpr) -> Iterator[tuple[int, Eqn]]:
    """The equations of a program of the same form, by the ids of those of the first one; none of the very same."""
    stack = [(first, other)]
    while stack:
        one, two = stack.pop()
        for mine, theirs in zip(one.eqns, two.eqns, strict=True) if one is not two else ():
            yield id(mine), theirs
            stack += zip(jaxprs_in(mine), jaxprs_in(theirs), strict=True)


def decides(graph: Graph) -> bool:
    """Whether a kernel by itself may compare what it makes at several places."""
    sums = any(node.eqn.primitive.name in SUMS for node in graph.of_kind((Reduce, Swept)))
    return sums and any(
        getattr(node, "needs", ())
        or (isinstance(node, Compute) and (node.eqn.primitive.name in COMPARISONS or is_measured(node.eqn)))
        for node in graph.nodes
    )


def met(eqns: Sequence[Eqn]) -> set[Eqn]:
    """The equations of a program that lead to a value which is compared with its copy, or by which places are found.

    That value is one only if all of these are made once, whichever of its results is asked for.
    """
    makers = {var: eqn for eqn in eqns for var in eqn.outvars}

    def origins(var: Var) -> set[Var]:
        return set(reachable([var], lambda each: (moved_by(makers[each]) if each in makers else None) or ()))

    compared: set[Var] = set()
    found: set[Eqn] = set()
    for eqn in reversed(eqns):
        operands = variables(eqn.invars)
        if chooses(eqn):
            compared.update(operands)
        if eqn.primitive.name in COMPARISONS and len(set(operands)) == 2:
            compared |= origins(operands[0]) & origins(operands[1])
        elif is_measured(eqn):
            compared.update(operands)
        if not compared.isdisjoint(eqn.outvars):
            compared.update(operands)
            found.add(eqn)
    return found


def is_measured(eqn: Eqn) -> bool:
    """Whether a program finds out what rounding has done; 16 bits are rounded for other reasons, too."""
    return eqn.primitive is rounded_p and not is_narrow(eqn.outvars[0].aval.dtype)


class _Program:
    def __init__(self, steps: Sequence[Step], outputs: Sequence[Var]) -> None:
        self.steps, self.outputs, self.known = steps, outputs, Origins(steps)
        self.found: dict[Eqn, Copy] = {}

    def broken(self) -> list[Copy]:
        for number, step in enumerate(self.steps):
            if isinstance(step, Kernel):
                self._of_kernel(number, step)
            else:
                self._of_equation(step)
        self._all_of(list(map(self.known.of_var, dict.fromkeys(self.outputs))), "what the program puts out")
        return [self.found[eqn] for eqn in self._in_order() if eqn in self.found]

    def _in_order(self) -> Iterable[Eqn]:
        """The equations of all kernels, each once."""
        found: dict[Eqn, None] = {}
        for kernel in (step for step in self.steps if isinstance(step, Kernel)):
            for node in kernel.graph.nodes:
                if isinstance(node, Compute | Reduce | Swept):
                    found.update(dict.fromkeys(made_by(node, kernel.eqn(node))))
        return found

    # -- decisions --------------------------------------------------------------------------------------------

    def _of_kernel(self, number: int, kernel: Kernel) -> None:
        chosen: dict[Node, frozenset[Node]] = {}  # the computed numbers that say where it is read
        for node in kernel.graph.nodes:
            here = Value(number, node)
            if isinstance(node, Compute) and node.eqn.primitive.name in COMPARISONS:
                one, other = node.operands
                self._meet(Value(number, one), Value(number, other), node.eqn.primitive.name)
            if isinstance(node, Compute) and is_measured(node.eqn) and len(set(operands_of(node.operands[0]))) == 2:
                cones = [self.known.cone(Value(number, each)) for each in operands_of(node.operands[0])]
                self._note(cones[0], cones[1], "rounded")
            needs: tuple[Node, ...] = getattr(node, "needs", ())
            inherited = (chosen[operand] for operand in operands_of(node) if operand in chosen)
            chosen[node] = frozenset(needs).union(*inherited)
            is_made = isinstance(node, Compute | Reduce | Swept) and moved(kernel, node) is None
            if needs or (is_made and is_float(node.dtype)):
                self._read_at(here, [Value(number, each) for each in chosen[node]])

    def _of_equation(self, eqn: Eqn) -> None:
        name = eqn.primitive.name
        values = list(map(self.known.of_var, dict.fromkeys(variables(eqn.invars))))
        if name in COMPARISONS or any(True for _ in jaxprs_in(eqn)):
            self._all_of(values, name)
        elif name in LOOK_UP and len(values) > 1:
            self._read_at(values[0], values[1:])

    def _all_of(self, values: Sequence[Value], who: str) -> None:
        """Of values any two of which may be compared, or looked up by one another.

        What an extreme was chosen of may be computed again, from others of them, to look for it.
        """
        extremes = {each for value in values for each in self.known.below_extremes(value)}
        for one in extremes:
            for other in values:
                self._note(self.known.cone(one), self.known.cone(other), who)
        known: dict[Eqn, dict[Value, None]] = {}
        for value in values:
            for found in (self.known.origins(value), self.known.decided(value)):
                for eqn, places in found.items():
                    before = known.setdefault(eqn, {})
                    self._differ(eqn, frozenset(before), places, who)
                    before.update(dict.fromkeys(places))

    def _meet(self, one: Value, other: Value, who: str) -> None:
        if one == other:
            return
        first, second = self.known.origins(one), self.known.origins(other)
        for eqn in first if len(first) <= len(second) else second:
            if eqn in first and eqn in second:
                self._differ(eqn, first[eqn], second[eqn], who)

    def _read_at(self, value: Value, numbers: Sequence[Value]) -> None:
        """Of a value that is read where these numbers say."""
        origins = self.known.origins(value)
        for number in numbers if origins else ():
            decided = self.known.decided(number)
            for eqn in origins.keys() & decided.keys():
                self._differ(eqn, origins[eqn], decided[eqn], "a place")

    def _differ(self, eqn: Eqn, one: frozenset[Value], other: frozenset[Value], who: str) -> None:
        """Note what makes copies of one equation's value differ."""
        for first in one - other:
            for second in other - one:
                if self._may_be_one(first, second):
                    self._note(self.known.cone(first), self.known.cone(second), who, eqn)

    def _note(self, one: Cone, other: Cone, who: str, compared: Eqn | None = None) -> None:
        for made in one.keys() & other.keys() - self.found.keys():
            left, right = one[made] - other[made], other[made] - one[made]
            if any(self._may_be_one(a, b) for a in left for b in right):
                steps = tuple(sorted({each.step for each in left | right}))
                self.found[made] = Copy(made, who, compared or made, steps)

    def _may_be_one(self, one: Value, other: Value) -> bool:
        """Whether two nodes of one equation may be the same element of it."""
        first, second = (getattr(each.what, "place", ()) for each in (one, other))
        return one != other and (len(first) != len(second) or not _are_apart(first, second))


def _are_apart(one: Place, other: Place) -> bool:
    """Whether two places are never the same."""
    return any(_never_equal(first, second) for first, second in zip(one, other))


def _never_equal(one: Index, other: Index) -> bool:
    terms = (*one.terms, *other.terms)
    step = gcd(*(factor for _, factor in terms)) if all(isinstance(atom, Axis) for atom, _ in terms) else 1
    if (one.const - other.const) % step if step else one.const != other.const:
        return True
    return one.bounds[1] < other.bounds[0] or other.bounds[1] < one.bounds[0]
