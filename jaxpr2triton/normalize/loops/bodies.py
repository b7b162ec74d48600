"""Bodies of loops as core programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton.graph.classes import Classes
from jaxpr2triton.graph.needless import why_not_chosen
from jaxpr2triton.ir.jaxprs import Closed, made
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.ir.scans import LOOPS, apart, body_of, scan_of, time_dims
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, is_plain, named, primitive_names, rewrite

Normalize = Callable[[Closed], Closed]


def normalize_bodies(closed: Closed, normalize: Normalize) -> Closed:
    """Normalise what loops run, and write out loops of one step or none.

        c, ys = scan[length=0] body c0 xs   →   c = c0;  ys = broadcast_in_dim 0.0
        c, ys = scan[length=1] body c0 xs   →   c, y = body c0 xs[0];  ys = broadcast_in_dim y
        c, ys = scan[jaxpr=f] c0 xs         →   c, ys = scan[jaxpr=normalize f] c0 xs

        c = while[cond body] c0                 →   go = cond c0;  go, c = repeat[body and cond] go c0
        y = cond[branches] i x                  →   y = select_n i (branch0 x) (branch1 x) ...
        y = cond[a loop, branch] i x            →   y = branch x;  _, y = repeat[a loop] (i == 0) y

    Left alone: loops with effects, and a `cond` that is more than a choice.
    """
    if not primitive_names(closed) & {"scan", "while", "cond"}:
        return closed

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        if node.effects:
            return None
        if node.name == "while":
            return _repeat(rewriter, node, normalize)
        if node.name == "cond":
            return _branches(rewriter, node, normalize)
        if node.name != "scan":
            return None
        body = body_of(node.params)
        if node.params["length"] == 0:
            ys = [lax.full(aval.shape, 0, aval.dtype) for aval in node.out_avals[body.num_carry :]]
            return [*body.inits(node.args), *ys]
        if node.params["length"] == 1:
            firsts = [jnp.squeeze(x, 0) for x in body.stacked(node.args)]
            args = [*node.args[: body.num_consts], *body.inits(node.args), *firsts]
            step = normalize(body.closed)  # what is called in it may have loops
            after, ys = apart(rewriter.evaluate(step.jaxpr, step.consts, args), body.num_carry)
            return [*after, *(jnp.expand_dims(y, 0) for y in ys)]
        return _again(rewriter, node, normalize(body.closed))

    return rewrite(closed, rule, named({"scan", "while", "cond"}))


def _again(rewriter: Rewriter, node: Node, body: Any) -> list[Value]:
    return rewriter.again(
        Node(node.primitive, {**node.params, "jaxpr": body}, node.args, node.out_avals, node.effects, node.context)
    )


def _repeat(rewriter: Rewriter, node: Node, normalize: Normalize) -> list[Value]:
    """A loop that carries whether to go on; lanes of a batched condition stop by themselves."""
    cond, body = node.params["cond_jaxpr"], node.params["body_jaxpr"]
    num_cond, num_body = node.params["cond_nconsts"], node.params["body_nconsts"]
    cond_consts, body_consts = node.args[:num_cond], node.args[num_cond : num_cond + num_body]
    start = node.args[num_cond + num_body :]
    sized = [
        position for position, value in enumerate(start) if jnp.size(value) or not is_plain(jax.typeof(value).dtype)
    ]

    def whole(carried: Sequence[Value]) -> list[Value]:
        """With what has no elements, which is not carried."""
        found = dict(zip(sized, carried))
        return [found[n] if n in found else lax.full_like(value, 0) for n, value in enumerate(start)]

    def go_on(consts: Sequence[Value], carried: Sequence[Value]) -> Value:
        (answer,) = jax.core.eval_jaxpr(cond.jaxpr, cond.consts, *consts, *whole(carried))
        return answer

    def step(*args: Value) -> list[Value]:
        first, second = args[:num_cond], args[num_cond : num_cond + num_body]
        going, *carried = args[num_cond + num_body :]
        everything = jax.core.eval_jaxpr(body.jaxpr, body.consts, *second, *whole(carried))
        after = [everything[position] for position in sized]
        if not jnp.ndim(going):
            return [go_on(first, after), *after]
        after = [_where(going, new, old) for new, old in zip(after, carried)]
        return [jnp.logical_and(going, go_on(first, after)), *after]

    first = normalize(cond)
    (going,) = rewriter.evaluate(first.jaxpr, first.consts, [*cond_consts, *start])
    operands = [*cond_consts, *body_consts, going, *(start[position] for position in sized)]
    inner = normalize(made(jax.make_jaxpr(step)(*map(jax.typeof, operands))))
    _, *results = rewriter.again(
        Node(repeat_p, {"jaxpr": inner, "num_consts": num_cond + num_body}, tuple(operands), tuple(inner.out_avals))
    )
    return whole(results)


def _where(going: Value, new: Value, old: Value) -> Value:
    """Not `jnp.where`, whose equations have the line of whoever has called it first."""
    which = lax.broadcast_in_dim(going, jnp.shape(new), tuple(range(jnp.ndim(going))))
    return lax.select_n(which, old, new)


def _branches(rewriter: Rewriter, node: Node, normalize: Normalize) -> list[Value] | None:
    """All branches without loops, and a choice of their results; then a branch with loops, if it is the one."""
    if why_not_chosen(node.params["branches"]):
        return None
    branches = [normalize(branch) for branch in node.params["branches"]]
    if any(primitive_names(branch) & {"while", "cond"} for branch in branches):
        return None
    index, *operands = node.args
    taken = [_taken(index, number, len(branches)) for number in range(len(branches))]
    apart = [number for number, branch in enumerate(branches) if _runs_apart(branch)]
    always = [number for number in range(len(branches)) if number not in apart]
    results = [rewriter.evaluate(branches[number].jaxpr, branches[number].consts, operands) for number in always]
    chosen = results[0] if results else [lax.full(aval.shape, 0, aval.dtype) for aval in node.out_avals]
    for number, values in list(zip(always, results))[1:]:
        chosen = [lax.select_n(taken[number], old, new) for new, old in zip(values, chosen)]
    for number in apart:
        chosen = _at_most_once(rewriter, taken[number], branches[number], operands, chosen)
    return chosen


def _taken(index: Value, number: int, count: int) -> Value:
    """Whether this is the branch of an index; one below 0 is as good as 0, one beyond the last as the last."""
    kind = np.dtype(jax.typeof(index).dtype)
    if kind.kind == "b":
        return index if number else jnp.logical_not(index)
    if 0 < number < count - 1:
        return jnp.equal(index, kind.type(number))
    return jnp.greater_equal(index, kind.type(number)) if number else jnp.less_equal(index, kind.type(0))


def _runs_apart(branch: Any) -> bool:
    """Whether a branch is to be run only where it is taken: there are loops in it.

    What such a loop puts out step by step can be chosen step by step; that needs no branch, if the loop has an end.
    """
    loops = [eqn for eqn in branch.jaxpr.eqns if eqn.primitive.name in LOOPS]
    if _may_not_end(branch.jaxpr):
        return True
    classes = Classes(branch.jaxpr.eqns)
    times = {classes.find(dim) for eqn in loops for dim in time_dims(scan_of(eqn))}
    results = (var for var in branch.jaxpr.outvars if not isinstance(var, jex.Literal))
    return bool(loops) and not any(kind in times for var in results for kind in classes.of(var))


def _may_not_end(jaxpr: Any) -> bool:
    """Whether a loop in it, or in one of its loops, ends when it says so itself."""
    return any(
        eqn.primitive is repeat_p or any(map(_may_not_end, jex.jaxprs_in_params(eqn.params))) for eqn in jaxpr.eqns
    )


def _at_most_once(
    rewriter: Rewriter, taken: Value, branch: Any, operands: Sequence[Value], otherwise: Sequence[Value]
) -> list[Value]:
    """A branch as a loop of one step, or none."""

    def step(*args: Value) -> list[Value]:
        results = jax.core.eval_jaxpr(branch.jaxpr, branch.consts, *args[: len(operands)])
        return [jnp.zeros((), bool), *results]

    args = [*operands, taken, *otherwise]
    inner = jax.make_jaxpr(step)(*map(jax.typeof, args))
    node = Node(repeat_p, {"jaxpr": inner, "num_consts": len(operands)}, tuple(args), tuple(inner.out_avals))
    return rewriter.again(node)[1:]
