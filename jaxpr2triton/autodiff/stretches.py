"""Gradients in bounded memory: of a long scan only the states at the starts of its *stretches* are kept.

    c, ys = scan[length=1000] f c0 xs
        →    c, ys = scan[length=25] (λ c x. checkpoint (scan[length=40] f c x)) c0 (reshape xs)

Differentiated, that keeps 25 states, and the backward program computes the states of one stretch again before it goes
back through it. Where the length has no good divisor, what is left over is a stretch of its own, the last one:

    c, ys = scan[length=7] f c0 xs    →    c, ys = scan[length=2] (λ c x. checkpoint (scan[length=3] f c x)) c0 xs[:6]
                                           c, y = checkpoint (scan[length=1] f c xs[6:])

Loops in steps and in branches are loops as well. Left alone: what does not depend on what is differentiated, loops with
effects, loops whose steps the user has checkpointed, and what is in calls with derivative rules of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton._compat import source_of, varies_over_mesh
from jaxpr2triton.autodiff.parts import CHECKPOINTS
from jaxpr2triton.autodiff.tracing import flatten
from jaxpr2triton.ir import evaluate
from jaxpr2triton.ir.jaxprs import Closed, Eqn, Var
from jaxpr2triton.ir.roles import SQRT, Checkpoint
from jaxpr2triton.ir.scans import apart, body_of, scanned
from jaxpr2triton.ir.tracing import again


def in_stretches(closed: Closed, moving: Sequence[bool], checkpoint: Checkpoint) -> Closed:
    """The program of which a derivative along the marked inputs keeps as little as was asked for."""
    if checkpoint is None or not _has_loops(closed):
        return closed
    flat: Closed = flatten(closed)
    live = {var for var, moves in zip(flat.jaxpr.invars, moving) if moves}

    def written(*args: Any) -> list[Any]:
        env = dict(zip(flat.jaxpr.invars, args))
        evaluate.run(flat.jaxpr.eqns, env, _rule(checkpoint, live))
        return [evaluate.read(env, atom) for atom in flat.jaxpr.outvars]

    made: Closed = again(flat, written)
    return made


def steps_of_a_stretch(length: int, checkpoint: Checkpoint) -> int | None:
    """How many; None if there is nothing to be gained.

    With "sqrt" the states of all stretches and those of one are as few as can be: 1000 steps are 25 stretches of 40,
    and 7 are 3, 3 and 1. Somewhat more of them, or fewer stretches than asked for, are better than such a rest.
    """
    if checkpoint is None:
        return None
    count = checkpoint if isinstance(checkpoint, int) else math.isqrt(max(length, 1) - 1) + 1
    least = -(-length // count) if isinstance(checkpoint, int) else count
    if count >= length or (checkpoint == SQRT and least + -(-length // least) > length):
        return None
    most = policy.COMMON.rounder_stretches * least
    near = range(max(2, -(-length // most)), min(most + 1, length))
    exact = [steps for steps in near if length % steps == 0]
    if checkpoint == SQRT:
        return min(exact, key=lambda steps: (steps + length // steps, -steps), default=least)
    return next((steps for steps in exact if steps >= least), least)


def _has_loops(closed: Closed) -> bool:
    """Whether there is a loop in a program, or in what it calls."""
    return any(
        eqn.primitive.name == "scan" or any(map(_has_loops, _programs_in(eqn)))
        for eqn in closed.jaxpr.eqns
        if eqn.primitive.name not in CHECKPOINTS
    )


def _programs_in(eqn: Eqn) -> list[Closed]:
    found = [eqn.params.get("jaxpr"), *eqn.params.get("branches", ())]
    return [each for each in found if hasattr(each, "consts")]


def _rule(checkpoint: Checkpoint, live: set[Var] | None = None) -> evaluate.Rewrite:
    """What an equation becomes; `live` are the variables that move, if that is known, and grows."""

    def rewrite(eqn: Eqn, values: list[Any]) -> list[Any] | None:
        if live is not None:
            if not any(var in live for var in evaluate.variables(eqn.invars)):
                return None
            live.update(eqn.outvars)
        with source_of(eqn):
            match eqn.primitive.name:
                case "scan":
                    return _stretched(eqn, values, checkpoint)
                case "cond" if any(map(_has_loops, eqn.params["branches"])):
                    branches = [_as_function(branch, checkpoint) for branch in eqn.params["branches"]]
                    return list(lax.switch(values[0], branches, *values[1:]))
                case _:
                    return None

    return rewrite


def _as_function(closed: Closed, checkpoint: Checkpoint) -> Callable[..., list[Any]]:
    """What a program does, its loops in stretches."""
    flat: Closed = flatten(closed) if _has_loops(closed) else closed
    return lambda *args: evaluate.outputs(flat.jaxpr, flat.consts, args, _rule(checkpoint))


def _stretched(eqn: Eqn, values: list[Any], checkpoint: Checkpoint) -> list[Any] | None:
    body, params, length = body_of(eqn.params), eqn.params, eqn.params["length"]
    steps = steps_of_a_stretch(length, checkpoint)
    if eqn.effects or any(inner.primitive.name in CHECKPOINTS for inner in body.jaxpr.eqns):
        return None
    if any(varies_over_mesh(atom.aval) for atom in eqn.invars) or (steps is None and not _has_loops(body.closed)):
        return None
    step, fixed = _as_function(body.closed, checkpoint), values[: body.num_consts]

    def stretch(fixed: list[Any], carried: list[Any], xs: list[Any], length: int) -> tuple[list[Any], list[Any]]:
        def one(before: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
            return apart(step(*fixed, *before, *x), body.num_carry)

        return scanned({**params, "length": length}, one, carried, xs)

    carried, xs = body.inits(values), body.stacked(values)
    if steps is None:
        carried, ys = stretch(fixed, carried, xs, length)
        return [*carried, *ys]
    count, rest = divmod(length, steps)
    first = slice(rest, None) if params["reverse"] else slice(count * steps)
    last = slice(rest) if params["reverse"] else slice(count * steps, None)

    def alone(carried: list[Any], xs: list[Any], length: int, inside: bool = False) -> tuple[list[Any], list[Any]]:
        def whole(fixed: list[Any], carried: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
            return stretch(fixed, carried, xs, length)

        found: tuple[list[Any], list[Any]] = jax.checkpoint(whole, prevent_cse=not inside)(fixed, carried, xs)
        return found

    def several(carried: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        return alone(carried, xs, steps, inside=True)

    if count == 1:
        carried, ys = alone(carried, [x[first] for x in xs], steps)
    else:
        folded = [lax.reshape(x[first], (count, steps, *x.shape[1:])) for x in xs]
        carried, ys = scanned({**params, "length": count, "unroll": 1}, several, carried, folded)
        ys = [lax.reshape(y, (count * steps, *y.shape[2:])) for y in ys]
    if rest:
        carried, more = alone(carried, [x[last] for x in xs], rest)
        ys = [lax.concatenate([b, a] if params["reverse"] else [a, b], 0) for a, b in zip(ys, more)]
    return [*carried, *ys]
