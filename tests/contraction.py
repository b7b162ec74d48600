"""What a named program of contractions is: its function, small arguments, and how many kernels it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Contraction:
    name: str
    fn: Callable[..., Any]
    shapes: tuple[Any, ...]  # of the arguments: sizes, perhaps with a dtype, or trees of those
    kernels: int  # that it becomes, with `contractions="triton"`
    grad: int | tuple[int, ...] | None = None
    tolerance: float = 2e-5

    def whole(self) -> Callable[..., Any]:
        """The function, or its value and its gradients."""
        return self.fn if self.grad is None else jax.value_and_grad(self.fn, self.grad)

    def args(self, seed: int = 0) -> tuple[Any, ...]:
        rng = np.random.default_rng(seed)
        return tuple(jax.tree.map(lambda leaf: _drawn(leaf, rng), self.shapes, is_leaf=_is_leaf))

    def sizes(self) -> tuple[Any, ...]:
        """Its arguments without their elements."""
        return tuple(jax.tree.map(sized, self.shapes, is_leaf=_is_leaf))


def _is_leaf(shape: Any) -> bool:
    return isinstance(shape, str)


DTYPES = {
    **{"bool": jnp.bool, "i8": jnp.int8, "i32": jnp.int32, "u32": jnp.uint32},
    **{"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16},
}


def sized(spec: str) -> jax.ShapeDtypeStruct:
    """`bf16 4 5`: what an array has but its elements."""
    kind, *sizes = spec.split()
    return jax.ShapeDtypeStruct(tuple(map(int, sizes)), DTYPES[kind])


def spec_of(like: jax.ShapeDtypeStruct) -> str:
    """`bf16 4 5`, of what has such a type and such sizes."""
    (kind,) = (name for name, dtype in DTYPES.items() if dtype == like.dtype)
    return " ".join([kind, *map(str, like.shape)])


def _drawn(spec: str, rng: np.random.Generator) -> Any:
    like = sized(spec)
    if like.dtype == bool:
        return jnp.asarray(rng.random(like.shape) < 0.7)
    if jnp.issubdtype(like.dtype, jnp.integer):
        return jnp.asarray(rng.integers(0, 9, like.shape), like.dtype)
    return jnp.asarray(rng.standard_normal(like.shape) / 2, like.dtype)


def widened(array: jax.Array) -> jax.Array:
    """16-bit floats are compared with what f32 gives: XLA for CPUs may keep a long sum in 16 bits."""
    small = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize < 4
    return array.astype(jnp.float32) if small else array
