"""Writes between which steps a loop runs, where all that it combines is known to lie between two places.

    k_to = tl.minimum(tl.maximum(length, 0), 4096)    # of each row: behind its last term
    k_last = tl.max(k_to)                             # of all rows of the program
    for k_start in range(0, k_last, 64):

Where comparisons hide all that is hidden, steps that hide nothing have a loop of their own, without these:

    k_edge = tl.min(k_to) // 64 * 64
    for k_start in range(0, k_edge, 64):              # s = dot
    for k_start in range(k_edge, k_last, 64):         # s = tl.where(m >= k, dot, float('-inf'))

In a gradient what is hidden has no weight where a maximum was found, which is known of all rows before the loop:

    i_all = tl.arange(0, 2048)
    i_shown = tl.min((tl.load(peak_ptr + i_all) > float('-inf')).to(tl.int32)) > 0
    i_first = tl.where(i_shown, i_first, 0)
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise

import numpy as np

from jaxpr2triton.emit.axes import loop_over
from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.limits import clamp
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.stores import Stores
from jaxpr2triton.emit.text import Tile, beside
from jaxpr2triton.emit.walks import copied, names_in, stored_in
from jaxpr2triton.graph.nodes import Compute, Graph, Load, Node, Position, Reduce, Store
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.graph.spans import Limit, Subtracted, hidden_by, limits_of, shown_by
from jaxpr2triton.graph.streams import Shrinking
from jaxpr2triton.ir.index import Axis, flatten
from jaxpr2triton.ir.plan import Form, Plan, power_of_two
from jaxpr2triton.ir.tree import Hiding, Pointer, all_hold, as_expr, call, expr, load, loop_of, name, sum_of
from jaxpr2triton.rules.literals import constant
from jaxpr2triton.rules.pointwise.convert import held_as

LARGEST, LEAST = "tl.maximum({}, {})", "tl.minimum({}, {})"


@dataclass(frozen=True)
class Ends:
    """Between which places each lane of a tile has something to combine, of those inside of the array."""

    first: ast.expr | None
    last: ast.expr | None
    inside: ast.expr | None
    is_tile: bool

    def all_between(self, size: int) -> tuple[ast.expr | None, ast.expr | None]:
        """Between which places all lanes have."""
        ends = []
        for place, template, other in ((self.first, "tl.max({})", 0), (self.last, "tl.min({})", size)):
            known = expr("tl.where({}, {}, {})", self.inside, place, other) if place and self.inside else place
            ends.append(expr(template, known) if known and self.is_tile else known)
        return ends[0], ends[1]


class Spans(Stores):
    """The headers of loops that leave out steps in which nothing is combined."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        super().__init__(plan, graph, buffers)
        self.ends: dict[Axis, list[Ends]] = {}
        self.limits: dict[Axis, Sequence[Limit]] = {}  # of the loop that is written
        self.longest_last: set[Axis] = set()  # those along which later programs have longer loops
        self.hiding: set[Axis] = set()  # those in whose loops choices hide what they lie between, and nothing else

    def _spans(self, key: LoopKey, clients: Sequence[Node | Store], body: Scope) -> Iterator[tuple[Scope, list[Limit]]]:
        """The loops of a key, and what all that they combine lies between."""
        for axis in reversed(key.opened):
            yield body, self._common_limits(axis, key, clients, body.around)
            body = body.around

    def _common_limits(self, axis: Axis, key: LoopKey, clients: Sequence[Node | Store], outer: Scope) -> list[Limit]:
        """Those of all clients whose values are there before the loop."""
        sums = [client for client in clients if isinstance(client, Reduce)]
        is_short = self.spell.planned[axis].steps <= self.plan.policy.writing.all_steps
        reads_ahead = self.plan.choice is not None or self.plan.form is Form.OUTER  # what its next steps want
        is_left = is_short or reads_ahead or self.spell.widths.is_wide(axis)
        if is_left or key.backwards or len(sums) < len(clients) or not sums:
            return []
        common = frozenset.intersection(*(self._limits_of(node, axis) for node in sums))
        ready = {limit for limit in common if limit.axes & self.looped <= outer.open_loops and self._is_worth(limit)}
        hiding = {limit for node in sums for limit in self._limits_of(node, axis) if limit.or_all}
        if not hiding <= ready:  # only all of them tell whether anything is left
            ready -= hiding
        return sorted(ready, key=lambda limit: (limit.is_upper, limit.value.number if limit.value else -1, limit.const))

    def _limits_of(self, node: Reduce, axis: Axis) -> frozenset[Limit]:
        """Of what goes along with an extreme those of that."""
        streams = self.order.streams
        leaders = {each.leader for each in streams.values()}
        if node not in streams and node not in leaders:
            return limits_of(node, axis)
        mine = [each for one, each in streams.items() if node in (one, each.leader)]
        are_shown = all(isinstance(each, Shrinking) for each in mine)
        return shown_by(mine[0].leader, axis).limits if are_shown else frozenset()

    def _is_worth(self, limit: Limit) -> bool:
        """Whether it spares steps, and is known before the loop: of all its steps, if they read it, for all lanes."""
        if limit.spares < 1 / self.plan.policy.writing.steps_to_spare_one:
            return False
        if limit.where is None or limit.axis not in limit.where.node.axes:
            return True
        read = limit.where.node
        return isinstance(read, Load) and not read.guard and not self.spell.tile(read.axes - {limit.axis})

    def _loop_over(self, body: Scope, limits: Sequence[Limit], backwards: bool) -> ast.For:
        """The loop with that body, empty; before it, where the values of the limits are, what it lies between."""
        axis, scope = body.axis, body.around
        assert axis is not None  # of a loop
        self.scope_now = scope
        first, last = [], []
        self.ends[axis], self.limits[axis] = [], limits
        if {limit.is_upper for limit in limits} == {True}:
            self.longest_last.update(
                *(limit.value.index.axes for limit in limits if limit.sign > 0 and isinstance(limit.value, Position))
            )
        together = frozenset().union(*(limit.axes for limit in limits if limit.or_all))  # what all of them leave
        tiles = {limit: self.spell.tile(together if limit.or_all else limit.axes) for limit in limits}
        for tile, where in dict.fromkeys((tiles[limit], limit.where) for limit in limits):
            these = [limit for limit in limits if (tiles[limit], limit.where) == (tile, where)]
            one, other = self._of_tile(axis, these, tile, scope)
            if where is not None and axis in where.node.axes:
                one, other = self._where_all_are_shown(where, axis, (one, other), scope)
            first += one
            last += other
        block = self.spell.planned[axis].block
        start = self._end_of_all(axis, "first", LARGEST, first, scope)
        if start and block > 1:
            start = expr("{0} // {1} * {1}", start, block)
        end = self._end_of_all(axis, "last", LEAST, last, scope)
        return loop_over(self.spell.planned[axis], backwards, start, end)

    def _end_of_all(
        self, axis: Axis, end: str, function: str, places: Sequence[ast.expr], scope: Scope
    ) -> ast.expr | None:
        """What holds for several: the largest first place, the least last one."""
        if not places:
            return None
        return self._named(f"{axis.name}_{end}", reduce(partial(expr, function), places), scope)

    def _of_tile(
        self, axis: Axis, limits: Sequence[Limit], tile: Tile, scope: Scope
    ) -> tuple[list[ast.expr], list[ast.expr]]:
        """The least first place and the last one of the lanes of a tile; lanes without any term have none."""
        lower = [self._place_of(limit, tile, scope) for limit in limits if not limit.is_upper]
        upper = [self._place_of(limit, tile, scope) for limit in limits if limit.is_upper]
        start = self._end_of_all(axis, "from", LARGEST, lower, scope)
        end = self._end_of_all(axis, "to", LEAST, upper, scope)
        axes = frozenset().union(*(limit.axes for limit in limits))
        mask = self.masks.of(axes, (), tile, scope) if tile else None
        self.ends[axis].append(Ends(start, end, mask, bool(tile)))
        if limits[0].or_all:
            nothing = expr("{} >= {}", start or "0", end or axis.size)
            start, end = _unless(nothing, start, 0), _unless(nothing, end, axis.size)
        found = [expr("{} < {}", start, end)] if start and end and not limits[0].or_all else []
        inside = [*found, *([mask] if mask else [])] if tile else []
        if inside:
            start, end = _if(all_hold(inside), start, axis.size), _if(all_hold(inside), end, 0)
        where = limits[0].where
        if where is not None and axis not in where.node.axes:
            shown = expr("{} > {}", self._operand(where.node, scope, tile), constant(where.above, where.node.dtype))
            start, end = _if(shown, start, 0), _if(shown, end, axis.size)
        return _of_all("tl.min({})", start, tile), _of_all("tl.max({})", end, tile)

    def _where_all_are_shown(
        self, where: Subtracted, axis: Axis, ends: tuple[list[ast.expr], list[ast.expr]], scope: Scope
    ) -> tuple[list[ast.expr], list[ast.expr]]:
        shown, (first, last) = self._shown_in_all_steps(where, axis, scope), ends
        from_there = [expr("tl.where({}, {}, 0)", shown, each) for each in first]
        return from_there, [expr("tl.where({}, {}, {})", shown, each, axis.size) for each in last]

    def _shown_in_all_steps(self, where: Subtracted, axis: Axis, scope: Scope) -> ast.expr:
        """Whether what is subtracted in any step is above what hides."""
        read = where.node
        assert isinstance(read, Load)  # or it could not be asked
        buffer, dtype = self.buffers.inputs[read.buffer], read.dtype
        block = min(power_of_two(axis.size), self.plan.policy.writing.asked_at_once)
        looped = block < axis.size
        lines = Scope(scope, None) if looped else scope
        start = self.names.new(f"{axis.name}_start", scope.depth)
        places = expr("tl.arange(0, {})", block)
        all_of = self._named(f"{axis.name}_all", expr("{} + {}", name(start), places) if looped else places, lines)
        address = sum_of(Pointer(buffer), self.spell.index_with(flatten(read.place, buffer.shape), (), axis, all_of))
        mask = expr("{} < {}", all_of, axis.size) if axis.size % block else None
        value = held_as(load(address, mask, constant(0, buffer.dtype)), buffer.dtype)
        are_shown = expr("tl.min(({} > {}).to(tl.int32))", value, constant(where.above, dtype))
        if not looped:
            return self._named(f"{axis.name}_shown", expr("{} > 0", are_shown), scope)
        shown = self.names.new(f"{axis.name}_shown", scope.depth)
        scope.write(shown, expr("tl.full((), 1, tl.int32)"))
        lines.write(shown, expr("tl.minimum({}, {})", shown, are_shown))
        scope.lines.append(loop_of(start, call("range", 0, axis.size, block), lines.lines))
        return expr("{} > 0", shown)

    def _place_of(self, limit: Limit, tile: Tile, scope: Scope) -> ast.expr:
        """As `Limit.place`, with its value, in the loop."""
        rest, place = limit.place, None
        if limit.value is not None:
            own = self._clamped(limit.value, limit.low, limit.high)
            place = beside(own, self._get(limit.value, scope).tile, tile)
            place = expr("-1 * {}", place) if limit.sign < 0 else place
            place = place if limit.value.dtype == np.int32 else expr("{}.to(tl.int32)", place)
        if place is None:
            place = self.spell.index(rest, tile) if rest.terms else expr("tl.full((), {}, tl.int32)", rest.const)
        elif rest.terms or rest.const:
            place = sum_of(place, self.spell.index(rest, tile) if rest.terms else rest.const)
        return clamp(expr("{} * {}", place, limit.by) if limit.by > 1 else place, 0, limit.axis.size)

    def _in_parts(self, loop: ast.For, body: Scope) -> list[ast.For]:
        """The loop, and apart from it the steps in which nothing is hidden."""
        axis, outer = body.axis, body.around
        assert axis is not None  # of a loop
        ends, block = self.ends.pop(axis, []), self.spell.planned[axis].block
        if axis not in self.hiding or not ends or not isinstance(loop.iter, ast.Call):
            return [loop]
        self.hiding.discard(axis)
        begin, stop, _ = loop.iter.args
        firsts, lasts = zip(*(each.all_between(axis.size) for each in ends))
        since, until = (list(filter(None, places)) for places in (firsts, lasts))
        places = [begin]
        if since:
            first = expr("({0} + {1}) // {2} * {2}", reduce(partial(expr, LARGEST), since), block - 1, block)
            places.append(self._named(f"{axis.name}_whole", expr(LEAST, first, copied(stop)), outer))
        if until:
            last = expr("{0} // {1} * {1}", reduce(partial(expr, LEAST), until), block)
            places.append(self._named(f"{axis.name}_edge", expr(LARGEST, last, copied(places[-1])), outer))
        parts = [copied(loop) for _ in places]
        for part, ends_of_it in zip(parts, pairwise([*places, stop])):
            part.iter = call("range", *map(copied, ends_of_it), as_expr(block))
        _show_all(parts[1 if since else 0], stored_in(*outer.lines))
        return parts

    def _value_of(self, node: Compute, values: Sequence[ast.expr], scope: Scope) -> ast.expr:
        """Of a choice, what stands there where nothing is hidden as well, if its loop has steps of that kind."""
        value = super()._value_of(node, values, scope)
        if node.eqn.primitive.name != "select_n" or not isinstance(value, ast.Call) or len(values) != 3:
            return value
        for axis in node.axes & scope.open_loops:
            known = {replace(limit, where=None) for limit in self.limits.get(axis, ()) if limit.where is not None}
            shown, limits = (known and hidden_by(node, axis)) or (None, frozenset())
            if shown is not None and limits <= known:
                self.hiding.add(axis)
                return Hiding(value, values[node.operands.index(shown)])
        return value

    def _hides(self, leader: Reduce) -> bool:
        """Whether the limits of its loop are about all that is hidden of an extreme, and nothing else."""
        (axis, *others), shown = leader.over, shown_by(leader, leader.over[0])
        return not others and shown.exactly and shown.limits <= {*self.limits.get(axis, ())}


def _of_all(template: str, place: ast.expr | None, tile: Tile) -> list[ast.expr]:
    return [expr(template, place) if tile else place] if place else []


def _if(condition: ast.expr, place: ast.expr | None, other: int) -> ast.expr | None:
    return place and expr("tl.where({}, {}, {})", condition, place, other)


def _unless(condition: ast.expr, place: ast.expr | None, other: int) -> ast.expr | None:
    return place and expr("tl.where({}, {}, {})", condition, other, place)


def _show_all(loop: ast.For, carried: Collection[str]) -> None:
    """Leave out what hides elements, and what was computed for that alone."""
    _Shown().visit(loop)
    wanted = {*carried, *(each.id for each in names_in(loop) if isinstance(each.ctx, ast.Load))}
    loop.body = [line for line in loop.body if not isinstance(line, ast.Assign) or wanted & {*stored_in(line)}]


class _Shown(ast.NodeTransformer):
    """Takes what stands where all elements are shown."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:  # the name is that of `ast`
        if isinstance(node.value, Hiding) and node.value.shown is None:
            return None
        return self.generic_visit(node)

    def visit_Hiding(self, node: Hiding) -> ast.AST:  # … and that of the class
        return self.visit(node.shown) if node.shown is not None else node
