"""Arithmetic with two numbers in the place of one: what rounding loses is kept beside each result."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from examples.algorithms.entry import Algorithm, Arguments, f32


def two_sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """a + b, rounded, and what rounding lost."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def two_product(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """a * b as two numbers: both are cut into halves of 12 bits, whose products are exact.

    So it makes no difference where a compiler takes a product and a sum for one instruction.
    """

    def halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        bits = lax.bitcast_convert_type(x, jnp.uint32) & jnp.uint32(0xFFFFF000)
        high = lax.bitcast_convert_type(bits, jnp.float32)
        return high, x - high

    (high_a, low_a), (high_b, low_b) = halves(a), halves(b)
    product, lost = two_sum(high_a * high_b, high_a * low_b)
    product, more = two_sum(product, low_a * high_b)
    return two_sum(product, lost + more + low_a * low_b)


def neumaier(terms: jax.Array) -> jax.Array:
    """The sum of each column; what an addition loses, of the total or of the term, is added up beside it."""

    def add(carry: tuple[jax.Array, jax.Array], term: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        total, lost = carry
        after = total + term
        lost_now = jnp.where(jnp.abs(total) >= jnp.abs(term), (total - after) + term, (term - after) + total)
        return (after, lost + lost_now), None

    zeros = jnp.zeros_like(terms[0])
    (total, lost), _ = lax.scan(add, (zeros, zeros), terms)
    return total + lost


def horner(coefficients: jax.Array, x: jax.Array) -> jax.Array:
    """A polynomial, as good as in twice the precision: what each step of Horner's loses is a polynomial."""

    def step(carry: tuple[jax.Array, jax.Array], coefficient: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        value, lost = carry
        product, of_product = two_product(value, x)
        value, of_sum = two_sum(product, coefficient)
        return (value, lost * x + (of_product + of_sum)), None

    zeros = jnp.zeros_like(x)
    (value, lost), _ = lax.scan(step, (zeros, zeros), coefficients)
    return value + lost


def mandelbrot(c: jax.Array, *, most: int) -> jax.Array:
    """How many steps a point of the plane takes to leave; both of its coordinates are two numbers each."""

    def add(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        total, lost = two_sum(a[0], b[0])
        return two_sum(total, lost + a[1] + b[1])

    def multiply(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        product, lost = two_product(a[0], b[0])
        return two_sum(product, lost + a[0] * b[1] + a[1] * b[0])

    def inside(state: tuple) -> jax.Array:
        count, x, y = state
        return (count < most) & (x[0] * x[0] + y[0] * y[0] < 4.0)

    def step(state: tuple) -> tuple:
        count, x, y = state
        xx, yy, xy = multiply(x, x), multiply(y, y), multiply(x, y)
        x = add(add(xx, (-yy[0], -yy[1])), (c[0], c[1]))
        return count + 1, x, add((2 * xy[0], 2 * xy[1]), (c[2], c[3]))

    zero = jnp.zeros_like(c[0])
    return lax.while_loop(inside, step, (0, (zero, zero), (zero, zero)))[0]


def _cancelling(rng: np.random.Generator) -> Arguments:
    """Large terms that leave little, in an order that a plain sum loses it by."""
    large = rng.normal(size=(20, 3)) * 10.0 ** rng.integers(0, 8, (20, 3))
    return (rng.permuted(np.concatenate([large, -large, rng.normal(size=(10, 3))]), axis=0).astype(np.float32),)


def _near_a_root(rng: np.random.Generator) -> Arguments:
    """(x - 3/4)^5 (x + 1)^2, where it is nearly zero."""
    coefficients = np.poly([0.75] * 5 + [-1.0] * 2)
    return coefficients.astype(np.float32), (0.75 + rng.normal(size=7) / 4).astype(np.float32)


def _near_the_edge(rng: np.random.Generator) -> Arguments:
    """A place of the seahorse valley that one f32 does not tell from its neighbours."""
    place = np.array([-0.7436447860, 0.1318252536]) + rng.normal(size=2) * 1e-9
    high = place.astype(np.float32)
    low = (place - high).astype(np.float32)
    return (np.array([high[0], low[0], high[1], low[1]]),)


ALGORITHMS = (
    Algorithm(neumaier, small=_cancelling, realistic=(f32(4096, 4096),), by=(0,), along=(0,)),
    Algorithm(
        horner,
        small=_near_a_root,
        realistic=(f32(32), f32()),
        by=(0, 1),
        along=(None, 0),
        lanes=1 << 20,
    ),
    Algorithm(
        mandelbrot,
        small=_near_the_edge,
        realistic=(f32(4),),
        few={"most": 60},
        many={"most": 5000},
        why_no_gradient="it counts",
        along=(0,),
        lanes=1 << 20,
    ),
)
