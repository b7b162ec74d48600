"""Loops whose carried values are affine in those of the step before → tiles of steps, each combined at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import scan_counts_of, varies_over_mesh
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Literal, Var, made
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.ir.scanned import Combination, combination, scanned_p
from jaxpr2triton.ir.scans import Body, scanned
from jaxpr2triton.normalize.loops.affine import Carried, Kind, Ring, carried_by, coefficients, filled
from jaxpr2triton.normalize.loops.coupled import Coupling
from jaxpr2triton.normalize.loops.products_apart import of_all_steps
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, primitive_names, rewrite

Steps = dict[Var, Value]  # what a variable of the body is in each step of a tile
SUMS = ("reduce_sum", "dot_general")


def sweep_affine(closed: Closed, prepare: Callable[[Closed], Closed] = lambda body: body) -> Closed:
    """Combine the steps of a scan in tiles, where all that it carries is affine in what it was a step before.

        c, cs = scan[length=4096] (λ c a b. let c' = a * c + b in (c', c')) c0 as bs
            →    c, cs = scan[length=32] (λ c as bs.
                     let bs' = where (step == 0) (as * c + bs) bs
                         found = scanned[combine=(λ a b a' b'. (a * a', a' * b + b'))] as bs'
                         cs = repeat … from found, if some of them is no number, or if the coefficients are too large
                     in (cs[-1], cs)) c0 as bs

    A step needs the one before; a tile of 128 takes seven times as long as a step. The products of coefficients have
    another order then: what a sum loses is rounding, as long as the product of those coefficients that exceed 1 is no
    more than `growth`. Where it is more, or where anything is not finite, the steps of that lane are done one after the
    other, by the equations of the body. `prepare` makes a body into one without transparent calls.

    `c' = max(c + a, b)` is the same with sums in place of products, and maxima in place of sums: where the sum of the
    sizes of a is a number, nothing but rounding relative to that sum is lost.

    Left alone: loops of few steps or so many lanes that each of these may as well go by itself; numbers of 16 bits,
    that each step rounds; bodies of more than elementwise work and sums; values that depend on each other.
    """
    if "scan" not in primitive_names(closed):
        return closed
    plans = [_plan_of(eqn, prepare) for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan"]
    if not any(plans):
        return closed
    upcoming = iter(plans)

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        plan = next(upcoming)
        return None if plan is None else _rebuilt(node, plan)

    return rewrite(closed, rule, named({"scan"}))


@dataclass(frozen=True)
class Plan:
    body: Body
    carried: tuple[Carried, ...]  # each after those that it depends on
    size: int  # steps of a tile
    reverse: bool

    @property
    def first(self) -> int:
        return self.size - 1 if self.reverse else 0


def _plan_of(eqn: Eqn, prepare: Callable[[Closed], Closed]) -> Plan | None:
    numbers, length = policy.COMMON, eqn.params["length"]
    if eqn.effects or any(varies_over_mesh(atom.aval) for atom in eqn.invars) or length < numbers.shortest_swept:
        return None
    count = scan_counts_of(eqn.params)
    states = eqn.invars[count[0] : sum(count)]
    lanes = max((math.prod(atom.aval.shape) for atom in states), default=0)
    if not 0 < lanes <= numbers.lanes_of_steps:
        return None
    body = Body(prepare(eqn.params["jaxpr"]), *count)
    if not all(_is_light(inner, lanes) for inner in body.jaxpr.eqns):
        return None
    carried = carried_by(body)
    if carried is None or not any(each.kind is Kind.RUNNING for each in carried) or _moves_what_was_run(body, carried):
        return None
    if not all(_is_exact(each.before.aval.dtype) for each in carried if each.kind in (Kind.RUNNING, Kind.TOTAL)):
        return None
    size = _size_of_tile(length, lanes, _held(body))
    return None if size is None else Plan(body, tuple(carried), size, bool(eqn.params["reverse"]))


def _moves_what_was_run(body: Body, carried: Sequence[Carried]) -> bool:
    """Whether coefficients that are moved on by a step are made of what was combined, which lanes would exchange."""
    run = {each.before for each in carried if each.kind is Kind.RUNNING}
    for eqn in body.jaxpr.eqns:
        if not run.isdisjoint(evaluate.variables(eqn.invars)):
            run.update(eqn.outvars)
    moved = [each for each in carried if each.read]
    return any(not run.isdisjoint({*each.given, *evaluate.variables([each.after])} - _own(each)) for each in moved)


def _own(carried: Carried) -> set[Var]:
    return {var for eqn in carried.links for var in eqn.outvars}


def _held(body: Body) -> int:
    """Elements of a carried value that one program has all of, because they meet in a step."""
    pairs = [(before, after) for before, after in zip(body.befores, body.afters) if not isinstance(after, Literal)]
    ties = [((b, d), (a, d)) for b, a in pairs for d in range(len(b.aval.shape))]
    coupling = Coupling(body.jaxpr.eqns, ties)
    return max(
        math.prod(size for d, size in enumerate(var.aval.shape) if not coupling.is_apart(var, d))
        for var in body.befores
    )


def _is_exact(dtype: Any) -> bool:
    """Whether what is combined is as exact as what a step makes."""
    return np.dtype(dtype).itemsize >= 4 if jnp.issubdtype(dtype, jnp.floating) else bool(np.dtype(dtype).kind in "iu")


def _is_light(eqn: Eqn, lanes: int) -> bool:
    work = eqn.primitive.name in SUMS or does_again(eqn)
    return work and not eqn.effects and all(math.prod(var.aval.shape) <= lanes for var in eqn.outvars)


def _size_of_tile(length: int, lanes: int, held: int) -> int | None:
    """Steps of a tile, of which there is a whole number; None if there is no such."""
    numbers = policy.COMMON
    most = numbers.steps_of_a_tile if lanes >= numbers.few_lanes else numbers.steps_of_few_lanes
    most = min(most, numbers.elements_of_a_tile // held)
    if most < numbers.shortest_swept:
        return None
    if length <= most:
        return length
    sizes = [size for size in range(most, most // 4, -1) if length % size == 0]
    return min(sizes, key=lambda size: (_padded(size) * (length // size), -size), default=None)


def _padded(size: int) -> int:
    return 1 << (size - 1).bit_length()


def _rebuilt(node: Node, plan: Plan) -> list[Value]:
    body, length = plan.body, node.params["length"]
    fixed, starts, xs = body.fixed(node.args), body.inits(node.args), body.stacked(node.args)
    tiles = length // plan.size
    if tiles == 1:
        ends, ys = _tile(plan, fixed, starts, xs)
        return [*ends, *ys]

    def step(carry: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        return _tile(plan, fixed, carry, parts)

    parts = [lax.reshape(x, (tiles, plan.size, *x.shape[1:])) for x in xs]
    ends, ys = scanned({**node.params, "length": tiles, "unroll": 1}, step, list(starts), parts)
    return [*ends, *(lax.reshape(y, (length, *y.shape[2:])) for y in ys)]


def _tile(
    plan: Plan, fixed: dict[Var, Value], starts: Sequence[Value], xs: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    """What a tile of steps ends with, and what they put out."""
    body = plan.body
    there: Steps = dict(zip(body.xs, xs))
    ends = list(starts)

    def values(asked: Iterable[Any]) -> list[Value]:
        """What these atoms are in all steps."""
        asked = list(asked)
        found = of_all_steps(body, evaluate.variables(asked), there, fixed, plan.size)
        return [
            _each(jnp.asarray(atom.val, atom.aval.dtype), plan.size) if isinstance(atom, Literal) else found[atom]
            for atom in asked
        ]

    for each in plan.carried:
        start = starts[each.place]
        match each.kind:
            case Kind.SAME:
                there[each.before] = _each(start, plan.size)
            case Kind.SHIFT:
                (after,) = values([each.after])
                there[each.before] = _moved_on(plan, start, after)
                ends[each.place] = _last(plan, after)
            case Kind.TOTAL:
                given = dict(zip(each.given, values(each.given)))
                _, b = _coefficients(each, given, fixed, plan.size)
                ends[each.place] = lax.add(start, lax.reduce_sum(b, (0,)))
            case Kind.RUNNING:
                given = dict(zip(each.given, values(each.given)))
                ends[each.place] = _run(plan, each, given, start, fixed, there)
    return ends, values(body.ys)


def _run(
    plan: Plan, carried: Carried, given: Steps, start: Value, fixed: Mapping[Var, Value], there: Steps
) -> Value:
    """Add what is carried to what is there, before each step if that is read, else after it; return the last one."""
    a, b = _coefficients(carried, given, fixed, plan.size)
    assert not isinstance(carried.after, Literal)
    if carried.read:
        ones = lax.full_like(start, carried.ring.one)
        found = _combined(plan, _moved_on(plan, ones, a), _moved_on(plan, start, b), start, carried, given)
        there[carried.before] = found
        after = jax.vmap(lambda before, *values: _next(carried, before, dict(zip(given, values))))(
            found, *given.values()
        )
        return _last(plan, after)
    first = jax.vmap(lambda *values: _next(carried, start, dict(zip(given, values))), axis_size=plan.size)
    b = lax.select(_is_step(plan, b.shape, plan.first), first(*given.values()), b)
    there[carried.after] = found = _combined(plan, a, b, start, carried, given)
    return _last(plan, found)


def _next(carried: Carried, before: Value, given: Mapping[Var, Value]) -> Value:
    """The step as it stands in the body."""
    env = {carried.before: before, **given}
    evaluate.run(carried.links, env)
    return env[carried.after]  # type: ignore[index]


def _coefficients(
    carried: Carried, given: Steps, fixed: Mapping[Var, Value], size: int
) -> tuple[Value, Value]:
    aval = carried.before.aval

    def of_a_step(*values: Value) -> tuple[Value, Value]:
        pair = coefficients(carried, {**fixed, **dict(zip(given, values))})
        return filled(pair, carried.ring, lambda number: lax.full(aval.shape, number, aval.dtype))

    return jax.vmap(of_a_step, axis_size=size)(*given.values())


def _combined(plan: Plan, a: Value, b: Value, start: Value, carried: Carried, given: Steps) -> Value:
    """b of the steps, up to each of them; if that may be wrong, the steps themselves."""
    combine = _affine(np.dtype(b.dtype), carried.ring)
    found = scanned_p.bind(a, b, combine=combine, axis=0, output=1, reverse=plan.reverse)
    if not jnp.issubdtype(b.dtype, jnp.floating):
        return found
    harmless = _are_harmless(a, carried.ring)
    finite = lax.reduce_and(lax.is_finite(found), (0,))
    return _one_by_one(plan, lax.bitwise_and(harmless, finite), found, start, carried, given)


def _are_harmless(a: Value, ring: Ring) -> Value:
    """Whether whatever some of these make together is a number that can be told from others, in each lane."""
    if ring is Ring.SUMS:
        large = lax.reduce_prod(lax.max(lax.abs(a), lax.full_like(a, 1)), (0,))
        return lax.le(large, lax.full_like(large, policy.COMMON.growth))
    return lax.is_finite(lax.reduce_sum(lax.abs(a), (0,)))


@lru_cache(maxsize=32)
def _affine(dtype: np.dtype, ring: Ring) -> Combination:
    def run(a: Value, b: Value, c: Value, d: Value) -> tuple[Value, Value]:
        return ring.both(a, c), ring.step(b, c, d)

    number = jax.ShapeDtypeStruct((), dtype)
    return combination(made(jax.make_jaxpr(run)(number, number, number, number)))


def _one_by_one(plan: Plan, right: Value, found: Value, start: Value, carried: Carried, given: Steps) -> Value:
    """What was found, where it is right; elsewhere the steps one after the other."""
    rank = len(start.shape)
    lanes = [*range(1, rank + 1), 0]  # in front, so that each lane goes on by itself

    def turned(x: Value) -> Value:
        whole = x if x.ndim == rank + 1 else lax.broadcast_in_dim(x, found.shape, [0])  # one flag for all
        return lax.transpose(whole, lanes)

    operands, steps = [turned(x) for x in given.values()], np.int32(plan.size)
    going = lax.bitwise_not(right)
    state = [going, lax.full(going.shape, 0, np.int32), start, turned(found)]

    def step(*args: Value) -> list[Value]:
        fixed, (going, number, value, written) = args[:-4], args[-4:]
        place = lax.sub(lax.sub(steps, np.int32(1)), number) if plan.reverse else number
        here = lax.eq(lax.broadcasted_iota(np.int32, written.shape, rank), _spread(place, written.shape))
        after = _next(carried, value, {var: _at(here, x) for var, x in zip(given, fixed)})
        more = lax.select(here, _spread(value if carried.read else after, written.shape), written)
        following = lax.add(number, np.int32(1))
        chosen = [
            lax.select(_spread(going, new.shape), new, old)  # a lane that has ended waits for the others
            for new, old in zip((following, after, more), (number, value, written))
        ]
        return [lax.bitwise_and(going, lax.lt(following, steps)), *chosen]

    inner = made(jax.make_jaxpr(step)(*map(jax.typeof, [*operands, *state])))
    *_, found = repeat_p.bind(*operands, *state, jaxpr=inner, num_consts=len(operands))
    return lax.transpose(found, [rank, *range(rank)])


def _spread(x: Value, shape: Sequence[int]) -> Value:
    return lax.broadcast_in_dim(x, shape, list(range(x.ndim)))


def _at(here: Value, x: Value) -> Value:
    """What x is in that step."""
    if x.dtype == bool:
        return lax.reduce_or(lax.bitwise_and(here, x), (x.ndim - 1,))
    return lax.reduce_sum(lax.select(here, x, lax.full_like(x, 0)), (x.ndim - 1,))


def _each(x: Value, size: int) -> Value:
    return lax.broadcast_in_dim(x, (size, *x.shape), list(range(1, x.ndim + 1)))


def _is_step(plan: Plan, shape: Sequence[int], step: int) -> Value:
    return lax.eq(lax.broadcasted_iota(np.int32, shape, 0), lax.full(shape, step, np.int32))


def _moved_on(plan: Plan, start: Value, after: Value) -> Value:
    """What was there before each step."""
    whole = lax.expand_dims(start, (0,))
    if plan.reverse:
        return lax.concatenate([lax.slice_in_dim(after, 1, plan.size), whole], 0)
    return lax.concatenate([whole, lax.slice_in_dim(after, 0, plan.size - 1)], 0)


def _last(plan: Plan, x: Value) -> Value:
    return lax.index_in_dim(x, 0 if plan.reverse else plan.size - 1, 0, keepdims=False)
