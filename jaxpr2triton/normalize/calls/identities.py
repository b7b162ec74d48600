"""Equations that return their operand → nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxpr2triton._compat import without_empty_sharding
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, has_type_of, rewrite


def drop_identities(closed: Closed) -> Closed:
    """Read the operand instead.

        b = stop_gradient a;  c = transpose[permutation=(0, 1)] b;  d = sin c   →   d = sin a

    Differentiation is over, so `stop_gradient`, `name` and `optimization_barrier` mean nothing any more. An identity is
    also: a conversion to the same dtype, a permutation that moves nothing, a reshape to the same shape, a slice of
    everything, a pad by nothing, a reduction over no axis, a concatenation of one. Left alone: conversions that change
    only the weak type of an output, and whatever says something about shardings or devices.
    """
    return rewrite(closed, _drop, _is_identity)


def _is_identity(eqn: Any) -> bool:
    if eqn.primitive.name not in IDENTITIES or not eqn.invars:
        return False
    return _returns_operand(eqn.primitive.name, without_empty_sharding(eqn.params), eqn.invars[0].aval)


def _drop(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if not node.args or not _returns_operand(node.name, node.params, jax.typeof(node.args[0])):
        return None
    kept = node.args[: len(node.out_avals)]
    return kept if all(map(has_type_of, kept, node.out_avals)) else None


def _returns_operand(name: str, params: Mapping[str, Any], operand: Any) -> bool:
    return name in IDENTITIES and IDENTITIES[name](params, operand)


def _always(params: Mapping[str, Any], operand: Any) -> bool:
    return True


def _no_axes(key: str) -> Callable[[Mapping[str, Any], Any], bool]:
    return lambda params, operand: not params[key]


def _same_shape(key: str) -> Callable[[Mapping[str, Any], Any], bool]:
    def check(params: Mapping[str, Any], operand: Any) -> bool:
        plain = params.get("sharding") is None and params.get("dimensions") is None
        return plain and tuple(params[key]) == operand.shape

    return check


def _same_dtype(params: Mapping[str, Any], operand: Any) -> bool:
    return params["new_dtype"] == operand.dtype and params["sharding"] is None


def _no_move(params: Mapping[str, Any], operand: Any) -> bool:
    return tuple(params["permutation"]) == tuple(range(operand.ndim))


def _everything(params: Mapping[str, Any], operand: Any) -> bool:
    strides = params["strides"] or (1,) * operand.ndim
    whole = not any(params["start_indices"]) and tuple(params["limit_indices"]) == operand.shape
    return whole and all(stride == 1 for stride in strides)


def _no_padding(params: Mapping[str, Any], operand: Any) -> bool:
    return not any(amount for amounts in params["padding_config"] for amount in amounts)


def _turns_nothing(params: Mapping[str, Any], operand: Any) -> bool:
    return all(operand.shape[axis] == 1 for axis in params["dimensions"])


def _no_precision_lost(params: Mapping[str, Any], operand: Any) -> bool:
    info = jnp.finfo(operand.dtype)
    return params["exponent_bits"] >= info.nexp and params["mantissa_bits"] >= info.nmant


def _stays_here(params: Mapping[str, Any], operand: Any) -> bool:
    return all(device is None for device in params["devices"])


IDENTITIES: Mapping[str, Callable[[Mapping[str, Any], Any], bool]] = {
    **dict.fromkeys(("stop_gradient", "copy", "copy_p", "name", "optimization_barrier"), _always),
    **dict.fromkeys(
        ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or"), _no_axes("axes")
    ),
    "reduce_xor": _no_axes("axes"),
    "squeeze": _no_axes("dimensions"),
    "convert_element_type": _same_dtype,
    "transpose": _no_move,
    "reshape": _same_shape("new_sizes"),
    "broadcast_in_dim": _same_shape("shape"),
    "dynamic_slice": _same_shape("slice_sizes"),
    "slice": _everything,
    "pad": _no_padding,
    "rev": _turns_nothing,
    "reduce_precision": _no_precision_lost,
    "device_put": _stays_here,
}
