"""Primitives that Triton has no word for → those that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxpr2triton._compat import CALLS
from jaxpr2triton.ir.dtypes import unsupported
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.ir.region import library_convolution_p
from jaxpr2triton.normalize.calls.inline import inline_call
from jaxpr2triton.normalize.numbers.powers import by_halves
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, constant, named, primitive_names, rewrite, splat
from jaxpr2triton.rules.written import folds, linalg, pools, ranks, sorts
from jaxpr2triton.rules.written.convolutions import CONVOLUTION, convolution
from jaxpr2triton.rules.written.decompose import DECOMPOSITIONS

POWER = "pow"


def decompose(closed: Closed) -> Closed:
    """Put the functions of `rules/written/` in the place of their primitives, until none is left.

        b = integer_pow[y=3] a   →   c = mul a a;  b = mul a c
        b = pow a -0.5           →   c = rsqrt a;  b = … (`powers.py`)

    What a function writes is decomposed in turn, and calls in it are inlined. Left alone: dtypes of no kernel, large
    matrices.
    """
    names = DECOMPOSITIONS.keys() | WHOLE.keys() | {POWER, "reduce"}
    return rewrite(closed, _decompose, named(names | CALLS)) if primitive_names(closed) & names else closed


def decompose_inside(closed: Closed) -> Closed:
    """For bodies of loops: sorts and running sums of short axes, too, and convolutions.

        b:f32[9] = cumsum[axis=0] a   →   b = reduce_sum[axes=(0,)] (select_n (le iota iota) 0.0 (broadcast_in_dim a))

    Elsewhere they stay with XLA, which is better at long ones; a loop would stay with them. Left alone: long axes.
    """
    names = ranks.TABLE.keys() | {CONVOLUTION}
    return rewrite(closed, _decompose_inside, named(names | CALLS)) if primitive_names(closed) & names else closed


def _decompose_inside(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.name == CONVOLUTION:
        return convolved(node, rewriter)
    if node.name not in ranks.TABLE:
        return inline_call(node, rewriter)
    shape = node.out_avals[0].shape
    if any(unsupported(aval.dtype) for aval in node.out_avals) or not ranks.is_short(node.name, shape, node.params):
        return None
    args = [jnp.broadcast_to(arg, shape) if jnp.shape(arg) != shape else arg for arg in node.args]
    return rewriter.expand(ranks.TABLE[node.name], args, **node.params)


def convolved(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    """A convolution as a contraction; for what loops run, and where it is not left to a library."""
    if node.primitive is library_convolution_p:
        return None
    if any(unsupported(aval.dtype) for aval in (*map(jax.typeof, node.args), *node.out_avals)):
        return None
    return rewriter.expand(convolution, node.args, shape=node.out_avals[0].shape, **node.params)


def _decompose(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.name == "reduce":
        return _reduced(node)
    if node.name in WHOLE:
        family, may_be = WHOLE[node.name]
        return rewriter.expand(family[node.name], node.args, **node.params) if may_be(node) else None
    if node.name not in DECOMPOSITIONS and node.name != POWER:
        return inline_call(node, rewriter)
    if any(unsupported(jax.typeof(arg).dtype) for arg in node.args):
        return None
    params = {key: value for key, value in node.params.items() if key != "accuracy" and value is not None}
    shape = node.out_avals[0].shape
    args = [jnp.broadcast_to(arg, shape) if jax.typeof(arg).shape != shape else arg for arg in node.args]
    if node.name == POWER:
        return by_halves(args[0], splat(node.args[1], rewriter), rewriter)
    return rewriter.expand(DECOMPOSITIONS[node.name], args, **params)


def _reduced(node: Node) -> Sequence[Value] | None:
    operands, starts = node.args[: len(node.out_avals)], [constant(each) for each in node.args[len(node.out_avals) :]]
    if any(unsupported(jax.typeof(each).dtype) for each in operands) or folds.why_not(starts, node.params) is not None:
        return None
    return folds.reduce(operands, starts, node.params)


def _are_small_matrices(node: Node) -> bool:
    avals = [jax.typeof(arg) for arg in node.args]
    return linalg.why_not(node.name, [aval.shape for aval in avals], avals[0].dtype, node.params) is None


def _are_windows(node: Node) -> bool:
    avals = [*map(jax.typeof, node.args), *node.out_avals]
    if any(unsupported(aval.dtype) or 0 in aval.shape for aval in avals):
        return False
    return pools.why_not(node.name, [aval.shape for aval in avals], node.params) is None


def _are_short_rows(node: Node) -> bool:
    avals = [*map(jax.typeof, node.args), *node.out_avals]
    if any(unsupported(aval.dtype) for aval in avals) or len({jnp.shape(arg) for arg in node.args}) > 1:
        return False
    return sorts.why_not(node.name, jnp.shape(node.args[0]), node.params) is None


# What is about whole arrays: the function for each primitive, and whether that is there for these operands.
WHOLE: Mapping[str, tuple[Mapping[str, Callable[..., Any]], Callable[[Node], bool]]] = {
    **dict.fromkeys(linalg.TABLE, (linalg.TABLE, _are_small_matrices)),
    **dict.fromkeys(pools.TABLE, (pools.TABLE, _are_windows)),
    **dict.fromkeys(sorts.TABLE, (sorts.TABLE, _are_short_rows)),
}
