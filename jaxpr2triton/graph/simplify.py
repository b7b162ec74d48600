"""A graph without what constants, bounds and equal values make needless.

    above = 0 >= 1;  x = where(above, a, 0.0)        →    x = 0.0
    i = rem(n, 8) of n in 0 … 99;  x[clamp(i, 0, 7)] →    x[i]
    hit = choose(0 <= k - 1 < 5, True, False);  where(hit, a, 0)   →   choose(0 <= k - 1 < 5, a, 0)
    choose(0 <= k < 5, load x[k] if 0 <= k < 5, 0)   →    load x[k] if 0 <= k < 5
    a = sin(x);  b = sin(x), of another equation     →    a
    while going: … where(going, new, old)            →    while going: … new
    choose(k == 0, a, choose(k == 1, a, b))          →    choose(0 <= k < 2, a, b)
    choose(k == 0, sin(c[0]), sin(c[k - 1]))         →    sin(choose(k == 0, c[0], c[k - 1])), if c is carried
    choose(k == 0, c[0], b[k - 1])                   →    choose(k == 0, c[k], b[k - 1])
    choose(k < 5, a, 0) + choose(k >= 5, b, 0)       →    choose(k < 5, a, b)
    while False: … x = f(x)                          →    x

Such constants and bounds appear when axes are unrolled and indices are known: for a jaxpr they are elements of arrays.
What is left is computed by the same operations as before, on the same operands. Nothing is done about what loops
carry, but where they never run, which Triton 3.6 may break down over. (Elsewhere: constant folding, value numbering.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeGuard, cast

import numpy as np

from jaxpr2triton.graph.bounds import Ranges
from jaxpr2triton.graph.guards import either, elsewhere, implies, range_of, without_factor, without_implied
from jaxpr2triton.graph.neutral import left_alone
from jaxpr2triton.graph.nodes import (
    Accumulated,
    Carried,
    Choose,
    Compute,
    Constant,
    Element,
    Final,
    Graph,
    Kept,
    Load,
    Lookup,
    Node,
    One,
    Position,
    Product,
    Recurrence,
    Reduce,
    Store,
    Swept,
    Take,
    changed,
    operands_of,
    with_operands,
)
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import is_bool, is_float
from jaxpr2triton.ir.index import (
    Axis,
    Condition,
    Dynamic,
    Guard,
    Index,
    Quotient,
    add,
    computed_in,
    conjoin,
    constant,
    divide,
    modulo,
    of_axis,
    scale,
)
from jaxpr2triton.ir.jaxprs import Eqn
from jaxpr2triton.rules.rows import ADDED

Scalar = np.generic | bool | int

ROUNDS = 4  # each sees what the last one has found; a graph of the gallery takes two at most

# On scalars of 32 and 64 bits these are exact, or rounded once as on every machine.
_FOLDED: Mapping[str, Callable[..., Scalar]] = {
    **{"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt},
    **{"ge": operator.ge, "add": operator.add, "add_any": operator.add, "sub": operator.sub, "mul": operator.mul},
    **{"and": operator.and_, "or": operator.or_, "xor": operator.xor, "neg": operator.neg, "not": np.invert},
    **{"max": np.maximum, "min": np.minimum, "convert_element_type": lambda x: x},
    "square": lambda x: x * x,
    "div": operator.truediv,  # of floats
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}
_COMPARED = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def simplify(graph: Graph, lanes: Set[Axis] | None = None) -> Graph:
    """The graph that computes the same stores with no more nodes; a simple one is left as it is.

    Along `lanes` are the axes of tiles. In the steps of a loop that goes on by one number, this number is True; where
    each lane goes on by itself, a step may be another lane's.
    """
    for _ in range(ROUNDS):
        simpler = _Simplifying(graph, lanes).run()
        if _is_alike(simpler, graph):
            return graph
        graph = simpler
    return graph


def _is_alike(one: Graph, other: Graph) -> bool:
    """Whether graphs are the same, whatever their nodes are called."""
    if (one.nodes, one.stores) == (other.nodes, other.stores):
        return True
    return len(one.nodes) == len(other.nodes) and _form(one) == _form(other)


def _form(graph: Graph) -> list[Hashable]:
    """What a graph looks like, whatever its nodes are called."""
    numbers = {node: number for number, node in enumerate(graph.nodes)}
    kinds = [(type(n).__name__, tuple(numbers.get(o, -1) for o in operands_of(n)), _indices(n)) for n in graph.nodes]
    return [*kinds, *(numbers[store.value] for store in graph.stores)]


def _indices(node: Node) -> tuple[Hashable, ...]:
    return tuple(getattr(node, name, None) for name in ("place", "guard", "index", "conditions"))


def only_wanted(
    nodes: Sequence[Node], stores: Sequence[Store], computed: Mapping[Hashable, Node], idle: Set[Node] = frozenset()
) -> Graph:
    """The graph of what the stores and their places are made of, and of whatever belongs to a loop that is not idle.

    A number that no place has any more is no number of the graph.
    """
    places = [store.place for store in stores]
    places += [place for node in nodes for place in getattr(node, "places", ())]
    in_places = [computed[number.key] for place in places for index in place for number in computed_in(index)]
    targets = [*(store.value for store in stores), *in_places]
    used = _used([node for node in nodes if node not in idle], targets)
    numbers = {key: node for key, node in computed.items() if node in used}
    return Graph(tuple(node for node in nodes if node in used), tuple(stores), numbers)


def _used(nodes: Sequence[Node], targets: Sequence[Node]) -> set[Node]:
    """What the targets are made of, and whatever belongs to a loop."""
    of_loops = (node for node in nodes if isinstance(node, (Carried, Final, Recurrence)))
    return set(reachable([*targets, *of_loops], operands_of))


class _Simplifying:
    def __init__(self, graph: Graph, lanes: Set[Axis] | None) -> None:
        self.graph = graph
        loops = [] if lanes is None else [loop for loop in graph.of_kind(Recurrence) if loop.conditional]
        self.asked = {loop.carried[0] for loop in loops if not loop.carried[0].axes & (lanes or set())}
        self.true: set[Node] = set()  # what is known to hold where it is read
        self.standing: dict[Node, Node] = {}  # node of the old graph → of the new one
        self.equal: dict[Hashable, Node] = {}
        self.order: list[Node] = []
        self.given = frozenset(graph.nodes)
        self.ranges = Ranges()

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.standing[node] = self._simpler(self._with_places(with_operands(node, self.standing)))
            if node in self.asked:
                self.true.add(self.standing[node])
        stores = tuple(Store(s.output, s.place, self.standing[s.value]) for s in self.graph.stores)
        computed = {key: self.standing[node] for key, node in self.graph.computed.items()}
        idle = {part for loop in self.order if _never_runs(loop) for part in (loop, *loop.carried)}
        return only_wanted(self.order, stores, computed, idle)

    # -- one node ---------------------------------------------------------------------------------------------

    def _simpler(self, node: Node) -> Node:
        """The node, a simpler one of the same value, or an equal one that is there already."""
        match node:
            case Compute():
                return self._computed(node)
            case Choose():
                return self._chosen(node)
            case Position() if not node.index.terms:
                return self._constant(node.index.const, node.dtype)
            case Product():
                return self._multiplied(node)
            case Reduce():
                return self._reduced(node)
            case Final(recurrence=loop) if _never_runs(loop):
                return loop.starts[node.position]
        return self._shared(node)

    def _multiplied(self, node: Product) -> Node:
        """One term of a contraction, of which a factor may be a one."""
        values = [operand.value for operand in node.operands if isinstance(operand, Constant)]
        if len(values) == 2 and np.dtype(node.dtype).itemsize >= 4:
            with np.errstate(all="ignore"):
                return self._constant(np.multiply(*(np.asarray(v, node.dtype)[()] for v in values)), node.dtype)
        for factor, rest in (node.operands, node.operands[::-1]):
            if isinstance(factor, Constant) and factor.value == 1 and rest.dtype == node.dtype:
                return rest
        return self._shared(node)

    def _reduced(self, node: Reduce) -> Node:
        """A sum without the terms that are zero; as for XLA, x + 0.0 is x."""
        pairs = list(zip(node.operands, node.positions))
        if node.eqn.primitive.name in ADDED:
            pairs = [pair for pair in pairs if not (isinstance(pair[0], Constant) and pair[0].value == 0)] or pairs[:1]
            if len(pairs) == 1 and not node.over and pairs[0][0].dtype == node.dtype:
                return pairs[0][0]
        operands, positions = (tuple(each) for each in zip(*pairs))
        return self._shared(_with(node, operands=operands, positions=positions))

    def _computed(self, node: Compute) -> Node:
        if self.true.intersection(node.operands):
            operands = tuple(self._constant(True, each.dtype) if each in self.true else each for each in node.operands)
            node = replace(node, operands=operands)
        name, operands = node.eqn.primitive.name, node.operands
        if name == "select_n":
            return self._selected(node)
        value = _folded(node)
        if value is None and name in _COMPARED:
            value = self._decided(name, operands)
        if value is not None:
            return self._constant(value, node.dtype)
        if name in ("add", "add_any") and (sides := _two_sides(*operands)) is not None:
            return self._chosen(sides)
        return left_alone(node.eqn, operands) or self._shared(node)

    def _selected(self, node: Compute) -> Node:
        """A choice whose predicate is known, or is known by an index."""
        predicate, *cases = node.operands
        if isinstance(predicate, Constant):
            return cases[int(predicate.value)]
        if all(case is cases[0] for case in cases):
            return cases[0]
        if len(cases) == 2 and is_bool(predicate.dtype):
            otherwise, then = cases
            if is_truth(then, True) and is_truth(otherwise, False):
                return predicate
            if isinstance(predicate, Choose) and is_truth(predicate.then, True) and is_truth(predicate.other, False):
                choice = Choose(0, node.axes, node.dtype, predicate.conditions, then, otherwise, predicate.needs)
                return self._chosen(choice)
        return self._shared(node)

    def _decided(self, name: str, operands: Sequence[Node]) -> bool | None:
        """What a comparison gives for all values that the operands can have."""
        one, other = (self.ranges.of(operand) for operand in operands)
        compare = _COMPARED[name]
        if one is None or other is None:
            return None
        if operands[0] is operands[1]:
            return bool(compare(0, 0))
        results = {compare(x, y) for x in one for y in other}
        return results.pop() if len(results) == 1 else None

    def _chosen(self, node: Choose) -> Node:
        conditions = conjoin((), node.conditions)
        if conditions is None:
            return node.other
        conditions = without_implied(tuple(map(without_factor, conditions)))
        then, other = self._under(node.then, conditions), node.other
        if not conditions or then is other:
            return then
        then, other = self._own_lane(then, conditions), self._own_lane(other, elsewhere(conditions))
        if isinstance(other, Choose) and set(conjoin((), other.conditions) or ()) == set(conditions):
            other = other.other
        if isinstance(other, Choose) and other.then is then and (both := either(conditions, other.conditions)):
            return self._chosen(replace(node, conditions=both, other=other.other))
        if isinstance(then, Load) and _is_zero(other) and implies(then.guard, conditions):
            return then  # what lies outside is loaded as a zero
        if (pairs := _of_one_tile(then, other)) is not None:
            chosen = [x if x is y else self._chosen(replace(node, dtype=x.dtype, then=x, other=y)) for x, y in pairs]
            assert isinstance(then, Compute)
            return self._computed(replace(then, operands=tuple(chosen)))
        needs = self._needs([condition.index for condition in conditions])
        return self._shared(_with(node, conditions=conditions, then=then, other=other, needs=needs))

    def _under(self, node: Node, conditions: Guard) -> Node:
        """The value where these conditions hold."""
        while isinstance(node, Choose) and implies(conditions, node.conditions):
            node = node.then
        return node

    def _own_lane(self, node: Node, conditions: Guard) -> Node:
        """The value where these conditions hold: what is read of the only lane for which they do is that lane's own."""
        while isinstance(node, Take) and Condition(of_axis(node.axis), *range_of(node.index)) in conditions:
            node = node.source
        return node

    def _shared(self, node: Node) -> Node:
        key = _key(node)
        if key is not None and key in self.equal:
            return self.equal[key]
        number = self.order[-1].number + 1 if self.order else 0  # they are in order, and some may be missing
        numbered = node if node in self.given and node.number >= number else changed(node, number=number)
        self.order.append(numbered)
        if key is not None:
            self.equal[key] = numbered
        return numbered

    def _constant(self, value: Scalar, dtype: np.dtype) -> Node:
        return self._shared(Constant(0, frozenset(), dtype, cast(np.generic, np.asarray(value).astype(dtype)[()])))

    # -- places -----------------------------------------------------------------------------------------------

    def _with_places(self, node: Node) -> Node:
        """The node with what is known of the numbers in its indices."""
        match node:
            case Load() | Kept():
                place, guard = tuple(map(self._index, node.place)), self._guard(node.guard)
                if guard is None or (place, guard) == (node.place, node.guard):
                    return node
                needs = self._needs([*place, *(condition.index for condition in guard)])
                return replace(node, place=place, guard=guard, needs=needs)
            case Accumulated():
                return self._met(node)
            case Position():
                index = self._index(node.index)
                if index == node.index:
                    return node
                return replace(node, index=index, needs=self._needs([index]))
            case Take():
                index = self._index(node.index)
                return _with(node, index=index, needs=self._needs([index]))
            case Lookup():
                at = tuple((axis, self._index(index)) for axis, index in node.at)
                return _with(node, at=at, needs=self._needs([index for _, index in at]))
            case Choose():
                conditions = tuple(Condition(self._index(c.index), c.low, c.high) for c in node.conditions)
                return _with(node, conditions=conditions)
        return node

    def _met(self, node: Accumulated) -> Node:
        places = tuple(tuple(map(self._index, place)) for place in node.places)
        guards = tuple(tuple(Condition(self._index(c.index), c.low, c.high) for c in each) for each in node.guards)
        conditions = (condition.index for guard in guards for condition in guard)
        needs = self._needs([*(index for place in places for index in place), *conditions])
        return _with(node, places=places, guards=guards, needs=needs)

    def _guard(self, guard: Guard) -> Guard | None:
        if not any(True for condition in guard for _ in computed_in(condition.index)):
            return guard
        return conjoin((), [Condition(self._index(c.index), c.low, c.high) for c in guard])

    def _needs(self, indices: Sequence[Index]) -> tuple[Node, ...]:
        found = {number.key: self._number(number) for index in indices for number in computed_in(index)}
        return tuple(dict.fromkeys(found.values()))

    def _number(self, number: Dynamic) -> Node:
        return self.standing[self.graph.computed[number.key]]

    def _index(self, index: Index) -> Index:
        if not any(True for _ in computed_in(index)):
            return index
        parts = [constant(index.const)]
        for atom, factor in index.terms:
            match atom:
                case Axis():
                    part = of_axis(atom)
                case Dynamic():
                    part = self._known(atom)
                case Quotient():
                    part = divide(self._index(atom.of), atom.by)
                case _:
                    part = modulo(self._index(atom.of), atom.by)
            parts.append(scale(part, factor))
        return add(*parts)

    def _known(self, number: Dynamic) -> Index:
        """A computed number as an index: a constant, the place that it is, or within narrower bounds."""
        node, bounds = self._number(number), self.ranges.of(self._number(number))
        if bounds is None or (number.signed and not number.clamped and bounds[1] > np.iinfo(number.signed).max):
            return Index(0, ((number, 1),))  # the last of those without a sign are negative then
        low, high = bounds
        inside = number.low <= low and high <= number.high
        if low == high:
            return constant(min(max(low, number.low), number.high) if number.clamped else low)
        if isinstance(node, Position) and node.index.bounds == bounds and (inside or not number.clamped):
            return node.index
        if number.clamped and not inside:
            return Index(0, ((number, 1),))
        narrower = replace(number, low=max(low, number.low), high=min(high, number.high), clamped=False)
        return Index(0, ((narrower, 1),))


def _with(node: One, **parts: object) -> One:
    """The node with these parts; itself, if it has them."""
    is_same = all(getattr(node, name) == value for name, value in parts.items())
    return node if is_same else replace(node, **parts)  # type: ignore[arg-type]  # their names are those of nodes


def _of_one_tile(one: Node, other: Node) -> list[tuple[Node, Node]] | None:
    """The operands of what is computed alike of two elements of one tile, in pairs that are the same but for these."""
    if not isinstance(one, Compute) or not isinstance(other, Compute) or one.eqn is not other.eqn:
        return None
    pairs = list(zip(one.operands, other.operands))
    apart = [(_tile_of(x), _tile_of(y)) for x, y in pairs if x is not y]
    return pairs if len(apart) == 1 and apart[0][0] is apart[0][1] is not None else None


def _tile_of(node: Node) -> Node | None:
    """What an element is read of, if it is a carried tile."""
    while isinstance(node, Take | Choose):
        node = node.source if isinstance(node, Take) else node.then
    return node if isinstance(node, Carried) else None


def _folded(node: Compute) -> Scalar | None:
    """The value of a computation on nothing but constants, where every machine computes the same."""
    name, dtypes = node.eqn.primitive.name, {node.dtype, *(o.dtype for o in node.operands)}
    if not any(map(is_float, dtypes)):
        name = name.removesuffix("_to")  # of integers any order is the total one
    compute = _FOLDED.get(name)
    values = [operand.value for operand in node.operands if isinstance(operand, Constant)]
    narrow = any(np.dtype(dtype).itemsize < 4 and not is_bool(dtype) for dtype in dtypes)
    if name == "div" and not is_float(node.dtype):
        return None
    if compute is None or narrow or len(values) < len(node.operands):
        return None
    if name == "convert_element_type" and any(map(is_float, dtypes)) and not _is_small(node.operands[0]):
        return None
    with np.errstate(all="ignore"):
        return compute(*(np.asarray(value, o.dtype)[()] for value, o in zip(values, node.operands)))


def _is_small(node: Node) -> bool:
    """Whether a constant is an integer that every type of float has."""
    return isinstance(node, Constant) and not is_float(node.dtype) and abs(int(node.value)) <= 2**24


def _never_runs(node: Node) -> TypeGuard[Recurrence]:
    return isinstance(node, Recurrence) and node.conditional and is_truth(node.starts[0], False)


def is_truth(node: Node, value: bool) -> bool:
    """Whether a node is the constant True, or False."""
    return isinstance(node, Constant) and is_bool(node.dtype) and bool(node.value) is value


def _is_zero(node: Node) -> bool:
    return isinstance(node, Constant) and not node.value and not np.signbit(np.float64(node.value))


def _two_sides(one: Node, other: Node) -> Choose | None:
    """The sum of what is there on one side of a place and of what is on the other, as a choice; x + 0.0 is x."""
    if not isinstance(one, Choose) or not isinstance(other, Choose):
        return None
    sides = [(each, conjoin((), each.conditions) or ()) for each in (one, other) if _is_zero(each.other)]
    if [len(conditions) for _, conditions in sides] != [1, 1]:
        return None
    (first, (before,)), (second, (after,)) = sorted(sides, key=lambda side: side[1][0].low)
    low, high = before.index.bounds
    if before.index != after.index or before.low > low or before.high != after.low or after.high <= high:
        return None
    return replace(first, other=second.then)


def _key(node: Node) -> Hashable:
    """Equal for nodes of equal values; None where that is not known."""
    match node:
        case Constant():
            return "constant", node.dtype, np.asarray(node.value).tobytes()
        case Load():
            return "load", node.buffer, node.place, node.guard
        case Kept():
            return "kept", node.keep, node.place, node.guard
        case Position():
            return "position", node.dtype, node.index
        case Compute():
            return "compute", equation_key(node.eqn), node.dtype, node.operands
        case Choose():
            return "choose", node.conditions, node.then, node.other
        case Product():
            return "product", node.dtype, node.operands
        case Element():
            return "element", node.operands
        case Reduce():
            return "reduce", equation_key(node.eqn), node.dtype, node.operands, node.over, node.positions
        case Swept():
            return "sweep", equation_key(node.eqn), node.dtype, node.operands, node.over
        case Take():
            return "take", node.source, node.axis, node.index
        case Lookup():
            return "look up", node.source, node.at
    return None


def equation_key(eqn: Eqn) -> Hashable:
    """Equal for equations that compute the same of the same operands."""
    name = {"add_any": "add", "dot_general": "reduce_sum"}.get(eqn.primitive.name, eqn.primitive.name)
    if name in ("add", "reduce_sum"):
        return name
    try:
        key = name, tuple(sorted(eqn.params.items()))
        hash(key)
    except TypeError:  # a parameter that cannot be compared is equal to nothing
        return id(eqn)
    return key
