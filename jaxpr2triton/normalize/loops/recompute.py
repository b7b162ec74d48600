"""What a loop stores for later: as little as the rest can be computed from, by a minimum cut over bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex

from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.cheapest import cheapest_of_step, price
from jaxpr2triton.ir.contracted import terms_of
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var, nbytes
from jaxpr2triton.ir.scans import Body
from jaxpr2triton.normalize.loops.distribute import Stage, distribute
from jaxpr2triton.normalize.loops.rewrite_loops import rewrite_loops
from jaxpr2triton.normalize.rewrite import Node, Value
from jaxpr2triton.rules.indexing import MOVES
from jaxpr2triton.rules.pointwise.table import POINTWISE

AGAIN = MOVES | POINTWISE.keys()


def does_again(eqn: Any) -> bool:
    """Elementwise and index work."""
    return eqn.primitive.name in AGAIN


def is_outer(eqn: Any) -> bool:
    """Whether this is a contraction of one term, so that nothing is summed."""
    return eqn.primitive.name == "dot_general" and terms_of(eqn) == 1


def recompute_stored(
    closed: Closed,
    num_outputs: int | None = None,
    again: Callable[[Any], bool] = does_again,
    prepare: Callable[[Any], Any] = lambda body: body,
) -> Closed:
    """Let a scan store only what it takes to compute the rest of its `ys` after the loop.

        h, hs, slopes, parts = scan (λ h x. let y = tanh (h @ w + x); s = 1 - y in (y, y, s, s * y)) h0 xs
            →    h, hs = scan (λ h x. ...; (y, y)) h0 xs;   slopes = 1 - hs;   parts = slopes * hs

    What a gradient keeps of each step is mostly elementwise in a few of these values, and is wanted by elementwise work
    of the loop that runs backwards, into which it is fused. Among all sets of values from which elementwise and index
    operations lead to the `ys`, the one with the fewest bytes is stored; the scan's own xs need not be stored again,
    and what no step changes costs nothing. An outer product among the `ys` is made of its factors again. Left
    alone: `ys` that are outputs of the program, or that a contraction reads, which would have to be written after the
    loop, and scans with effects.

    Before differentiation is over, `num_outputs` tells how many of the outputs are more than what a derivative keeps,
    `again` which equations may be done again, and `prepare` makes a body into one without transparent calls.
    """
    outputs = {atom for atom in closed.jaxpr.outvars[:num_outputs] if not isinstance(atom, jex.Literal)}
    if num_outputs is None:
        products = [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general" and not is_outer(eqn)]
        outputs.update(evaluate.variables(atom for eqn in products for atom in eqn.invars))

    def plan_of(eqn: Any) -> Plan | None:
        return _plan_of(eqn, prepare(eqn.params["jaxpr"]), outputs, again)

    return rewrite_loops(closed, {"scan"}, plan_of, lambda node, plan, _: _distributed(node, plan))


@dataclass(frozen=True)
class Plan:
    body: Body
    sunk: tuple[int, ...]  # positions of ys
    stored: tuple[Any, ...]  # variables of the body that are written in their place
    given: frozenset[Any]  # what the sunk ones are computed from: stored, in memory anyway, or never changing


def _plan_of(eqn: Any, closed: Any, outputs: set[Any], again: Callable[[Any], bool]) -> Plan | None:
    """What to store instead of some ys; None if that is not less than they are.

    ys = (y, 1 - y, (1 - y) * y), none of them an output of the program
        →    sunk = (1, 2), stored = (), given = {y}
    """
    body = Body(closed, *scan_counts_of(eqn.params))
    pinned, asked = _pinned_and_asked(body, [var in outputs for var in eqn.outvars[body.num_carry :]])
    there = {*body.xs, *pinned}
    given = _cheapest(body, asked, there, again)

    free = there | body.dependences.invariant
    kept = [var for var in given if var not in free]
    gone = {atom for atom in asked if atom not in kept}
    if not gone or nbytes(*kept) >= nbytes(*asked):
        return None
    written = [(position, atom) for position, atom in enumerate(body.ys) if not isinstance(atom, jex.Literal)]
    sunk = tuple(position for position, atom in written if atom in gone)
    stored = tuple(var for var in kept if var not in asked)  # those that are asked for go on being written
    return Plan(body, sunk, stored, frozenset(given))


def _pinned_and_asked(body: Body, is_output: Sequence[bool]) -> tuple[set[Any], dict[Any, None]]:
    """The ys that are written whatever happens, and the others, each of them once."""
    written = [(atom, out) for atom, out in zip(body.ys, is_output) if not isinstance(atom, jex.Literal)]
    pinned = {atom for atom, out in written if out}
    return pinned, dict.fromkeys(atom for atom, _ in written if atom not in pinned)


def _cheapest(body: Body, asked: Collection[Any], there: set[Any], again: Callable[[Any], bool]) -> tuple[Any, ...]:
    """The cheapest variables from which the asked ones can be computed; what no step changes costs nothing."""
    invariant, wanted = body.dependences.invariant, frozenset(asked)

    def cost(var: Any) -> int:
        return 0 if var in invariant else price(var.aval, var in there)

    def is_again(var: Var, eqn: Eqn) -> bool:
        return var not in invariant and (again(eqn) or (var in wanted and is_outer(eqn)))

    return cheapest_of_step(body, asked, cost, is_again)


def _distributed(node: Node, plan: Plan) -> list[Value]:
    kept = [atom for position, atom in enumerate(plan.body.ys) if position not in plan.sunk]
    written = dict.fromkeys([*evaluate.variables(kept), *plan.stored])
    return distribute(node, plan.body, [Stage(plan.body.places, tuple(written))])
