"""Writes between which steps a loop runs, where all that it combines is known to lie between two places.

    k_to = tl.minimum(tl.maximum(length, 0), 4096)    # of each row: behind its last term
    k_last = tl.max(k_to)                             # of all rows of the program
    for k_start in range(0, k_last, 64):
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jaxpr2triton.emit.axes import loop_over
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.stores import Stores
from jaxpr2triton.emit.text import Tile, suffix
from jaxpr2triton.graph.nodes import Node, Reduce, Store
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.graph.spans import Limit, limits_of
from jaxpr2triton.ir.index import Axis
from jaxpr2triton.ir.plan import Form
from jaxpr2triton.rules.base import in_parentheses


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

    def _header(self, body: Scope, limits: Sequence[Limit], backwards: bool) -> str:
        """Of the loop with that body; before it, where the values of the limits are, what it lies between."""
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
        start = self._named(axis, "first", _all_of("tl.maximum", first), scope)
        if start and block > 1:
            start = f"{start} // {block} * {block}"
        end = self._named(axis, "last", _all_of("tl.minimum", last), scope)
        return loop_over(self.spell.planned[axis], backwards, start, end)

    def _named(self, axis: Axis, end: str, text: str, scope: Scope) -> str:
        if not text:
            return ""
        name = self.names.new(f"{axis.name}_{end}", scope.depth)
        scope.lines.append(f"{name} = {text}")
        return name

    def _of_tile(self, axis: Axis, limits: Sequence[Limit], tile: Tile, scope: Scope) -> tuple[list[str], list[str]]:
        """The least first place and the last one of the lanes of a tile; lanes without any term have none."""
        lower = [self._place_of(limit, tile, scope) for limit in limits if not limit.is_upper]
        upper = [self._place_of(limit, tile, scope) for limit in limits if limit.is_upper]
        start = self._named(axis, "from", _all_of("tl.maximum", lower), scope)
        end = self._named(axis, "to", _all_of("tl.minimum", upper), scope)
        if not tile:
            return [start] if start else [], [end] if end else []
        parts = [f"{start} < {end}"] if start and end else []
        axes = frozenset().union(*(limit.axes for limit in limits))
        mask = self.masks.of(axes, (), tile, scope)
        inside = " & ".join(in_parentheses(part) for part in [*parts, *([mask] if mask else [])])
        if inside:
            start = start and f"tl.where({inside}, {start}, {axis.size})"
            end = end and f"tl.where({inside}, {end}, 0)"
        return [f"tl.min({start})"] if start else [], [f"tl.max({end})"] if end else []

    def _place_of(self, limit: Limit, tile: Tile, scope: Scope) -> str:
        """As `Limit.place`, with its value, in the loop."""
        text = ""
        rest = limit.place
        if limit.value is not None:
            text = f"{'-1 * ' * (limit.sign < 0)}{self._clamped(limit.value, limit.low, limit.high)}"
            text += suffix(self._get(limit.value, scope).tile, tile)
            text = text if limit.value.dtype == np.int32 else f"{in_parentheses(text)}.to(tl.int32)"
        if rest.terms:
            text = f"{text} + {self.spell.index(rest, tile)}" if text else self.spell.index(rest, tile)
        elif rest.const or not text:
            text = f"{text} + {rest.const}" if text else f"tl.full((), {rest.const}, tl.int32)"
        text = f"{in_parentheses(text)} * {limit.by}" if limit.by > 1 else text
        return f"tl.minimum(tl.maximum({text}, 0), {limit.axis.size})"


def _all_of(function: str, texts: Sequence[str]) -> str:
    """What holds for several: the largest first place, the least last one."""
    whole = ""
    for text in texts:
        whole = f"{function}({whole}, {text})" if whole else text
    return whole
