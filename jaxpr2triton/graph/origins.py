"""Where the values of a partitioned program come from, through its kernels and what lies between them.

    m = region[k0] x        m is moved from a `reduce_max` in k0, and that from the sum that it was chosen of: its
    e = region[k1] m x      origin, of which another copy is made in k1

`graph/compared.py` asks this, and says what has to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from jaxpr2triton.graph import dynamic
from jaxpr2triton.graph.nodes import (
    Accumulated,
    Carried,
    Choose,
    Compute,
    Element,
    Final,
    Graph,
    Keep,
    Kept,
    Load,
    Lookup,
    Node,
    Recurrence,
    Reduce,
    Swept,
    Take,
    operands_of,
)
from jaxpr2triton.ir.dataflow import postorder, reachable
from jaxpr2triton.ir.dtypes import is_float, working_dtype
from jaxpr2triton.ir.evaluate import variables
from jaxpr2triton.ir.jaxprs import Atom, Eqn, Literal, Var
from jaxpr2triton.ir.region import boundary_p, chunked_p, flag_p, flagged_p
from jaxpr2triton.ir.rounded import CHOICES, SUDDEN
from jaxpr2triton.ir.scanned import Combination
from jaxpr2triton.rules.indexing import Indexing
from jaxpr2triton.rules.reductions import Outcome
from jaxpr2triton.rules.rows import TABLE, names_of

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "eq_to", "le_to", "lt_to"))
PLACES = names_of(Outcome.PLACE)  # decisions whose results say where something is
SORTS = frozenset(("sort", "top_k"))  # of which some results say where, and the others are moved
EXTREMES = names_of(Outcome.SELECTION)
EXACT = CHOICES | EXTREMES | {"rounded", "bitcast_convert_type", "optimization_barrier", "scatter"}
LOOK_UP = frozenset(("gather", "dynamic_slice"))
SUMS = names_of(Outcome.ARITHMETIC) | {"dot_general", "accumulate"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kernel of a program: its graph, and which values of the program its buffers and outputs are.

    Kernels of one form share a graph; `own` are the equations of this one, by the ids of those in the graph.
    """

    graph: Graph
    read: Sequence[Atom]
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

    def eqn(self, node: Compute | Reduce | Swept | Accumulated) -> Eqn:
        """The equation whose result a node is."""
        made_by = node.made_by if isinstance(node, Reduce) else node.eqn
        return self.own.get(id(made_by), made_by)


Step = Kernel | Eqn


class Value(NamedTuple):
    """A node of a kernel, or a variable of the program; whether it is as it lies in memory."""

    step: int
    what: Node | Var
    stored: bool = False


Made = tuple[Eqn, Value]
Cone = Mapping[Eqn, frozenset[Value]]  # values, by what makes them


class Origins:
    """What is known of the values of a program; its kernels and other equations stand in any order."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self._makers: dict[Var, int] = {}
        for number, step in enumerate(steps):
            self._makers.update(dict.fromkeys(step.written if isinstance(step, Kernel) else step.outvars, number))
        self._cones: dict[Value, Cone] = {}
        self._origins: dict[Value, Cone] = {}
        self._decided: dict[Value, Cone] = {}

    def of_var(self, var: Var) -> Value:
        return Value(-1, var, True)

    def origins(self, value: Value) -> Cone:
        """The values that this one was chosen of, by what makes them."""

        def own(each: Value) -> Iterable[Made]:
            eqn = self.eqn(each) if isinstance(each.what, Node) else None
            return ((eqn, each),) if eqn is not None and self._moves(each) is None else ()

        return _gathered(value, self._origins, lambda each: self._moves(each) or (), own)

    def below_extremes(self, value: Value) -> Iterator[Value]:
        """What the extremes were chosen of that a value was moved from; of whole numbers no gradient asks again."""
        for each in reachable([value], lambda each: self._moves(each) or ()):
            eqn = self.eqn(each)
            is_extreme = eqn is not None and eqn.primitive.name in EXTREMES and is_float(_dtype(each))
            if is_extreme or (eqn is not None and eqn.primitive.name in SORTS):
                for places in self.origins(each).values():
                    yield from places

    def decided(self, value: Value) -> Cone:
        """The values whose comparison has led to this number."""

        def own(each: Value) -> Iterable[Made]:
            eqn = self.eqn(each)
            if eqn is not None and (eqn.primitive.name in COMPARISONS or chooses(eqn)):
                for operand in self._operands(each):
                    yield from ((made, place) for made, places in self.origins(operand).items() for place in places)

        return _gathered(value, self._decided, self._whole, own)

    def _whole(self, value: Value) -> Iterable[Value]:
        """The whole numbers and truth values that one is computed of, as far as a decision."""
        eqn = self.eqn(value)
        if is_float(_dtype(value)) or (eqn is not None and chooses(eqn)):
            return ()
        return self._operands(value)

    def cone(self, value: Value) -> Cone:
        """What it is made of that is another number each time it is made; what that is made of does not matter."""

        def own(each: Value) -> Iterable[Made]:
            eqn = self.eqn(each) if isinstance(each.what, Node) else None
            if eqn is not None and self._varies(each):
                yield from ((made, each) for made in made_by(each.what, eqn))
            elif eqn is not None and self._is_held(each):
                yield eqn, Value(-1, eqn.outvars[0], each.stored)

        return _gathered(value, self._cones, lambda each: () if self._varies(each) else self._operands(each), own)

    def eqn(self, value: Value) -> Eqn | None:
        """What makes a value; None of what is an operand of the program, or nothing that an equation makes."""
        if isinstance(value.what, Compute | Reduce | Swept | Accumulated):
            kernel = self.steps[value.step]
            return kernel.eqn(value.what) if isinstance(kernel, Kernel) else None
        made = self._maker(value)
        return made if made is not None and not isinstance(made, Kernel) else None

    def _maker(self, value: Value) -> Step | None:
        if isinstance(value.what, Node) or value.what not in self._makers:
            return None
        return self.steps[self._makers[value.what]]

    def _moves(self, value: Value) -> Iterable[Value] | None:
        """What a value is moved from or chosen of; None of what is computed anew."""
        if isinstance(value.what, Node):
            kernel = self.steps[value.step]
            assert isinstance(kernel, Kernel)
            if isinstance(value.what, Load):
                return map(self.of_var, variables([kernel.read[value.what.buffer]]))
            found = moved(kernel, value.what)
            return None if found is None else self._within(value, found)
        made = self._maker(value)
        if isinstance(made, Kernel):
            step = self._makers[value.what]
            return [Value(step, node, is_narrow(node.dtype)) for node in made.stored[value.what]]
        moved_vars = None if made is None else moved_by(made)
        return None if moved_vars is None else map(self.of_var, moved_vars)

    def _within(self, value: Value, nodes: Iterable[Node]) -> list[Value]:
        """Nodes of the same kernel, with the digits that memory has if the value has those."""
        as_stored = value.stored or _rounds(value.what)
        return [Value(value.step, node, as_stored and is_narrow(node.dtype)) for node in nodes]

    def _operands(self, value: Value) -> Iterable[Value]:
        """All that a value is computed of."""
        moves = self._moves(value)
        if moves is not None:
            return moves
        if isinstance(value.what, Node):
            return [Value(value.step, node) for node in operands_of(value.what)]
        made = self._maker(value)
        return () if made is None or isinstance(made, Kernel) else map(self.of_var, variables(made.invars))

    def _varies(self, value: Value) -> bool:
        """Whether it is another number each time that it is made of the same numbers."""
        if self._moves(value) is not None or not is_float(_dtype(value)):
            return False
        if isinstance(value.what, Reduce) and not value.what.over and len(value.what.operands) == 1:
            return False  # a product of matrices that sums nothing
        if isinstance(value.what, Reduce | Swept | Accumulated):
            return value.what.eqn.primitive.name in SUMS
        return not isinstance(value.what, Node) and self._maker(value) is not None

    def _is_held(self, value: Value) -> bool:
        """Whether a kernel holds it with more digits than memory does."""
        return isinstance(value.what, Compute) and is_narrow(value.what.dtype) and self._moves(value) is None


def made_by(what: object, eqn: Eqn) -> Iterable[Eqn]:
    """Of a sum of several sums the equation that adds those, and one of theirs: others may add them one by one."""
    return dict.fromkeys((eqn, what.eqn)) if isinstance(what, Reduce) and what.total is not None else (eqn,)


def _gathered(
    value: Value,
    known: dict[Value, Cone],
    after: Callable[[Value], Iterable[Value]],
    own: Callable[[Value], Iterable[Made]],
) -> Cone:
    """What all values have of their own that one leads to; found once for each. What loops carry leads to itself."""
    for each in postorder([value], lambda each: () if isinstance(each.what, Carried) else after(each), known):
        if isinstance(each.what, Carried):
            found: list[Cone] = []
            rest = [made for other in reachable([each], after) for made in own(other)]
        else:
            found, rest = [known[other] for other in after(each) if known[other]], list(own(each))
        known[each] = found[0] if len(found) == 1 and not rest else _joined(found, rest)
    return known[value]


def _joined(cones: Iterable[Cone], more: Iterable[Made]) -> Cone:
    found: dict[Eqn, set[Value]] = {}
    for cone in cones:
        for eqn, values in cone.items():
            found.setdefault(eqn, set()).update(values)
    for eqn, value in more:
        found.setdefault(eqn, set()).add(value)
    return {eqn: frozenset(values) for eqn, values in found.items()}


def moved(kernel: Kernel, node: Node) -> Iterable[Node] | None:
    """The nodes of which a node is one, at some place; None of what is computed anew."""
    match node:
        case Choose():
            return node.then, node.other
        case Lookup() | Take():
            return (node.source,)
        case Carried():
            return kernel.loops.get(node)  # None where nobody reads how its loop ends
        case Final():
            loop = node.recurrence
            return loop.starts[node.position], loop.nexts[node.position]
        case Accumulated():
            return None if node.op == "add" else (*node.operands, node.begun)
        case Keep() | Element():
            return node.operands
        case Kept():
            return (node.keep,)
        case Compute(eqn=eqn):
            return _chosen(eqn, node.operands)
        case Reduce(eqn=eqn) | Swept(eqn=eqn):
            is_one = eqn.primitive.name == "reduce_sum" and node.dtype.kind == "u"  # of which all others are zero
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


def chooses(eqn: Eqn) -> bool:
    """Whether elements are compared with each other, so that a result may say where one is."""
    combine: Combination | None = eqn.params.get("combine")
    compares = combine is not None and not COMPARISONS.isdisjoint(combine.primitives)
    return compares or eqn.primitive.name in PLACES | SORTS


def moved_by(eqn: Eqn) -> Sequence[Var] | None:
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


def is_narrow(dtype: np.dtype) -> bool:
    return is_float(dtype) and working_dtype(dtype) != dtype


def _rounds(what: Node | Var) -> bool:
    return isinstance(what, Compute) and what.eqn.primitive.name in SUDDEN
