"""The values of a kernel's loops, as far as the time of a step goes: what each takes, and what it waits for.

    h = tanh(x + h @ u)         read h            no work: it is there
                                k: h              lanes read what other lanes have
                                sum over k        [col, k], the columns of u side by side: each thread adds up some
                                add, tanh         14 instructions, as often as a thread holds the sum
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from jaxpr2triton.graph.moved import moved_in, value_of, within
from jaxpr2triton.graph.nodes import (
    Carried,
    Choose,
    Collected,
    Compute,
    Graph,
    Keep,
    Kept,
    Load,
    Lookup,
    Node,
    Product,
    Recurrence,
    Reduce,
    Swept,
    Take,
    operands_of,
)
from jaxpr2triton.ir.dtypes import is_float
from jaxpr2triton.ir.index import Axis, flatten
from jaxpr2triton.ir.plan import power_of_two
from jaxpr2triton.plan.schedule.draft import Draft
from jaxpr2triton.rules.base import Pointwise
from jaxpr2triton.rules.rows import ADDED, TABLE

Axes = frozenset[Axis]
Shapes = Sequence[tuple[int, ...]]
WIDEST = 16  # bytes that a thread reads at once


class Kind(Enum):
    MADE = auto()  # of other values, lane by lane
    READ = auto()  # from memory, one number a lane
    SUM = auto()  # of lanes
    SWEPT = auto()  # each lane with those before it
    MOVED = auto()  # from other lanes
    LANES = auto()  # … which all are lanes of one tile
    LANES_TOO = auto()  # … that are read at once with others of it
    CHOSEN = auto()  # of two, by where it is: what stands there, if that is known where the code is written
    STORED = auto()


@dataclass(frozen=True)
class Value:
    """A value of a step; `axes` are those of the draft, without the steps of loops."""

    kind: Kind
    axes: Axes
    weight: float  # instructions for each element
    reads: tuple[int, ...] = ()  # values of the same loop before it
    over: Axes = frozenset()  # along these lanes meet, or by their places it is chosen
    order: tuple[Axis, ...] = ()  # of a sum's tile, what lies side by side first
    vector: int = 1  # neighbours that one thread has, where it has several
    added: bool = False  # whether a thread makes a long sum in several parts
    beside: bool = False  # of lanes: whether their places follow from those of another piece


@dataclass(frozen=True)
class Round:
    """What is done in a step of one loop, in order, and how often, for each step of the longest loop."""

    times: float
    values: tuple[Value, ...]


@dataclass(frozen=True)
class _Tile:
    """How the lanes of a tile lie: along the axis that comes first a thread reads `vector` neighbours at once."""

    order: tuple[Axis, ...]
    vector: int
    of_load: bool = False


def rounds_of(graph: Graph, draft: Draft, shapes: Shapes, without: frozenset[Node]) -> tuple[Round, ...]:
    """The steps of all loops, or where none has any, all there is to do."""
    return _Rounds(graph, draft, shapes, without).found()


class _Rounds:
    def __init__(self, graph: Graph, draft: Draft, shapes: Shapes, without: frozenset[Node]) -> None:
        self.graph, self.draft, self.shapes, self.without = graph, draft, shapes, without
        self.values: defaultdict[Axes, list[Value]] = defaultdict(list)
        self.places: dict[Node, int] = {}
        self.tiles: dict[Node, _Tile | None] = {}
        self.made: set[tuple[str | int, tuple[Node, ...]]] = set()
        self.steps = frozenset(draft.steps)
        self.inner, self.draft_inner = [*draft.grid, *draft.inner], frozenset(draft.inner)
        self.moved = moved_in(graph, self._is_lane, joined=True)
        self.without |= within(graph, self.moved)
        self.first_moved: dict[tuple[Hashable, Axes], Node] = {}
        self.columns: set[Load] = set()

    def found(self) -> tuple[Round, ...]:
        self.tiles |= {load: self._tile(load) for load in self.graph.of_kind(Load)}
        for sums in self.graph.of_kind(Reduce):
            over = self.along(sums.over)
            self.columns.update(load for load in _loads(sums) if self._are_columns(load, over))
        for node in self.graph.nodes:
            steps = steps_of(node, self.steps)
            self.tiles[node] = self._tile(node)
            if node not in self.without:
                self.places[node] = len(self.values[steps])
                self.values[steps].append(self._value(node, steps))
        for store in self.graph.stores:
            axes = [axis for index in store.place for axis in index.axes]
            steps = self.steps.intersection(axes)
            reads = self._reads([store.value], steps)
            self.values[steps].append(Value(Kind.STORED, self.along(axes), self.draft.policy.cost.address, reads))
        rare = {loop.step for loop in self.graph.of_kind(Recurrence) if loop.seldom}
        trips = {steps: math.prod(axis.size for axis in steps) for steps in self.values if steps.isdisjoint(rare)}
        if len(trips) > 1:  # what is done beside loops is done once
            trips.pop(frozenset(), None)
        longest = max(trips.values(), default=1)
        return tuple(Round(times / longest, tuple(self.values[steps])) for steps, times in trips.items())

    def along(self, axes: Iterable[Axis]) -> Axes:
        return frozenset(axes) - self.steps

    def _is_lane(self, axis: Axis) -> bool:
        return axis in self.draft_inner

    def _reads(self, nodes: Iterable[Node], steps: Axes) -> tuple[int, ...]:
        return tuple(self.places[each] for each in nodes if each in self.places and steps_of(each, self.steps) == steps)

    def _value(self, node: Node, steps: Axes) -> Value:
        axes, reads = self.along(node.axes), self._reads(operands_of(node), steps)
        if node in self.moved:
            moved = self.moved[node]
            first = self.first_moved.setdefault((value_of(moved.source), steps), node)  # with pieces of the same value
            kind = Kind.LANES if first is node else Kind.LANES_TOO
            reads = self._reads([moved.source if first is node else first], steps)
            beside = moved.source is not self.moved[first].source  # read with the first one, at places beside its own
            return Value(kind, axes, 1, reads, self.along(moved.axes), beside=beside)
        match node:
            case Reduce() | Swept():
                over = self.along(node.over)
                tile = self._summed(node, axes | over)
                kind = Kind.SUM if isinstance(node, Reduce) else Kind.SWEPT
                added = isinstance(node, Reduce) and node.eqn.primitive.name in ADDED and is_float(node.dtype)
                return Value(kind, axes, self._weight(node), reads, over, tile.order, tile.vector, added)
            case Take() | Lookup():
                return Value(Kind.MOVED, axes, 1, reads, self.along(axis for axis, _ in node.at))
            case Choose():
                asked = [axis for condition in node.conditions for axis in condition.index.axes]
                kind = Kind.CHOSEN if self.steps.isdisjoint(asked) else Kind.MADE
                return Value(kind, axes, self._weight(node), reads, self.along(asked))
            case Load() | Kept():
                return Value(Kind.READ, axes, self._weight(node), reads)
            case Keep():
                return Value(Kind.STORED, self.along([*node.axes, *node.over]), self._weight(node), reads)
            case _:
                return Value(Kind.MADE, axes, self._weight(node), reads)

    def _weight(self, node: Node) -> float:
        """Instructions for each element, of which a request takes some for its address."""
        if isinstance(node, Compute | Swept) or (isinstance(node, Reduce) and node.combined_by is not None):
            call = (id(node.eqn) if isinstance(node, Compute) else node.eqn.primitive.name, node.operands)
            if call in self.made:  # another of its results
                return 0
            self.made.add(call)
        match node:
            case Compute():
                row = TABLE[node.eqn.primitive.name]
                return row.weight if isinstance(row, Pointwise) else row.flops
            case Reduce():
                return node.operations
            case Swept():
                return float(TABLE[node.eqn.primitive.name].flops(node.axis.size))
            case Load() | Kept() | Keep():
                return self.draft.policy.cost.address
            case Choose():
                return 1
            case _:  # an addition takes a product along, and all others are not computed
                return 0

    def _summed(self, node: Collected, axes: Axes) -> _Tile:
        """The tile that a sum begins with: as what is read lies in memory, or in the order of its dimensions."""
        found = self._widest(node.operands, axes)
        order = found.order if found is not None else ()
        rest = [axis for axis in reversed(self.inner) if axis in axes and axis not in order]
        vector = 1 if found is None else found.vector
        if isinstance(node, Reduce) and found is not None and found.of_load and self._multiplies(node):
            over = self.along(node.over)
            if found.order[0] not in over:  # threads have whole columns
                return _Tile((*order, *rest), 1)
            if any(load not in self.columns and self._are_rows(load, over) for load in _loads(node)):
                return _Tile(tuple(sorted((*order, *rest), key=lambda axis: axis in over)), 1)
        return _Tile((*order, *rest), vector)

    def _multiplies(self, node: Reduce) -> bool:
        return all(isinstance(term, Product) for term in node.operands)

    def _are_columns(self, load: Load, over: Axes) -> bool:
        """Whether neighbours are results, so that each thread has some of them."""
        tile = self.tiles.get(load)
        return tile is not None and tile.of_load and tile.order[0] not in over

    def _are_rows(self, load: Load, over: Axes) -> bool:
        """Whether neighbours are summed, and a warp of lanes would meet if each thread had not all of some sums."""
        tile, warp = self.tiles.get(load), self.draft.policy.target.warp_size
        if tile is None or not tile.of_load or len(inner := self.draft_inner.intersection(tile.order)) != 2:
            return False
        return len(inner & over) == 1 and all(power_of_two(axis.size) >= warp for axis in inner & over)

    def _tile(self, node: Node) -> _Tile | None:
        """How the lanes of a value lie, where it has several axes of them."""
        axes = [axis for axis in self.inner if axis in self.along(node.axes)]
        if len(axes) < 2:
            return None
        if isinstance(node, Load | Kept):
            return self._as_read(node, axes)
        return self._widest([each for each in operands_of(node) if not isinstance(each, Carried)], frozenset(axes))

    def _widest(self, nodes: Iterable[Node], axes: Axes) -> _Tile | None:
        tiles = [self.tiles.get(each) for each in nodes]
        fitting = [each for each in tiles if each is not None and axes >= set(each.order)]
        return max(fitting, key=lambda tile: len(self.draft_inner.intersection(tile.order)), default=None)

    def _as_read(self, node: Load | Kept, axes: Sequence[Axis]) -> _Tile:
        shape = self.shapes[node.buffer] if isinstance(node, Load) else node.keep.shape
        place = flatten(node.place, shape)
        apart: Mapping[Axis, int] = {axis: abs(place.coefficient(axis) or 0) or 1 << 62 for axis in axes}
        order = tuple(sorted(axes, key=lambda axis: (apart[axis], -axes.index(axis))))
        others = [times for atom, times in place.terms if atom is not order[0]]
        vector = math.gcd(max(WIDEST // node.dtype.itemsize, 1), place.const, *others) if apart[order[0]] == 1 else 1
        return _Tile(order, vector, not steps_of(node, self.steps))


def _loads(node: Reduce) -> Iterator[Load]:
    """What products of a sum read as it is."""
    factors = [factor for term in node.operands if isinstance(term, Product) for factor in term.operands]
    yield from (factor for factor in factors if isinstance(factor, Load))


def steps_of(node: Node, steps: Axes) -> Axes:
    """The steps, of these, of the loops that a value is made in."""
    if isinstance(node, Recurrence):
        return frozenset((node.step,)) | (node.axes & steps)
    return steps & node.axes.union(getattr(node, "over", ()))
