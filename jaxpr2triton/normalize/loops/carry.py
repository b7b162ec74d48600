"""Reductions over the steps of a loop → values that the loop carries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import source_of, varies_over_mesh
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dtypes import working_dtype
from jaxpr2triton.ir.jaxprs import Closed, elements
from jaxpr2triton.ir.scans import Body, body_of, outer_dims, scan_of, scanned, ties
from jaxpr2triton.ir.tracing import again
from jaxpr2triton.normalize.loops.coupled import Coupling
from jaxpr2triton.normalize.rewrite import Value, is_plain, primitive_names
from jaxpr2triton.rules.dims import dims_of
from jaxpr2triton.rules.reductions import TABLE as REDUCTIONS
from jaxpr2triton.rules.reductions import Outcome
from jaxpr2triton.rules.rows import names_of

COMBINED: dict[str, Callable[[Value, Value], Value]] = {
    "reduce_sum": lax.add,
    "reduce_prod": lax.mul,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
    "reduce_and": lax.bitwise_and,
    "reduce_or": lax.bitwise_or,
    "reduce_xor": lax.bitwise_xor,
}
ROUNDED = names_of(Outcome.ARITHMETIC).intersection(COMBINED)


def carry_reductions(closed: Closed) -> Closed:
    """Let a scan carry what is only summed over its steps afterwards, and what is summed of it.

        hs = scan (λ h x. let y = tanh (h + x) in (y, y)) h0 xs;  s = reduce_sum[axes=(0, 1)] (hs * hs)
            →    hs, t = scan (λ h t x. let y = tanh (h + x) in (y, t + y * y, y)) h0 0 xs;  s = reduce_sum[axes=(0,)] t

    What was summed need not be written then, if nobody else reads it, or not be read again. Maxima, products and so on
    are carried alike. What leads from the outputs of a step to what is summed is elementwise, moves other dimensions
    or reduces them, and does not wait for the loop's end. Left alone: what is larger in a step than all that the loop
    reads, writes and carries in it anyway; sums of more floats than `steps_added`; what would keep programs from
    sharing out the loop's work; programs with references.
    """
    if "scan" not in primitive_names(closed) or any(map(_is_special, closed.in_avals)):
        return closed
    while True:
        plans = (_plan_of(closed.jaxpr.eqns, eqn) for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")
        plan = next((plan for plan in plans if plan is not None), None)
        if plan is None:
            return closed
        closed = _rebuilt(closed, plan)


def _is_special(aval: Any) -> bool:
    return not isinstance(aval, jax.core.ShapedArray) or varies_over_mesh(aval)


@dataclass(frozen=True)
class Plan:
    scan: Any
    body: Body
    after: frozenset[Any]  # the variables that wait for the scan
    waiting: frozenset[Any]  # the equations that do
    steps: Mapping[Any, int]  # those of which a step can compute its part, by the dimension of the steps
    reductions: tuple[Any, ...]  # the equations that go into the loop
    inside: tuple[Any, ...]  # what leads from the scan's results to what they reduce

    @property
    def results(self) -> list[Any]:
        """What the scan writes in each step."""
        return list(self.scan.outvars[self.body.num_carry :])

    def summed(self) -> list[tuple[Any, Any]]:
        """The reductions, with what each of them reduces."""
        return [(eqn, eqn.invars[0]) for eqn in self.reductions]

    def place_in(self, eqn: Any) -> int:
        """The dimension of the steps in the operands of an equation."""
        return next(self.steps[atom] for atom in evaluate.variables(eqn.invars) if atom in self.steps)

    def read_beside(self) -> list[tuple[Any, int]]:
        """The arrays that `inside` reads besides, of which a step needs its part, with the dimension of the steps."""
        found: dict[tuple[Any, int], None] = {}
        for eqn in self.inside:
            place = self.place_in(eqn)
            arrays = (atom for atom in evaluate.variables(eqn.invars) if atom not in self.steps and atom.aval.shape)
            found.update(((atom, place), None) for atom in arrays if atom.aval.shape[place] != 1)
        return list(found)


def _plan_of(eqns: Sequence[Any], scan: Any) -> Plan | None:
    """Which reductions over its steps a scan had better carry; None if there is none.

    One after the other: with each that goes in, what leads to it goes in too, and programs must still be able to share
    out the loop.
    """
    length = scan.params["length"]
    if scan.effects or length < 2:
        return None
    body = body_of(scan.params)
    waiting, after = _after(eqns, scan)
    steps, found = _over_the_steps([eqn for eqn in eqns if eqn is not scan], scan, after)
    usual = max(map(elements, [*body.befores, *body.xs, *body.ys]), default=1)

    plan = None
    for eqn in found:
        if elements(eqn.invars[0]) // length > usual:
            continue
        reductions = (eqn,) if plan is None else (*plan.reductions, eqn)
        needed = evaluate.needed(eqns, [each.invars[0] for each in reductions], after - steps.keys())
        inside = tuple(each for each in needed if each.outvars[0] in steps and each is not scan)
        more = Plan(scan, body, after, waiting, steps, reductions, inside)
        plan = more if _leaves_apart(more) else plan
    return plan


def _over_the_steps(eqns: Iterable[Any], scan: Any, after: frozenset[Any]) -> tuple[dict[Any, int], list[Any]]:
    """What a step can compute its part of, with the dimension of the steps, and the reductions along that.

    h, hs = scan ... h0 xs;  t = transpose[permutation=(1, 0)] hs;  s = reduce_sum[axes=(1,)] t
        →    {hs: 0, t: 1}  and  [s]
    """
    body = body_of(scan.params)
    written = zip(scan.outvars[body.num_carry :], body.ys)
    steps = {var: 0 for var, atom in written if is_plain(var.aval.dtype) and not isinstance(atom, jex.Literal)}
    reductions = []
    for eqn in eqns:
        if after.isdisjoint(eqn.outvars):
            continue
        place = _dimension(eqn, steps, after)
        if place is not None:
            steps[eqn.outvars[0]] = place
        elif _reduces_steps(eqn, steps):
            reductions.append(eqn)
    return steps, reductions


def _after(eqns: Sequence[Any], scan: Any) -> tuple[frozenset[Any], frozenset[Any]]:
    """The equations that wait for the scan, and the variables, the results of both. Effects wait for earlier ones."""
    found, waiting = set(scan.outvars), {scan}
    an_effect_waits = False
    for eqn in eqns:
        if not found.isdisjoint(evaluate.variables(eqn.invars)) or (eqn.effects and an_effect_waits):
            waiting.add(eqn)
            found.update(eqn.outvars)
            an_effect_waits |= bool(eqn.effects)
    return frozenset(waiting), frozenset(found)


def _reduces_steps(eqn: Any, steps: Mapping[Any, int]) -> bool:
    """Whether an equation reduces the steps, and may do so one by one: what rounds each time, if they are few."""
    if eqn.primitive.name not in COMBINED or isinstance(eqn.invars[0], jex.Literal):
        return False
    place = steps.get(eqn.invars[0])
    if place is None or place not in eqn.params["axes"]:
        return False
    aval = eqn.invars[0].aval
    rounds = eqn.primitive.name in ROUNDED and not jnp.issubdtype(aval.dtype, np.integer)
    return not rounds or aval.shape[place] <= policy.COMMON.steps_added


def _dimension(eqn: Any, steps: Mapping[Any, int], after: frozenset[Any]) -> int | None:
    """The dimension of the result along which an equation treats each step by itself; None if it does not."""
    moving = [atom for atom in evaluate.variables(eqn.invars) if atom in after]
    if eqn.effects or len(eqn.outvars) != 1 or any(atom not in steps for atom in moving):
        return None
    dims = dims_of(eqn)
    if dims is None or eqn.primitive.name == "dot_general":  # XLA does better with all steps at once
        return None
    going_on = {(kept.operand, kept.dim): kept.place for kept in dims.kept if kept.exact}
    places = {going_on.get((n, steps[atom])) for n, atom in enumerate(eqn.invars) if atom in moving}
    return places.pop() if len(places) == 1 else None


def _leaves_apart(plan: Plan) -> bool:
    """Whether programs can share out as much of the loop as without the reductions."""
    scan = scan_of(plan.scan)
    alone = Coupling(scan.body.eqns, ties(scan))
    written = [pair for pair in outer_dims(scan) if pair[0][0] in plan.results]
    together = Coupling([*scan.body.eqns, *plan.inside], [*ties(scan), *written])
    inside = evaluate.variables([*scan.body.invars, *scan.body.outvars])
    return all(
        together.is_apart(var, d) or not alone.is_apart(var, d) for var in inside for d in range(len(var.aval.shape))
    )


def _rebuilt(closed: Closed, plan: Plan) -> Closed:
    """The program with the scan after everything that does not wait for it."""
    eqns = closed.jaxpr.eqns

    def run(*args: Value) -> list[Value]:
        env = dict([*zip(closed.jaxpr.constvars, closed.consts), *zip(closed.jaxpr.invars, args)])
        evaluate.run([eqn for eqn in eqns if eqn not in plan.waiting], env)
        _run_scan(plan, env)
        there = {*plan.scan.outvars, *(eqn.outvars[0] for eqn in plan.reductions)}
        evaluate.run([eqn for eqn in eqns if eqn in plan.waiting and there.isdisjoint(eqn.outvars)], env)
        return [evaluate.read(env, atom) for atom in closed.jaxpr.outvars]

    return again(closed, run)


def _run_scan(plan: Plan, env: dict[Any, Value]) -> None:
    """Add the results of the scan and of the reductions to `env`."""
    body = plan.body
    args = [evaluate.read(env, atom) for atom in plan.scan.invars]
    fixed = body.fixed(args)
    beside = plan.read_beside()
    slices = [jnp.moveaxis(env[atom], place, 0) for atom, place in beside]

    def step(carry: Any, x: Any) -> Any:
        (before, totals), (own, slices) = carry, x
        inner = {**fixed, **dict(zip(body.befores, before)), **dict(zip(body.xs, own))}
        evaluate.run(body.jaxpr.eqns, inner)
        ys = [evaluate.read(inner, atom) for atom in body.ys]
        parts = {var: lax.expand_dims(y, (0,)) for var, y in zip(plan.results, ys) if var in plan.steps}
        sliced = {key: lax.expand_dims(value, (key[1],)) for key, value in zip(beside, slices)}
        for eqn in plan.inside:
            here = {atom: value for (atom, place), value in sliced.items() if place == plan.place_in(eqn)}
            values = [evaluate.read({**env, **here, **parts}, atom) for atom in eqn.invars]
            parts[eqn.outvars[0]] = _of_one_step(eqn, plan.steps[eqn.outvars[0]], values)
        summed = [(eqn, lax.squeeze(parts[atom], (plan.steps[atom],))) for eqn, atom in plan.summed()]
        totals = [_more(eqn, total, part) for (eqn, part), total in zip(summed, totals)]
        return ([evaluate.read(inner, atom) for atom in body.afters], totals), ys

    starts = [_start(eqn, plan.steps[atom]) for eqn, atom in plan.summed()]
    with source_of(plan.scan):
        carried, xs = (body.inits(args), starts), (body.stacked(args), slices)
        (after, totals), ys = scanned(plan.scan.params, step, carried, xs)
    env.update(zip(plan.scan.outvars, [*after, *ys]))
    for (eqn, atom), total in zip(plan.summed(), totals):
        place, axes = plan.steps[atom], eqn.params["axes"]
        others = tuple(axis - (axis > place) for axis in axes if axis != place)
        with source_of(eqn):
            params = eqn.primitive.get_bind_params({**eqn.params, "axes": others})
            result = eqn.primitive.bind(total, **params) if others else total
            env[eqn.outvars[0]] = lax.convert_element_type(result, eqn.outvars[0].aval.dtype)


def _of_one_step(eqn: Any, place: int, values: Sequence[Value]) -> Value:
    """The equation about a single step, along a dimension of size 1."""
    sized = {"broadcast_in_dim": "shape", "reshape": "new_sizes", "slice": "limit_indices"}.get(eqn.primitive.name)
    params = dict(eqn.params)
    if sized is not None:
        params[sized] = (*params[sized][:place], 1, *params[sized][place + 1 :])
    with source_of(eqn):
        return eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))


def _start(eqn: Any, place: int) -> Value:
    """The neutral element for each part of a step; sums of 16 bits are carried in 32, as they are taken."""
    aval, name = eqn.invars[0].aval, eqn.primitive.name
    dtype = working_dtype(aval.dtype) if name in ROUNDED else np.dtype(aval.dtype)
    return lax.full((*aval.shape[:place], *aval.shape[place + 1 :]), REDUCTIONS[name].identity(dtype), dtype)


def _more(eqn: Any, total: Value, part: Value) -> Value:
    with source_of(eqn):
        return COMBINED[eqn.primitive.name](total, lax.convert_element_type(part, total.dtype))
