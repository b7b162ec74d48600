"""The steps of a loop in tiles, each combined at once, where what it carries is affine in what that was before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Atom, Var, made
from jaxpr2triton.ir.region import boundary_p, repeat_p
from jaxpr2triton.ir.scanned import Combination, combination, scanned_p
from jaxpr2triton.ir.scans import Body, put, scanned
from jaxpr2triton.normalize.loops.affine import Carried, Kind
from jaxpr2triton.normalize.loops.distribute import all_steps
from jaxpr2triton.normalize.loops.forms import coefficients
from jaxpr2triton.normalize.loops.rings import Ring
from jaxpr2triton.normalize.rewrite import Node, Value

Steps = dict[Var, Value]  # what a variable of the body is in each step of a tile


@dataclass(frozen=True)
class Plan:
    """What is combined in tiles of how many steps; `apart`: and the loop makes nothing else.

    What is put out, and what is only summed, is made of all steps at once then, after the loop.
    """

    body: Body
    carried: tuple[Carried, ...]  # each after those that it depends on
    size: int  # steps of a tile
    reverse: bool
    apart: bool = False
    is_long: bool = False  # so that as many steps are a stretch, beside others (`side_by_side.py`)
    read_again: frozenset[int] = frozenset()  # which of what it puts out several others read

    @property
    def first(self) -> int:
        return self.size - 1 if self.reverse else 0

    @property
    def combined(self) -> list[Var]:
        """What the scans find: before each step if that is read, else after it."""
        running = [each for each in self.carried if each.kind is Kind.RUNNING]
        return [var for each in running for var in evaluate.variables(each.befores if each.read else each.afters)]


def in_tiles(node: Node, plan: Plan) -> list[Value]:
    """What the scan returns."""
    length = node.params["length"]
    inputs = plan.body.fixed(node.args), plan.body.inits(node.args), plan.body.stacked(node.args)
    if not plan.apart:
        ends, ys = _loop(node, plan, plan.body.ys, *inputs)
        return [*ends, *ys]
    first = replace(plan, carried=tuple(each for each in plan.carried if each.kind is not Kind.TOTAL))
    last, found = _loop(node, first, plan.combined, *inputs)
    ends, ys = _tile(replace(plan, size=length), *inputs, plan.body.ys, dict(zip(plan.combined, found)))
    total = {place for each in plan.carried if each.kind is Kind.TOTAL for place in each.places}
    return [*(ends[place] if place in total else end for place, end in enumerate(last)), *ys]


def _loop(
    node: Node, plan: Plan, asked: Sequence[Atom], fixed: dict[Var, Value], starts: list[Value], xs: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    """The loop over tiles: what it carries at the end, and what is asked for of all steps."""
    length = node.params["length"]
    if length == plan.size:
        ends, ys = _tile(plan, fixed, starts, xs, asked)
        return ends, _in_memory(plan, ys)
    places = [place for each in plan.carried for place in each.places]
    distinct = {id(atom): atom for atom in asked}  # what is put out twice is written once

    def step(carry: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        ends, ys = _tile(plan, fixed, put(starts, places, carry), parts, list(distinct.values()))
        return [ends[place] for place in places], ys

    tiles = length // plan.size
    parts = [lax.reshape(x, (tiles, plan.size, *x.shape[1:])) for x in xs]
    how = {**node.params, "length": tiles, "unroll": 1}
    last, ys = scanned(how, step, [starts[place] for place in places], parts)
    found = dict(zip(distinct, (lax.reshape(y, (length, *y.shape[2:])) for y in _in_memory(plan, ys))))
    return put(starts, places, last), [found[id(atom)] for atom in asked]


def _in_memory(plan: Plan, ys: list[Value]) -> list[Value]:
    """Of a loop by itself, so that none of its programs has more lanes than it needs."""
    return [boundary_p.bind(y, dim=0) for y in ys] if plan.apart else ys


def _tile(
    plan: Plan,
    fixed: dict[Var, Value],
    starts: Sequence[Value],
    xs: Sequence[Value],
    asked: Sequence[Atom],
    found: Mapping[Var, Value] | None = None,
) -> tuple[list[Value], list[Value]]:
    """What a tile of steps ends with, and what is asked for of all of them; what is `found` needs no scan."""
    body = plan.body
    there: Steps = {**dict(zip(body.xs, xs)), **(found or {})}
    ends = list(starts)

    for each in plan.carried:
        if found is not None and each.kind is Kind.RUNNING:
            continue
        before = [starts[place] for place in each.places]
        given, known = given_to(body, each, there, fixed, plan.size)
        match each.kind:
            case Kind.SAME:
                there[each.befores[0]] = everywhere(before[0], plan.size)
                after = before
            case Kind.SHIFT:
                (moved,) = all_steps(body, each.afters, there, fixed, plan.size)
                there[each.befores[0]] = moved_on(plan, before[0], moved)
                after = [last_of(plan, moved)]
            case Kind.TOTAL:
                _, b = coefficients_of(each, given, known, plan.size)
                after = [lax.add(before[0], lax.reduce_sum(b, (0,)))]
            case Kind.RUNNING:
                after = _run(plan, each, given, before, known, there)
        ends = put(ends, each.places, after)
    return ends, all_steps(body, asked, there, fixed, plan.size)


def given_to(
    body: Body, carried: Carried, there: Steps, fixed: Mapping[Var, Value], length: int
) -> tuple[Steps, dict[Var, Value]]:
    """What the links read besides: of all steps, and with the constants what no step changes."""
    still = body.with_invariants(fixed)
    known = {**fixed, **{var: still[var] for var in carried.given if var in still}}
    moving = [var for var in carried.given if var not in known]
    return dict(zip(moving, all_steps(body, moving, there, fixed, length))), known


def _run(
    plan: Plan, carried: Carried, given: Steps, starts: list[Value], fixed: Mapping[Var, Value], there: Steps
) -> list[Value]:
    """Add what is carried to what is there, before each step if that is read, else after it; return the last ones."""
    size = len(starts)
    found = coefficients_of(carried, given, fixed, plan.size)
    a, b = found[: size * size], found[size * size :]
    if carried.read:
        one, zero = (lax.full_like(starts[0], number) for number in (carried.ring.one, carried.ring.zero))
        same = [one if i == j else zero for i in range(size) for j in range(size)]
        a, b = ([moved_on(plan, *pair) for pair in zip(*each)] for each in ((same, a), (starts, b)))
        befores = _combined(plan, a, b, starts, carried, given, fixed)
        there.update(zip(carried.befores, befores))
        step = jax.vmap(lambda before, *values: next_of(carried, before, {**fixed, **dict(zip(given, values))}))
        return [last_of(plan, after) for after in step(befores, *given.values())]
    step = jax.vmap(lambda *now: next_of(carried, starts, {**fixed, **dict(zip(given, now))}), axis_size=plan.size)
    is_first = _is_step(plan, b[0].shape, plan.first)
    b = [lax.select(is_first, one, other) for one, other in zip(step(*given.values()), b)]
    afters = _combined(plan, a, b, starts, carried, given, fixed)
    there.update(zip(evaluate.variables(carried.afters), afters))
    return [last_of(plan, after) for after in afters]


def next_of(carried: Carried, befores: Sequence[Value], given: Mapping[Var, Value]) -> list[Value]:
    """The step as it stands in the body."""
    env = {**dict(zip(carried.befores, befores)), **given}
    evaluate.run(carried.links, env)
    return [evaluate.read(env, after) for after in carried.afters]


def coefficients_of(carried: Carried, given: Steps, fixed: Mapping[Var, Value], size: int) -> list[Value]:
    def of_a_step(*values: Value) -> list[Value]:
        return coefficients(carried, {**fixed, **dict(zip(given, values))})

    return jax.vmap(of_a_step, axis_size=size)(*given.values())


def _combined(
    plan: Plan,
    a: list[Value],
    b: list[Value],
    starts: list[Value],
    carried: Carried,
    given: Steps,
    fixed: Mapping[Var, Value],
) -> list[Value]:
    """b of the steps, up to each of them; if that may be wrong, the steps themselves."""
    is_float, size = jnp.issubdtype(b[0].dtype, jnp.floating), len(b)
    bounded = is_float and size > 1 and carried.ring is Ring.SUMS
    largest = [largest_of(a)] if bounded else []
    combine = _affine(np.dtype(b[0].dtype), carried.ring, size, bounded)
    how = {"combine": combine, "axis": 0, "reverse": plan.reverse}
    outputs = [scanned_p.bind(*a, *b, *largest, **how, output=n) for n in range(size * size, combine.parts)]
    found = outputs[:size]
    if not is_float:
        return found
    harmless = _is_bounded(outputs[-1]) if bounded else _are_harmless(largest_of(a, carried.ring), carried.ring)
    finite = [lax.reduce_and(carried.ring.is_number(each), (0,)) for each in found]
    return _one_by_one(plan, reduce(lax.bitwise_and, finite, harmless), found, starts, carried, given, fixed)


def largest_of(a: Sequence[Value], ring: Ring = Ring.SUMS) -> Value:
    """The size of the largest element of a matrix; what is not there has none."""
    return reduce(lax.max, map(ring.size, a))


def _is_bounded(largest: Value) -> Value:
    most = lax.reduce_max(largest, (0,))
    return lax.le(most, lax.full_like(most, policy.COMMON.growth_of_matrices))


def _are_harmless(sizes: Value, ring: Ring) -> Value:
    """Whether whatever some of these make together is a number that can be told from others, in each lane."""
    if ring is Ring.SUMS:
        large = lax.reduce_prod(lax.max(sizes, lax.full_like(sizes, 1)), (0,))
        return lax.le(large, lax.full_like(large, policy.COMMON.growth))
    return lax.is_finite(lax.reduce_sum(sizes, (0,)))


@lru_cache(maxsize=32)
def _affine(dtype: np.dtype, ring: Ring, size: int, bounded: bool) -> Combination:
    """Two steps as one; `bounded`: and the largest element of all matrices of which there were some."""
    parts = size * (size + 1)

    def run(*args: Value) -> list[Value]:
        half = len(args) // 2
        first, then = args[:half], args[half:]
        found = ring.both(first[:parts], then[:parts], size)
        return [*found, reduce(lax.max, [first[-1], then[-1], largest_of(found[: size * size])])] if bounded else found

    numbers = [jax.ShapeDtypeStruct((), dtype)] * (2 * (parts + bounded))
    return combination(made(jax.make_jaxpr(run)(*numbers)))


def _one_by_one(
    plan: Plan,
    right: Value,
    found: list[Value],
    starts: list[Value],
    carried: Carried,
    given: Steps,
    fixed: Mapping[Var, Value],
) -> list[Value]:
    """What was found, where it is right; elsewhere the steps one after the other."""
    rank, size = jnp.ndim(starts[0]), len(starts)
    lanes = [*range(1, rank + 1), 0]  # in front, so that each lane goes on by itself

    def turned(x: Value) -> Value:
        whole = x if x.ndim == rank + 1 else lax.broadcast_in_dim(x, found[0].shape, [0])  # one flag for all
        return lax.transpose(whole, lanes)

    still = {var: fixed[var] for var in carried.given if var in fixed}
    operands, steps = [*still.values(), *map(turned, given.values())], np.int32(plan.size)
    going = lax.bitwise_not(right)
    state = [going, lax.full(going.shape, 0, np.int32), *starts, *map(turned, found)]

    def step(*args: Value) -> list[Value]:
        fixed, (going, number, *rest) = args[: len(operands)], args[len(operands) :]
        values, written = rest[:size], rest[size:]
        place = lax.sub(lax.sub(steps, np.int32(1)), number) if plan.reverse else number
        here = lax.eq(lax.broadcasted_iota(np.int32, written[0].shape, rank), _spread(place, written[0].shape))
        moving = {var: _at(here, x) for var, x in zip(given, fixed[len(still) :])}
        afters = next_of(carried, values, {**dict(zip(still, fixed)), **moving})
        shown = values if carried.read else afters
        more = [lax.select(here, _spread(new, old.shape), old) for new, old in zip(shown, written)]
        following = lax.add(number, np.int32(1))
        chosen = [
            lax.select(_spread(going, new.shape), new, old)  # a lane that has ended waits for the others
            for new, old in zip((following, *afters, *more), (number, *values, *written))
        ]
        return [lax.bitwise_and(going, lax.lt(following, steps)), *chosen]

    inner = made(jax.make_jaxpr(step)(*map(jax.typeof, [*operands, *state])))
    results = repeat_p.bind(*operands, *state, jaxpr=inner, num_consts=len(operands), seldom=True)
    return [lax.transpose(each, [rank, *range(rank)]) for each in results[-size:]]


def _spread(x: Value, shape: Sequence[int]) -> Value:
    return lax.broadcast_in_dim(x, shape, list(range(x.ndim)))


def _at(here: Value, x: Value) -> Value:
    """What x is in that step, bit by bit."""
    if x.dtype == bool:
        return lax.reduce_or(lax.bitwise_and(here, x), (x.ndim - 1,))
    bits = lax.bitcast_convert_type(x, f"int{8 * x.dtype.itemsize}") if jnp.issubdtype(x.dtype, jnp.floating) else x
    found = lax.reduce_sum(lax.select(here, bits, lax.full_like(bits, 0)), (x.ndim - 1,))
    return lax.bitcast_convert_type(found, x.dtype) if bits is not x else found


def everywhere(x: Value, size: int) -> Value:
    return lax.broadcast_in_dim(x, (size, *x.shape), list(range(1, x.ndim + 1)))


def _is_step(plan: Plan, shape: Sequence[int], step: int) -> Value:
    return lax.eq(lax.broadcasted_iota(np.int32, shape, 0), lax.full(shape, step, np.int32))


def moved_on(plan: Plan, start: Value, after: Value) -> Value:
    """What was there before each step."""
    whole = lax.expand_dims(start, (0,))
    if plan.reverse:
        return lax.concatenate([lax.slice_in_dim(after, 1, after.shape[0]), whole], 0)
    return lax.concatenate([whole, lax.slice_in_dim(after, 0, after.shape[0] - 1)], 0)


def last_of(plan: Plan, x: Value) -> Value:
    return lax.index_in_dim(x, 0 if plan.reverse else x.shape[0] - 1, 0, keepdims=False)
