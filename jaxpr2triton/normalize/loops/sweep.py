"""Loops whose carried values are affine in those of the step before → tiles of steps, each combined at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxpr2triton import policy
from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dataflow import made_of
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Literal, Var, nbytes
from jaxpr2triton.ir.once import readers_of
from jaxpr2triton.ir.plan import power_of_two
from jaxpr2triton.ir.scans import Body
from jaxpr2triton.normalize.arrays.outer import multiplied
from jaxpr2triton.normalize.loops.affine import Carried, Kind, carried_by
from jaxpr2triton.normalize.loops.coupled import Coupling
from jaxpr2triton.normalize.loops.logs import pairs_of_logs
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.loops.rewrite_loops import rewrite_loops
from jaxpr2triton.normalize.loops.rings import Ring
from jaxpr2triton.normalize.loops.side_by_side import side_by_side
from jaxpr2triton.normalize.loops.tiles import Plan, in_tiles
from jaxpr2triton.rules.rows import ADDED


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

    Up to four values that read each other are a vector, whose coefficients are a matrix; where one of the matrices that
    steps make together has an element beyond `growth_of_matrices`, the lane takes its steps one after the other.

    `c' = max(c + a, b)` is the same with sums in place of products, and maxima in place of sums: where the sum of the
    sizes of a is a number, nothing but rounding relative to that sum is lost. So is `c' = logaddexp(c + a, b)`. Where
    nothing leads to a value yet, and it is the zero of that ring, its lane is no exception.

    Left alone: loops of few steps or so many lanes that each of these may as well go by itself; numbers of 16 bits,
    that each step rounds; bodies of more than elementwise work and sums; more values that depend on each other.
    """
    readers = readers_of(closed.jaxpr)

    def plan_of(eqn: Eqn) -> Plan | None:
        plan = _plan_of(eqn, prepare)
        if plan is None or not plan.is_long:
            return plan
        ys = eqn.outvars[len(plan.body.afters) :]
        return replace(plan, read_again=frozenset(n for n, var in enumerate(ys) if len(readers.get(var, ())) > 1))

    return rewrite_loops(
        closed,
        {"scan"},
        plan_of,
        lambda node, plan, _: side_by_side(node, plan) if plan.is_long else in_tiles(node, plan),
    )


def is_swept(eqn: Eqn, prepare: Callable[[Closed], Closed]) -> bool:
    return _plan_of(eqn, prepare) is not None


def body_to_sweep(eqn: Eqn, prepare: Callable[[Closed], Closed]) -> Body:
    return Body(pairs_of_logs(multiplied(prepare(eqn.params["jaxpr"]))), *scan_counts_of(eqn.params))


def _plan_of(eqn: Eqn, prepare: Callable[[Closed], Closed]) -> Plan | None:
    numbers, length = policy.COMMON, eqn.params["length"]
    if length < numbers.shortest_swept:
        return None
    count = scan_counts_of(eqn.params)
    states = eqn.invars[count[0] : sum(count)]
    lanes = max((atom.aval.size for atom in states), default=0)
    if not 0 < lanes <= numbers.lanes_of_steps:
        return None
    body = body_to_sweep(eqn, prepare)
    carried = _carried(body, lanes)
    if carried is None:
        return None
    coefficients = max(len(each.befores) ** 2 for each in carried)
    has_logs = any(each.ring is Ring.LOGS for each in carried)
    if lanes * coefficients > (numbers.lanes_of_steps // 2 if has_logs else numbers.lanes_of_steps):
        return None
    if (size := _size_of_stretch(length, lanes)) is not None and _have_maps(body, carried):
        return Plan(body, carried, size, bool(eqn.params["reverse"]), is_long=True)
    held, apart = _held(body), False
    if lanes < held * DEFAULT_TARGET.processors and _is_little_to_store(body, carried):
        alone = _held(body, [each for each in carried if each.kind is not Kind.TOTAL])
        held, apart = min(held, alone), alone < held
    size = _size_of_tile(length, lanes, held * coefficients)
    return None if size is None else Plan(body, carried, size, bool(eqn.params["reverse"]), apart)


def _carried(body: Body, lanes: int) -> tuple[Carried, ...] | None:
    """What the loop carries, if tiles of steps can make all of it, and no step does more than elementwise work."""
    if not all(_is_light(eqn, lanes) for eqn in body.jaxpr.eqns):
        return None
    carried = carried_by(body)
    if carried is None or not any(each.kind is Kind.RUNNING for each in carried) or _moves_what_was_run(body, carried):
        return None
    combined = [each for each in carried if each.kind in (Kind.RUNNING, Kind.TOTAL)]
    return tuple(carried) if all(is_exact(each.befores[0].aval.dtype) for each in combined) else None


def _is_little_to_store(body: Body, carried: Sequence[Carried]) -> bool:
    """Whether what is combined, of each step, is not much more than what steps read and put out."""
    stored = sum(nbytes(*each.befores) for each in carried if each.kind is Kind.RUNNING)
    return stored <= policy.COMMON.times * nbytes(*body.xs, *body.ys)


def _moves_what_was_run(body: Body, carried: Sequence[Carried]) -> bool:
    """Whether coefficients that are moved on by a step are made of what was combined, which lanes would exchange."""
    run = _made_of_running(body, carried)
    moved = [each for each in carried if each.read]
    return any(not run.isdisjoint({*each.given, *evaluate.variables(each.afters)} - _own(each)) for each in moved)


def _made_of_running(body: Body, carried: Sequence[Carried]) -> set[Var]:
    return made_of(body.jaxpr.eqns, [var for each in carried if each.kind is Kind.RUNNING for var in each.befores])


def _own(carried: Carried) -> set[Var]:
    return {*(carried.befores if carried.links else ()), *(var for eqn in carried.links for var in eqn.outvars)}


def _held(body: Body, carried: Sequence[Carried] | None = None) -> int:
    """Elements of a carried value that one program has all of, because they meet in a step; in what leads to these."""
    pairs = [(before, after) for before, after in zip(body.befores, body.afters) if not isinstance(after, Literal)]
    ties = [((b, d), (a, d)) for b, a in pairs for d in range(len(b.aval.shape))]
    if carried is None:
        eqns, befores = body.jaxpr.eqns, body.befores
    else:
        eqns = evaluate.needed(body.jaxpr.eqns, [after for each in carried for after in each.afters], ())
        befores = [var for each in carried for var in each.befores]
    coupling = Coupling(eqns, ties)
    return max(
        math.prod(size for d, size in enumerate(var.aval.shape) if not coupling.is_apart(var, d)) for var in befores
    )


def is_exact(dtype: Any) -> bool:
    """Whether what is combined is as exact as what a step makes."""
    return np.dtype(dtype).itemsize >= 4 if jnp.issubdtype(dtype, jnp.floating) else bool(np.dtype(dtype).kind in "iu")


def _is_light(eqn: Eqn, lanes: int) -> bool:
    work = eqn.primitive.name in ADDED or does_again(eqn)
    return work and not eqn.effects and all(var.aval.size <= lanes for var in eqn.outvars)


def _size_of_tile(length: int, lanes: int, held: int) -> int | None:
    """Steps of a tile, of which there is a whole number; None if there is no such."""
    numbers = policy.COMMON
    most = numbers.steps_of_a_tile if lanes >= numbers.steps_of_a_tile else numbers.steps_of_few_lanes
    most = min(most, numbers.tile // held)
    if most < numbers.shortest_swept:
        return None
    if length <= most:
        return length
    sizes = [size for size in range(most, most // 4, -1) if length % size == 0]
    return min(sizes, key=lambda size: (power_of_two(size) * (length // size), -size), default=None)


def _size_of_stretch(length: int, lanes: int) -> int | None:
    """Steps of a stretch, of which there is a whole number; None for loops that are not worth three kernels."""
    numbers = policy.COMMON
    if length < numbers.long_loop and (length < numbers.shortest_in_stretches or length * lanes < numbers.much_to_do):
        return None
    wanted = math.isqrt(length * numbers.steps_of_a_stretch)
    sizes = [size for size in range(wanted // 2, 2 * wanted) if length % size == 0]
    return min(sizes, key=lambda size: abs(math.log(size / wanted)), default=None)


def _have_maps(body: Body, carried: Sequence[Carried]) -> bool:
    """Whether what the steps of each value are is known before any of these values are."""
    run = _made_of_running(body, carried)
    read = [each.given if each.kind is Kind.RUNNING else evaluate.variables(each.afters) for each in carried]
    kinds = (Kind.RUNNING, Kind.SHIFT)
    return all(run.isdisjoint(vars_) for each, vars_ in zip(carried, read) if each.kind in kinds)
