"""Axes of size 0 and 1: nothing to compute → constants and reshapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton._compat import varies_over_mesh
from jaxpr2triton.ir.dtypes import is_bool
from jaxpr2triton.ir.jaxprs import Closed
from jaxpr2triton.normalize.rewrite import Node, Rewriter, Value, is_plain, rewrite
from jaxpr2triton.rules.sweeps import TABLE as SWEEPS
from jaxpr2triton.rules.sweeps import axis_of


def fold_empty(closed: Closed) -> Closed:
    """No kernel needs to know that arrays can be empty.

        b:f32[0,4] = sin a                       →   b = broadcast_in_dim 0.0
        b:f32[4] = reduce_max[axes=(0,)] a       →   b = broadcast_in_dim -inf          (a:f32[0,4])
        b:f32[4] = reduce_sum[axes=(0, 2)] a     →   c = squeeze a;  b = reduce_sum c   (a:f32[8,4,1])
        b:f32[4,1] = cumsum[axis=1] a            →   b = a                              (a:f32[4,1])
        b:i32[4] = argmax[axes=(1,)] a           →   b = broadcast_in_dim 0             (a:f32[4,1])
        c:f32[4] = concatenate a b               →   c = b                              (a:f32[0])
        c:f32[4] = pad[padding_config=...] a b   →   c = broadcast_in_dim b             (a:f32[0])
        c:f32[4] = dot_general a b               →   c = broadcast_in_dim 0.0           (a:f32[4,0], b:f32[0])
        c:f32[4] = scatter a i b                 →   c = a                              (b:f32[0])

    Left alone: equations with effects, keys, and other primitives that make something of an empty array (`gather`,
    `reduce_window`, ...). A sum over an axis of size 1 keeps the sign of a zero, as XLA's does.
    """
    return rewrite(closed, _folded, _has_odd_sizes)


def _has_odd_sizes(eqn: Any) -> bool:
    for atom in (*eqn.invars, *eqn.outvars):
        for size in getattr(atom.aval, "shape", ()):
            if size <= 1:
                return True
    return False


def _folded(node: Node, rewriter: Rewriter) -> Sequence[Value] | None:
    if node.effects or not all(is_plain(aval.dtype) and not varies_over_mesh(aval) for aval in node.out_avals):
        return None
    if node.out_avals and all(aval.size == 0 for aval in node.out_avals):
        return [_full(aval, np.zeros((), aval.dtype)) for aval in node.out_avals]
    return SETTLED[node.name](node) if node.name in SETTLED else None


def _full(aval: Any, value: np.ndarray) -> Value:
    return lax.broadcast(np.asarray(value, aval.dtype)[()], aval.shape)


def _smallest(dtype: Any) -> np.ndarray:
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(-np.inf, dtype)
    return np.asarray(False if is_bool(dtype) else jnp.iinfo(dtype).min, dtype)


def _largest(dtype: Any) -> np.ndarray:
    if jnp.issubdtype(dtype, jnp.floating):
        return np.asarray(np.inf, dtype)
    return np.asarray(True if is_bool(dtype) else jnp.iinfo(dtype).max, dtype)


def _every_bit(dtype: Any) -> np.ndarray:
    return np.asarray(True, dtype) if is_bool(dtype) else ~np.zeros((), dtype)


def _zero(dtype: Any) -> np.ndarray:
    return np.zeros((), dtype)


def _one(dtype: Any) -> np.ndarray:
    return np.ones((), dtype)


def _reduction(identity: Callable[[Any], np.ndarray]) -> Callable[[Node], list[Value] | None]:
    return lambda node: _reduced(node, 0, identity(node.out_avals[0].dtype))


def _by_function(node: Node) -> list[Value] | None:
    """Of several operands, of which the result is one."""
    output = node.params["output"]
    return _reduced(node, output, np.asarray(node.params["empty"][output], node.out_avals[0].dtype))


def _reduced(node: Node, output: int, identity: np.ndarray) -> list[Value] | None:
    shape, axes = jnp.shape(node.args[0]), tuple(node.params["axes"])
    if any(shape[axis] == 0 for axis in axes):
        return [_full(node.out_avals[0], identity)]
    single = tuple(axis for axis in axes if shape[axis] == 1)
    if not single:
        return None
    squeezed = [lax.squeeze(arg, single) for arg in node.args]
    rest = tuple(axis - sum(gone < axis for gone in single) for axis in axes if axis not in single)
    if not rest:
        return [squeezed[output]]
    return [node.primitive.bind(*squeezed, **{**node.params, "axes": rest})]


def _only_index(node: Node) -> list[Value] | None:
    (axis,) = node.params["axes"]
    return (
        [_full(node.out_avals[0], np.zeros((), node.out_avals[0].dtype))]
        if jnp.shape(node.args[0])[axis] == 1
        else None
    )


def _swept(node: Node) -> list[Value] | None:
    return [node.args[node.params.get("output", 0)]] if jnp.shape(node.args[0])[axis_of(node)] == 1 else None


def _concatenate(node: Node) -> list[Value] | None:
    axis = node.params["dimension"]
    parts = [arg for arg in node.args if jnp.shape(arg)[axis]]
    return None if len(parts) == len(node.args) > 1 else [lax.concatenate(parts, axis)]


def _pad(node: Node) -> list[Value] | None:
    operand, padding = node.args
    return [lax.broadcast(padding, node.out_avals[0].shape)] if jax.typeof(operand).size == 0 else None


def _dot_general(node: Node) -> list[Value] | None:
    """The sum of no products."""
    return None if all(jax.typeof(arg).size for arg in node.args) else [_full(node.out_avals[0], np.zeros(()))]


def _write(update: int) -> Callable[[Node], list[Value] | None]:
    """Of an operand, at places where nothing is to be written."""
    return lambda node: None if jax.typeof(node.args[update]).size else [node.args[0]]


SETTLED: Mapping[str, Callable[[Node], list[Value] | None]] = {
    "reduce_sum": _reduction(_zero),
    "reduce_prod": _reduction(_one),
    "reduce_max": _reduction(_smallest),
    "reduce_min": _reduction(_largest),
    "reduce_and": _reduction(_every_bit),
    "reduce_or": _reduction(_zero),
    "reduce_xor": _reduction(_zero),
    "argmax": _only_index,
    "argmin": _only_index,
    "reduced": _by_function,
    **dict.fromkeys(SWEEPS, _swept),
    "concatenate": _concatenate,
    "pad": _pad,
    "dot_general": _dot_general,
    "dynamic_update_slice": _write(1),
    **dict.fromkeys(("scatter", *(f"scatter-{kind}" for kind in ("add", "mul", "min", "max", "sub"))), _write(2)),
}
