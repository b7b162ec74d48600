"""What is compared is one value: copies of a value that meet in a decision are made at one place.

    s = dot_general x w                                        s is added up twice, in two orders:
    m = reduce_max s                  kernel 0: s, m           no element of the second copy need be the maximum
    e = eq s m                        kernel 1: s, e (m)       of the first one

A decision compares two values, or reads where a comparison has said. Its operands lead back, through what only moves or
chooses and rounds nothing, to the values they were chosen of. Where both lead back to one value, that has to be made at
one place: it is one node of one kernel, or what was written into one buffer. A value that is computed again element by
element, of operands that are made at one place, has the same bits each time, and counts as made there; sums, products of
matrices and running sums have not, as each kernel adds up in an order of its own. A value of 16 bits is another one in
memory than in the kernel that made it, unless it was rounded there.

What a program puts out, or hands to a loop of XLA's, may be compared there. Where a program measures the rounding of
a sum, its operands are compared with each other: in `(a + b) - a` both a are one.

`apart` finds the copies of which that does not hold. It asks nothing but the partitioned program and the graphs of its
kernels, so that it can be asked of a plan in the making as well as of the one that is to be written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple, TypeVar

import numpy as np

from jaxpr2triton._compat import user_frame
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph import dynamic
from jaxpr2triton.graph.nodes import (
    Carried,
    Choose,
    Compute,
    Final,
    Graph,
    Keep,
    Kept,
    Load,
    Lookup,
    Node,
    Place,
    Recurrence,
    Reduce,
    Swept,
    Take,
    operands_of,
)
from jaxpr2triton.ir.dtypes import is_float, working_dtype
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.index import Axis, Index
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Jaxpr, Literal, Var, jaxprs_in
from jaxpr2triton.ir.region import boundary_p, chunked_p, flag_p, flagged_p, region_p
from jaxpr2triton.ir.rounded import CHOICES, rounded_p
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.rows import TABLE

Found = TypeVar("Found", bound=Hashable)

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "eq_to", "le_to", "lt_to"))
PLACES = frozenset(("argmax", "argmin", "places"))  # decisions whose results say where something is
SORTS = frozenset(("sort", "top_k"))  # of which some results say where, and the others are moved
EXTREMES = frozenset(("cummax", "cummin", "reduce_max", "reduce_min", "reduce_and", "reduce_or"))
EXACT = CHOICES | EXTREMES | {"rounded", "bitcast_convert_type", "optimization_barrier", "scatter"}
LOOK_UP = frozenset(("gather", "dynamic_slice"))
SUMS = frozenset(("reduce_sum", "reduce_prod", "dot_general", "cumsum", "cumprod", "cumlogsumexp", "scanned"))


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel of a program: its graph, and which values of the program its buffers and outputs are.

    Kernels of one form share a graph; `own` are the equations of this one, by the ids of those in the graph.
    """

    graph: Graph
    read: Sequence[Var]
    written: Sequence[Var]
    own: Mapping[int, Eqn]

    @cached_property
    def stored(self) -> Mapping[Var, Sequence[Node]]:
        found: dict[Var, list[Node]] = {}
        for store in self.graph.stores:
            found.setdefault(self.written[store.output], []).append(store.value)
        return found

    @cached_property
    def loops(self) -> Mapping[Node, tuple[Node, ...]]:
        """What each carried value is, before and after a step."""
        return {
            leaf: (loop.starts[number], loop.nexts[number])
            for loop in self.graph.of_kind(Recurrence)
            for number, leaf in enumerate(loop.carried)
        }

    def eqn(self, node: Compute | Reduce | Swept) -> Eqn:
        """The equation whose result a node is."""
        made_by = node.made_by if isinstance(node, Reduce) else node.eqn
        return self.own.get(id(made_by), made_by)


Step = Kernel | Eqn


class Value(NamedTuple):
    """A node of a kernel, or a variable of the program; whether it is as it lies in memory."""

    step: int
    what: Node | Var
    stored: bool = False


Cone = Mapping[Eqn, frozenset[Value]]  # values, by what makes them


@dataclass(frozen=True)
class Copy:
    """What was made twice, by this equation, for the sake of one decision."""

    eqn: Eqn
    decision: str  # the primitive that decides, or what else may
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
    """All that meets in a decision of a partitioned program is made at one place; `planned` are the regions, by name."""
    steps: list[Step] = []
    for eqn in program.eqns:
        name = eqn.params["name"] if eqn.primitive is region_p else ""
        if name not in graphs:
            steps.append(eqn)
            continue
        own = dict(_equal_ones(planned[name].jaxpr, eqn.params["jaxpr"].jaxpr))
        steps.append(Kernel(graphs[name], variables(eqn.invars), eqn.outvars, own))
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
        getattr(node, "needs", ()) or (isinstance(node, Compute) and node.eqn.primitive.name in COMPARISONS)
        for node in graph.nodes
    )


def met(eqns: Sequence[Eqn]) -> set[Eqn]:
    """The equations of a program that lead to a value which is compared with its copy, or by which places are found.

    That value is one only if all of these are made once, whichever of its results is asked for.
    """
    makers = {var: eqn for eqn in eqns for var in eqn.outvars}

    def origins(var: Var) -> set[Var]:
        return set(_reached([var], lambda each: (_moved_by(makers[each]) if each in makers else None) or ()))

    compared: set[Var] = set()
    found: set[Eqn] = set()
    for eqn in reversed(eqns):
        operands = variables(eqn.invars)
        if eqn.primitive.name in PLACES | SORTS:
            compared.update(operands)
        elif eqn.primitive.name in COMPARISONS and len(set(operands)) == 2:
            compared |= origins(operands[0]) & origins(operands[1])
        elif is_measured(eqn):
            compared.update(operands)
        if not compared.isdisjoint(eqn.outvars):
            compared.update(operands)
            found.add(eqn)
    return found


def is_measured(eqn: Eqn) -> bool:
    """Whether a program finds out what rounding has done; 16 bits are rounded for other reasons, too."""
    return eqn.primitive is rounded_p and not _is_narrow(eqn.outvars[0].aval.dtype)


class _Program:
    def __init__(self, steps: Sequence[Step], outputs: Sequence[Var]) -> None:
        self.steps, self.outputs = steps, outputs
        self.makers: dict[Var, int] = {}
        for number, step in enumerate(steps):
            self.makers.update(dict.fromkeys(step.written if isinstance(step, Kernel) else step.outvars, number))
        self.cones: dict[Value, Cone] = {}
        self.origins: dict[Value, Cone] = {}
        self.decided: dict[Value, Cone] = {}
        self.found: dict[Eqn, Copy] = {}

    def broken(self) -> list[Copy]:
        for number, step in enumerate(self.steps):
            if isinstance(step, Kernel):
                self._of_kernel(number, step)
            else:
                self._of_equation(step)
        self._all_of(list(map(self._of_var, dict.fromkeys(self.outputs))), "what the program puts out")
        return list(self.found.values())

    # -- decisions --------------------------------------------------------------------------------------------

    def _of_kernel(self, number: int, kernel: Kernel) -> None:
        chosen: dict[Node, frozenset[Node]] = {}  # the computed numbers that say where it is read
        for node in kernel.graph.nodes:
            here = Value(number, node)
            if isinstance(node, Compute) and node.eqn.primitive.name in COMPARISONS:
                one, other = node.operands
                self._meet(Value(number, one), Value(number, other), node.eqn.primitive.name)
            if isinstance(node, Compute) and is_measured(node.eqn) and len(set(operands_of(node.operands[0]))) == 2:
                cones = [self._cone(Value(number, each)) for each in operands_of(node.operands[0])]
                self._note(cones[0], cones[1], "rounded")
            needs: tuple[Node, ...] = getattr(node, "needs", ())
            if any(True for _ in needs):
                self._read_at(here, [Value(number, each) for each in needs])
            below = frozenset(needs).union(*(chosen[operand] for operand in operands_of(node) if operand in chosen))
            if below and not needs and is_float(node.dtype) and isinstance(node, Compute | Reduce | Swept):
                if _moved(kernel, node) is None:
                    self._read_at(here, [Value(number, each) for each in below])
            chosen[node] = below

    def _of_equation(self, eqn: Eqn) -> None:
        name = eqn.primitive.name
        values = list(map(self._of_var, dict.fromkeys(variables(eqn.invars))))
        if name in COMPARISONS or any(True for _ in jaxprs_in(eqn)):
            self._all_of(values, name)
        elif name in LOOK_UP and len(values) > 1:
            self._read_at(values[0], values[1:])

    def _all_of(self, values: Sequence[Value], who: str) -> None:
        """Of values any two of which may be compared, or looked up by one another.

        What an extreme was chosen of may be computed again, from others of them, to look for it.
        """
        extremes = {each for value in values for each in self._compared_by_extremes(value)}
        for one in extremes:
            for other in values:
                self._note(self._cone(one), self._cone(other), who)
        known: dict[Eqn, dict[Value, None]] = {}
        for value in values:
            for found in (self._origins(value), self._decided(value)):
                for eqn, places in found.items():
                    before = known.setdefault(eqn, {})
                    self._differ(eqn, frozenset(before), places, who)
                    before.update(dict.fromkeys(places))

    def _meet(self, one: Value, other: Value, who: str) -> None:
        if one == other:
            return
        first, second = self._origins(one), self._origins(other)
        for eqn in first if len(first) <= len(second) else second:
            if eqn in first and eqn in second:
                self._differ(eqn, first[eqn], second[eqn], who)

    def _read_at(self, value: Value, numbers: Sequence[Value]) -> None:
        """Of a value that is read where these numbers say."""
        origins = self._origins(value)
        for number in numbers if origins else ():
            decided = self._decided(number)
            for eqn in origins.keys() & decided.keys():
                self._differ(eqn, origins[eqn], decided[eqn], "a place")

    def _differ(self, eqn: Eqn, one: frozenset[Value], other: frozenset[Value], who: str) -> None:
        """Note what makes copies of one equation's value differ."""
        for first in one - other:
            for second in other - one:
                if self._may_be_one(first, second):
                    self._note(self._cone(first), self._cone(second), who)

    def _note(self, one: Cone, other: Cone, who: str) -> None:
        for made in one.keys() & other.keys() - self.found.keys():
            left, right = one[made] - other[made], other[made] - one[made]
            if any(self._may_be_one(a, b) for a in left for b in right):
                self.found[made] = Copy(made, who, tuple(sorted({each.step for each in left | right})))

    def _may_be_one(self, one: Value, other: Value) -> bool:
        """Whether two nodes of one equation may be the same element of it."""
        first, second = (getattr(each.what, "place", ()) for each in (one, other))
        return one != other and (len(first) != len(second) or not _are_apart(first, second))

    # -- where values come from -------------------------------------------------------------------------------

    def _of_var(self, var: Var) -> Value:
        return Value(-1, var, True)

    def _origins(self, value: Value) -> Cone:
        """The values that this one was chosen of, by what makes them."""
        if value not in self.origins:
            found: dict[Eqn, set[Value]] = {}
            for each in _reached([value], lambda each: self._moves(each) or ()):
                eqn = self._eqn(each) if isinstance(each.what, Node) else None
                if eqn is not None and self._moves(each) is None:
                    found.setdefault(eqn, set()).add(each)
            self.origins[value] = {eqn: frozenset(places) for eqn, places in found.items()}
        return self.origins[value]

    def _compared_by_extremes(self, value: Value) -> Iterator[Value]:
        """What the extremes were chosen of that a value was moved from."""
        for each in _reached([value], lambda each: self._moves(each) or ()):
            eqn = self._eqn(each)
            if eqn is not None and eqn.primitive.name in EXTREMES | SORTS:
                for places in self._origins(each).values():
                    yield from places

    def _decided(self, value: Value) -> Cone:
        """The values whose comparison has led to this number."""
        if value not in self.decided:
            found: dict[Eqn, set[Value]] = {}
            for each in _reached([value], self._whole):
                eqn = self._eqn(each)
                if eqn is not None and eqn.primitive.name in PLACES | COMPARISONS | SORTS:
                    for operand in self._operands(each):
                        for origin, places in self._origins(operand).items():
                            found.setdefault(origin, set()).update(places)
            self.decided[value] = {eqn: frozenset(places) for eqn, places in found.items()}
        return self.decided[value]

    def _whole(self, value: Value) -> Iterable[Value]:
        """The whole numbers and truth values that one is computed of, as far as a decision."""
        eqn = self._eqn(value)
        if is_float(_dtype(value)) or (eqn is not None and eqn.primitive.name in PLACES | SORTS):
            return ()
        return self._operands(value)

    def _cone(self, value: Value) -> Cone:
        """What it is made of that is another number each time it is made; what that is made of does not matter."""
        if value not in self.cones:
            found: dict[Eqn, set[Value]] = {}
            for each in _reached([value], lambda each: () if self._varies(each) else self._operands(each)):
                eqn = self._eqn(each) if isinstance(each.what, Node) else None
                if eqn is not None and self._varies(each):
                    for made in _made_by(each.what, eqn):
                        found.setdefault(made, set()).add(each)
                elif eqn is not None and self._is_held(each):
                    found.setdefault(eqn, set()).add(Value(-1, eqn.outvars[0], each.stored))
            self.cones[value] = {eqn: frozenset(places) for eqn, places in found.items()}
        return self.cones[value]

    def _eqn(self, value: Value) -> Eqn | None:
        """What makes a value; None of what is an operand of the program, or nothing that an equation makes."""
        if isinstance(value.what, Compute | Reduce | Swept):
            kernel = self.steps[value.step]
            return kernel.eqn(value.what) if isinstance(kernel, Kernel) else None
        made = self._maker(value)
        return made if made is not None and not isinstance(made, Kernel) else None

    def _maker(self, value: Value) -> Step | None:
        if isinstance(value.what, Node) or value.what not in self.makers:
            return None
        return self.steps[self.makers[value.what]]

    def _moves(self, value: Value) -> Iterable[Value] | None:
        """What a value is moved from or chosen of; None of what is computed anew."""
        if isinstance(value.what, Node):
            kernel = self.steps[value.step]
            assert isinstance(kernel, Kernel)
            if isinstance(value.what, Load):
                return (self._of_var(kernel.read[value.what.buffer]),)
            moved = _moved(kernel, value.what)
            return None if moved is None else self._within(value, moved)
        made = self._maker(value)
        if isinstance(made, Kernel):
            step = self.makers[value.what]
            return [Value(step, node, _is_narrow(node.dtype)) for node in made.stored[value.what]]
        moved_vars = None if made is None else _moved_by(made)
        return None if moved_vars is None else map(self._of_var, moved_vars)

    def _within(self, value: Value, nodes: Iterable[Node]) -> list[Value]:
        """Nodes of the same kernel, with the digits that memory has if the value has those."""
        as_stored = value.stored or _rounds(value.what)
        return [Value(value.step, node, as_stored and _is_narrow(node.dtype)) for node in nodes]

    def _operands(self, value: Value) -> Iterable[Value]:
        """All that a value is computed of."""
        moved = self._moves(value)
        if moved is not None:
            return moved
        if isinstance(value.what, Node):
            return [Value(value.step, node) for node in operands_of(value.what)]
        made = self._maker(value)
        return () if made is None or isinstance(made, Kernel) else map(self._of_var, variables(made.invars))

    def _varies(self, value: Value) -> bool:
        """Whether it is another number each time that it is made of the same numbers."""
        if self._moves(value) is not None or not is_float(_dtype(value)):
            return False
        if isinstance(value.what, Reduce | Swept):
            return value.what.eqn.primitive.name in SUMS
        return not isinstance(value.what, Node) and self._maker(value) is not None

    def _is_held(self, value: Value) -> bool:
        """Whether a kernel holds it with more digits than memory does."""
        return isinstance(value.what, Compute) and _is_narrow(value.what.dtype) and self._moves(value) is None


def _made_by(what: object, eqn: Eqn) -> Iterable[Eqn]:
    """Of a sum of several sums the equation that adds those, and one of theirs: others may add them one by one."""
    return dict.fromkeys((eqn, what.eqn)) if isinstance(what, Reduce) and what.total is not None else (eqn,)


def _reached(starts: Iterable[Found], after: Callable[[Found], Iterable[Found]]) -> Iterator[Found]:
    """All that values lead to, they themselves first; each once."""
    stack = list(starts)
    seen = set(stack)
    while stack:
        value = stack.pop()
        yield value
        for each in after(value):
            if each not in seen:
                seen.add(each)
                stack.append(each)


def _moved(kernel: Kernel, node: Node) -> Iterable[Node] | None:
    """The nodes of which a node is one, at some place; None of what is computed anew."""
    match node:
        case Choose():
            return node.then, node.other
        case Lookup() | Take():
            return (node.source,)
        case Carried():
            return kernel.loops[node]
        case Final():
            loop = node.recurrence
            return loop.starts[node.position], loop.nexts[node.position]
        case Keep():
            return node.operands
        case Kept():
            return (node.keep,)
        case Compute(eqn=eqn):
            return _chosen(eqn, node.operands)
        case Reduce(eqn=eqn) | Swept(eqn=eqn):
            is_one = eqn.primitive.name == "reduce_sum" and node.dtype.kind == "u"  # all bits but those of one are zero
            return node.operands if is_one or eqn.primitive.name in EXTREMES else None
    return None


def _chosen(eqn: Eqn, operands: Sequence[Node]) -> Sequence[Node] | None:
    name = eqn.primitive.name
    if name == "select_n":
        return operands[1:]
    if name == "convert_element_type":
        same = all(is_float(each.dtype) for each in operands) == is_float(eqn.outvars[0].aval.dtype)
        return operands if same else None
    return operands if name in EXACT else None


def _moved_by(eqn: Eqn) -> Sequence[Var] | None:
    """The same of an equation that XLA keeps, or that is nothing but another name."""
    name = eqn.primitive.name
    if eqn.primitive in (boundary_p, chunked_p, flagged_p, flag_p) or name in SORTS or name in EXACT - {"select_n"}:
        return variables(eqn.invars)
    if name == "select_n":
        return variables(eqn.invars[1:])
    if name in dynamic.TABLE:
        return variables(eqn.invars[:1])
    if name == "convert_element_type" and not isinstance(eqn.invars[0], Literal):
        same = is_float(eqn.invars[0].aval.dtype) == is_float(eqn.outvars[0].aval.dtype)
        return variables(eqn.invars) if same else None
    return variables(eqn.invars) if isinstance(TABLE.get(name), Indexing) else None


def _dtype(value: Value) -> object:
    return value.what.dtype if isinstance(value.what, Node) else value.what.aval.dtype


def _is_narrow(dtype: np.dtype) -> bool:
    return is_float(dtype) and working_dtype(dtype) != dtype


def _rounds(what: Node | Var) -> bool:
    return isinstance(what, Compute) and what.eqn.primitive is rounded_p


def _are_apart(one: Place, other: Place) -> bool:
    """Whether two places are never the same."""
    return any(_never_equal(first, second) for first, second in zip(one, other))


def _never_equal(one: Index, other: Index) -> bool:
    terms = (*one.terms, *other.terms)
    step = gcd(*(factor for _, factor in terms)) if all(isinstance(atom, Axis) for atom, _ in terms) else 1
    if (one.const - other.const) % step if step else one.const != other.const:
        return True
    return one.bounds[1] < other.bounds[0] or other.bounds[1] < one.bounds[0]
