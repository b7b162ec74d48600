"""Powers by a known number of halves → roots and products: a general one takes five times as many instructions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from jaxpr2triton.normalize.rewrite import Rewriter, Value


def by_halves(base: Value, number: np.ndarray | None, rewriter: Rewriter) -> list[Value] | None:
    """The power by a number for which a few products of it, or of its root, are as exact.

        b = pow a 3.0    →   b = integer_pow[y=3] a
        b = pow a 1.5    →   b = select_n (eq a -inf) (abs (mul a (sqrt a))) inf
        b = pow a -1.5   →   b = select_n (eq a -inf) (abs (div (rsqrt a) a)) 0.0

    The root of -0.0 is -0.0, and that of -inf is none, but their powers are those of 0.0 and inf.
    """
    if number is None or not jnp.issubdtype(jax.typeof(base).dtype, jnp.floating):
        return None
    halves = 2 * float(number)
    if not halves.is_integer() or not 0 < abs(halves) <= policy.COMMON.halves:
        return None
    if halves % 2 == 0:
        return rewriter.expand(lax.integer_pow, [base], y=int(halves) // 2)
    return rewriter.expand(_of_root, [base], halves=int(halves))


def _of_root(x: jax.Array, *, halves: int) -> jax.Array:
    factor = lax.integer_pow(x, abs(halves) // 2)
    whole = factor * lax.sqrt(x) if halves > 0 else lax.rsqrt(x) / factor
    return jnp.where(x == -np.inf, jnp.asarray(np.inf if halves > 0 else 0.0, x.dtype), lax.abs(whole))
