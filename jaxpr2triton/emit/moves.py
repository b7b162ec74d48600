"""Writes tiles that are read at other places of their own lanes.

    lanes = tl.maximum(row - 1, 0)
    moved = tl.gather(state, tl.where(row == 0, 49, lanes), axis=0)

Lanes of several warps meet for that in shared memory. So what reads one tile at several places does so at once: the
tile is written there once, and there is one barrier, not one for each of them.

    places = tl.reshape(tl.join(row * 64 + lanes[None, :], lanes_2[:, None] * 64 + col), (8192,))
    found = tl.split(tl.reshape(tl.gather(tl.reshape(state, (4096,)), places, axis=0), (64, 64, 2)))
    moved = found[0]
    moved_2 = found[1]

So is what reads several tiles that are pieces of one value: these lie side by side there. What is read along several
axes at places of the same lanes is read so as well, whatever it has of lanes:

    c[i, j]      tl.reshape(tl.gather(tl.reshape(c, (64,)), tl.reshape(place * 8 + place_2, (16,)), axis=0), (16,))
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import partial, reduce

from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.spans import Spans
from jaxpr2triton.emit.text import Tile, beside
from jaxpr2triton.emit.turns import renames
from jaxpr2triton.emit.unaligned import nearest_of
from jaxpr2triton.graph.moved import Either, Lane, Lanes, along, moved_in, pieces_of, value_of
from jaxpr2triton.graph.nodes import Choose, Graph, Lookup, Node, Take
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.index import Axis, computed_in, of_axis
from jaxpr2triton.ir.plan import Plan, power_of_two
from jaxpr2triton.ir.tree import all_hold, as_expr, expr, scaled


class Moves(Spans):
    """The statements of what is nothing but lanes of one tile."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        super().__init__(plan, graph, buffers)
        found = moved_in(graph, self._is_whole, plan.num_warps > 1)
        self.moved = {node: moved for node, moved in found.items() if plan.num_warps > 1 or len(moved.axes) == 1}
        self._readers: defaultdict[Hashable, list[Node]] = defaultdict(list)
        for node, moved in self.moved.items():
            self._readers[value_of(moved.source)].append(node)
        if self.moved and plan.num_warps > 1:
            shapes = [[each.shape for each in of] for of in (buffers.inputs, buffers.outputs)]
            self.nearest = nearest_of(graph, self.spell, plan, *shapes)

    def _is_whole(self, axis: Axis) -> bool:
        """Whether a tile has all of an axis as lanes."""
        planned = self.spell.planned[axis]
        return planned.role.is_vectorized and planned.is_tile and planned.block >= axis.size

    def _home(self, node: Node, scope: Scope) -> Scope:
        """The outermost scope around `scope` in which the node's loops are open; but its side, if it has one."""
        home, loops = scope, self.order.loops(node)
        for outer in scope.chain():
            if loops <= outer.open_loops:
                home = outer
            if node in outer.own:
                break
        return home

    def _take(self, node: Take, scope: Scope) -> None:
        if node in self.moved:
            self._read_lanes(node, scope)
        elif self._is_long(node):
            self._find(node, scope)
        else:
            super()._take(node, scope)

    def _is_long(self, node: Take) -> bool:
        """Whether so many elements are read of so many that each would take longer to be compared with all places."""
        if not any(computed_in(node.index)) or not self._is_whole(node.axis):
            return False
        compared = node.source.axes.union(node.index.axes)
        elements = math.prod(self.spell.planned[axis].block for axis in self.spell.tile(compared))
        return node.axis not in node.axes and elements > self.plan.policy.blocks.room

    def _choose(self, node: Choose, scope: Scope) -> None:
        if node in self.moved:
            self._read_lanes(node, scope)
        else:
            super()._choose(node, scope)

    def _look_up(self, node: Lookup, scope: Scope) -> None:
        if renames(self.spell, node):
            self._named_otherwise(node, scope)
            return
        tile, whole = self.spell.tile(node.axes), self.spell.tile(node.source.axes)
        if node.moved.isdisjoint(tile) and set(tile) <= set(whole):
            self._masked(node, scope)  # one element of each row
        else:
            self._find(node, scope)

    def _find(self, node: Take | Lookup, scope: Scope) -> None:
        """What lies at computed places of a tile, whatever lanes these are of."""
        tile, whole = self.spell.tile(node.axes), self.spell.tile(node.source.axes)
        size, found = (math.prod(self.spell.planned[axis].block for axis in each) for each in (whole, tile))
        places = self._flat(Lane(node.at), whole, tile, scope)
        source, along = self._tile_of(node.source, scope, whole), [self._spread_along(index) for _, index in node.at]
        if len(tile) > 1 or not all(axis in tile for axes in along for axis in axes) or not any(along):
            places = expr("tl.reshape(tl.broadcast_to({}, {}), {})", places, self.spell.shape(tile), (found,))
        source = source if len(whole) == 1 else expr("tl.reshape({}, {})", source, (size,))
        value = expr("tl.gather({}, {}, axis=0)", source, places)
        value = value if len(tile) == 1 else expr("tl.reshape({}, {})", value, self.spell.shape(tile))
        self._assign_moved(node, scope, value, "found")

    def _tiles_beside(self, node: Node, scope: Scope) -> list[Node]:
        """What is in shared memory together with the tile that a value is read of."""
        return [piece for each in self._read_with(node, scope) for piece in self.moved[each].pieces]

    def _read_with(self, node: Node, scope: Scope) -> list[Node]:
        """What is read at once with a value: of the same tile, or of others beside it."""
        several = self._readers[value_of(self.moved[node].source)] if self.plan.num_warps > 1 else [node]
        return [each for each in several if self._is_beside(each, node, scope)]

    def _read_lanes(self, node: Node, scope: Scope) -> None:
        together = self._read_with(node, scope)
        tile = self.spell.tile(node.axes)
        threads = self.plan.policy.target.warp_size * self.plan.num_warps
        of_a_thread = -(-math.prod(self.spell.planned[axis].block for axis in tile) // threads)
        most = max(self.plan.policy.cost.read_by_a_thread // of_a_thread, 1)
        while together:
            count = 1 << (min(len(together), most).bit_length() - 1)
            several, together = together[:count], together[count:]
            moved = self.moved[several[0]]
            if count == 1 and len(moved.axes) == len(moved.pieces) == 1:
                self._along_one_axis(several[0], scope, tile)
            else:
                self._at_once(several, scope, tile)

    def _is_beside(self, node: Node, other: Node, scope: Scope) -> bool:
        """Whether a value is written where another one is."""
        if node is other:
            return True
        alike = all(of[node] == of[other] for of in (self.order.passes, self.order.used))
        return alike and scope.find(node) is None and self._home(node, scope) is scope

    def _along_one_axis(self, node: Node, scope: Scope, tile: Tile) -> None:
        moved = self.moved[node]
        (axis,) = moved.axes
        value, shape = self._tile_of(moved.source, scope, tile), self.spell.shape(tile)
        index = self._lane(along(moved.lanes, axis), axis, tile, scope)
        index = expr("tl.broadcast_to({}, {})", index, shape) if len(tile) > 1 else index
        self._assign_moved(node, scope, expr("tl.gather({}, {}, axis={})", value, index, tile.index(axis)), "moved")

    def _at_once(self, nodes: Sequence[Node], scope: Scope, tile: Tile) -> None:
        sizes = [self.spell.planned[axis].block for axis in tile]
        size, count = math.prod(sizes), len(nodes)
        shape = self.spell.shape(tile)
        sources = list(dict.fromkeys(piece for node in nodes for piece in self.moved[node].pieces))
        pieces = dict(zip(sources, _places_of_joined(len(sources))))
        flats = [self._flat_of(self.moved[node].lanes, self.moved[node].source, pieces, tile, scope) for node in nodes]
        whole_flats = [expr("tl.broadcast_to({}, {})", flat, shape) for flat in flats]
        pairs = [2] * (count.bit_length() - 1)
        places = self._named("places", expr("tl.reshape({}, {})", _joined(whole_flats), (size * count,)), scope)
        whole = _side_by_side([self._tile_of(source, scope, tile) for source in sources], len(tile))
        whole = expr("tl.reshape({}, {})", whole, (size * power_of_two(len(sources)),))
        self._part(nodes, expr("tl.reshape(tl.gather({}, {}, axis=0), {})", whole, places, (*sizes, *pairs)), scope)

    def _part(self, nodes: Sequence[Node], value: ast.expr, scope: Scope) -> None:
        """What several are together, taken apart."""
        if len(nodes) == 1:
            self._assign_moved(nodes[0], scope, value, "moved")
            return
        found = self._named("found", expr("tl.split({})", value), scope)
        half = len(nodes) // 2
        self._part(nodes[:half], expr("{}[0]", found), scope)
        self._part(nodes[half:], expr("{}[1]", found), scope)

    def _tile_of(self, source: Node, scope: Scope, tile: Tile) -> ast.expr:
        value = self._whole(source, scope, tile, source.dtype)
        return expr("{}.to(tl.int32)", value) if is_bool(source.dtype) else value

    def _flat_of(self, lanes: Lanes, first: Node, pieces: Mapping[Node, int], tile: Tile, scope: Scope) -> ast.expr:
        """Where the lanes lie that are read, of all of several tiles."""
        if len(pieces) == 1:
            return self._flat(lanes, tile, tile, scope)
        (piece, *others) = pieces_of(lanes, first)
        if isinstance(lanes, Either) and others:
            condition = self._holds(lanes, tile, scope)
            then, other = (self._flat_of(side, first, pieces, tile, scope) for side in (lanes.then, lanes.other))
            return expr("tl.where({}, {}, {})", condition, then, other)
        before = pieces[piece] * math.prod(self.spell.planned[axis].block for axis in tile)
        flat = self._flat(lanes, tile, tile, scope)
        return expr("{} + {}", flat, before) if before else flat

    def _holds(self, lanes: Either, tile: Tile, scope: Scope) -> ast.expr:
        return all_hold([side for c in lanes.conditions for side in self.masks.condition(c, tile, scope)])

    def _flat(self, lanes: Lanes, whole: Tile, tile: Tile, scope: Scope) -> ast.expr:
        """Where the lanes lie that are read, of all of a tile; for each lane of another one, or of the same."""
        sizes = [self.spell.planned[axis].block for axis in whole]
        parts = [self._lane(along(lanes, axis), axis, tile, scope) for axis in whole]
        times = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
        return reduce(partial(expr, "{} + {}"), (scaled(part, n) for part, n in zip(parts, times)))

    def _lane(self, lanes: Lanes, axis: Axis, tile: Tile, scope: Scope) -> ast.expr:
        """Which lane is read, along an axis."""
        if isinstance(lanes, Either):
            holds = self._holds(lanes, tile, scope)
            then, other = (self._lane(side, axis, tile, scope) for side in (lanes.then, lanes.other))
            return expr("tl.where({}, {}, {})", holds, then, other)
        planned, place = self.spell.planned[axis], dict(lanes.at).get(axis, of_axis(axis))
        if not place.terms:
            return as_expr(place.const)
        if place != of_axis(axis):
            return self._lanes(place, planned.block - 1, tile, scope)
        if planned.role.is_vectorized:
            return self.spell.index(place, tile)
        return beside(expr("tl.arange(0, {})", planned.block), (axis,), tile)


def _joined(tiles: Sequence[ast.expr]) -> ast.expr:
    """Tiles as one, of twice as many dimensions of two each time; the last one again where there are too few."""
    left = [*tiles, *[tiles[-1]] * (power_of_two(len(tiles)) - len(tiles))]
    while len(left) > 1:
        left = [expr("tl.join({}, {})", one, other) for one, other in zip(left[::2], left[1::2])]
    return left[0]


def _side_by_side(tiles: Sequence[ast.expr], rank: int) -> ast.expr:
    """Tiles one after the other: those at one place of several would be in one bank of shared memory."""
    pairs = power_of_two(len(tiles)).bit_length() - 1
    order = (*range(rank, rank + pairs), *range(rank))
    return expr("tl.permute({}, {})", _joined(tiles), order) if pairs else tiles[0]


def _places_of_joined(count: int) -> list[int]:
    """Which of the tiles each of so many is then: the first pairs are the outermost."""
    bits = power_of_two(count).bit_length() - 1
    return [sum((n >> bit & 1) << (bits - 1 - bit) for bit in range(bits)) for n in range(count)]
