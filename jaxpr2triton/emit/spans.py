"""Writes between which steps a loop runs, where all that it combines is known to lie between two places.

    k_to = tl.minimum(tl.maximum(length, 0), 4096)    # of each row: behind its last term
    k_last = tl.max(k_to)                             # of all rows of the program
    for k_start in range(0, k_last, 64):
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial, reduce

import numpy as np

from jaxpr2triton.emit.axes import loop_over
from jaxpr2triton.emit.limits import clamp
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.stores import Stores
from jaxpr2triton.emit.text import Tile, beside
from jaxpr2triton.graph.nodes import Node, Reduce, Store
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.graph.spans import Limit, limits_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import Form
from jaxpr2triton.ir.tree import all_hold, expr, sum_of

LARGEST, LEAST = "tl.maximum({}, {})", "tl.minimum({}, {})"


class Spans(Stores):
    """The headers of loops that leave out steps in which nothing is combined."""

    def _spans(
        self, key: LoopKey, clients: Sequence[Node | Store], body: Scope
    ) -> Iterator[tuple[Scope, list[Limit]]]:
        """The loops of a key, and what all that they combine lies between."""
        for axis in reversed(key.opened):
            yield body, self._common_limits(axis, key, clients, body.around)
            body = body.around

    def _common_limits(self, axis: Axis, key: LoopKey, clients: Sequence[Node | Store], outer: Scope) -> list[Limit]:
        """Those of all clients whose values are there before the loop."""
        sums = [client for client in clients if isinstance(client, Reduce) and client not in self.order.streams]
        is_short = self.spell.planned[axis].steps <= self.plan.policy.writing.all_steps
        reads_ahead = self.plan.choice is not None or self.plan.form is Form.OUTER  # what its next steps want
        is_left = is_short or reads_ahead or self.spell.widths.is_wide(axis)
        if is_left or key.backwards or len(sums) < len(clients) or not sums:
            return []
        common = frozenset.intersection(*(limits_of(node, axis) for node in sums))
        worth = 1 / self.plan.policy.writing.steps_to_spare_one
        ready = [limit for limit in common if limit.axes & self.looped <= outer.open_loops and limit.spares >= worth]
        return sorted(ready, key=lambda limit: (limit.is_upper, limit.value.number if limit.value else -1, limit.const))

    def _loop_over(self, body: Scope, limits: Sequence[Limit], backwards: bool) -> ast.For:
        """The loop with that body, empty; before it, where the values of the limits are, what it lies between."""
        axis, scope = body.axis, body.around
        assert axis is not None  # of a loop
        self.scope_now = scope
        first, last = [], []
        for tile in dict.fromkeys(self.spell.tile(limit.axes) for limit in limits):
            these = [limit for limit in limits if self.spell.tile(limit.axes) == tile]
            one, other = self._of_tile(axis, these, tile, scope)
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
        if not tile:
            return [start] if start else [], [end] if end else []
        parts = [expr("{} < {}", start, end)] if start and end else []
        axes = frozenset().union(*(limit.axes for limit in limits))
        mask = self.masks.of(axes, (), tile, scope)
        parts += [mask] if mask else []
        if parts:
            inside = all_hold(parts)
            start = start and expr("tl.where({}, {}, {})", inside, start, axis.size)
            end = end and expr("tl.where({}, {}, 0)", inside, end)
        return [expr("tl.min({})", start)] if start else [], [expr("tl.max({})", end)] if end else []

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
