"""Whether a program is right: on the device that is here, against JAX on the CPU or in the highest precision."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxpr2triton as j2t
from bench.device.cases import NARROW, Case

LEAST = 1e-2  # gradients that are zero but for rounding are compared with this


def on_the_cpu(case: Case) -> tuple[float, float | None]:
    """How far the kernels are from JAX on the CPU, of the largest value, and how far they may be.

    Every product is a kernel, in full precision, as XLA's library is not what is looked at.
    """
    # else a device rounds what it multiplies to ten bits
    with case.context(), jax.default_matmul_precision("highest"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left over is no concern here
        args = case.arguments()
        cpu = jax.devices("cpu")[0]
        expected = leaves(jax.jit(case.function)(*jax.device_put(case.reference(args), cpu)))
        fused = jax.jit(j2t.fuse(case.function, backend="triton", contractions="triton"))
        found = leaves(fused(*jax.device_put(args, jax.devices()[0])))
    shapes = [[each.shape for each in some] for some in (found, expected)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"shapes {shapes[0]} instead of {shapes[1]}")
    narrow = any(each.dtype.itemsize == 2 for each in (*jax.tree.leaves(args), *expected))
    allowed = case.allowed if case.allowed is None or not narrow else max(case.allowed, NARROW)
    return largest_error(found, expected), allowed


def largest_error(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """Of all arrays, of each of which the largest value counts as one; nan where a number is missing."""
    errors = [0.0]
    for one, other in zip(found, expected, strict=True):
        one, other = (np.asarray(each, None if each.dtype.kind == "c" else np.float64) for each in (one, other))
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        scale = max(float(np.abs(other).max(initial=0.0, where=np.isfinite(other))), LEAST)
        with np.errstate(invalid="ignore"):
            errors.append(float(np.abs(np.where(same, 0, one - other)).max(initial=0.0)) / scale)
    return float(np.max(errors))


def leaves(tree: Any) -> list[np.ndarray]:
    """Keys as the numbers that they are."""
    return [
        np.asarray(jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in jax.tree.leaves(tree)
        if leaf.dtype != jax.dtypes.float0
    ]


def distance(found: Any, exact: Any) -> float:
    """The largest of all results' distances from what is right, each relative to its size; computed on the device."""
    distances = [0.0]
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True):
        if other.dtype == jax.dtypes.float0 or not other.size:
            continue
        if jax.dtypes.issubdtype(other.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        distances.append(float(_distance(one, other)))
    return float(np.max(distances))


@jax.jit
def _distance(one: jax.Array, other: jax.Array) -> jax.Array:
    wide = jnp.promote_types(other.dtype, jnp.float32)
    one, other = one.astype(wide), other.astype(wide)
    same = (one == other) | (jnp.isnan(one) & jnp.isnan(other))
    size = jnp.linalg.norm(jnp.where(jnp.isfinite(other), other, 0))
    least = LEAST * np.sqrt(other.size)
    return jnp.linalg.norm(jnp.where(same, 0, one - other)) / jnp.maximum(size, least)
