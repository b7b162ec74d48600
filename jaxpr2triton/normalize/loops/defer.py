"""Sums that a loop carries → sums after the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax

from jaxpr2triton._compat import scan_counts_of, source_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Closed, Eqn
from jaxpr2triton.ir.scans import Body, scanned
from jaxpr2triton.normalize.arrays.sum_parts import sum_pieces
from jaxpr2triton.normalize.loops.accumulators import Term, apply, others, spread
from jaxpr2triton.normalize.loops.deferral_choice import Factor, LaneSum, Plan, Stacked, plan_of
from jaxpr2triton.normalize.loops.rewrite_loops import rewrite_loops
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, splat


def defer_accumulation(closed: Closed) -> Closed:
    """Take what a scan only ever adds to out of the scan.

        dw, dh = scan (λ dw dh h x. ...; (dw + xᵀ @ dz, dz @ wᵀ)) 0 dh0 hs xs
            →    dh, dzs = scan (λ dh h x. ...; (dz @ wᵀ, dz)) dh0 hs xs;   dw = xsᵀ @ dzs over (step, batch)

        db, dh = scan (λ db dh h. ...; (db + sum[axis=batch] dz, ...)) 0 dh0 hs
            →    dbs, dh = scan (λ dbs dh h. ...; (dbs + dz, ...)) 0 dh0 hs;    db = sum[axis=batch] dbs

    Both leave a loop whose steps do not mix the batch, so that programs can share it out. Which one is chosen:

    - A sum over dimensions that nothing else in the body mixes is carried lane by lane, and so is a contraction over
      them whose result has at most `of_a_lane` elements.
    - Every other contraction over such dimensions, and one whose result is larger than `kept`, gets its factors
      stacked, unless they are `times_stored` times what a step reads, writes and carries anyway, or more. Factors that
      are in memory anyway, as the scan's own xs and ys, cost nothing; plain sums of those are taken after the loop too.
    - Sums over mixed dimensions stay, unless what is summed is no larger than what the loop carries anyway.
    - Elementwise addends, and carries that anything else reads, stay.

    What is linear around the sum (`rules/linear.py`: reshape, pad, neg, a factor that no step changes …) is done once,
    afterwards. Sums are taken in another order than before, whichever way the loop runs: results differ by rounding,
    in the same way each time.
    """

    def plan(eqn: Eqn) -> Plan | None:
        return plan_of(Body(sum_pieces(eqn.params["jaxpr"]), *scan_counts_of(eqn.params)))

    return rewrite_loops(closed, {"scan"}, plan, _rebuilt)


def _rebuilt(node: Node, plan: Plan, rewriter: Rewriter) -> list[Value]:
    body = plan.body
    fixed, inits, xs = body.fixed(node.args), body.inits(node.args), dict(zip(body.xs, body.stacked(node.args)))
    stays = [position for position in range(body.num_carry) if position not in plan.removed]
    needed, live_xs = body.leading_to(_targets(body, plan))

    def step(carry: Any, x: Sequence[Value]) -> Any:
        before, sums = carry
        env = {**fixed, **dict(zip([body.befores[p] for p in stays], before)), **dict(zip(live_xs, x))}
        evaluate.run(needed, env)
        after = [_next(env, body, plan, p, value) for p, value in zip(stays, before)]
        sums = [_more(env, lane, value) for lane, value in zip(plan.lanes, sums)]
        return (after, sums), [evaluate.read(env, atom) for atom in (*body.ys, *plan.stacks)]

    starts = [jnp.zeros(aval.shape, aval.dtype) for aval in map(_type_of_lane, plan.lanes)]
    carried = [inits[p] for p in stays], starts
    (after, sums), ys = scanned(node.params, step, carried, [xs[var] for var in live_xs])
    written = [(atom, y) for atom, y in zip((*body.ys, *plan.stacks), ys) if not isinstance(atom, jex.Literal)]
    arrays = {**xs, **dict(written)}
    outside = dict(fixed)
    evaluate.run(evaluate.needed(body.jaxpr.eqns, _factors_of_links(plan), outside), outside)
    results: dict[int, Value] = dict(zip(stays, after))
    results |= {p: inits[p] for p in plan.removed if not _is_zero(inits[p], rewriter)}
    parts = [(lane.position, _after_lanes(outside, lane, value)) for lane, value in zip(plan.lanes, sums)]
    parts += [(each.position, _after_steps(outside, each, arrays)) for each in plan.stacked]
    for position, part in parts:
        part = spread(part, node.out_avals[position].shape)
        results[position] = lax.add(results[position], part) if position in results else part
    return [results[position] for position in range(body.num_carry)] + list(ys[: len(body.ys)])


def _targets(body: Body, plan: Plan) -> list[Any]:
    """What a step of the new loop needs of the old one."""
    afters = [after for p, after in enumerate(body.afters) if p not in plan.kept]
    kept = [term for terms in plan.kept.values() for term in terms]
    atoms = [atom for term in kept for atom in (term.leaf, *others(term.links))]
    atoms += [atom for lane in plan.lanes for term in lane.terms for atom in term.maker.invars]
    return [*afters, *body.ys, *plan.stacks, *atoms]


def _factors_of_links(plan: Plan) -> list[Any]:
    """What links multiply with, after the loop; no step changes it."""
    links = [link for term in plan.delayed_terms() for link in term.links]
    makers = [lane.link for lane in plan.lanes if lane.link is not None]
    return others([*links, *makers])


def _next(env: dict[Any, Value], body: Body, plan: Plan, position: int, before: Value) -> Value:
    """A carried value after a step, with what is still added to it."""
    if position not in plan.kept:
        return evaluate.read(env, body.afters[position])
    for term in plan.kept[position]:
        value = apply(term.links, spread(evaluate.read(env, term.leaf), term.shape), env)
        before = lax.sub(before, value) if term.negative else lax.add(before, value)
    return before


def _more(env: dict[Any, Value], lane: LaneSum, value: Value) -> Value:
    """The sum of a lane after a step."""
    for term in lane.terms:
        more = _summand(env, lane, term)
        value = lax.sub(value, more) if term.negative else lax.add(value, more)
    return value


def _summand(env: dict[Any, Value], lane: LaneSum, term: Term) -> Value:
    operands = [evaluate.read(env, atom) for atom in term.maker.invars]
    with source_of(term.maker):
        if lane.link is not None:
            return operands[lane.link[1]]
        if term.maker.primitive.name == "dot_general":
            return _dot(term.maker, operands, _by_pairs(term.maker, lane.delayed))
        now = [d for d in term.maker.params["axes"] if d not in lane.delayed]
        return lax.reduce_sum(operands[0], now)


def _after_lanes(outside: dict[Any, Value], lane: LaneSum, value: Value) -> Value:
    if lane.link is not None:
        return apply([lane.link, *lane.terms[0].links], value, outside)
    with source_of(lane.maker):
        if lane.maker.primitive.name == "dot_general":
            first = len(lane.maker.params["dimension_numbers"][1][0])
            left = list(range(first, first + len(lane.delayed)))
        else:
            now = [d for d in lane.maker.params["axes"] if d not in lane.delayed]
            left = [d - sum(other < d for other in now) for d in lane.delayed]
        value = lax.reduce_sum(value, tuple(left))
    return apply(lane.terms[0].links, value, outside)


def _by_pairs(eqn: Any, delayed: Sequence[int]) -> Any:
    """The contraction with some of its pairs as batch dimensions, the last ones."""
    sums, batch = eqn.params["dimension_numbers"]
    left = tuple(tuple(d for k, d in enumerate(dims) if k not in delayed) for dims in sums)
    more = tuple((*dims, *(pairs[k] for k in delayed)) for dims, pairs in zip(batch, sums))
    return left, more


def _dot(eqn: Any, operands: Sequence[Value], dimension_numbers: Any) -> Value:
    params = {**eqn.params, "dimension_numbers": dimension_numbers}
    return eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(params))


def _after_steps(outside: dict[Any, Value], stacked: Stacked, arrays: dict[Any, Value]) -> Value:
    """The sum over all steps at once."""
    eqn = stacked.term.maker
    operands = [_every_step(factor, arrays[factor.root], outside) for factor in stacked.factors]
    with source_of(eqn):
        if eqn.primitive.name == "dot_general":
            sums, batch = ([tuple(d + 1 for d in dims) for dims in pair] for pair in eqn.params["dimension_numbers"])
            value = _dot(eqn, operands, (tuple((0, *dims) for dims in sums), tuple(batch)))
        else:
            value = lax.reduce_sum(operands[0], (0, *(d + 1 for d in eqn.params["axes"])))
    value = apply(stacked.term.links, value, outside)
    return lax.neg(value) if stacked.term.negative else value


def _every_step(factor: Factor, array: Value, outside: dict[Any, Value]) -> Value:
    return jax.vmap(lambda value: apply(factor.links, value, outside))(array)


def _type_of_lane(lane: LaneSum) -> Any:
    """The type of the carried sum."""
    avals = [atom.aval for atom in lane.maker.invars]
    return jax.eval_shape(lambda *values: _summand(dict(zip(lane.maker.invars, values)), lane, lane.terms[0]), *avals)


def _is_zero(value: Value, rewriter: Rewriter) -> bool:
    known = splat(value, rewriter)
    return known is not None and bool(known == 0)
