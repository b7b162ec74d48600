"""What a scan carries, reads or writes for nobody → nothing; what it carries without changing it → constants.

Arrays without elements are such constants, whatever makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex
from jax import lax

from jaxpr2triton._compat import source_of
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.scans import Body, apart, body_of, scanned
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, is_plain, primitive_names, rewrite


def prune_scans(closed: Closed) -> Closed:
    """Leave out of a scan what leads to no output that anybody reads.

        a, b, c, ys = scan (λ a b c x. (a + c * x, b * a, c, sin b)) a0 b0 c0 xs   in (a, c)
            →    a = scan (λ a x. (a + c0 * x,)) a0 xs;  c = c0   in (a, c)

    A carry stays if a live one needs it, or a live `ys`. Left alone: scans with effects, and those of which nothing
    is live, which `remove_dead` drops.
    """
    if "scan" not in primitive_names(closed):
        return closed
    parts = _live_parts(closed.jaxpr.eqns, closed.jaxpr.outvars)
    if all(live is None or live.everything for live in parts):
        return closed
    upcoming = iter(parts)

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value | None] | None:
        live = next(upcoming)
        if live is None:
            return [None] * len(node.out_avals)  # nobody reads it, and its own operands may be gone
        if live.empty:
            return list(map(_nothing, node.out_avals))
        return None if live.everything else _pruned(live, node.params, node.args, node.out_avals)

    return rewrite(closed, rule)


@dataclass(frozen=True)
class Live:
    """What is live of an equation, and for a scan what of it: positions of carries, ys, xs and consts."""

    operands: tuple[Any, ...]
    body: Body | None = None
    carries: tuple[int, ...] = ()
    unchanged: tuple[int, ...] = ()  # carries that are constants
    ys: tuple[int, ...] = ()
    xs: tuple[int, ...] = ()
    inner: tuple[Live | None, ...] = ()  # of the equations of the body
    empty: bool = False  # no result has any elements

    @property
    def everything(self) -> bool:
        """True if nothing can be left out."""
        if self.body is None:
            return not self.empty
        counts = len(self.operands), len(self.carries), len(self.ys), len(self.xs)
        whole = counts == (len(self.body.jaxpr.invars), self.body.num_carry, len(self.body.ys), len(self.body.xs))
        return whole and all(live is not None and live.everything for live in self.inner)


def _live_parts(eqns: Sequence[Any], targets: Iterable[Any]) -> list[Live | None]:
    """For each equation what the targets need of it."""
    wanted = set(evaluate.variables(targets))
    found: list[Live | None] = []
    for eqn in reversed(eqns):
        live = None
        if eqn.effects or any(var in wanted for var in eqn.outvars):
            if not eqn.effects and evaluate.variables(eqn.invars) and all(map(_is_empty, eqn.outvars)):
                live = Live((), empty=True)
            elif not eqn.effects and eqn.primitive.name == "scan":
                live = _live_scan(eqn, [var in wanted for var in eqn.outvars])
            else:
                live = Live(tuple(eqn.invars))
            wanted.update(evaluate.variables(live.operands))
        found.append(live)
    return found[::-1]


def _live_scan(eqn: Any, results: Sequence[bool]) -> Live:
    """What of a scan leads to those of its results that are wanted.

    a, b, c, ys = scan (λ a b c x. (a + c * x, b * a, c, sin b)) a0 b0 c0 xs   and a is wanted
        →    carries (0,), unchanged (2,), ys (), xs (0,), with the operands a0 c0 xs
    """
    body = body_of(eqn.params)
    wanted_carries, wanted_ys = map(_positions, apart(results, body.num_carry))
    ys = [position for position in wanted_ys if not _is_empty(eqn.outvars[body.num_carry + position])]
    carries, inner, read = _step_for(body, wanted_carries, ys)

    # What is carried starts from an operand, even if no step reads it.
    read |= {body.befores[position] for position in carries}
    unchanged = _unchanged(body)
    return Live(
        operands=tuple(atom for atom, var in zip(eqn.invars, body.jaxpr.invars) if var in read),
        body=body,
        carries=tuple(sorted(carries - unchanged)),
        unchanged=tuple(sorted(carries & unchanged)),
        ys=tuple(ys),
        xs=tuple(_positions(var in read for var in body.xs)),
        inner=tuple(inner),
    )


def _step_for(body: Body, wanted: Iterable[int], ys: Sequence[int]) -> tuple[set[int], list[Live | None], set[Any]]:
    """The carries that have to be there for these carries and ys, what is live of a step then, and all that it reads.

    What a step reads is carried to it by the one before, which may read yet other carries for that; so on until no
    more are found.
    """
    carries = set(wanted)
    while True:
        targets = [body.ys[position] for position in ys] + [body.afters[position] for position in sorted(carries)]
        inner = _live_parts(body.jaxpr.eqns, targets)
        operands = (atom for live in inner if live is not None for atom in live.operands)
        read = set(evaluate.variables([*targets, *operands]))

        more = set(_positions(before in read for before in body.befores))
        if more <= carries:
            return carries, inner, read
        carries |= more


def _unchanged(body: Body) -> set[int]:
    """The carries that are after each step what they were before it."""
    pairs = zip(body.befores, body.afters)
    return set(_positions(before is after or _is_empty(before) for before, after in pairs))


def _positions(found: Iterable[bool]) -> list[int]:
    return [position for position, yes in enumerate(found) if yes]


def _is_empty(var: Any) -> bool:
    return _has_none(var.aval)


def _has_none(aval: Any) -> bool:
    return 0 in getattr(aval, "shape", ()) and is_plain(aval.dtype)


def _nothing(aval: Any) -> Value:
    return lax.full(aval.shape, 0, aval.dtype)


def _pruned(live: Live, params: Any, args: Sequence[Value], out_avals: Sequence[Any]) -> list[Value | None]:
    body = live.body
    assert body is not None  # it is a scan
    inits, xs = body.inits(args), body.stacked(args)
    fixed = body.fixed(args)
    kept = {position: inits[position] for position in live.unchanged}
    fixed.update((body.befores[position], value) for position, value in kept.items())

    def step(before: Sequence[Value], x: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        env = dict(fixed)
        env.update(zip([body.befores[position] for position in live.carries], before))
        env.update(zip([body.xs[position] for position in live.xs], x))
        for eqn, part in zip(body.jaxpr.eqns, live.inner):
            if part is not None:
                _evaluate(eqn, part, env)
        after = [evaluate.read(env, body.afters[position]) for position in live.carries]
        return after, [evaluate.read(env, body.ys[position]) for position in live.ys]

    after, ys = scanned(params, step, [inits[position] for position in live.carries], [xs[p] for p in live.xs])
    kept.update(zip(live.carries, after))
    kept.update((body.num_carry + position, y) for position, y in zip(live.ys, ys))
    return [kept.get(place, _nothing(aval) if _has_none(aval) else None) for place, aval in enumerate(out_avals)]


def _evaluate(eqn: Any, live: Live, env: dict[Any, Value]) -> None:
    """Add what is live of the results to `env`, in which operands that are not may be missing."""
    if live.empty:
        env.update((var, _nothing(var.aval)) for var in eqn.outvars)
        return
    if live.everything:
        evaluate.run([eqn], env)
        return
    values = [atom.val if isinstance(atom, jex.Literal) else env.get(atom) for atom in eqn.invars]
    with source_of(eqn):
        env.update(zip(eqn.outvars, _pruned(live, eqn.params, values, [var.aval for var in eqn.outvars])))
