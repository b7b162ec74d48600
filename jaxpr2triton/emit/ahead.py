"""What the next steps of a loop read from memory is on its way while the present one computes.

    for t in range(512):                        x_next = tl.load(x_ptr + k)
        x = tl.load(x_ptr + t * 64 + k)    →    for t in range(512):
        h = f(h, x)                                 x = x_next
        tl.store(hs_ptr + t * 64 + k, h)            x_next = tl.load(x_ptr + (t + 1) * 64 + k, mask=t < 511)
                                                    h = f(h, x)
                                                    tl.store(hs_ptr + t * 64 + k, h)

No compiler reads past a store, for all it knows of pointers, so that every step would wait for memory. If that is
several steps ahead, they are a round: what the next round wants is read when this one begins, all at once, and waited
for where it ends.

    x_next = tl.load(x_ptr + k), tl.load(x_ptr + 64 + k)
    for t_round in range(0, 512, 2):
        x_now = x_next
        x_next = tl.load(x_ptr + (t_round + 2) * 64 + k, mask=t_round < 510), tl.load(x_ptr + (t_round + 3) * 64 + …)
        for step in tl.static_range(2):
            x = x_now[step]
            h = f(h, x)
            tl.store(hs_ptr + (t_round + step) * 64 + k, h)

One after the other, each step would wait for what was read last: a warp has six counters for all that it waits for. Nor
does a compiler read far ahead where a program adds up what it makes of two sides.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import cast

from jaxpr2triton.emit.names import Names
from jaxpr2triton.emit.round_parts import written_out
from jaxpr2triton.emit.tidy import without_idle_comments
from jaxpr2triton.emit.walks import (
    Fresh,
    Loop,
    Replaced,
    beside_loops,
    calls,
    copied,
    function_of,
    is_in_text,
    is_store,
    names_in,
    nodes_of,
    stored_in,
)
from jaxpr2triton.emit.widths import WORD, fits
from jaxpr2triton.errors import CompilerBug
from jaxpr2triton.ir.kernel import Buffer
from jaxpr2triton.ir.plan import Form, Plan, power_of_two
from jaxpr2triton.ir.printed import printed
from jaxpr2triton.ir.tree import (
    STORE,
    Body,
    Load,
    Part,
    Store,
    as_expr,
    assign,
    buffer_of,
    call,
    expr,
    loop_of,
    mask_of,
    name,
    scaled,
)

FOLDED: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass
class Read:
    """What a step reads, as its number says, and the places in the step that want it."""

    whole: Load
    wanted: list[Load] = field(default_factory=list)

    @property
    def buffer(self) -> Buffer:
        return buffer_of(self.whole)


@dataclass(frozen=True)
class Early:
    """How many steps ahead a loop reads, how many of them are written one after the other, and where the last ones are.

    Beyond the end nothing is read, and several steps are a round; or, if it `peels`, each step reads for a later one,
    and the last steps are a loop of their own.
    """

    ahead: int
    unrolled: int
    peels: bool = False


Ahead = Callable[[Sequence[Read], ast.For], Early]


def read_ahead(body: Body, plan: Plan, names: Names, short: Set[int] = frozenset()) -> Body:
    """The statements, whose loops read early what lies at known places and is not written in them.

    They are tidy already, and have these names. Loops that are `short`, by their ids, are left as they
    are: those around them hold a part of what is read again, and wait for the rest less.
    """
    if plan.form is Form.DOT or (plan.reload and not short):  # bound by what is read again and again
        return body
    price: _Price | _PriceOfPairs
    if plan.choice is not None:
        price = _Price(plan, sum(map(is_innermost, nodes_of(ast.For, *body))))
    elif plan.form is Form.OUTER:
        price = _PriceOfPairs(plan)
    else:
        return body
    if not price.is_latency_seen:
        return body

    def early(reads: Sequence[Read], loop: ast.For) -> Early:
        return Early(0, 0) if id(loop) in short else price.early(reads, loop)

    return without_idle_comments(reading_ahead(body, early, Fresh.beside(body, names)))


class _Price:
    """How many steps ahead a loop of a plan had better read."""

    def __init__(self, plan: Plan, loops: int) -> None:
        assert plan.choice is not None  # a loop carries something
        self.estimate, self.policy = plan.choice.chosen, plan.policy
        self.blocks = {planned.axis.name: planned.block for planned in plan.axes}
        self.num_warps, self.loops = plan.num_warps, max(loops, 1)  # the estimate is of a step of each of them

    @property
    def is_latency_seen(self) -> bool:
        """Whether there are too few warps for some to compute while others wait."""
        warps = self.estimate.programs * self.num_warps / self.policy.target.processors
        return warps <= self.policy.blocks.warps

    def early(self, reads: Sequence[Read], loop: ast.For) -> Early:
        fitting = (self._room - self.estimate.kept) // max(sum(map(self._numbers, reads)), 1)
        wanted = math.ceil(self.policy.loops.under_way / self._cycles) if is_innermost(loop) else 1
        most = min((fitting + 1) // 2, self.policy.loops.steps_ahead)  # those of the present round are there, too
        ahead = next((steps for steps in (power_of_two(wanted) >> n for n in range(9)) if steps <= most), 0)
        return Early(ahead, ahead)

    @property
    def _room(self) -> int:
        """Numbers that a thread keeps, so that all programs of a processor run at once."""
        target, cost = self.policy.target, self.policy.cost
        threads = math.ceil(self.estimate.programs / target.processors) * self.num_warps * target.warp_size
        own = target.registers // threads
        return cost.room_of_a_thread if own > target.registers_of_a_thread else own - cost.kept_beside

    @property
    def _cycles(self) -> float:
        """Of a step, in which few warps may wait for hardly anything."""
        cycles, cost = float(self.estimate.cycles), self.policy.cost
        if self.num_warps <= self.policy.target.schedulers:
            cycles = min(cycles, self.estimate.instructions * cost.alone)
        return max(cycles / self.loops, 1)

    def _numbers(self, read: Read) -> int:
        """Of each thread."""
        along = {name.id for name in names_in(read.whole)} & self.blocks.keys()
        lanes = math.prod(self.blocks[axis] for axis in along)
        return -(-lanes // (self.policy.target.warp_size * self.num_warps))


class _PriceOfPairs:
    """The same where a program adds, term by term, what it makes of a block of rows and one of columns."""

    def __init__(self, plan: Plan) -> None:
        self.policy, self.num_warps = plan.policy, plan.num_warps
        self.programs = plan.programs
        tile = math.prod(planned.block for planned in plan.axes)  # threads share terms, or there is one at a time
        self.results = max(1, tile // (plan.policy.target.warp_size * plan.num_warps))  # of a thread

    @property
    def is_latency_seen(self) -> bool:
        warps = self.programs * self.num_warps / self.policy.target.processors
        return warps <= self.policy.blocks.warps

    def early(self, reads: Sequence[Read], loop: ast.For) -> Early:
        """As many as take as long as a read of the second-level cache, and there is room for.

        One step is so little that a mask for each would be seen.
        """
        made = len(list(_made_of_pairs(loop.body)))
        instructions = max(2, len(reads), made - 1) * self.results  # a product that is added is one
        numbers = len(reads) * math.isqrt(self.results)  # a thread has about as many rows as columns
        room = (self.policy.cost.room_of_a_thread - 2 * self.results) // max(numbers, 1)  # sums, and a tile beside
        wanted = self.policy.loops.cached // instructions if is_innermost(loop) else 1
        most = min(max(wanted, 1), room, self.policy.loops.steps_ahead)
        ahead = power_of_two(most + 1) // 2 if most > 0 else 0
        unrolled = min(self.policy.loops.steps_ahead, self.policy.loops.instructions_in_a_row // instructions)
        return Early(ahead, max(ahead, power_of_two(unrolled + 1) // 2), peels=True)


def _made_of_pairs(body: Body) -> Iterator[ast.AST]:
    """What a step computes of rows and columns that were read, not of one of them, nor where they are."""
    wide: set[str] = set()
    for statement in body:
        if nodes_of(Load, statement) or next(calls(statement, "arange"), None) is not None:
            continue
        nodes = list(ast.walk(statement))
        if any(isinstance(node, ast.Constant) and node.value is None for node in nodes) or wide & {
            name.id for name in names_in(statement)
        }:
            wide |= _names(statement) if isinstance(statement, ast.Assign) else set()
            yield from (node for node in nodes if isinstance(node, ast.BinOp | ast.Call | ast.Compare))


def reading_ahead(body: Body, early: Ahead, fresh: Fresh) -> Body:
    """The statements; `early` says for what is read in a loop how many steps before that is."""

    def beside(loop: Loop, own: Counter[str], outside: Set[str]) -> tuple[Body, Body]:
        if not isinstance(loop, ast.For) or is_in_text(loop):
            return [], []
        before, after = _around(loop, early, fresh, outside)
        return before, fresh.moved_out(after, own, outside)

    return beside_loops(body, beside)


def _around(loop: ast.For, early: Ahead, fresh: Fresh, outside: Set[str]) -> tuple[Body, Body]:
    """What is read before a loop, which from now on reads what its next steps want; and its last steps, if it peels."""
    reads, places = reads_of(loop)
    bounds = bounds_of(loop)
    if bounds is None:
        raise CompilerBug(f"a loop over {printed(loop.iter)}")
    start, stop, step = bounds
    how = early(reads, loop) if reads else Early(0, 0)
    steps = range(start, stop, step)
    ahead, peels = min(how.ahead, len(steps) - 1), how.peels
    while not peels and len(steps) // max(ahead, 1) < ahead:  # so that of few steps not most are left over
        ahead //= 2
    if ahead < 1:
        return [], []
    (counter,) = names_in(loop.target)
    standing: dict[int, str] = {}
    queues: dict[str, tuple[str, Read]] = {}  # what holds that which was read, the variable of the present step
    for read in reads:
        stem = read.buffer.name
        now, later = own_name(read, loop.body) or fresh(stem), fresh(f"{stem}_next")
        standing |= {id(place): now for place in read.wanted}
        queues[later] = now, read
    loop.body = body = with_names(loop.body, standing, places - outside)
    before: Body = [assign(later, first_of(read, counter.id, steps[:ahead])) for later, (_, read) in queues.items()]
    if not peels and ahead > 1:
        return before, _in_rounds(loop, queues, steps, ahead, fresh)
    first: Body = []
    behind: Body = []
    for later, (now, read) in queues.items():
        following = at_step(read.whole, counter.id, expr("{} + {}", counter.id, ahead * step))
        if not peels:
            following = only_if(expr("{} < {}", counter.id, stop - ahead * step), following)
        next_ones = first if not peels else behind  # what was read before is wanted, and no store is waited for
        if ahead == 1:
            first.append(assign(now, name(later)))
            next_ones.append(assign(later, following))
        else:
            first.append(assign(now, expr("{}[0]", later)))
            next_ones.append(assign(later, expr("{}[1:] + {}", later, (following,))))
    loop.body = first + body + behind
    if not peels:
        return before, []
    most = len(steps) - ahead
    loop.iter = call("tl.range", start, steps[most], step, loop_unroll_factor=min(how.unrolled, most))
    now_of = {later: now for later, (now, _) in queues.items()}
    return before, [steps_in_text(now_of, counter.id, steps[most:], copied(body), fresh("late"), ahead > 1)]


def with_names(body: Body, standing: Mapping[int, str], places: Set[str]) -> Body:
    """A step in which variables stand for what was read, without places that it reads nothing at any more.

    `places` are of the step alone: what had a value before is the next step's, too, and whoever reads the last one's.
    """
    renamed = Replaced(lambda node: name(standing[id(node)]) if id(node) in standing else None)
    return _without(places, [each for each in map(renamed.statement, body) if not _is_idle(each)])


def first_of(read: Read, step: str, first: range) -> Part:
    """What the first steps read; a tuple, if they are several."""
    starts = tuple(at_step(read.whole, step, number) for number in first)
    return starts[0] if len(starts) == 1 else starts


def _in_rounds(loop: ast.For, queues: Mapping[str, tuple[str, Read]], steps: range, ahead: int, fresh: Fresh) -> Body:
    """Make the steps rounds of so many, each of which reads for the next one; and what is left over."""
    (counter,) = names_in(loop.target)
    rounds, left = divmod(len(steps), ahead)
    first, number = fresh(f"{counter.id.removesuffix('_start')}_round"), fresh("step")
    reads: Body = []
    taken: Body = []
    if counter.id in {each.id for each in names_in(*loop.body)}:
        taken.append(assign(counter.id, expr("{} + {}", first, scaled(name(number), steps.step))))
    for later, (now, read) in queues.items():
        following: list[Load] = []
        for each in range(ahead):
            following.append(at_step(read.whole, counter.id, expr("{} + {}", first, (ahead + each) * steps.step)))
            if each >= left:
                only_if(expr("{} < {}", first, steps[(rounds - 1) * ahead]), following[-1])
        held = fresh(f"{read.buffer.name}_now")
        reads += [assign(held, name(later)), assign(later, tuple(following))]
        taken.append(assign(now, expr("{}[{}]", held, number)))
    last, now_of = steps[rounds * ahead :], {later: now for later, (now, _) in queues.items()}
    after: Body = [steps_in_text(now_of, counter.id, last, copied(loop.body), fresh("late"), True)] if left else []
    inner = written_out(number, ahead, taken, loop.body, {*now_of.values(), counter.id}, fresh)
    loop.target = ast.Name(first, STORE)
    loop.iter = call("range", steps.start, steps.start + rounds * ahead * steps.step, ahead * steps.step)
    loop.body = [*reads, *inner]
    return after


def steps_in_text(queues: Mapping[str, str], step: str, last: range, body: Body, late: str, several: bool) -> ast.For:
    """The steps that read nothing, one after the other in the text."""
    taken = [assign(now, expr("{}[{}]", later, late) if several else name(later)) for later, now in queues.items()]
    if step in {each.id for each in names_in(*body)}:  # as a number of the loop is, and not of the text
        number = scaled(name(late), last.step)
        number = expr("{} + {}", last.start, number) if last.start else number
        kind = "tl.int32" if fits(last.start, last.stop, WORD) else "tl.int64"
        taken.append(assign(step, expr("tl.full((), {}, {})", number if len(last) > 1 else last.start, kind)))
    return loop_of(late, call("tl.static_range", len(last)), [*taken, *body])


def is_innermost(node: ast.AST) -> bool:
    """Whether it is a loop that has no other one in it."""
    if not isinstance(node, ast.For) or is_in_text(node):
        return False
    return not any(isinstance(each, Loop) and not is_in_text(each) for each in node.body)


def own_name(read: Read, body: Body) -> str | None:
    """The variable that a step gives the value to, if what it held before is not wanted in the step.

    It may hold something else later, unless the value is wanted again.
    """
    for number, statement in enumerate(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value in read.wanted:
                later = names_in(*body[number + 1 :]) if len(read.wanted) > 1 else []
                others = [*names_in(*body[:number]), *filter(is_store, later)]
                return name if name not in {other.id for other in others} else None
    return None


def _is_idle(statement: ast.stmt) -> bool:
    """`x = x`, which was read."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=same)):
            return name == same
    return False


def _without(places: Set[str], body: Body) -> Body:
    """The statements without places that nothing is read or written at any more."""
    read = {name.id for name in names_in(*body) if not is_store(name)}
    idle = [each for each in body if isinstance(each, ast.Assign) and _names(each) <= places - read]
    return _without(places, [each for each in body if each not in idle]) if idle else body


def _names(assignment: ast.Assign) -> set[str]:
    return {name.id for target in assignment.targets for name in names_in(target)}


def bounds_of(loop: ast.For) -> tuple[int, int, int] | None:
    """From where to where, and how far at once, if that is known."""
    match loop.iter:
        case ast.Call(args=[ast.Constant(int(stop))]):
            return 0, stop, 1
        case ast.Call(args=[ast.Constant(int(start)), ast.Constant(int(stop)), ast.Constant(int(step))]):
            return start, stop, step
    return None


def reads_of(loop: ast.For) -> tuple[list[Read], Set[str]]:
    """What each step reads that another step does not, in the order of its lines; and the names of places in a step."""
    (step,) = names_in(loop.target)
    counts = stored_in(*loop.body)
    written = {buffer_of(store.value) for store in nodes_of(Store, *loop.body)}
    known: dict[str, ast.expr] = {}  # what follows from the number of the step
    found: dict[str, Read] = {}
    for statement in loop.body:
        match statement:
            case ast.For() | ast.While() | ast.If():
                continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if counts[name] == 1:
                if _follows(value, counts, known) and all(function_of(call) == "arange" for call in calls(value)):
                    known[name] = copied(value, known)
        for load in nodes_of(Load, statement):
            whole = copied(load, known)
            if not _follows(load, counts, known) or buffer_of(load) in written or _is_cast(whole, step.id):
                continue
            if step.id in {name.id for name in names_in(whole)}:
                found.setdefault(printed(whole), Read(whole)).wanted.append(load)
    return list(found.values()), known.keys()


def _follows(value: ast.AST, counts: Mapping[str, int], known: Mapping[str, ast.expr]) -> bool:
    """Whether it is made of what is known before a step, which assigns the names that are counted."""
    return all(name.id in known or name.id not in counts for name in names_in(value))


def _is_cast(node: ast.AST, of: str) -> bool:
    """Whether something is asked of a variable that a number does not have."""
    return any(isinstance(each.value, ast.Name) and each.value.id == of for each in nodes_of(ast.Attribute, node))


def only_if(condition: ast.expr, load: Load) -> Load:
    before, others = mask_of(load), [word for word in load.keywords if word.arg != "mask"]
    mask = condition if before is None else ast.BinOp(condition, ast.BitAnd(), before)
    load.keywords = [ast.keyword("mask", mask), *others]
    return load


def at_step(load: Load, step: str, number: Part) -> Load:
    """What the step of that number reads."""
    return cast(Load, _Folded().visit(copied(load, {step: as_expr(number)})))


class _Folded(ast.NodeTransformer):
    """Numbers of steps: `127 - (t + 4)` is `123 - t`, and `ptr + 0 * 64 + k` is `ptr + k`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.BinOp(ast.Constant(int(left)), op, ast.Constant(int(right))) if type(op) in FOLDED:
                return ast.Constant(FOLDED[type(op)](left, right))
            case ast.BinOp(ast.Constant(0), ast.Add(), right):
                return right
            case ast.BinOp(ast.Constant(0), ast.Mult()):
                return node.left
            case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant(0)):
                return left
            case ast.BinOp(ast.Constant(int(left)), ast.Sub(), ast.BinOp(other, ast.Add(), ast.Constant(int(right)))):
                return ast.BinOp(ast.Constant(left - right), ast.Sub(), other)
        return node
