"""Writes tiles that are read at other places of their own lanes.

    lanes = tl.maximum(row - 1, 0)
    moved = tl.gather(state, tl.where(row == 0, 49, lanes), axis=0)

Lanes of several warps meet for that in shared memory. So what reads one tile at several places does so at once: the
tile is written there once, and there is one barrier, not one for each of them.

    places = tl.reshape(tl.join(row * 64 + lanes[None, :], lanes_2[:, None] * 64 + col), (8192,))
    found = tl.split(tl.reshape(tl.gather(tl.reshape(state, (4096,)), places, axis=0), (64, 64, 2)))
    moved = found[0]
    moved_2 = found[1]
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.spans import Spans
from jaxpr2triton.emit.text import Tile, conjunction, suffix
from jaxpr2triton.graph.moved import Either, Lanes, Moved, along, moved_in
from jaxpr2triton.graph.nodes import Choose, Graph, Node, Take
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.index import Axis, of_axis
from jaxpr2triton.ir.kernel import Role
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.rules.base import in_parentheses


class Moves(Spans):
    """The statements of what is nothing but lanes of one tile."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        super().__init__(plan, graph, buffers)
        found = moved_in(graph, self._is_whole)
        self.moved = {node: moved for node, moved in found.items() if plan.num_warps > 1 or len(moved.axes) == 1}
        self._readers: defaultdict[Node, list[Node]] = defaultdict(list)
        for node, moved in self.moved.items():
            self._readers[moved.source].append(node)

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

    def _read_lanes(self, node: Node, scope: Scope) -> None:
        """With whatever else is read of the same tile there."""
        several = self._readers[self.moved[node].source] if self.plan.num_warps > 1 else [node]
        together = [each for each in several if self._is_beside(each, node, scope)]
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
        texts = [f"tl.broadcast_to({self._flat(self.moved[node].lanes, tile, scope)}, {shape})" for node in nodes]
        pairs = [2] * (count.bit_length() - 1)
        for _ in pairs:
            texts = [f"tl.join({one}, {other})" for one, other in zip(texts[::2], texts[1::2])]
        places = self.names.new("places", scope.depth)
        scope.lines.append(f"{places} = tl.reshape({texts[0]}, ({size * count},))")
        value = self._tile_of(self.moved[nodes[0]], scope, tile)
        text = f"tl.gather(tl.reshape({value}, ({size},)), {places}, axis=0)"
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
