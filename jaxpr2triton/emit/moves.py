"""Writes tiles that are read at other places of their own lanes.

    lanes = tl.maximum(row - 1, 0)
    moved = tl.gather(state, tl.where(row == 0, 49, lanes), axis=0)

Lanes of several warps meet for that in shared memory. So what reads one tile at several places does so at once: the
tile is written there once, and there is one barrier, not one for each of them.

    places = tl.reshape(tl.join(row * 64 + lanes[None, :], lanes_2[:, None] * 64 + col), (8192,))
    found = tl.split(tl.reshape(tl.gather(tl.reshape(state, (4096,)), places, axis=0), (64, 64, 2)))
    moved = found[0]
    moved_2 = found[1]

So is what reads several tiles that are pieces of one value: these lie side by side there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.spans import Spans
from jaxpr2triton.emit.text import Tile, conjunction, suffix
from jaxpr2triton.graph.moved import Either, Lanes, Moved, along, moved_in
from jaxpr2triton.graph.nodes import Carried, Choose, Compute, Graph, Node, Take
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.index import Axis, of_axis
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import Plan, power_of_two
from jaxpr2triton.rules.base import in_parentheses


class Moves(Spans):
    """The statements of what is nothing but lanes of one tile."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        super().__init__(plan, graph, buffers)
        found = moved_in(graph, self._is_whole)
        self.moved = {node: moved for node, moved in found.items() if plan.num_warps > 1 or len(moved.axes) == 1}
        self._readers: defaultdict[Hashable, list[Node]] = defaultdict(list)
        for node in self.moved:
            self._readers[self._whole_of(node)].append(node)

    def _whole_of(self, node: Node) -> Hashable:
        """Equal for what reads pieces of one value, of which no piece is made of another one."""
        source, tile = self.moved[node].source, self.spell.tile(node.axes)
        match source:
            case Carried():
                return "carried", source.step, source.dtype, tile
            case Compute():
                return id(source.eqn), tile
        return source

    def _is_whole(self, axis: Axis) -> bool:
        """Whether a tile has all of an axis as lanes."""
        planned = self.spell.planned[axis]
        return planned.role is Role.LANE and planned.is_tile and planned.block >= axis.size

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
        else:
            super()._take(node, scope)

    def _choose(self, node: Choose, scope: Scope) -> None:
        if node in self.moved:
            self._read_lanes(node, scope)
        else:
            super()._choose(node, scope)

    def _tiles_beside(self, node: Node, scope: Scope) -> list[Node]:
        """What is in shared memory together with the tile that a value is read of."""
        return [self.moved[each].source for each in self._read_with(node, scope)]

    def _read_with(self, node: Node, scope: Scope) -> list[Node]:
        """What is read at once with a value: of the same tile, or of others beside it."""
        several = self._readers[self._whole_of(node)] if self.plan.num_warps > 1 else [node]
        return [each for each in several if self._is_beside(each, node, scope)]

    def _read_lanes(self, node: Node, scope: Scope) -> None:
        together = self._read_with(node, scope)
        tile = self.spell.tile(node.axes)
        threads = self.plan.policy.target.warp_size * self.plan.num_warps
        of_a_thread = -(-math.prod(self.spell.planned[axis].block for axis in tile) // threads)
        most = max(self.plan.policy.cost.kept_by_a_thread // of_a_thread, 1)
        while together:
            count = 1 << (min(len(together), most).bit_length() - 1)
            several, together = together[:count], together[count:]
            if count == 1 and len(self.moved[several[0]].axes) == 1:
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
        value, shape = self._tile_of(moved, scope, tile), self.spell.shape(tile)
        index = self._lane(along(moved.lanes, axis), axis, tile, scope)
        index = f"tl.broadcast_to({index}, {shape})" if len(tile) > 1 else index
        text = f"tl.gather({value}, {index}, axis={tile.index(axis)})"
        self._assign(node, scope, f"{text} != 0" if is_bool(node.dtype) else text, "moved")

    def _at_once(self, nodes: Sequence[Node], scope: Scope, tile: Tile) -> None:
        sizes = [self.spell.planned[axis].block for axis in tile]
        size, count = math.prod(sizes), len(nodes)
        shape = self.spell.shape(tile)
        read = {self.moved[node].source: self._tile_of(self.moved[node], scope, tile) for node in nodes}
        pieces = dict(zip(read, _places_of_joined(len(read))))
        texts = []
        for node in nodes:
            place = self._flat(self.moved[node].lanes, tile, scope)
            if len(pieces) > 1:
                place = _add(f"({place}) * {power_of_two(len(pieces))}", pieces[self.moved[node].source])
            texts.append(f"tl.broadcast_to({place}, {shape})")
        pairs = [2] * (count.bit_length() - 1)
        places = self.names.new("places", scope.depth)
        scope.lines.append(f"{places} = tl.reshape({_joined(texts)}, ({size * count},))")
        whole = f"tl.reshape({_joined([*read.values()])}, ({size * power_of_two(len(read))},))"
        text = f"tl.gather({whole}, {places}, axis=0)"
        self._part(nodes, f"tl.reshape({text}, ({', '.join(map(str, [*sizes, *pairs]))},))", scope)

    def _part(self, nodes: Sequence[Node], text: str, scope: Scope) -> None:
        """What several are together, taken apart."""
        if len(nodes) == 1:
            self._assign(nodes[0], scope, f"{text} != 0" if is_bool(nodes[0].dtype) else text, "moved")
            return
        found = self.names.new("found", scope.depth)
        scope.lines.append(f"{found} = tl.split({text})")
        half = len(nodes) // 2
        self._part(nodes[:half], f"{found}[0]", scope)
        self._part(nodes[half:], f"{found}[1]", scope)

    def _tile_of(self, moved: Moved, scope: Scope, tile: Tile) -> str:
        text = self._whole(moved.source, scope, tile, moved.source.dtype)
        return f"{in_parentheses(text)}.to(tl.int32)" if is_bool(moved.source.dtype) else text

    def _flat(self, lanes: Lanes, tile: Tile, scope: Scope) -> str:
        """Where the lanes lie that are read, of all of a tile."""
        sizes = [self.spell.planned[axis].block for axis in tile]
        parts = [in_parentheses(self._lane(along(lanes, axis), axis, tile, scope)) for axis in tile]
        times = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
        return " + ".join(part if n == 1 else f"{part} * {n}" for part, n in zip(parts, times))

    def _lane(self, lanes: Lanes, axis: Axis, tile: Tile, scope: Scope) -> str:
        """Which lane is read, along an axis."""
        if isinstance(lanes, Either):
            sides = [side for c in lanes.conditions for side in self.masks.condition(c, tile, scope)]
            then, other = (self._lane(side, axis, tile, scope) for side in (lanes.then, lanes.other))
            return f"tl.where({conjunction(sides)}, {then}, {other})"
        planned, place = self.spell.planned[axis], dict(lanes.at).get(axis, of_axis(axis))
        if not place.terms:
            return str(place.const)
        if place != of_axis(axis):
            return self._lanes(place, planned.block - 1, tile, scope)
        if planned.role is Role.LANE:
            return self.spell.index(place, tile)
        return f"tl.arange(0, {planned.block}){suffix((axis,), tile)}"


def _joined(texts: Sequence[str]) -> str:
    """Tiles as one, of twice as many dimensions of two each time; the last one again where there are too few."""
    left = [*texts, *[texts[-1]] * (power_of_two(len(texts)) - len(texts))]
    while len(left) > 1:
        left = [f"tl.join({one}, {other})" for one, other in zip(left[::2], left[1::2])]
    return left[0]


def _places_of_joined(count: int) -> list[int]:
    """Where each of so many tiles is among the elements that lie at one lane: the first pairs are the outermost."""
    bits = power_of_two(count).bit_length() - 1
    return [sum((n >> bit & 1) << (bits - 1 - bit) for bit in range(bits)) for n in range(count)]


def _add(text: str, number: int) -> str:
    return f"{text} + {number}" if number else text
