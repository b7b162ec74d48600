"""What a scan carries, reads or writes for nobody → nothing; what it carries without changing it → constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex
from jax import lax

from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.normalize.accumulators import Body
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, primitive_names, rewrite


def prune_scans(closed: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Leave out of a scan what leads to no output that anybody reads.

        a, b, c, ys = scan (λ a b c x. (a + c * x, b * a, c, sin b)) a0 b0 c0 xs   in (a, c)
            →    a = scan (λ a x. (a + c0 * x,)) a0 xs;  c = c0   in (a, c)

    A carry stays if a live one needs it, or a live `ys`. Left alone: scans with effects, and those of which nothing
    is live, which `remove_dead` drops.
    """
    if "scan" not in primitive_names(closed):
        return closed
    wanted = _wanted_parts(closed)
    if all(parts is None or parts.everything for parts in wanted):
        return closed
    upcoming = iter(wanted)

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value | None] | None:
        live = next(upcoming)
        if live is None or live.everything:
            return None
        return _pruned(node, live)

    return rewrite(closed, rule)


@dataclass(frozen=True)
class Live:
    """What is live of a scan: positions of carries, ys and xs, and the equations of its body."""

    body: Body
    carries: tuple[int, ...]
    unchanged: tuple[int, ...]  # carries that are constants
    ys: tuple[int, ...]
    xs: tuple[int, ...]
    consts: tuple[int, ...]
    eqns: tuple[Any, ...]

    @property
    def everything(self) -> bool:
        body = self.body
        whole = body.num_carry, len(body.ys), len(body.xs), len(body.jaxpr.eqns)
        return (len(self.carries), len(self.ys), len(self.xs), len(self.eqns)) == whole


def _wanted_parts(closed: jex.ClosedJaxpr) -> list[Live | None]:
    """For each equation what is live of it, if it is a scan of which something is."""
    live = {atom for atom in closed.jaxpr.outvars if not isinstance(atom, jex.Literal)}
    found: list[Live | None] = []
    for eqn in reversed(closed.jaxpr.eqns):
        parts = None
        operands = eqn.invars if eqn.effects or any(var in live for var in eqn.outvars) else []
        if operands and eqn.primitive.name == "scan" and not eqn.effects:
            parts = _live(eqn, [var in live for var in eqn.outvars])
            first_carry, first_x = parts.body.num_consts, parts.body.num_consts + parts.body.num_carry
            operands = [eqn.invars[position] for position in parts.consts]
            operands += [eqn.invars[first_carry + position] for position in (*parts.carries, *parts.unchanged)]
            operands += [eqn.invars[first_x + position] for position in parts.xs]
        live.update(atom for atom in operands if not isinstance(atom, jex.Literal))
        found.append(parts)
    return found[::-1]


def _live(eqn: Any, results: Sequence[bool]) -> Live:
    body = Body(eqn.params["jaxpr"].jaxpr, *scan_counts_of(eqn.params))
    unchanged = {position for position, pair in enumerate(zip(body.befores, body.afters)) if pair[0] is pair[1]}
    ys = [position for position, wanted in enumerate(results[body.num_carry :]) if wanted]
    carries = {position for position, wanted in enumerate(results[: body.num_carry]) if wanted}
    while True:
        targets = [body.ys[position] for position in ys] + [body.afters[position] for position in sorted(carries)]
        eqns = evaluate.needed(body.jaxpr.eqns, targets, ())
        read = {atom for atom in targets if not isinstance(atom, jex.Literal)}
        read |= {atom for each in eqns for atom in each.invars if not isinstance(atom, jex.Literal)}
        more = {position for position, before in enumerate(body.befores) if before in read}
        if more <= carries:
            break
        carries |= more
    return Live(
        body,
        tuple(sorted(carries - unchanged)),
        tuple(sorted(carries & unchanged)),
        tuple(ys),
        tuple(position for position, var in enumerate(body.xs) if var in read),
        tuple(position for position, var in enumerate(body.jaxpr.invars[: body.num_consts]) if var in read),
        tuple(eqns),
    )


def _pruned(node: Node, live: Live) -> list[Value | None]:
    body = live.body
    first_x = body.num_consts + body.num_carry
    fixed = dict(zip(body.consts, [*node.params["jaxpr"].consts, *node.args[: body.num_consts]]))
    kept = {position: node.args[body.num_consts + position] for position in live.unchanged}
    fixed.update((body.befores[position], value) for position, value in kept.items())

    def step(before: Sequence[Value], x: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        env = dict(fixed)
        env.update(zip([body.befores[position] for position in live.carries], before))
        env.update(zip([body.xs[position] for position in live.xs], x))
        evaluate.run(live.eqns, env)
        after = [evaluate.read(env, body.afters[position]) for position in live.carries]
        return after, [evaluate.read(env, body.ys[position]) for position in live.ys]

    after, ys = lax.scan(
        step,
        [node.args[body.num_consts + position] for position in live.carries],
        [node.args[first_x + position] for position in live.xs],
        node.params["length"],
        node.params["reverse"],
        node.params["unroll"],
    )
    kept.update(zip(live.carries, after))
    kept.update((body.num_carry + position, y) for position, y in zip(live.ys, ys))
    return [kept.get(position) for position in range(len(node.out_avals))]
