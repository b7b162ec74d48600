"""A matrix that is too large for the registers of a program is held in part, and only the rest is read in every step.

    for t in range(512):                                 u_held = (tl.load(u_ptr + …), tl.load(u_ptr + 16 * 512 + …))
        for k_start in range(0, 128, 16):                for t in range(512):
            k = k_start + tl.arange(0, 16)        →          for held in tl.static_range(2):
            u = tl.load(u_ptr + k * 512 + …)                     u = u_held[held]
            acc = acc + u * tl.load(kept_ptr + k)                acc = acc + u * tl.load(kept_ptr + …)
                                                             for k_start in range(32, 128, 16):
                                                                 …

What a step reads again comes from the second-level cache, and takes as long as that gives a processor so many bytes. So
as many pieces as there are registers for are read once.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from jaxpr2triton.emit.ahead import (
    Read,
    bounds_of,
    first_of,
    is_innermost,
    own_name,
    reads_of,
    steps_in_text,
    with_names,
)
from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.tidy import without_idle_comments
from jaxpr2triton.emit.walks import (
    Fresh,
    Loop,
    beside_loops,
    calls,
    copied,
    function_of,
    has_values_after,
    is_store,
    names_in,
    nodes_of,
    stored_in,
)
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.ir.plan import Form, Plan
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import Body, assign, call


def hold_pieces(body: Body, plan: Plan, names: Names, inputs: Sequence[Buffer]) -> tuple[Body, Set[int]]:
    """The statements, whose loops hold some pieces of the matrices that their steps walk through piece by piece.

    They are tidy already, and have these names. Compilers write the loops over few pieces that are left, by
    their ids, one step after the other, and so read ahead in them.
    """
    if plan.choice is None or plan.form is Form.DOT:
        return body, set()
    holding = _Holding(plan, Fresh.beside(body, names), inputs)
    loops = [each for each in nodes_of(ast.stmt, *body) if isinstance(each, Loop)]
    walked = [pieces.each for loop in loops for pieces in holding.walked(loop)]
    if not walked:
        return body, set()
    beside = max(plan.choice.chosen.kept - max(walked), 0)  # the estimate is of the loop that keeps most
    return without_idle_comments(holding.holding(body, beside)), holding.short


@dataclass(frozen=True)
class _Pieces:
    """A loop in a step that walks through matrices, and what it reads again in each step."""

    loop: ast.For
    reads: Sequence[Read]
    steps: range
    each: int  # registers of a thread for what is read at once

    @property
    def meets(self) -> bool:
        """Whether lanes exchange numbers for a piece: compilers do so for several at once, and fill registers."""
        made = {function_of(call) for statement in self.loop.body for call in calls(statement)}
        return not made.isdisjoint(("reduce", "gather"))


@dataclass(frozen=True)
class _Holding:
    plan: Plan
    fresh: Fresh
    inputs: Sequence[Buffer]  # they are read and never written
    short: set[int] = field(default_factory=set)

    def holding(self, body: Body, beside: int) -> Body:
        """The statements; `beside` is what a thread keeps in any case."""
        return beside_loops(body, lambda loop, _, outside: (self._before(loop, beside, outside), []))

    def room(self, pieces: _Pieces, beside: int) -> int:
        """The registers of a thread that it needs neither to compute with nor for the piece that it reads.

        Of pieces for which lanes meet no more than one matrix's part is held.
        """
        cost, target = self.plan.policy.cost, self.plan.policy.target
        most = min(cost.room_of_a_thread, target.registers // (self.plan.num_warps * target.warp_size))
        room = most - beside - max(cost.kept_beside, pieces.each)
        return min(room, max(map(self._of_a_thread, pieces.reads))) if pieces.meets else room

    def walked(self, outer: ast.For | ast.While) -> Iterator[_Pieces]:
        """The loops in a step of this one that read large tiles which no step changes."""
        changing = {name.id for name in names_in(outer) if is_store(name)}
        for loop in outer.body:
            bounds = bounds_of(loop) if isinstance(loop, ast.For) and is_innermost(loop) else None
            if isinstance(loop, ast.For) and bounds is not None:
                own = {name.id for name in names_in(loop.target)}
                reads, _ = reads_of(loop)
                fixed = [read for read in reads if self._is_fixed(read, changing - own)]
                if any(map(self._is_large, fixed)):
                    yield _Pieces(loop, fixed, range(*bounds), sum(map(self._of_a_thread, fixed)))

    def _before(self, outer: ast.For | ast.While, beside: int, outside: Set[str]) -> Body:
        """What a loop holds of what is walked through in its steps, which from now on read the rest."""
        before: Body = []
        for pieces in list(self.walked(outer)):
            count, more = self._fitting(pieces, self.room(pieces, beside))
            if count or more:
                beside += count * pieces.each + sum(map(self._of_a_thread, more))
                place = outer.body.index(pieces.loop)
                defined = outside | has_values_after(*outer.body[:place])
                held, outer.body[place : place + 1] = self._divided(pieces, count, more, defined)
                before += held
        return before

    def _fitting(self, pieces: _Pieces, room: int) -> tuple[int, Sequence[Read]]:
        """How many pieces fit, and what of one more."""
        count = min(max(room, 0) // pieces.each, len(pieces.steps))
        sizes = itertools.accumulate(map(self._of_a_thread, pieces.reads))
        more = [read for read, size in zip(pieces.reads, sizes) if size <= room - count * pieces.each]
        is_worth_it = count < len(pieces.steps) and any(map(self._is_large, more))
        return count, more if is_worth_it else ()

    def _divided(self, pieces: _Pieces, count: int, more: Sequence[Read], outside: Set[str]) -> tuple[Body, Body]:
        """What is read before the loop around, and the parts of the loop that walks: held, held in part, and read."""
        parts = [(pieces.steps[:count], pieces.reads), (pieces.steps[count : count + 1], more)]
        before: Body = []
        instead: Body = []
        held, own = 0, stored_in(pieces.loop)
        for steps, reads in parts:
            if steps and reads:
                first, loop = self._held(pieces, steps, reads, outside)
                before += first
                loop.body = self.fresh.moved_out(loop.body, own, outside)
                instead += loop.body if len(steps) == 1 else [loop]
                held += len(steps)
        return before, [*instead, *self._rest(pieces.loop, pieces.steps[held:])]

    def _held(self, pieces: _Pieces, steps: range, reads: Sequence[Read], outside: Set[str]) -> tuple[Body, ast.For]:
        """What is read for these steps, and a loop over them that is in the text."""
        before: Body = []
        queues: dict[str, str] = {}
        standing: dict[int, str] = {}
        loop = copied(pieces.loop)
        copies, places = reads_of(loop)
        wanted = {printed(each.whole): each.wanted for each in copies}
        (name,) = names_in(pieces.loop.target)
        for read in reads:
            stem = read.buffer.name
            variable, held = own_name(read, pieces.loop.body) or self.fresh(stem), self.fresh(f"{stem}_held")
            before.append(assign(held, first_of(read, name.id, steps)))
            queues[held] = variable
            standing |= {id(place): variable for place in wanted[printed(read.whole)]}
        body = with_names(loop.body, standing, places - outside)
        return before, steps_in_text(queues, name.id, steps, body, self.fresh("piece"), len(steps) > 1)

    def _rest(self, loop: ast.For, steps: range) -> Body:
        if not steps:
            return []
        loop.iter = call("range", steps.start, steps.stop, steps.step)
        if len(steps) <= self.plan.policy.loops.steps_ahead:
            self.short.add(id(loop))
        return [loop]

    def _is_large(self, read: Read) -> bool:
        return self._elements(read) >= self.plan.policy.blocks.piece

    def _is_fixed(self, read: Read, changing: set[str]) -> bool:
        """Whether it is read again in each step of the loop around."""
        return read.buffer in self.inputs and changing.isdisjoint(name.id for name in names_in(read.whole))

    def _of_a_thread(self, read: Read) -> int:
        threads = self.plan.policy.target.warp_size * self.plan.num_warps
        return -(-self._elements(read) // threads) * -(-read.buffer.dtype.itemsize // 4)

    def _elements(self, read: Read) -> int:
        """Of what a step of the inner loop reads."""
        blocks = {planned.axis.name: planned.block for planned in self.plan.axes}
        along = {name.id for name in names_in(read.whole)} & blocks.keys()
        pieces = {printed(each): each.args for each in calls(read.whole, "arange")}
        ends = [end.value for _, end in pieces.values() if isinstance(end, ast.Constant)]
        sizes = [end for end in ends if isinstance(end, int)]
        return math.prod(blocks[axis] for axis in along) * math.prod(sizes)
