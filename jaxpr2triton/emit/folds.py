"""Writes reductions by functions of the user's own, whose elements have several parts.

    best_acc = tl.full((1024,), float('-inf'), tl.float32)
    place_acc = tl.full((1024,), 2147483647, tl.int32)
    for col_start in range(0, 50000, 1024):
        best_acc, place_acc = _combine(best_acc, place_acc, tl.where(col_ok, x, float('-inf')), …)
    best, place = tl.reduce((best_acc, place_acc), 0, _combine)

All results of one reduction are made at once.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.sweeps import Sweeps
from jaxpr2triton.emit.text import Tile, Written
from jaxpr2triton.graph.nodes import Constant, Element, Graph, Node, Reduce
from jaxpr2triton.ir.dtypes import working_dtype
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.tree import assign, call, expr, name
from jaxpr2triton.rules.helpers import with_callees
from jaxpr2triton.rules.literals import constant
from jaxpr2triton.rules.rows import TABLE


class Folds(Sweeps):
    """The statements of reductions by functions."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        super().__init__(plan, graph, buffers)
        self.results: defaultdict[Hashable, dict[int, Reduce]] = defaultdict(dict)  # of one reduction, by their number
        for node in graph.of_kind(Reduce):
            if node.combined_by is not None:
                self.results[_key(node)][node.eqn.params["output"]] = node

    def _fold(self, node: Reduce, scope: Scope) -> None:
        """Where no loop goes through the elements."""
        if not self._is_made(node, scope):
            self._finish_fold(node, *self._elements(node, scope), scope)

    def _is_made(self, node: Reduce, scope: Scope) -> bool:
        """Whether another result of the same reduction has been made with this one; then it has its name."""
        key, output = _key(node), node.eqn.params["output"]
        names = next((each.folds[key] for each in scope.chain() if key in each.folds), None)
        if names is None:
            return False
        scope.known[node] = Written(names[output], self.spell.tile(node.axes))
        return True

    def _begin_fold(self, node: Reduce, scope: Scope) -> tuple[list[str], Tile]:
        """The variables of the running results, one for each part."""
        tile = self._whole_tile(node)
        names = []
        for number, (empty, dtype) in enumerate(_empty(node)):
            names.append(self.names.new(f"{self._wish(node, number)}_acc", scope.depth))
            scope.write(names[-1], self._full(constant(empty, dtype), tile, dtype))
        return names, tile

    def _results_of(self, node: Reduce) -> list[Reduce]:
        """All that are made with it."""
        return list(self.results[_key(node)].values())

    def _go_on_folding(self, node: Reduce, names: Sequence[str], body: Scope) -> None:
        parts, _ = self._elements(node, body)
        self._say(body, assign(names, call(self._function(node), *names, *parts)), node.eqn)

    def _finish_fold(self, node: Reduce, parts: Sequence[ast.expr], tile: Tile, scope: Scope) -> None:
        """Combine what lanes have."""
        names = [self.names.new(self._wish(node, number), scope.depth) for number in range(len(parts))]
        over = [axis for axis in tile if axis in node.over]
        collapse = TABLE["reduced"].collapse(node.dtype)
        for axis in reversed(over):
            both = tuple(parts) if len(parts) > 1 else parts[0]
            whole = expr(collapse, both, axis=tile.index(axis), function=self._function(node))
            self._say(scope, assign(names, whole), node.eqn)
            parts, tile = [*map(name, names)], tuple(other for other in tile if other is not axis)
        scope.folds[_key(node)] = parts
        scope.known[node] = Written(parts[node.eqn.params["output"]], tile)

    def _elements(self, node: Reduce, scope: Scope) -> tuple[list[ast.expr], Tile]:
        """The parts of an element, lane by lane; several elements, where an axis is unrolled, are combined before."""
        tile = self._whole_tile(node)
        found: list[ast.expr] = []
        for operand in node.operands:
            parts = _parts(operand)
            values = [self._part_of_element(node, *each, tile, scope) for each in zip(parts, _empty(node), strict=True)]
            if found:
                names = [self.names.new("part", scope.depth) for _ in values]
                self._say(scope, assign(names, call(self._function(node), *found, *values)), node.eqn)
                values = [*map(name, names)]
            found = values
        return found, tile

    def _part_of_element(
        self, node: Reduce, part: Node, empty: tuple[object, np.dtype], tile: Tile, scope: Scope
    ) -> ast.expr:
        """One part of all lanes; where they lie outside, what changes nothing."""
        value = self.narrow.rounded(part, self._whole(part, scope, tile, part.dtype))
        ragged = frozenset(self.spell.ragged(frozenset(axis for axis in node.over if self.spell.planned[axis].is_tile)))
        is_empty = isinstance(part, Constant) and bool(part.value == empty[0])
        mask = self.masks.of(ragged, (), tile, scope) if ragged and not is_empty else None
        return expr("tl.where({}, {}, {})", mask, value, constant(*empty)) if mask else value

    def _function(self, node: Reduce) -> str:
        """The name of the function that combines two elements, whose text stands before the kernel."""
        assert node.combined_by is not None
        name, callees = self.functions.of(node.combined_by)
        self.helpers |= dict.fromkeys(each for callee in callees for each in with_callees(callee))
        return name

    def _wish(self, node: Reduce, number: int) -> str:
        """What a part is called: as the result that it becomes, if anybody reads that."""
        result = self.results[_key(node)].get(number)
        return "part" if result is None else self.wish[result]


def _key(node: Reduce) -> Hashable:
    return node.combined_by, node.operands, node.over


def _parts(operand: Node) -> tuple[Node, ...]:
    return operand.operands if isinstance(operand, Element) else (operand,)


def _empty(node: Reduce) -> list[tuple[object, np.dtype]]:
    """What changes nothing, part by part, and how that is held."""
    return [
        (empty, working_dtype(part.dtype))
        for empty, part in zip(node.eqn.params["empty"], _parts(node.operands[0]), strict=True)
    ]
