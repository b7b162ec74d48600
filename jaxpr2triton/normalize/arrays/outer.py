"""Outer products → products, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from jax import lax

from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, named, primitive_names, rewrite


def multiplied(closed: Closed) -> Closed:
    """Write contractions that sum nothing as what they are, so that each element is one of its operands' lanes.

    c:f32[8,64,16] = dot_general[dimension_numbers=(([], []), ([0], [0]))] a:f32[8,64] b:f32[8,16]
        →    c = mul (broadcast_in_dim[broadcast_dimensions=(0, 1)] a) (broadcast_in_dim[…=(0, 2)] b)
    """
    return rewrite(closed, _product, named({"dot_general"})) if "dot_general" in primitive_names(closed) else closed


def _product(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    (summed, _), (left, right) = node.params["dimension_numbers"]
    if summed:
        return None
    aval, places = node.out_avals[0], len(left)
    spread = []
    for arg, batch in zip(node.args, (left, right)):
        at = {d: n for n, d in enumerate(batch)}
        for d in range(arg.ndim):
            if d not in at:
                at[d], places = places, places + 1
        wide = lax.convert_element_type(arg, aval.dtype)
        spread.append(_put(wide, aval.shape, [at[d] for d in range(arg.ndim)]))
    return [lax.mul(*spread)]


def _put(x: Value, shape: Sequence[int], places: Sequence[int]) -> Value:
    """The array with its dimensions at these places of a larger one."""
    order = sorted(range(x.ndim), key=lambda d: places[d])
    turned = x if order == list(range(x.ndim)) else lax.transpose(x, order)
    return lax.broadcast_in_dim(turned, shape, sorted(places))
