"""Writes the body of one kernel, by demand.

Every value is written in the outermost scope where the loops that it varies with are open, so what does not depend on a
loop lands before it. Reductions along a looped axis that are ready at the same time share one loop, and stores along
that axis join them.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from jaxpr2triton._compat import is_transposed
from jaxpr2triton.emit.axes import Loop, places_in_loop, places_of_program
from jaxpr2triton.emit.branches import SIDES, Branch, find_branches
from jaxpr2triton.emit.dots import in_blocks
from jaxpr2triton.emit.early import read_in_a_step
from jaxpr2triton.emit.known import Buffers
from jaxpr2triton.emit.moves import Moves
from jaxpr2triton.emit.scope import Scope
from jaxpr2triton.emit.text import NOTHING, Tile, Written
from jaxpr2triton.emit.unaligned import zero_of
from jaxpr2triton.emit.walks import names_in
from jaxpr2triton.emit.work import begins_of, weight_of, work_of
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.graph.exchange import shown_at_once
from jaxpr2triton.graph.joint_sums import SUMS
from jaxpr2triton.graph.nodes import (
    Accumulated,
    Choose,
    Collected,
    Compute,
    Constant,
    Element,
    Exchange,
    Final,
    Graph,
    Keep,
    Kept,
    Load,
    Lookup,
    Node,
    Position,
    Product,
    Recurrence,
    Reduce,
    Store,
    Swept,
    Take,
    operands_of,
)
from jaxpr2triton.graph.order import LoopKey
from jaxpr2triton.ir.dataflow import reachable
from jaxpr2triton.ir.dtypes import triton_name, working_dtype
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.ir.tree import Barrier, Body, assign, barrier, expr, meeting, name, sum_of
from jaxpr2triton.rules.literals import constant


class Emitter(Moves):
    """Decides in which scope, and in which order, values are written."""

    def __init__(self, plan: Plan, graph: Graph, buffers: Buffers) -> None:
        super().__init__(plan, graph, buffers)
        axes = [planned.axis for planned in plan.axes]
        clients: list[Collected | Store] = [*graph.of_kind(Collected), *graph.stores]
        self.keys = {client: self.order.keys(client, axes) for client in clients}
        self.wide = frozenset(axis for axis in axes if self.spell.widths.is_wide(axis))
        self.running: dict[Reduce, tuple[list[str], Tile]] = {}
        self.together = shown_at_once(graph)
        self.meetings = 0
        self.branches = find_branches(graph, self.order, self._is_scalar, self._cycles, plan.policy.writing.branch)

    def run(self) -> Body:
        root = Scope(None, None)
        places = places_of_program(self.plan.axes, self.wide, self.band)
        root.give_places(places)
        if self.is_unaligned:
            root.write(self.names.new("unaligned", 0), zero_of(self.plan))
        for store in self.graph.stores:
            if self.keys[store]:
                self._loop(self.keys[store][0], root)
            else:
                self._require(store.value, root)
                self._store(store, root)
        again = places_of_program(self.plan.axes, self.wide, self.band, self.longest_last)
        for line, other in zip(places, again):
            line.value = other.value
        return root.lines

    # -- where things go --------------------------------------------------------------------------------------

    def _require(self, target: Node, scope: Scope) -> None:
        self._require_all([target], scope)

    def _require_all(self, targets: Iterable[Node], scope: Scope) -> None:
        """Write everything that the targets need and that is not there yet.

        Of several targets what may begin first comes first: what stands together then does not wait for each other.
        """


        def needed(node: Node) -> Iterable[Node]:
            elsewhere = self.order.ends_a_loop(node) or node in self.branches or self._is_streamed(node)
            return () if elsewhere or self._reads_outside(node, scope) else filter(is_missing, self._needed_for(node))

        def is_missing(node: Node) -> bool:
            return scope.find(node) is None

        tops = [*targets]
        missing = list(reachable(filter(is_missing, tops), needed))
        begins = begins_of(missing, self._needed_for) if len(tops) > 1 else {}
        for node in sorted(missing, key=lambda node: (self._waits(node), begins.get(node, 0), node.number)):
            if scope.find(node) is not None:
                continue
            if self._reads_outside(node, scope):
                self._require(node, self._home(node, scope))
            else:
                self._place(node, scope if self._is_read_again(node) else self._home(node, scope))

    def _waits(self, node: Node) -> bool:
        """Whether a node is written last: what the results of a contraction meet, or registers hold it meanwhile."""
        return self.plan.form is not None and not self.order.ends_a_loop(node)

    def _needed_for(self, node: Node) -> Sequence[Node]:
        """What has to be written before: of products that are blocks the factors, of moved lanes their tile."""
        if node in self.moved:
            return self.moved[node].pieces
        return self.dots[node].factors if node in self.dots else operands_of(node)

    def _reads_outside(self, node: Node, scope: Scope) -> bool:
        """Whether a value belongs to a scope around this one, and so do large tiles that it is made of."""
        if self._is_read_again(node) or not any(map(self._is_read_again, operands_of(node))):
            return False
        return self._home(node, scope) is not scope

    def _is_read_again(self, node: Node) -> bool:
        """Whether a tile is too large to be kept through a loop that does not change it."""
        if not self.plan.reload or self.order.loops(node) or isinstance(node, (Recurrence, Final, Collected)):
            return False
        blocks = [planned.block for planned in self.plan.axes if planned.axis in node.axes]
        return math.prod(blocks) >= self.plan.policy.blocks.piece

    def _place(self, node: Node, scope: Scope) -> None:
        if self._is_made_with_others(node, scope):
            return
        self.flops += work_of(node)
        self.scope_now = scope
        match node:
            case Constant():
                scope.known[node] = Written(constant(node.value, node.dtype), (), bare=True)
            case Load():
                self._load(node, scope)
            case Position():
                self._position(node, scope)
            case Compute():
                self._compute(node, scope)
            case Choose():
                self._choose(node, scope)
            case Product() | Element():
                self._term(node, scope)
            case Take():
                self._take(node, scope)
            case Lookup():
                self._look_up(node, scope)
            case Reduce() | Swept():
                self._combine(node, scope)
            case Keep():
                self._begin_keeping(node, scope)
                self._keep(node, scope)
                self._end_keeping(node, scope)
            case Kept():
                self._kept(node, scope)

    def _is_made_with_others(self, node: Node, scope: Scope) -> bool:
        """Whether a value is made where several are at once, in a loop, an `if`, or before a meeting: it is, then."""
        if isinstance(node, Exchange):
            self._meet(self.together[node], scope)
        elif isinstance(node, Collected) and self.keys[node]:
            self._loop(self.keys[node][0], scope)
        elif isinstance(node, Recurrence):
            self._loop(self.order.key(node), scope)
        elif node in self.branches:
            self._branch(self.branches[node], scope)
        else:
            return False
        return True

    def _read_lanes(self, node: Node, scope: Scope) -> None:
        self._require_all(self._tiles_beside(node, scope), scope)
        super()._read_lanes(node, scope)

    def _combine(self, node: Reduce | Swept, scope: Scope) -> None:
        if isinstance(node, Swept):
            self._sweep(node, scope)
        else:
            self._reduce(node, scope)

    def _reduce(self, node: Reduce, scope: Scope) -> None:
        if node.combined_by is not None:
            self._fold(node, scope)
            return
        if self._is_streamed(node):
            self._one_by_one(node, scope)
            return
        if node in self.dots:
            self._assign(node, scope, self._dotted(node, scope), self.wish[node], node.eqn)
            return
        apart = [(operand,) for operand in node.operands] if self._is_made_by_threads(node) else [node.operands]
        sums = [self._collapsed(node, *self._parts(node, scope, each), scope) for each in apart]
        self._assign(node, scope, reduce(sum_of, sums), self.wish[node], node.eqn)

    def _is_made_by_threads(self, node: Reduce) -> bool:
        """Whether threads sum products with matrices by themselves, so that several sums meet no more than one does."""
        lanes = math.prod(self.spell.planned[axis].block for axis in self.spell.tile(node.axes))
        products = [term.operands for term in node.operands if isinstance(term, Product)]
        matrices = [any(factor in self.matrices.unaligned for factor in factors) for factors in products]
        threads = self.plan.num_warps * self.plan.policy.target.warp_size
        return lanes >= threads and len(node.operands) == len(matrices) and all(matrices)

    def _is_streamed(self, node: Node) -> bool:
        """Whether a sum is of several products of large tiles that are read for it alone, and had better not meet."""
        if not isinstance(node, Reduce) or self.keys[node] or len(node.operands) == 1:
            return False
        return all(isinstance(term, Product) and any(map(self._is_read_again, term.operands)) for term in node.operands)

    def _one_by_one(self, node: Reduce, scope: Scope) -> None:
        """Each term is summed before what the next one needs is read."""
        row, dtype = self._row(node), working_dtype(self._element(node))
        total: ast.expr | None = None
        for term in node.operands:
            self._require(term, scope)
            parts, tile = self._parts(node, scope, [term])
            part = self._collapsed(node, parts, tile, scope)
            total = expr(row.combine(dtype), total, part) if total else part
            if term is not node.operands[-1]:
                total = self._named(self.wish[node], total, scope, node.eqn)
        assert total is not None  # it has several terms
        self._assign(node, scope, total, self.wish[node], node.eqn)

    # -- branches ---------------------------------------------------------------------------------------------

    def _is_scalar(self, node: Node) -> bool:
        return not self.spell.tile(node.axes)

    def _cycles(self, node: Node) -> float:
        """About how long a warp is busy with a value."""
        over = self.spell.tile(frozenset(getattr(node, "over", ())))
        lanes = math.prod(self.spell.planned[axis].block for axis in {*self.spell.tile(node.axes), *over})
        target, cost = self.plan.policy.target, self.plan.policy.cost
        busy = target.issue * lanes / (target.warp_size * self.plan.num_warps)
        return weight_of(node) * max(busy, cost.latency) + cost.meeting * len(over)

    def _branch(self, branch: Branch, scope: Scope) -> None:
        """An `if` that gives all choices on one predicate their values."""
        predicate = branch.chosen[0].operands[0]
        self._require(predicate, scope)
        names = [self.names.new(self.wish[node], scope.depth) for node in branch.chosen]
        bodies = []
        for position, own in zip(SIDES, branch.sides):
            body = Scope(scope, None, own=own)
            for node in branch.chosen:
                self._require(node.operands[position], body)
            for variable, node in zip(names, branch.chosen):
                value, tile = node.operands[position], self.spell.tile(node.axes)
                body.write(variable, self._whole(value, body, tile, node.dtype))
            bodies.append(body.lines)
        otherwise, then = bodies
        self._say(scope, ast.If(self._get(predicate, scope).value, then, otherwise), branch.chosen[0].eqn)
        for variable, node in zip(names, branch.chosen):
            self.flops += work_of(node)
            scope.known[node] = Written(name(variable), self.spell.tile(node.axes))

    # -- loops ------------------------------------------------------------------------------------------------

    def _loop(self, key: LoopKey, scope: Scope) -> None:
        """One loop for all carried values, reductions and stores that are ready in the same pass over the same axes.

        state = h0                                  _start
        total_acc = tl.full((), 0.0, tl.float32)    _begin
        for t in range(100):                        _open
            total_acc = total_acc + state           _do
            state = state * a                       _step
        total = total_acc                           _end
        """
        if key in scope.done:
            return
        scope.done.add(key)
        path = (*(outer.key for outer in reversed(list(scope.chain())) if outer.key is not None), key)
        recurrences = self.order.recurrences(path)
        clients = [client for client in self.keys if self._passes_through(client, path, scope)]
        begun = [n for n in clients if isinstance(n, Collected) and self.keys[n][0] == key]

        body = self._open(key, scope)
        self._write_spans(key, [*clients, *recurrences], body)
        for loop in recurrences:
            self._start(loop, scope, body)
        for node in begun:
            self._begin(node, scope)
        if self.plan.form is Form.DOT and recurrences:
            loads = read_in_a_step(recurrences, clients, body)
            self._read_early([load for load in loads if self._home(load, body) is body], body)

        for client in clients:
            self._do(client, key, body)
        self._step(recurrences, body)
        self._close(key, body, recurrences)

        for loop in recurrences:
            self._finish(loop, scope, body)
        for node in begun:
            self._end(node, scope)

    def _open(self, key: LoopKey, scope: Scope) -> Scope:
        """The inside of a loop, or of several within each other, with the places along their axes."""
        if not scope.open_loops.isdisjoint(key.opened):
            raise CompilerBug(f"kernel {self.plan.name} runs along an axis within a loop along it")
        body = scope
        for axis in key.opened:
            body = Scope(body, axis)
            self.names.enter()
            body.give_places(places_in_loop(self.spell.planned[axis], key.backwards, axis in self.wide))
        body.key = key
        return body

    def _write_spans(self, key: LoopKey, clients: Sequence[Node | Store], body: Scope) -> None:
        for inner, limits in self._spans(key, clients, body):
            self._require_all([node for limit in limits for node in limit.needs], inner.around)
            inner.loop = self._loop_over(inner, limits, key.backwards)

    def _do(self, client: Collected | Store, key: LoopKey, body: Scope) -> None:
        """What a step of this loop does for a reduction or a store; in a loop within, if that has more of them."""
        deeper = self.keys[client][self.keys[client].index(key) + 1 :]
        if deeper:
            self._loop(deeper[0], body)
            return
        match client:
            case Reduce():
                self._accumulate(client, body)
            case Keep():
                for operand in self._written_with(client):
                    self._require(operand, body)
                self._keep(client, body)
            case Store():
                self._require(client.value, body)
                self._store(client, body)

    def _close(self, key: LoopKey, body: Scope, recurrences: Sequence[Recurrence]) -> None:
        """Put what is inside of a loop into it; one in which nothing is done is left out."""
        conditional = next((loop for loop in recurrences[:1] if loop.conditional), None)
        for _ in key.opened:
            outer = body.around
            loop = self._loop_while(conditional, body) if conditional else body.loop
            if body.lines:
                assert loop is not None  # it was opened
                loop.body = body.lines
                outer.lines += self._in_parts(loop, body) if isinstance(loop, ast.For) else [loop]
            self.names.leave()
            outer.said = None
            body = outer

    def _passes_through(self, client: Collected | Store, path: Sequence[LoopKey], scope: Scope) -> bool:
        """Whether the loops of a reduction or store are the last ones of this path, so far, in those around it."""
        keys = self.keys[client]
        if not keys or path[-1] not in keys:
            return False
        depth = keys.index(path[-1]) + 1
        own = {axis for key in keys[: depth - 1] for axis in key.opened}
        is_last = tuple(keys[:depth]) == tuple(path[-depth:]) and keys[0].around <= scope.open_loops - own
        return is_last and (isinstance(client, Store) or self.order.belongs(client, path[:-depth]))

    def _start(self, loop: Recurrence, scope: Scope, body: Scope) -> None:
        """Give each carried value a variable, and its value before the loop.

        The condition of a `while` comes last. Triton carries them in this order, forgets a condition that no step
        reads, and would from then on take each value after it for the next one.
        """
        carried = list(zip(loop.starts, loop.carried, loop.nexts))
        for start, leaf, value in carried[1:] + carried[:1] if loop.conditional else carried:
            self._require(start, scope)
            written = self._get(start, scope)
            tile = self.spell.tile(leaf.axes)
            if loop.conditional and leaf is loop.carried[0] and (mask := self.masks.of(leaf.axes, (), tile, scope)):
                # lanes outside of the array have nothing to do
                inside = expr("{} & {}", self._spread(start, scope, tile, leaf.dtype), mask)
                body.known[leaf] = Written(self._named("going", inside, scope), tile)
                continue
            stem = "going" if loop.conditional and leaf is loop.carried[0] else self._stem(loop, leaf, value)
            if written.name and self.names.rank(written.name) > 1:
                stem = self.names.wish(written.name)
            variable = self._named(stem, self._spread(start, scope, tile, leaf.dtype), scope)
            body.known[leaf] = Written(variable, tile)

    def _stem(self, loop: Recurrence, leaf: Node, value: Node) -> str:
        """What a carried value is called whose start has no name: a cotangent, a running total, or a state."""
        if any(leaf in shown.needs for shown in self.together):
            return "turn"
        renamed = [user for user in self.users[leaf] if isinstance(user, Take | Lookup)]
        users = [user for node in (leaf, *renamed) for user in self.users[node] if isinstance(user, Compute)]
        for user in users:
            wish = self.wish[user]
            if user.eqn.primitive.name == "add_any" and self.names.rank(wish) == 3:
                return wish
        adds = isinstance(value, Compute) and value.eqn.primitive.name in SUMS
        if adds and self.users[leaf] == [value]:
            return "total"
        return "cotangent" if is_transposed(loop.eqn) else "state"

    def _loop_while(self, loop: Recurrence, body: Scope) -> Loop:
        going = self._get(loop.carried[0], body)
        if self._is_a_branch(loop):
            return ast.If(going.value, [], [])
        return ast.While(expr("tl.max({}.to(tl.int32)) > 0", going.value) if going.tile else going.value, [], [])

    def _is_a_branch(self, loop: Recurrence) -> bool:
        """Whether a loop ends after its first step, if there is one."""
        if not loop.conditional or self.spell.tile(loop.carried[0].axes):
            return False
        return isinstance(loop.nexts[0], Constant) and not loop.nexts[0].value

    def _spread(self, node: Node, scope: Scope, tile: Tile, dtype: np.dtype) -> ast.expr:
        """A value as a tile of exactly that shape, with the digits of its dtype."""
        return self.narrow.rounded(node, self._whole(node, scope, tile, dtype))

    def _step(self, recurrences: Sequence[Recurrence], body: Scope) -> None:
        """What is carried to the next step, all at once if one variable takes the value of another."""
        self._require_all((value for loop in recurrences for value in loop.nexts), body)
        changes: list[tuple[str, ast.expr]] = []
        for loop in recurrences:
            for value, leaf in list(zip(loop.nexts, loop.carried))[1 if self._is_a_branch(loop) else 0 :]:
                variable = self._get(leaf, body).name
                assert variable is not None  # it is carried
                changed = self._spread(value, body, self.spell.tile(leaf.axes), leaf.dtype)
                if not isinstance(changed, ast.Name) or changed.id != variable:
                    changes.append((variable, changed))
        names, values = [variable for variable, _ in changes], [changed for _, changed in changes]
        if len(changes) > 1 and not {each.id for each in names_in(*values)}.isdisjoint(names):
            body.write(names, tuple(values))
        else:
            for variable, changed in changes:
                body.write(variable, changed)

    def _finish(self, loop: Recurrence, scope: Scope, body: Scope) -> None:
        for node in self.graph.of_kind(Final):
            if node.recurrence is loop:
                leaf = loop.carried[node.position]
                scope.known[node] = self._get(leaf, body)
        scope.known[loop] = NOTHING

    def _begin(self, node: Collected, scope: Scope) -> None:
        """Give the running result of a reduction its variables."""
        if not isinstance(node, Reduce):
            self._begin_keeping(node, scope)
            return
        if (dot := self.dots.get(node)) is not None:
            stem = self.names.new(f"{self.wish[node]}_acc", scope.depth)
            zeros = expr("tl.zeros({}, {})", self.spell.shape(dot.tile), triton_name(dot.accumulated))
            scope.write(stem, zeros)
            self.running[node] = [stem], dot.tile
            return
        if node.combined_by is not None:
            running = (self.running[each] for each in self._results_of(node) if each in self.running)
            self.running[node] = next(running, None) or self._begin_fold(node, scope)
            return
        row, dtype = self._row(node), self._element(node)
        tile = self._whole_tile(node)
        stem = self.names.new(f"{self.wish[node]}_acc", scope.depth)
        identity = constant(row.identity(working_dtype(dtype)), dtype)
        blocks = in_blocks(self.plan, self.spell, tile, working_dtype(dtype)) if not row.indexed else None
        first = self._full(identity, tile, dtype)
        if blocks is not None:
            first = blocks if row.identity(working_dtype(dtype)) == 0 else expr("{} + {}", blocks, identity)
        scope.write(stem, first)
        names = [stem]
        if row.indexed:
            names.append(self.names.new(f"{stem}_place", scope.depth))
            scope.write(names[-1], self._first_places(node, self.keys[node], tile))
        self.running[node] = names, tile

    def _accumulate(self, node: Reduce, body: Scope) -> None:
        if node in self.dots:
            (total,), _ = self.running[node]
            for factor in self.dots[node].factors:
                self._require(factor, body)
            self._say(body, assign(total, self._dotted(node, body, name(total))), node.eqn)
            return
        for operand in node.operands:
            self._require(operand, body)
        names, _ = self.running[node]
        if node.combined_by is not None:
            if node is next(each for each in self._results_of(node) if each in self.running):
                self._go_on_folding(node, names, body)
            return
        parts, _ = self._parts(node, body)
        combined = expr(self._joined(node, self.keys[node]), *names, *parts)
        self._say(body, assign(names, combined), node.eqn)

    def _end(self, node: Collected, scope: Scope) -> None:
        if not isinstance(node, Reduce):
            self._end_keeping(node, scope)
            return
        names, tile = self.running.pop(node)
        running = [*map(name, names)]
        self.flops += work_of(node)
        if node.combined_by is not None:
            if not self._is_made(node, scope):
                self._finish_fold(node, running, tile, scope)
            return
        whole = running[0] if node in self.dots else self._collapsed(node, running, tile, scope)
        if whole is running[-1]:
            scope.known[node] = Written(whole, tile)
        else:
            self._assign(node, scope, whole, self.wish[node], node.eqn)

    def _meet(self, shown: Sequence[Exchange], scope: Scope) -> None:
        """All that programs show each other at once is written, and then they meet."""
        self._require_all([value for each in shown if not self.keys[each] for value in operands_of(each)], scope)
        for each in shown:
            if self.keys[each]:
                self._loop(self.keys[each][0], scope)
            else:
                self._keep(each, scope)
        assert self.buffers.counter is not None  # as something is shown
        scope.lines.append(meeting(self.buffers.counter, self.plan.programs))
        self.meetings += 1
        self.helpers["_all_meet"] = None
        scope.known.update(dict.fromkeys(shown, NOTHING))

    def _begin_keeping(self, node: Collected, scope: Scope) -> None:
        """What the last step of a loop around has kept may still be read; what meets waits for what it meets."""
        if isinstance(node, Accumulated):
            self._require(node.begun, scope)
        elif scope.depth and not isinstance(node, Exchange):
            self._wait(scope)

    def _written_with(self, node: Keep) -> Sequence[Node]:
        """What has to be there for what is written, and for its place."""
        return (*node.operands, *node.needs) if isinstance(node, Accumulated | Exchange) else node.operands

    def _keep(self, node: Keep, scope: Scope) -> None:
        buffer, self.scope_now = self.buffers.kept[node.slot], scope
        if isinstance(node, Accumulated):
            for place, guard, value in zip(node.places, node.guards, node.operands):
                self._accumulate_at(buffer, node, place, guard, value, scope)
            return
        for place, value in zip(node.places, node.operands):
            self._write(buffer, place, value, scope)

    def _end_keeping(self, node: Node, scope: Scope) -> None:
        if not isinstance(node, Exchange):  # those are known when programs have met
            self._wait(scope)
            scope.known[node] = NOTHING

    def _wait(self, scope: Scope) -> None:
        if not scope.lines or not isinstance(scope.lines[-1], Barrier):
            scope.lines.append(barrier())
