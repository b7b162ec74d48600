"""Bodies of loops as core programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import scan_counts_of
from jaxpr2triton.ir.region import repeat_p
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, primitive_names, rewrite
from jaxpr2triton.rules.scans import LOOPS

Normalize = Callable[[jex.ClosedJaxpr], jex.ClosedJaxpr]


def normalize_bodies(closed: jex.ClosedJaxpr, normalize: Normalize) -> jex.ClosedJaxpr:
    """Normalise what loops run, and write out loops of one step or none.

        c, ys = scan[length=0] body c0 xs   →   c = c0;  ys = broadcast_in_dim 0.0
        c, ys = scan[length=1] body c0 xs   →   c, y = body c0 xs[0];  ys = broadcast_in_dim y
        c, ys = scan[jaxpr=f] c0 xs         →   c, ys = scan[jaxpr=normalize f] c0 xs

        c = while[cond body] c0                 →   go = cond c0;  go, c = repeat[body and cond] go c0
        y = cond[branches] i x                  →   y = select_n i (branch0 x) (branch1 x) ...

    Left alone: loops with effects, and branches with loops or effects in them.
    """
    if not primitive_names(closed) & {"scan", "while", "cond"}:
        return closed

    def rule(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
        if node.effects:
            return None
        if node.name == "while":
            return _repeat(rewriter, node, normalize)
        if node.name == "cond":
            return _both_branches(rewriter, node, normalize)
        if node.name != "scan":
            return None
        body = node.params["jaxpr"]
        num_consts, num_carry = scan_counts_of(node.params)
        if node.params["length"] == 0:
            ys = [lax.full(aval.shape, 0, aval.dtype) for aval in node.out_avals[num_carry:]]
            return [*node.args[num_consts : num_consts + num_carry], *ys]
        if node.params["length"] == 1:
            firsts = [jnp.squeeze(x, 0) for x in node.args[num_consts + num_carry :]]
            results = rewriter.evaluate(body.jaxpr, body.consts, [*node.args[: num_consts + num_carry], *firsts])
            return [*results[:num_carry], *(jnp.expand_dims(y, 0) for y in results[num_carry:])]
        return _again(rewriter, node, normalize(body))

    return rewrite(closed, rule)


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

    def go_on(consts: Sequence[Value], carried: Sequence[Value]) -> Value:
        (answer,) = jax.core.eval_jaxpr(cond.jaxpr, cond.consts, *consts, *carried)
        return answer

    def step(*args: Value) -> list[Value]:
        first, second = args[:num_cond], args[num_cond : num_cond + num_body]
        going, *carried = args[num_cond + num_body :]
        after = jax.core.eval_jaxpr(body.jaxpr, body.consts, *second, *carried)
        if not jnp.ndim(going):
            return [go_on(first, after), *after]
        after = [_where(going, new, old) for new, old in zip(after, carried)]
        return [jnp.logical_and(going, go_on(first, after)), *after]

    (going,) = rewriter.evaluate(cond.jaxpr, cond.consts, [*cond_consts, *start])
    operands = [*cond_consts, *body_consts, going, *start]
    inner = normalize(jax.make_jaxpr(step)(*map(jax.typeof, operands)))
    _, *results = rewriter.again(
        Node(repeat_p, {"jaxpr": inner, "num_consts": num_cond + num_body}, tuple(operands), tuple(inner.out_avals))
    )
    return results


def _where(going: Value, new: Value, old: Value) -> Value:
    extra = jnp.ndim(new) - jnp.ndim(going)
    return jnp.where(jnp.reshape(going, (*jnp.shape(going), *(1,) * extra)), new, old)


def _both_branches(rewriter: Rewriter, node: Node, normalize: Normalize) -> list[Value] | None:
    branches = [normalize(branch) for branch in node.params["branches"]]
    if any(eqn.primitive.name in (*LOOPS, "while", "cond") or eqn.effects for b in branches for eqn in b.jaxpr.eqns):
        return None
    index, *operands = node.args
    results = [rewriter.evaluate(branch.jaxpr, branch.consts, operands) for branch in branches]
    kind = np.dtype(jax.typeof(index).dtype)
    index = lax.clamp(kind.type(0), index, kind.type(len(branches) - 1)) if kind.kind != "b" else index
    merged = []
    for values in zip(*results):
        chosen = values[-1]
        for number in range(len(values) - 2, -1, -1):
            here = jnp.logical_not(index) if jax.typeof(index).dtype == bool else index == number
            chosen = jnp.where(here, values[number], chosen)
        merged.append(chosen)
    return merged
