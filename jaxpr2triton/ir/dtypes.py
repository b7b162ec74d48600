"""JAX dtypes, the way kernels hold them.

f16 and bf16 values are held as f32 inside a kernel and rounded when they are stored or explicitly converted; every
other dtype is held as itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpr2triton.errors import WhyNot

_TRITON = {
    "bool": "int1",
    "bfloat16": "bfloat16",
    **{name: name for name in ("float16", "float32", "float64")},
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

NAMES: dict[str, Any] = {  # as JAX prints them
    "bool": jnp.bool_,
    "bf16": jnp.bfloat16,
    **{f"f{bits}": getattr(jnp, f"float{bits}") for bits in (16, 32, 64)},
    **{f"i{bits}": getattr(jnp, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": getattr(jnp, f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"c{bits}": getattr(jnp, f"complex{bits}") for bits in (64, 128)},
}
_SHORT_NAMES = {np.dtype(dtype): short for short, dtype in NAMES.items()}


@cache
def unsupported(dtype: Any) -> WhyNot | None:
    """Why values of this dtype cannot live in a kernel; None if they can."""
    if str(dtype) in _TRITON:
        return None
    takes = "it would have to be two arrays of real numbers" if jnp.issubdtype(dtype, jnp.complexfloating) else ""
    return WhyNot(f"the dtype {dtype} is not supported in a kernel", takes)


def triton_name(dtype: Any) -> str:
    """float32 → tl.float32, bool → tl.int1."""
    return f"tl.{_TRITON[str(dtype)]}"


def working_dtype(dtype: Any) -> np.dtype:
    """The dtype in which a kernel computes with values of `dtype`."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype.itemsize == 2 and is_float(dtype) else dtype


@cache
def is_float(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def is_bool(dtype: Any) -> bool:
    return np.dtype(dtype) == np.bool_


def is_signed(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.signedinteger))


def is_unsigned(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.unsignedinteger))


def with_sign(dtype: Any, most: int = 0) -> str:
    """The dtype in which to go on computing places up to `most` from a number without a sign; nothing if it has one."""
    bits = max(8 * np.dtype(dtype).itemsize, 32 if most < 1 << 31 else 64)
    return f"int{bits}" if is_unsigned(dtype) else ""


@cache
def kind(dtype: Any) -> str:
    """float, int, uint or bool."""
    if is_float(dtype):
        return "float"
    if is_bool(dtype):
        return "bool"
    return "uint" if is_unsigned(dtype) else "int"


@cache
def threefry_keys() -> Any:
    """The dtype of keys of JAX's default kind."""
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype


def short_name(dtype: Any) -> str:
    """float32 → f32; a key's dtype → key."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return "key"
    return _SHORT_NAMES.get(np.dtype(dtype), str(dtype))
