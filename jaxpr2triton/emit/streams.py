"""Writes sums that go along with what they depend on, in one loop.

    for col_start in range(0, 50257, 4096):
        x = tl.load(…)
        peak_next = tl.maximum(peak_acc, tl.reduce(x, 0, _maximum))             # of this block and those before
        peak = tl.where(peak_next == float('-inf'), 0.0, peak_next)
        shrink = tl.where(peak_acc < peak, libdevice.exp(peak_acc - peak), 1.0)
        peak_acc = peak_next
        total_acc = total_acc * shrink + libdevice.exp(x - peak)

Of products of matrices whose factors have few bits the exponential is a power of two, and rows are summed in each step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import numpy as np

from jaxpr2triton.emit.emitter import Emitter
from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.powers import LOG2_E, Powers, hides_by_numbers, made_of_rough, powers_of, scaled_of
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.text import Tile, Written, beside
from jaxpr2triton.emit.walks import stored_in
from jaxpr2triton.emit.work import work_of
from jaxpr2triton.graph.nodes import Collected, Compute, Graph, Node, Reduce
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.graph.spans import hidden_by, shown_of
from jaxpr2triton.graph.streams import Moments, Shrinking, factor_of
from jaxpr2triton.ir.dtypes import working_dtype
from jaxpr2triton.ir.plan import Plan
from jaxpr2triton.ir.tree import STORE, Hiding, as_expr, assign, expr, name
from jaxpr2triton.rules.base import Call
from jaxpr2triton.rules.literals import constant
from jaxpr2triton.rules.rows import TABLE


class StreamEmitter(Emitter):
    """An emitter that knows how to go on with what depends on a result that is not there yet."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        super().__init__(plan, graph, buffers)
        streams = self.order.streams
        self.shrinking = {node: each for node, each in streams.items() if isinstance(each, Shrinking)}
        self.moments = {node: each for node, each in streams.items() if isinstance(each, Moments)}
        self.leading = frozenset(stream.leader for stream in self.shrinking.values())
        self.shrinks: dict[Reduce, Written] = {}
        self.powers = {node: found for node in self.leading if (found := self._powers_of(node)) is not None}
        self.doublings: dict[Reduce, Written] = {}  # the extreme, where it is known, in powers of two

        self.rough = made_of_rough(graph, self.dots, self.looped, plan.policy.target)

    def _value_of(self, node: Compute, values: Sequence[ast.expr], scope: Scope) -> ast.expr:
        if node in self.rough and node.eqn.primitive.name == "exp":
            return self._doubling(node, expr("tl.exp2({} * {})", values[0], LOG2_E), scope)
        if node in self.rough and node.eqn.primitive.name == "div":
            divisor = node.operands[1]
            written, tile = self._get(divisor, scope), self.spell.tile(node.axes)
            if divisor.axes and divisor.axes < node.axes and not written.bare:
                reciprocal = self._once(divisor, "reciprocal", "1.0 / {}", scope)
                return expr("{} * {}", values[0], beside(reciprocal, written.tile, tile))
        return super()._value_of(node, values, scope)

    def _once(self, node: Node, wish: str, template: str, scope: Scope) -> ast.expr:
        """What is made of a number that many others meet: where it is known."""
        home = next(each for each in scope.chain() if node in each.known)
        if (wish, node) not in home.once:
            home.once[wish, node] = self._named(wish, expr(template, home.known[node].value), home)
        return home.once[wish, node]

    def _doubling(self, node: Compute, plain: ast.expr, scope: Scope) -> ast.expr:
        """exp(x * c - m) as a power of two, with log2 e in the factor and in m; as it is where numbers may be huge."""
        (below,) = node.operands
        if not isinstance(below, Compute) or below.eqn.primitive.name != "sub" or self._get(below, scope).name:
            return plain
        value, extreme = below.operands
        if not extreme.axes < value.axes or self._get(extreme, scope).bare:
            return plain
        if not hides_by_numbers([value], self.dots):
            return self._folded(value, extreme, scope) or plain
        loops = node.axes & scope.open_loops & self.hiding
        seen = (hidden_by(value, axis) for axis in loops if isinstance(value, Compute) and len(value.operands) == 3)
        shown = next((found[0] for found in seen if found is not None), None)
        folded = None if shown is None else self._folded(shown, extreme, scope)
        return Hiding(plain, folded) if folded is not None and isinstance(plain, ast.Call) else plain

    def _folded(self, value: Node, extreme: Node, scope: Scope) -> ast.expr | None:
        scaled, tile = scaled_of(value, value.axes - extreme.axes), self.spell.tile(value.axes)
        if scope.find(scaled.base) is None:
            return None
        known = self._get(extreme, scope)
        wish = f"{known.name or 'extreme'}_log2"
        doubled = beside(self._once(extreme, wish, f"{{}} * {LOG2_E}", scope), known.tile, tile)
        return expr("tl.exp2({} * {} - {})", self._operand(scaled.base, scope, tile), scaled.factor * LOG2_E, doubled)

    def _powers_of(self, leader: Reduce) -> Powers | None:
        streams = [stream for stream in self.shrinking.values() if stream.leader is leader]
        return powers_of(leader, streams, self.dots, self.users, self.plan.policy.target)

    def _open(self, key: LoopKey, scope: Scope) -> Scope:
        body = super()._open(key, scope)
        here = (stream.made for node, stream in self.shrinking.items() if self.keys[node][-1] == key)
        body.own = frozenset().union(*here)
        return body

    def _begin(self, node: Collected, scope: Scope) -> None:
        if isinstance(node, Reduce) and node in self.leading:
            tile, dtype = self.spell.tile(node.axes), working_dtype(self._element(node))
            identity = self._row(node).identity(dtype)
            self.running[node] = [self._begun(f"{self.wish[node]}_acc", identity, tile, dtype, scope)], tile
        elif isinstance(node, Reduce) and node in self.shrinking and self._is_of_rows(node):
            tile, dtype = self.spell.tile(node.axes), working_dtype(node.dtype)
            self.running[node] = [self._begun(f"{self.wish[node]}_acc", 0, tile, dtype, scope)], tile
        elif isinstance(node, Reduce) and node in self.moments:
            tile, dtype = self._whole_tile(node), working_dtype(node.dtype)
            values = dict.fromkeys(self.moments[node].factors)
            names = [self._begun("mean_of_lane", 0, tile, dtype, scope) for _ in values]
            spread = self._begun(f"{self.wish[node]}_acc", 0, tile, dtype, scope)
            self.running[node] = [spread, *names], tile
        else:
            super()._begin(node, scope)

    def _begun(self, wish: str, value: object, tile: Tile, dtype: np.dtype, scope: Scope) -> str:
        begun = self.names.new(wish, scope.depth)
        scope.write(begun, self._full(constant(value, dtype), tile, dtype))
        return begun

    def _accumulate(self, node: Reduce, body: Scope) -> None:
        if node in self.leading:
            self._lead(node, body)
        elif node in self.shrinking:
            self._shrink(node, body)
        elif node in self.moments:
            self._move(node, body)
        else:
            super()._accumulate(node, body)

    def _lead(self, node: Reduce, body: Scope) -> None:
        """The extreme of all blocks so far, and by what earlier terms shrink. Of nothing but infinities 0 is taken."""
        powers = self.powers.get(node)
        for operand in node.operands:
            if powers and powers.scaled:
                self._require(powers.scaled.base, body)
                body.known[operand] = self._get(powers.scaled.base, body)
            self._require(operand, body)
        dtype, row = working_dtype(self._element(node)), self._row(node)
        (before,), tile = self.running[node]
        block = self._extreme_of_block(node, powers, body)
        following, extreme, shrink = (
            self.names.new(wish, body.depth) for wish in (f"{self.wish[node]}_next", self.wish[node], "shrink")
        )
        self._say(body, assign(following, expr(row.combine(dtype), before, block)), node.eqn)
        nothing, zero, one = (constant(number, dtype) for number in (row.identity(dtype), 0, 1))
        largest = node.eqn.primitive.name == "reduce_max"
        apart = expr("{} - {}" if largest else "{1} - {0}", before, extreme)
        exact = TABLE["exp"].write(Call((dtype,), dtype), [apart])
        less = expr("tl.exp2({} * {})", apart, LOG2_E) if powers else exact
        sooner = expr("{} < {}" if largest else "{} > {}", before, extreme)
        body.write(extreme, expr("tl.where({0} == {1}, {2}, {0})", following, nothing, zero))
        body.write(shrink, expr("tl.where({}, {}, {})", sooner, less, one))
        body.write(before, following)
        body.known[node] = Written(name(extreme), tile)
        self.shrinks[node] = Written(name(shrink), tile)
        if powers:
            power = expr("{} * {}", extreme, LOG2_E)
            power = power if powers.may_be_huge else self._named(f"{self.wish[node]}_log2", power, body)
            self.doublings[node] = Written(power, tile)

    def _extreme_of_block(self, node: Reduce, powers: Powers | None, body: Scope) -> ast.expr:
        dtype, (parts, tile) = working_dtype(self._element(node)), self._parts(node, body)
        block = self._collapsed(node, parts, tile, body)
        if powers and powers.scaled:
            return expr("{} * {}", block, constant(powers.scaled.factor, dtype))
        if (value := shown_of(node)) is None or not isinstance(block, ast.Call) or not self._hides(node):
            return block
        self.hiding.update(node.over)
        shown = powers.shown if powers else None
        self._show(node.operands[0], value, shown is None, body)
        if shown is None:
            return block
        base = self._neutralised(node, shown.base, self._operand(shown.base, body, tile), tile, body)
        extreme = self._collapsed(node, [base], tile, body)
        return Hiding(block, expr("{} * {}", extreme, constant(shown.factor, dtype)) if shown.factor != 1 else extreme)

    def _show(self, choice: Node, shown: Node, is_wanted: bool, body: Scope) -> None:
        """Let what hides elements be what is chosen, or nothing, where none is hidden."""
        place = 2 if isinstance(choice, Compute) and choice.operands[1] is shown else 1
        written = self._get(choice, body).name
        for line in body.lines:
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call) and stored_in(line)[str(written)]:
                line.value = Hiding(line.value, line.value.args[place] if is_wanted else None)

    def _shrink(self, node: Reduce, body: Scope) -> None:
        """What there is shrinks, and a block is added; without the factors that all blocks have."""
        stream = self.shrinking[node]
        for product, value, _ in self._factors(node):
            self._require(value, body)
            body.known[product] = self._get(value, body)
        if stream.leader in self.powers and stream.exponential not in body.known:
            self._double(stream, body)
        self._require_all(self._needed_for(node), body)
        (total,), tile = self.running[node]
        shrink = self.shrinks[stream.leader]
        before = expr("{} * {}", total, beside(shrink.value, shrink.tile, tile))
        if node in self.dots:
            more = self._dotted(node, body, before)
        elif self._is_of_rows(node):
            more = expr("{} + {}", before, self._collapsed(node, *self._parts(node, body), body))
        else:
            more = expr("{} + {}", before, self._parts(node, body)[0][0])
        self._say(body, assign(total, more), node.eqn)

    def _double(self, stream: Shrinking, body: Scope) -> None:
        """exp(x - m) as a power of two."""
        assert stream.exponential is not None and stream.value is not None  # that is how it was found
        leader, powers, tile = stream.leader, self.powers[stream.leader], self.spell.tile(stream.exponential.axes)
        self.flops += work_of(stream.exponential)
        if powers.may_be_huge:
            (below,) = stream.exponential.operands
            self._require(below, body)
            power = expr("tl.exp2({} * {})", self._operand(below, body, tile), LOG2_E)
        else:
            self._require(stream.value, body)
            factor = powers.scaled.factor if powers.scaled else 1.0
            power = self._power_of(leader, stream.value, factor, tile, body)
        if powers.shown is not None and isinstance(power, ast.Call):
            power = Hiding(power, self._power_of(leader, powers.shown.base, powers.shown.factor, tile, body))
        self._assign(stream.exponential, body, power, self.wish[stream.exponential])

    def _power_of(self, leader: Reduce, value: Node, factor: float, tile: Tile, body: Scope) -> ast.expr:
        doublings = self.doublings[leader]
        extreme = beside(doublings.value, doublings.tile, tile)
        template = "tl.exp2({} * {} - {})" if leader.eqn.primitive.name == "reduce_max" else "tl.exp2({2} - {0} * {1})"
        return expr(template, self._operand(value, body, tile), factor * LOG2_E, extreme)

    def _is_of_rows(self, node: Reduce) -> bool:
        """Whether each step adds up its terms: products of matrices leave a row's with few threads."""
        return node not in self.dots and any(isinstance(dot, Reduce) and dot.axes & {*node.over} for dot in self.dots)

    def _factors(self, node: Reduce) -> Iterator[tuple[Compute, Node, Node]]:
        """The products with what is not known before the loop is over: what is multiplied, and by what."""
        for product in self.shrinking[node].factors:
            parts = factor_of(product, frozenset(node.over))
            assert parts is not None  # that is how it was found
            yield product, *parts

    def _move(self, node: Reduce, body: Scope) -> None:
        """The mean of each lane moves towards its next element, the faster the fewer there were."""
        factors = self.moments[node].factors
        for factor in factors:
            self._require(factor, body)
        (spread, *means), tile = self.running[node]
        planned, dtype = self.spell.planned[node.over[0]], working_dtype(node.dtype)
        start = f"{planned.axis.name}_start" if planned.block > 1 else planned.axis.name
        whole = self._full(constant(planned.block, dtype), (), dtype)
        share = self._named("share", expr("{} / ({} + {})", whole, start, planned.block), body, node.eqn)
        ragged = frozenset(self.spell.ragged(frozenset(node.over)))
        mask = self.masks.of(ragged, (), tile, body) if ragged else None
        apart: dict[Node, ast.expr] = {}
        for factor, mean in zip(dict.fromkeys(factors), means):
            value = expr("{} - {}", self._operand(factor, body, tile), mean)
            apart[factor] = self._named("apart", expr("tl.where({}, {}, 0.0)", mask, value) if mask else value, body)
        for factor, mean in zip(apart, means):
            body.write(mean, expr("{0} + {1} * {2}", mean, apart[factor], share))
        one, other = (apart[factor] for factor in factors)
        body.write(spread, expr("{} + {} * ({} * (1 - {}))", spread, one, other, share))

    def _end(self, node: Collected, scope: Scope) -> None:
        if isinstance(node, Reduce) and node in self.moments:
            self._end_moments(node, scope)
            return
        super()._end(node, scope)
        if isinstance(node, Reduce) and node in self.shrinking:
            self._finish_shrinking(node, scope)

    def _finish_shrinking(self, node: Reduce, scope: Scope) -> None:
        """The infinities that no step has subtracted, and the factors that none could know."""
        stream, tile = self.shrinking[node], self.spell.tile(node.axes)
        total = scope.known[node].name
        assert total is not None  # sums have names
        if stream.strict:  # NaN where it is infinite
            none = expr("{0} - {0}", self._operand(stream.leader, scope, tile))
            scope.lines.append(ast.AugAssign(ast.Name(total, STORE), ast.Add(), none))
        for product, _, factor in self._factors(node):
            self._require(factor, scope)
            template = "{} * {}" if product.eqn.primitive.name == "mul" else "{} / {}"
            scope.write(total, expr(template, total, self._operand(factor, scope, tile)))

    def _end_moments(self, node: Reduce, scope: Scope) -> None:
        """The terms at the means of the lanes, as often as there were elements, and what these were away from them."""
        stream = self.moments[node]
        (spread, *means), tile = self.running.pop(node)
        self.flops += work_of(node)
        inner = Scope(scope, None, own=stream.made)
        for factor, mean in zip(dict.fromkeys(stream.factors), means):
            inner.known[factor] = Written(name(mean), tile)
        for shift in sorted(stream.late, key=lambda each: each.number):
            self._require(shift, scope)
        self._require(node.operands[0], inner)
        scope.lines += inner.lines
        term = self._operand(node.operands[0], inner, tile)
        template = "{1} * {2} - {0}" if stream.negative else "{0} + {1} * {2}"
        whole = expr(template, spread, self._count(node, tile), term)
        self._assign(node, scope, self._collapsed(node, [whole], tile, scope), self.wish[node], node.eqn)

    def _count(self, node: Reduce, tile: Tile) -> ast.expr:
        """How many elements each lane has."""
        planned = self.spell.planned[node.over[0]]
        if not planned.ragged:
            return as_expr(planned.steps)
        holds = expr("tl.arange(0, {}) < {}", planned.block, planned.axis.size % planned.block)
        last = expr("tl.where({}, {}, {})", holds, planned.steps, planned.steps - 1)
        return beside(last, (planned.axis,), tile)
