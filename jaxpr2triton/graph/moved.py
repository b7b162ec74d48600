"""Tiles that are read at other places of their own lanes, and the lanes that each is read at, however they are chosen.

    choose(k == 0, take(c, k, 0), take(c, k, k - 1))      →    c at (0 if k == 0 else k - 1)
    take(take(c, row, row + 1), col, col - 1)             →    c at row + 1, col - 1

What is read so needs nothing but the tile itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from jaxpr2triton.graph.nodes import Carried, Choose, Compute, Graph, Node, Recurrence, Take, operands_of
from jaxpr2triton.ir.dataflow import reachable, readers_of
from jaxpr2triton.ir.index import Axis, Guard, Index, computed_in, of_axis


@dataclass(frozen=True)
class Lane:
    """Where each lane reads, along the axes where that is not its own place."""

    at: tuple[tuple[Axis, Index], ...] = ()
    piece: Node | None = None  # the tile, if it is not the first one


@dataclass(frozen=True)
class Either:
    """One place where some conditions hold, and another one elsewhere."""

    conditions: Guard
    then: Lanes
    other: Lanes


Lanes = Lane | Either


@dataclass(frozen=True)
class Moved:
    source: Node
    lanes: Lanes

    @property
    def axes(self) -> frozenset[Axis]:
        """Along which lanes are read that are not one's own."""
        return _axes(self.lanes)

    @property
    def pieces(self) -> tuple[Node, ...]:
        """The tiles that are read, the first one first."""
        return pieces_of(self.lanes, self.source)


def pieces_of(lanes: Lanes, first: Node) -> tuple[Node, ...]:
    """The tiles that lanes are of."""
    if isinstance(lanes, Either):
        return tuple(dict.fromkeys((*pieces_of(lanes.then, first), *pieces_of(lanes.other, first))))
    return (lanes.piece or first,)


def of_piece(lanes: Lanes, piece: Node) -> Lanes:
    """The same lanes, of this tile where they are of the first one."""
    if isinstance(lanes, Either):
        return Either(lanes.conditions, of_piece(lanes.then, piece), of_piece(lanes.other, piece))
    return Lane(lanes.at, piece) if lanes.piece is None else lanes


def value_of(source: Node) -> Hashable:
    """Equal for tiles that are pieces of one value, of which no piece is made of another one."""
    match source:
        case Carried():
            return "carried", source.step, source.dtype, source.axes
        case Compute():
            return id(source.eqn), source.axes
    return source


def _axes(lanes: Lanes) -> frozenset[Axis]:
    if isinstance(lanes, Lane):
        return frozenset(axis for axis, _ in lanes.at)
    return _axes(lanes.then) | _axes(lanes.other)


def shifts(lanes: Lanes, axis: Axis) -> frozenset[int | None]:
    """How far away lanes are that are read along an axis; None where that is not one number."""
    if isinstance(lanes, Either):
        return shifts(lanes.then, axis) | shifts(lanes.other, axis)
    place = dict(lanes.at).get(axis, of_axis(axis))
    return frozenset((place.const if place.terms == of_axis(axis).terms else None,))


def along(lanes: Lanes, axis: Axis) -> Lanes:
    """The same, of one axis alone."""
    if isinstance(lanes, Lane):
        return Lane(tuple(each for each in lanes.at if each[0] == axis))
    then, other = along(lanes.then, axis), along(lanes.other, axis)
    return then if then == other else Either(lanes.conditions, then, other)


def moved_in(graph: Graph, is_lane: Callable[[Axis], bool], joined: bool = False) -> dict[Node, Moved]:
    """What is made of nothing but lanes of one tile, and is read by something else; `is_lane`: of an axis held whole.

    On demand of the tiles that are pieces of one value, `joined`.
    Not an element that all lanes read, which is no tile of the same shape, nor a tile at places that are computed.
    """
    found: dict[Node, Moved] = {}
    for node in graph.nodes:
        if (moved := _moved(node, found, joined)) is not None and all(map(is_lane, moved.axes)):
            found[node] = moved
    whole = {node: moved for node, moved in found.items() if moved.axes and node.axes == moved.source.axes}
    tops = [*(store.value for store in graph.stores), *graph.of_kind(Recurrence)]
    read = set(reachable(tops, lambda node: whole[node].pieces if node in whole else operands_of(node)))
    return {node: moved for node, moved in whole.items() if node in read}


def within(graph: Graph, moved: Mapping[Node, Moved]) -> frozenset[Node]:
    """What is read for nothing but moved lanes, which need only their tile."""
    readers = readers_of(graph.nodes, operands_of)
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        inside = [reader in moved or reader in found for reader in readers.get(node, ())]
        if isinstance(node, Take | Choose) and node not in moved and inside and all(inside):
            found.add(node)
    return frozenset(found)


def _moved(node: Node, found: Mapping[Node, Moved], joined: bool) -> Moved | None:
    match node:
        case Take(source=source, axis=axis, index=index):
            before = found.get(source, Moved(source, Lane()))
            if isinstance(before.lanes, Either) or axis in before.axes or axis not in before.source.axes:
                return None
            if any(computed_in(index)) or not index.axes <= {axis}:
                return None
            return Moved(before.source, Lane((*before.lanes.at, (axis, index))))
        case Choose(conditions=conditions, then=then, other=other):
            one, two = (found.get(side, Moved(side, Lane())) for side in (then, other))
            asked = frozenset(axis for condition in conditions for axis in condition.index.axes)
            is_known = not any(any(computed_in(condition.index)) for condition in conditions)
            alike = joined and value_of(one.source) == value_of(two.source)
            if (one.source is two.source or alike) and asked <= one.source.axes and is_known:
                other_lanes = two.lanes if one.source is two.source else of_piece(two.lanes, two.source)
                return Moved(one.source, Either(conditions, one.lanes, other_lanes))
    return None
