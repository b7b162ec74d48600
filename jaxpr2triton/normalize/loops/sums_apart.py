"""Sums in a loop that no step has to wait for → sums after it, where they are spread out or keep its lanes together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from jaxpr2triton import policy
from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.graph import dynamic
from jaxpr2triton.hardware import DEFAULT_TARGET
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.dataflow import made_of
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Literal, Var, elements, nbytes
from jaxpr2triton.ir.scans import Body
from jaxpr2triton.normalize.loops.accumulators import accumulated
from jaxpr2triton.normalize.loops.coupled import Coupling
from jaxpr2triton.normalize.loops.deferral_choice import mixing_of_the_rest
from jaxpr2triton.normalize.loops.products_apart import Plan, distributed, not_waited_for, sunk_of
from jaxpr2triton.normalize.loops.recompute import does_again
from jaxpr2triton.normalize.loops.rewrite_loops import rewrite_loops
from jaxpr2triton.rules.reductions import TABLE


def sums_apart(closed: Closed) -> Closed:
    """Take sums out of a scan that it does not carry, and that are of many more elements than they are made of.

        c, ys = scan (λ c x. let c' = f c x in (c', sum[axis=k] (where (i == n[k]) c'[k] 0))) c0 xs
            →    c, cs = scan (λ c x. let c' = f c x in (c', c')) c0 xs;   ys = sum[axis=k] (where (i == n[k]) cs[k] 0)

    So the gradient of what a step reads at computed places is. A step would have all pairs of places and updates in
    the lanes of one program, and wait for their sum; all steps at once are shared out. Left alone: sums of which there
    is little in all steps, and those for which more would be stored than `times_stored` times what they make; loops of
    so many lanes that all processors are busy.

    Other reductions too, where nothing else keeps many lanes together:

        c, ys = scan (λ c x. let c' = f c x in (c', sum (c' * x))) c0 xs
            →    c, cs = scan (λ c x. let c' = f c x in (c', c')) c0 xs;   ys = sum[axis=1] (cs * xs)

    So the gradient of what all lanes read in a step is. One program would have all lanes. Left alone: few lanes, those
    of loops that programs enough share out all the same, and what would have more bytes stored than `times_stored`
    times those that a step reads, writes and carries.
    """
    return rewrite_loops(closed, {"scan"}, _plan_of, lambda node, plan, _: distributed(node, plan))


def _plan_of(eqn: Eqn) -> Plan | None:
    body = Body(eqn.params["jaxpr"], *scan_counts_of(eqn.params))
    return _spread(body, eqn.params["length"]) or _of_lanes(body)


def _spread(body: Body, length: int) -> Plan | None:
    sums = [each for each in body.jaxpr.eqns if each.primitive.name == "reduce_sum"]
    much = [each for each in sums if length * elements(each.invars[0]) >= policy.COMMON.worth_a_launch]
    after = not_waited_for(body, much, ())
    if not after or max(map(elements, body.befores), default=0) > policy.COMMON.lanes_of_steps:
        return None
    sunk, given = sunk_of(body, after, (), _for_these_alone(body, after))
    plan = Plan(body, (), sunk, given)
    spread = min(elements(each.invars[0]) for each in much if each.outvars[0] in after)
    stored = sum(map(elements, plan.stored))
    return plan if sunk and spread >= policy.COMMON.times * stored else None


def _of_lanes(body: Body) -> Plan | None:
    made = {each.outvars[0]: each for each in body.jaxpr.eqns if each.primitive.name in TABLE}
    after = not_waited_for(body, made.values(), ())
    if not after:
        return None
    sums, behind = accumulated(body), made_of(body.jaxpr.eqns, after)
    first = [var for var in after if behind.isdisjoint(evaluate.variables(made[var].invars))]
    others = [atom for atom in body.ys if isinstance(atom, Literal) or atom not in behind]
    rest = mixing_of_the_rest(body, sums, [*others, *itertools.chain(*(made[var].invars for var in first))])
    carried = [var for position, var in enumerate(body.befores) if position not in sums]
    if not _sets_free(carried, mixing_of_the_rest(body, sums, body.ys), rest):
        return None
    after = frozenset(var for var in first if _is_over_lanes(made[var], rest))
    anyway = sum(map(nbytes, evaluate.variables([*body.xs, *others, *carried])))
    sunk, given = sunk_of(body, after, (), _for_these_alone(body, after), policy.COMMON.times * anyway)
    return Plan(body, (), sunk, given) if sunk else None


def _is_over_lanes(eqn: Eqn, mixing: Coupling) -> bool:
    return any(mixing.is_apart(operand, d) for operand in eqn.invars for d in eqn.params["axes"])


def _sets_free(carried: Iterable[Var], now: Coupling, rest: Coupling) -> bool:
    """Whether programs can share out many lanes if all but the rest is done after the loop."""
    held = sum(_kept_together(var, now) for var in carried)
    programs = max((elements(var) // _kept_together(var, now) for var in carried), default=1)
    numbers = policy.COMMON
    few = numbers.lanes_apart if programs < DEFAULT_TARGET.processors else numbers.numbers_of_a_program
    return held > few and sum(_kept_together(var, rest) for var in carried) <= held // 2


def _kept_together(var: Var, mixing: Coupling) -> int:
    """The elements of a carried array that one program has to have."""
    return math.prod(size for d, size in enumerate(var.aval.shape) if not mixing.is_apart(var, d))


def _for_these_alone(body: Body, after: frozenset[Var]) -> frozenset[Var]:
    """Elementwise and index work, at computed places too, that leads to nothing else than these values."""
    behind = made_of(body.jaxpr.eqns, after)
    others = [atom for atom in body.ys if isinstance(atom, Literal) or atom not in behind]
    needed = {var for eqn in evaluate.needed(body.jaxpr.eqns, [*body.afters, *others], ()) for var in eqn.outvars}
    moved = [eqn for eqn in body.jaxpr.eqns if does_again(eqn) or eqn.primitive.name in dynamic.TABLE]
    return frozenset(var for eqn in moved for var in eqn.outvars) - needed
