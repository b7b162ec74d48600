"""The iteration space of a set of outputs: their axes, and which of them one program has to hold whole.

The outputs of a kernel share the axes of the `lead`, the output with the most dimensions. An axis is `inner` when some
reduction's result is wanted for all of it at once (softmax wants the sum of a row for every element of that row): then
one program walks the whole axis. Every other axis may be spread over the grid.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jaxpr2triton import policy
from jaxpr2triton.graph.beside import is_beside, summed_beside
from jaxpr2triton.graph.by_class import ByClass
from jaxpr2triton.graph.chooser import Number
from jaxpr2triton.graph.classes import Classes, chunk_and_row, counted_in
from jaxpr2triton.graph.nodes import (
    Carried,
    Collected,
    Constant,
    Exchange,
    Final,
    Graph,
    Load,
    Lookup,
    Node,
    Place,
    Position,
    Recurrence,
    Reduce,
    Swept,
    Take,
    axes_in,
    operands_of,
)
from jaxpr2triton.graph.sides import is_contraction
from jaxpr2triton.graph.sound import met_along
from jaxpr2triton.graph.walk import walk
from jaxpr2triton.ir.dataflow import affected, forward, sources
from jaxpr2triton.ir.index import ZERO, Axis, Index, add, computed_in, of_axis, scale
from jaxpr2triton.ir.jaxprs import Eqn, Jaxpr, Var
from jaxpr2triton.ir.once import makers_of
from jaxpr2triton.ir.region import chunked_p
from jaxpr2triton.ir.scans import scans_in


@dataclass(frozen=True)
class Space:
    outputs: tuple[Var, ...]  # variables
    axes: tuple[Axis, ...]  # of the lead output, without those of size 1
    places: tuple[Place, ...]  # of each output, in terms of `axes`
    graph: Graph
    chosen: Mapping[Number, tuple[Axis, ...]]  # number of a reduction or a loop → its axes
    inner: frozenset[Axis]
    beside: frozenset[Node] = frozenset()  # sums that every program makes beside its part of a contraction

    @property
    def parallel(self) -> int:
        return math.prod(axis.size for axis in self.axes if axis not in self.inner)

    @property
    def held(self) -> int:
        return math.prod(axis.size for axis in self.axes if axis in self.inner)

    def wanted_whole(self, node: Reduce | Swept | Recurrence) -> frozenset[Axis]:
        """The root axes for all of which the one result of a reduction, or of a loop, is wanted."""
        return frozenset(self.axes) - parallel_axes(node)

    @cached_property
    def computes(self) -> frozenset[int]:
        """The equations that a kernel of this space computes, by their ids."""
        return frozenset(id(eqn) for node in self.graph.nodes if (eqn := getattr(node, "eqn", None)) is not None)

    @cached_property
    def loops(self) -> frozenset[int]:
        """The equations of the loops among them."""
        return frozenset(id(node.eqn) for node in self.graph.of_kind(Recurrence))

    @cached_property
    def buffers(self) -> tuple[int, ...]:
        """The numbers of the buffers that are read, each once."""
        return tuple(dict.fromkeys(node.buffer for node in self.graph.of_kind(Load)))

    @cached_property
    def steps(self) -> frozenset[Axis]:
        """The axes that count the steps of loops."""
        return frozenset(node.step for node in self.graph.of_kind(Recurrence))

    @cached_property
    def swept_axes(self) -> frozenset[Axis]:
        """The axes that are combined one by one."""
        return frozenset(node.axis for node in self.graph.of_kind(Swept))

    @cached_property
    def axes_met(self) -> frozenset[frozenset[Axis]]:
        """The axes of every value that a kernel computes; one that is taken from others is there already."""
        return frozenset(node.axes for node in self.graph.nodes if not isinstance(node, Take))

    @cached_property
    def axes_looked_up(self) -> frozenset[Axis]:
        """The axes along which a place is computed."""
        looks = [index for node in self.graph.of_kind((Take, Lookup)) for _, index in node.at]
        places = looks + [each.index for each in self.graph.conditions()]
        found = frozenset(axis for index in places if any(computed_in(index)) for axis in index.axes)
        return found | self.axes_read_anywhere

    @cached_property
    def axes_read_anywhere(self) -> frozenset[Axis]:
        """The axes along which lanes are read at computed places."""
        looks = [look for node in self.graph.of_kind((Take, Lookup)) for look in node.at]
        return frozenset(axis for axis, index in looks if any(computed_in(index)))

    @cached_property
    def held_axes(self) -> frozenset[Axis]:
        """The axes that a loop holds whole."""
        return frozenset().union(*(node.held for node in self.graph.of_kind(Recurrence)))


@dataclass(frozen=True)
class Layout:
    """An output as its kernel sees it: one dimension may be two, chunks and the rows within a chunk."""

    sizes: tuple[int, ...]
    kinds: tuple[Hashable, ...]  # the classes of its dimensions
    dim: int | None = None  # which one is two

    def place(self, indices: Sequence[Index]) -> Place:
        """Where the array has the element at these indices of the dimensions that the kernel sees."""
        if self.dim is None:
            return tuple(indices)
        chunk, row = indices[self.dim : self.dim + 2]
        whole = add(scale(chunk, self.sizes[self.dim + 1]), row)
        return (*indices[: self.dim], whole, *indices[self.dim + 2 :])


def layout_of(atom: Var, classes: Classes, eqn: Eqn | None = None) -> Layout:
    """The layout of an output that `eqn` has made, if that is known."""
    shape, kinds = tuple(atom.aval.shape), classes.of(atom)
    if eqn is None or eqn.primitive is not chunked_p:
        return Layout(shape, kinds)
    dim, size = eqn.params["dim"], eqn.params["size"]
    both = tuple(map(classes.find, chunk_and_row(atom)))
    seen = (-(-shape[dim] // size), size)
    return Layout((*shape[:dim], *seen, *shape[dim + 1 :]), (*kinds[:dim], *both, *kinds[dim + 1 :]), dim)


def lead_of(shapes: Sequence[tuple[int, ...]]) -> int:
    """The output whose dimensions the kernel's axes are."""
    return max(range(len(shapes)), key=lambda n: (sum(s != 1 for s in shapes[n]), math.prod(shapes[n]), -n))


def match_dims(lead: Layout, other: Layout, times: frozenset[Hashable] = frozenset()) -> dict[int, int]:
    """For each dimension of `other` (not of size 1) the dimension of `lead` that it is, where there is one.

    Sizes must agree, in order; among the ways to do that, one in which the classes agree as well is taken, and a way in
    which a class says that two dimensions are different ones is refused. `times` are the classes that count steps;
    a dimension that counts steps is never one that does not.
    """
    lead_dims = [d for d, size in enumerate(lead.sizes) if size != 1]
    matched: dict[int, int] = {}
    position = 0
    for d, (size, kind) in enumerate(zip(other.sizes, other.kinds)):
        rest = [e for e in lead_dims[position:] if lead.sizes[e] == size]
        same_class = [e for e in rest if lead.kinds[e] == kind]
        if kind in lead.kinds and not same_class:
            continue
        alike = [e for e in rest if (lead.kinds[e] in times) == (kind in times)]
        found = next(iter(same_class or alike), None)
        if size != 1 and found is not None:
            matched[d] = found
            position = lead_dims.index(found) + 1
    large = [d for d, size in enumerate(other.sizes) if size != 1]
    return _by_class(lead, other, large) or matched if len(matched) < len(large) < len(lead_dims) else matched


def _by_class(lead: Layout, other: Layout, dims: Sequence[int]) -> dict[int, int]:
    """The dimensions of `lead` that these are, in any order, if that is known of all of them."""
    places = {kind: e for e, (size, kind) in enumerate(zip(lead.sizes, lead.kinds)) if size != 1}
    found = {d: places[other.kinds[d]] for d in dims if other.kinds[d] in places}
    alike = len({*found.values()}) == len(dims) and all(lead.sizes[e] == other.sizes[d] for d, e in found.items())
    return found if alike else {}


def space_of(
    jaxpr: Jaxpr,
    outputs: Sequence[Var],
    classes: Classes,
    loaded: Mapping[Var, int] | None = None,
    may_repeat: bool = True,
    union: bool = False,
) -> Space | None:
    """The space that these output variables share; None when their dimensions do not fit together.

    With `union` they always do: a dimension that the lead has not becomes one more axis, which every program walks.
    """
    dims = _Dimensions(jaxpr, outputs, classes)
    places = []
    for atom in outputs:
        if (place := dims.place_of(atom, union)) is None:
            return None
        places.append(place)
    chosen: dict[Number, tuple[Axis, ...]] = {}
    choose = ByClass(classes, dims.by_kind, [], chosen)
    graph = walk(jaxpr, list(zip(outputs, places)), choose, loaded=loaded, may_repeat=may_repeat)
    axes = tuple(axis for axis in dims.axes if axis.size != 1)
    beside = summed_beside(graph, frozenset(axes))
    apart = _summed_by_each(graph, frozenset(axes)) | beside
    collected = [node for node in graph.of_kind((Collected, Recurrence)) if node not in apart]
    of_places = _of_places_alone(graph)
    shared = shared_axes(graph)
    others = (node for node in collected if node not in of_places)
    held = (frozenset(axes) - parallel_axes(node) - (shared - met_along(node)) for node in others)
    inner = set().union(*held, *(frozenset(axes).intersection(node.over) for node in of_places))
    told = _told_by_each(graph, frozenset(axes))
    alone = [store for store in graph.stores if not is_beside(store, beside) and store.value not in told]
    inner |= set().union(*(frozenset(axes) - shared - frozenset(axes_in(store.place, ())) for store in alone))
    return Space(tuple(outputs), axes, tuple(places), graph, chosen, frozenset(inner), beside)


def shared_axes(graph: Graph) -> frozenset[Axis]:
    """The axes along which programs show each other what they have: what does not vary along them, all of them have."""
    return frozenset().union(*(node.shared for node in graph.of_kind(Exchange)))


class _Dimensions:
    """The axes of a set of outputs: those of the lead, and more where another one has dimensions of its own."""

    def __init__(self, jaxpr: Jaxpr, outputs: Sequence[Var], classes: Classes) -> None:
        makers, scans = makers_of(jaxpr), scans_in(jaxpr)
        made = {atom: jaxpr.eqns[makers[atom]] for atom in outputs if atom in makers}
        self.layouts = {atom: layout_of(atom, classes, made.get(atom)) for atom in outputs}
        self.lead = outputs[lead_of([self.layouts[atom].sizes for atom in outputs])]
        layout = self.layouts[self.lead]
        self.axes = tuple(Axis(f"d{d}", size) for d, size in enumerate(layout.sizes))
        large = ((kind, axis) for kind, axis in zip(layout.kinds, self.axes) if axis.size != 1)
        self.by_kind: dict[Hashable, Axis] = dict(large)
        self.times = frozenset(map(classes.find, counted_in(jaxpr)))
        self.backwards = {result: scan.reverse for scan in scans for _, result in scan.ys}
        # whether a loop writes along an axis from its end
        self.counted = {self.axes[0]: self.backwards[self.lead]} if self.lead in self.backwards else {}

    def place_of(self, atom: Var, union: bool) -> Place | None:
        """Where an output is stored; None if it has a dimension of its own, and there are to be none."""
        layout = self.layouts[atom]
        if atom is self.lead:
            matched = {d: d for d in range(len(layout.sizes))}
        else:
            matched = match_dims(self.layouts[self.lead], layout, self.times)
        own = {d: self.axes[e] for d, e in matched.items()}
        other_way = 0 in own and self._counts_the_other_way(atom, own[0])
        if other_way:
            del own[0]  # loops in opposite directions have no steps in common
        for d, size in enumerate(layout.sizes):
            if size != 1 and d not in own:
                if not union:
                    return None
                kind = (layout.kinds[d], "the other way") if other_way and d == 0 else layout.kinds[d]
                own[d] = self._another(kind, size, own.values())
        return layout.place([of_axis(own[d]) if d in own else ZERO for d in range(len(layout.sizes))])

    def _counts_the_other_way(self, atom: Var, axis: Axis) -> bool:
        if atom not in self.backwards:
            return False
        return self.counted.setdefault(axis, self.backwards[atom]) != self.backwards[atom]

    def _another(self, kind: Hashable, size: int, taken: Collection[Axis]) -> Axis:
        """An axis for a dimension that the lead has not: that of its kind, or a new one."""
        found = self.by_kind.get(kind)
        if found is None or found in taken or found.size != size:
            found = Axis(f"d{len(self.axes)}", size)
            self.axes = (*self.axes, found)
            self.by_kind.setdefault(kind, found)
        return found


def parallel_axes(node: Collected | Recurrence) -> frozenset[Axis]:
    """The axes along which each element of the result has a computation of its own."""
    match node:
        case Recurrence():
            return node.axes - node.held
        case Swept():
            return node.axes - {node.axis}
        case Exchange():
            return node.axes | node.shared
        case _:
            return node.axes


def _of_places_alone(graph: Graph) -> frozenset[Reduce | Swept]:
    """What is little, and combines what is known without reading anything: each program does so for itself.

    order = where(i == 0, first, i);  last = sum(where(i == 3, order, 0))     i: iota
    """
    if not any(True for _ in graph.of_kind(Position)):
        return frozenset()
    known = forward(
        graph.nodes,
        operands_of,
        lambda node, below: all(below) if below else isinstance(node, Constant | Position),
    )
    of_places = (node for node in graph.of_kind((Reduce, Swept)) if known[node])
    return frozenset(node for node in of_places if _is_little(node))


def _is_little(node: Reduce | Swept) -> bool:
    return size_of(node.axes.union(node.over)) <= policy.COMMON.tile


def size_of(axes: Iterable[Axis]) -> int:
    return math.prod(axis.size for axis in axes)


def _summed_by_each(graph: Graph, axes: frozenset[Axis]) -> frozenset[Node]:
    """What is little, and combined by every program for itself beside a loop, so that none runs all lanes.

    last = max(n);  x = repeat (λ go t x. ...) last go 0 x   →   each program has the maximum of all n, and some x
    first = cumsum(m)[2];  x = repeat (…) first …            →   each has the running sums of all m, and some x
    large[t] = prod(max(a[t], 1)), in each step t            →   each has the product for all lanes, and some lanes

    Little is also what has no more elements than each lane has of what is swept along.
    """
    lanes = frozenset().union(*(parallel_axes(loop) for loop in graph.of_kind(Recurrence)))
    if not lanes & axes:
        return frozenset()
    late = sources(graph.nodes, operands_of, graph.of_kind((Carried, Final)))
    steps = frozenset(loop.step for loop in graph.of_kind(Recurrence))
    a_lane = max((size_of(node.axes - (lanes - steps)) for node in graph.of_kind(Swept)), default=0)
    found = set[Node]()
    for node in graph.of_kind((Reduce, Swept)):
        every = node.axes.union(node.over)
        if not late[node] and not every & (axes - steps) and (_is_little(node) or size_of(every) <= a_lane):
            found.add(node)
    return frozenset(found)


def _told_by_each(graph: Graph, axes: frozenset[Axis]) -> frozenset[Node]:
    """What every program finds out for itself beside the lanes that it has of a loop: the first one stores it.

    n, y = while n < m[0]: n + 1, f y     →   each program counts, and has some y

    Not what is carried for as many steps as some lanes want: other programs have other lanes.
    """
    loops = list(graph.of_kind(Recurrence))
    if not loops:
        return frozenset()
    made_of: dict[Node, Sequence[Node]] = {node: operands_of(node) for node in graph.nodes}
    for loop in loops:
        going = loop.carried[:1] if loop.conditional else ()
        made_of |= {leaf: ends for leaf, *ends in zip(loop.carried, loop.starts, loop.nexts)}
        made_of |= {end: (end.recurrence.carried[end.position], *going) for end in _ends(graph, loop)}
    flags = [loop.carried[0] for loop in loops if loop.conditional]
    differing = affected(graph.nodes, made_of.__getitem__, (flag for flag in flags if flag.axes & axes))
    return frozenset(node for node in graph.nodes if not node.axes & axes and node not in differing)


def _ends(graph: Graph, loop: Recurrence) -> Iterator[Final]:
    return (node for node in graph.of_kind(Final) if node.recurrence is loop)


def spread_axes(space: Space) -> frozenset[Axis]:
    """The axes that only reductions run along whose results no other one reads: programs can share them out."""
    fed = feeds_a_reduction(space.graph)
    kept = {axis for node in fed for axis in node.over} | {node.axis for node in space.graph.of_kind(Swept)}
    last = (node for node in space.graph.of_kind(Reduce) if node not in fed)
    return frozenset(axis for node in last for axis in node.over if axis not in kept)


def feeds_a_reduction(graph: Graph) -> frozenset[Reduce]:
    """The reductions whose results another reduction reads, directly or not."""
    last = sources(graph.nodes, operands_of, graph.of_kind(Reduce), nearest=True)
    # of a sweep one program walks for all of it what is reduced for each element
    read = (last[operand] for node in graph.of_kind((Reduce, Swept)) for operand in operands_of(node))
    return frozenset[Reduce]().union(*read)


def multiplied_in(graph: Graph, steps: Iterable[Axis]) -> frozenset[Node]:
    """The contractions that steps make."""
    made = (node for node in graph.of_kind(Reduce) if is_contraction(node))
    return frozenset(node for node in made if not node.axes.isdisjoint(steps))


def crossings(graph: Graph) -> Iterator[tuple[Reduce, Reduce]]:
    """A sum of each row and one of each column, where the second is of what the first leads to.

    Whoever walks the rows one after another has to have all of a row at once, and of the sums of the columns.
    """
    above = sources(graph.nodes, operands_of, graph.of_kind(Reduce))
    for node in graph.of_kind(Reduce):
        over = frozenset(node.over)
        others = above[node] - {node}
        yield from ((r, node) for r in others if r.axes & over and not node.axes.isdisjoint(r.over))
