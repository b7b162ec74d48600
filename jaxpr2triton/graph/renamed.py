"""Values that are the same along two axes of lanes are computed along one of them.

z[k] = f(h[k], x[k])        a sum over k needs z along k, a store needs it along row
z[row] = f(h[row], x[row])      →    z[row] = f(h[row], x[row]);  z[k] is z[row], named otherwise
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from jaxpr2triton.graph.nodes import (
    Choose,
    Compute,
    Element,
    Graph,
    Keep,
    Kept,
    Load,
    Node,
    Position,
    Product,
    Reduce,
    Store,
    Swept,
    Take,
    axes_in,
    operands_of,
    with_operands,
)
from jaxpr2triton.graph.simplify import only_wanted
from jaxpr2triton.ir.dataflow import postorder
from jaxpr2triton.ir.index import Axis, Condition, Index, of_axis, substitute

FORMS = (Load, Kept, Position, Compute, Choose, Product, Element, Reduce, Swept)  # that are the same along other axes


def share_renamed(graph: Graph, groups: Sequence[frozenset[Axis]], computed: bool = True) -> Graph:
    """The graph without what is read, or also what is computed, again along another axis of the same group."""
    if not groups:
        return graph
    return _Sharing(groups, computed).run(graph)


def keep_lanes(graph: Graph, streamed: frozenset[Axis]) -> Graph:
    """Tiles are kept along the lanes that they have, not along an axis that is walked through block by block.

    for k_start in range(0, 128, 32):
        k = k_start + tl.arange(0, 32)
        element = tl.sum(tl.where(row[None, :] == k[:, None], c[None, :], 0), axis=1)
        tl.store(kept_ptr + k, element)                              →      tl.store(kept_ptr + row, c)
    """
    standing: dict[Node, Node] = {}
    for node in graph.nodes:
        node_now = with_operands(node, standing)
        standing[node] = _along_its_lanes(node_now, streamed) if isinstance(node_now, Keep) else node_now
    stores = tuple(Store(s.output, s.place, standing[s.value]) for s in graph.stores)
    computed = {key: standing[node] for key, node in graph.computed.items()}
    return Graph(tuple(standing[node] for node in graph.nodes), stores, computed)


def _along_its_lanes(keep: Keep, streamed: frozenset[Axis]) -> Keep:
    for axis in streamed.intersection(keep.over):
        if (lane := _lane_of_all(keep, axis, streamed)) is not None:
            keep = _written_along(keep, axis, lane)
    return keep


def _lane_of_all(keep: Keep, axis: Axis, streamed: frozenset[Axis]) -> Axis | None:
    """The lanes of which all that is written along an axis takes the elements one by one; None if it is not so."""
    operands = [each for each in keep.operands if isinstance(each, Take) and each.index == of_axis(axis)]
    lanes = {each.axis for each in operands if each.axis in each.source.axes}
    if len(operands) < len(keep.operands) or len(lanes) != 1:
        return None
    (lane,) = lanes
    taken = {*streamed, *(used for place in keep.places for used in axes_in(place, ()))}
    depend = any(axis in each.source.axes for each in operands)  # on more than which element is taken
    return None if lane in taken or lane.size != axis.size or depend else lane


def _written_along(keep: Keep, axis: Axis, lane: Axis) -> Keep:
    """The tiles that elements were taken of, written at once."""
    moved = {axis: of_axis(lane)}
    places = tuple(tuple(substitute(index, moved) for index in place) for place in keep.places)
    over = tuple(lane if each == axis else each for each in keep.over)
    tiles = tuple(each.source for each in keep.operands if isinstance(each, Take))
    return replace(keep, operands=tiles, places=places, over=over)


class _Sharing:
    def __init__(self, groups: Sequence[frozenset[Axis]], computed: bool) -> None:
        self.computed = computed
        self.group_of = {axis: group for group in groups for axis in group}
        self.standing: dict[Node, Node] = {}  # node of the old graph → of the new one
        self.plain: dict[Node, tuple[Node, Axis, Axis]] = {}  # a renamed value → the value, its axis, the new axis
        self.first: dict[Hashable, tuple[Node, Axis]] = {}
        self.forms: dict[tuple[Node, Axis], int] = {}
        self.numbers: dict[Hashable, int] = {}
        self.order: list[Node] = []

    def run(self, graph: Graph) -> Graph:
        for node in graph.nodes:
            self.standing[node] = self._shared(with_operands(node, self.standing))
        stores = tuple(Store(s.output, s.place, self.standing[s.value]) for s in graph.stores)
        computed = {key: self.standing[node] for key, node in graph.computed.items()}
        return only_wanted(self.order, stores, computed)

    def _shared(self, node: Node) -> Node:
        """The node, or the same value along another axis under a new name."""
        axis = self._only_lane(node)
        key = None if axis is None else self._key(node, axis)
        if axis is None or key is None:
            return self._add(node)
        if isinstance(node, Take):
            self.plain[node] = (node.source, node.axis, axis)
            return self._add(node)
        if key not in self.first:
            added = self._add(node)
            self.first[key] = (added, axis)
            return added
        known, usual = self.first[key]
        if usual is axis:
            return known if known.axes == node.axes else self._add(node)
        axes = (known.axes - {usual}) | {axis}
        renamed = Take(node.number, axes, node.dtype, known, usual, of_axis(axis))
        self.plain[renamed] = (known, usual, axis)
        return self._add(renamed)

    def _add(self, node: Node) -> Node:
        numbered = replace(node, number=len(self.order)) if node.number != len(self.order) else node
        if node in self.plain:
            self.plain[numbered] = self.plain[node]
        self.order.append(numbered)
        return numbered

    def _only_lane(self, node: Node) -> Axis | None:
        """The one axis with a group that the value has."""
        lanes = [axis for axis in node.axes if axis in self.group_of]
        is_shared = not isinstance(node, Keep) if self.computed else isinstance(node, Load)
        return lanes[0] if len(lanes) == 1 and is_shared else None

    def _key(self, node: Node, axis: Axis) -> Hashable:
        """Equal for values that are the same but for the axis; None where that is not known."""
        group = self.group_of[axis]
        if isinstance(node, Take):
            renames = node.index == of_axis(axis) and self.group_of.get(node.axis) is group and node.axis is not axis
            return ("take", node.source) if renames and node.axis in node.source.axes else None
        if isinstance(node, Reduce | Swept) and axis in node.over:
            return None
        return group, node.axes - {axis}, self._form(node, axis)

    def _form(self, node: Node, axis: Axis) -> int:
        """A number for what a value is, but for the name of an axis."""
        for each in postorder([(node, axis)], self._parts, self.forms):
            self.forms[each] = self._number_of(*each)
        return self.forms[node, axis]

    def _parts(self, form: tuple[Node, Axis]) -> list[tuple[Node, Axis]]:
        """The forms that one is made of; none of what nothing else is the same as."""
        node, axis = form
        if node in self.plain and self.plain[node][2] is axis:
            return [self.plain[node][:2]]
        is_known = axis in node.axes and isinstance(node, FORMS)
        return [(operand, axis) for operand in operands_of(node)] if is_known else []

    def _number_of(self, node: Node, axis: Axis) -> int:
        parts = tuple(self.forms[part] for part in self._parts((node, axis)))
        if node in self.plain and self.plain[node][2] is axis:
            return parts[0]
        head = self._head(node, axis) if axis in node.axes else None
        if head is None:
            return self.numbers.setdefault(node, len(self.numbers))
        return self.numbers.setdefault((*head, node.axes - {axis}, *parts), len(self.numbers))

    def _head(self, node: Node, axis: Axis) -> tuple[Hashable, ...] | None:
        match node:
            case Load():
                return "load", node.buffer, self._blank(node.place, axis), self._guard(node.guard, axis)
            case Kept():
                return "kept", node.keep, self._blank(node.place, axis), self._guard(node.guard, axis)
            case Position():
                return "position", node.dtype, *self._blank((node.index,), axis)
            case Compute():
                return "compute", id(node.eqn)
            case Choose():
                return "choose", self._guard(node.conditions, axis)
            case Product() | Element():
                return type(node).__name__, node.dtype
            case Reduce():
                return "reduce", id(node.eqn), node.over
            case Swept():
                return "sweep", id(node.eqn), node.over
        return None

    def _blank(self, place: Sequence[Index], axis: Axis) -> tuple[Index, ...]:
        stand_in: Mapping[Axis, Index] = {axis: of_axis(min(self.group_of[axis], key=lambda a: a.name))}
        return tuple(substitute(index, stand_in) for index in place)

    def _guard(self, guard: Sequence[Condition], axis: Axis) -> tuple[Hashable, ...]:
        return tuple((*self._blank((c.index,), axis), c.low, c.high) for c in guard)
