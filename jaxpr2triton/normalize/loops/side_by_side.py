"""The steps of a long loop in stretches side by side, where what it carries is affine in what that was before.

    maps   = vmap (scan (λ (A, B) (a, b). (a A, a B + b))) as bs           each stretch as one step
    begins = scan (λ c (A, B). (A c + B, c)) c0 maps                      what each of them begins with
    ys     = vmap (scan body) begins xs

The first and the last loop go through all stretches at once, and share the device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Var, made
from jaxpr2triton.ir.region import boundary_p, repeat_p
from jaxpr2triton.ir.scans import put, scanned
from jaxpr2triton.normalize.loops.affine import Carried, Kind
from jaxpr2triton.normalize.loops.distribute import all_steps
from jaxpr2triton.normalize.loops.rings import Ring
from jaxpr2triton.normalize.loops.tiles import (
    Plan,
    Steps,
    coefficients_of,
    everywhere,
    given_to,
    largest_of,
    last_of,
    moved_on,
    next_of,
)
from jaxpr2triton.normalize.rewrite import Node, Value

Env = Mapping[Var, Value]


def side_by_side(node: Node, plan: Plan) -> list[Value]:
    """What the scan returns.

    Where the map of a stretch may be wrong, the loop in between takes its steps one after the other.
    """
    body, length = plan.body, node.params["length"]
    fixed, stacked = body.fixed(node.args), body.stacked(node.args)
    starts = [jnp.asarray(init, var.aval.dtype) for init, var in zip(body.inits(node.args), body.befores)]  # or numbers
    begins, last = _around_stretches(plan, starts, dict(zip(body.xs, stacked)), fixed, length)
    count, how = length // plan.size, _how(plan, plan.size)
    atoms = list({id(atom): atom for atom in body.ys})
    places = [atoms.index(id(atom)) for atom in body.ys]  # what is put out twice is written once
    distinct = [places.index(place) for place in range(len(atoms))]
    again = {place for place, times in Counter(places).items() if times > 1} | {places[n] for n in plan.read_again}

    def stretch(begin: list[Value], xs: list[Value]) -> tuple[list[Value], list[Value]]:
        return scanned(how, lambda carry, x: _step(plan, fixed, carry, x, distinct), begin, xs)

    ends, ys = jax.vmap(stretch, axis_size=count)(begins, [_cut(x, count) for x in stacked])
    for place in (place for each in plan.carried if each.kind is Kind.TOTAL for place in each.places):
        last[place] = lax.add(starts[place], lax.reduce_sum(boundary_p.bind(ends[place], dim=0), (0,)))
    stored = [boundary_p.bind(y, dim=0) if n in again else y for n, y in enumerate(ys)]  # in one order for all readers
    return [*last, *(lax.reshape(stored[n], (length, *stored[n].shape[2:])) for n in places)]


def _around_stretches(
    plan: Plan, starts: Sequence[Value], there: Steps, fixed: dict[Var, Value], length: int
) -> tuple[list[Value], list[Value]]:
    """What each stretch begins with, and what the last one ends with; but for totals, which begin with nothing."""
    count, size = length // plan.size, plan.size
    begins, last = [everywhere(start, count) for start in starts], list(starts)
    for each in plan.carried:
        before = [starts[place] for place in each.places]
        match each.kind:
            case Kind.SAME:
                there[each.befores[0]] = everywhere(before[0], length)
            case Kind.SHIFT:
                (moved,) = all_steps(plan.body, each.afters, there, fixed, length)
                there[each.befores[0]] = moved_on(plan, before[0], moved)
                first = size - 1 if plan.reverse else 0
                begins = put(begins, each.places, [lax.slice_in_dim(there[each.befores[0]], first, None, size)])
                last = put(last, each.places, [last_of(plan, moved)])
            case Kind.TOTAL:
                begins = put(begins, each.places, [lax.full_like(begins[each.places[0]], 0)])
            case Kind.RUNNING:
                ends, found = _begins(plan, each, before, there, fixed, length)
                begins, last = put(begins, each.places, found), put(last, each.places, ends)
    return begins, last


def _how(plan: Plan, steps: int) -> dict[str, Any]:
    return {"length": steps, "reverse": plan.reverse, "unroll": 1}


def _cut(x: Value, count: int) -> Value:
    return lax.reshape(x, (count, x.shape[0] // count, *x.shape[1:]))


def _step(
    plan: Plan, fixed: Env, carry: Sequence[Value], x: Sequence[Value], asked: Sequence[int]
) -> tuple[list[Value], list[Value]]:
    """The body as it stands, of which some results are asked for."""
    body = plan.body
    env = {**fixed, **dict(zip(body.befores, carry)), **dict(zip(body.xs, x))}
    evaluate.run(body.jaxpr.eqns, env)
    found = [jnp.asarray(evaluate.read(env, atom), atom.aval.dtype) for atom in body.jaxpr.outvars]
    return found[: len(carry)], [found[len(carry) + n] for n in asked]


def _begins(
    plan: Plan, carried: Carried, starts: list[Value], there: Steps, fixed: dict[Var, Value], length: int
) -> tuple[list[Value], list[Value]]:
    """What the last stretch ends with, and what each of them begins with."""
    given, known = given_to(plan.body, carried, there, fixed, length)
    size, count, ring = len(starts), length // plan.size, carried.ring
    maps, bounds = _maps(plan, carried, coefficients_of(carried, given, known, length), count)

    def step(befores: list[Value], stretch: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        number, *rest = stretch
        both, bounds = rest[: len(maps)], rest[len(maps) :]
        none = [lax.full_like(befores[0], ring.zero)] * size**2
        afters = ring.both([*none, *befores], both, size)[size**2 :]
        if bounds:
            right = _is_right(ring, befores, *bounds)
            afters = _its_steps(plan, carried, number, right, befores, afters, given, known)
        return afters, befores

    stretches = [lax.iota(np.int32, count), *maps, *bounds]
    ends, begun = scanned(_how(plan, count), step, starts, stretches)
    return ends, [boundary_p.bind(each, dim=0) for each in begun]


def _maps(plan: Plan, carried: Carried, found: Sequence[Value], count: int) -> tuple[list[Value], list[Value]]:
    """Each stretch as one step, in memory; and of floats how much larger what was before can be at any of its steps.

    That is a factor, or in another ring a term, infinite if more than rounding may be lost; and the largest that is
    added.
    """
    size, ring, dtype = len(carried.befores), carried.ring, found[0].dtype
    lanes, is_float = found[0].shape[1:], bool(jnp.issubdtype(found[0].dtype, jnp.floating))

    def step(before: list[Value], now: list[Value]) -> tuple[list[Value], None]:
        maps, bounds = before[: len(now)], before[len(now) :]
        both = ring.both(maps, now, size)
        return [*both, *(_bounds(ring, bounds, now, both, size) if is_float else [])], None

    one, zero, nothing = (lax.full(lanes, number, dtype) for number in (ring.one, ring.zero, 0))
    matrix = [one if i == j else zero for i in range(size) for j in range(size)]
    same = [*matrix, *[zero] * size, *([lax.full(lanes, ring is Ring.SUMS, dtype), nothing] if is_float else [])]
    how = _how(plan, plan.size)
    whole = jax.vmap(lambda xs: scanned(how, step, same, xs)[0])([_cut(x, count) for x in found])
    maps, bounds = whole[: len(found)], whole[len(found) :]
    if bounds and ring is Ring.SUMS:
        most = policy.COMMON.growth if size == 1 else policy.COMMON.growth_of_matrices
        is_small = lax.le(bounds[0], lax.full_like(bounds[0], most))
        bounds = [lax.select(is_small, bounds[0], lax.full_like(bounds[0], np.inf)), bounds[1]]
    stored = [boundary_p.bind(each, dim=0) for each in (*maps, *bounds)]
    return stored[: len(found)], stored[len(found) :]


def _bounds(ring: Ring, before: Sequence[Value], now: Sequence[Value], both: Sequence[Value], size: int) -> list[Value]:
    grown, added = before
    if ring is not Ring.SUMS:
        grown = lax.add(grown, largest_of(now[: size * size], ring))
    elif size == 1:
        grown = lax.mul(grown, lax.max(lax.abs(now[0]), lax.full_like(now[0], 1)))
    else:
        grown = lax.max(grown, largest_of(both[: size * size]))
    return [grown, reduce(lax.max, (ring.size(each) for each in both[size * size :]), added)]


def _is_right(ring: Ring, befores: Sequence[Value], grown: Value, added: Value) -> Value:
    """Whether all steps of a stretch that begins so are finite, and none has lost more than rounding."""
    sizes = reduce(lax.add, (ring.size(each) for each in befores))
    return lax.is_finite(lax.add(ring.times(grown, sizes), added))


def _its_steps(
    plan: Plan,
    carried: Carried,
    stretch: Value,
    right: Value,
    befores: list[Value],
    afters: list[Value],
    given: Steps,
    fixed: Env,
) -> list[Value]:
    """What a stretch ends with: what was found, where that is right; elsewhere its steps, each lane by itself."""
    still = {var: fixed[var] for var in carried.given if var in fixed}
    operands, steps = [stretch, *still.values(), *given.values()], np.int32(plan.size)
    going = lax.bitwise_not(right)
    state = [going, lax.full(going.shape, 0, np.int32), *befores]

    def step(*args: Value) -> list[Value]:
        (stretch, *known), (going, number, *values) = args[: len(operands)], args[len(operands) :]
        within = lax.sub(lax.sub(steps, np.int32(1)), number) if plan.reverse else number
        place = lax.add(lax.mul(stretch, steps), within)
        moving = {var: _read_at(x, place) for var, x in zip(given, known[len(still) :])}
        found = next_of(carried, values, {**dict(zip(still, known)), **moving})
        following = lax.add(number, np.int32(1))
        chosen = [lax.select(going, new, old) for new, old in zip((following, *found), (number, *values))]
        return [lax.bitwise_and(going, lax.lt(following, steps)), *chosen]

    inner = made(jax.make_jaxpr(step)(*map(jax.typeof, [*operands, *state])))
    results = repeat_p.bind(*operands, *state, jaxpr=inner, num_consts=len(operands), seldom=True)
    return [lax.select(right, after, other) for after, other in zip(afters, results[2:])]


def _read_at(x: Value, place: Value) -> Value:
    """What each lane finds at its place among the steps."""

    def one(x: Value, place: Value) -> Value:
        return lax.squeeze(lax.dynamic_slice_p.bind(x, place, slice_sizes=(1,)), (0,))

    function = one
    for _ in range(place.ndim):
        function = jax.vmap(function, (1 if x.ndim > 1 else None, 0))
    return function(x, place)
