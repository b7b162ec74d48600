"""Straight code of algorithms for `bench.planning`: much that is read at many places, or in slices of one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Made = tuple[Callable[..., Any], tuple[Any, ...]]


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def stacked_layers(layers: int) -> Made:
    """Layers whose weights are one array."""

    def fn(x: Any, ws: Any) -> Any:
        for n in range(layers):
            x = jnp.tanh(x @ ws[n])
        return x

    return fn, (f32(32, 64), f32(layers, 64, 64))


def links(count: int) -> Made:
    """Rotations of links, each read and written at its place in one array."""

    def fn(rotations: Any, places: Any, out: Any) -> Any:
        for n in range(count):
            i = n * 7 % 60
            out = out.at[i].add(rotations[i] @ places[i])
            rotations = rotations.at[i].set(jnp.sin(rotations[i]))
        return out, rotations

    return fn, (f32(60, 3, 3), f32(60, 3), f32(60, 3))


def exponential(size: int) -> Made:
    """Exponentials of matrices: products, and the elimination of a system."""
    return jax.vmap(jax.scipy.linalg.expm), (f32(64, size, size),)


def state_space(steps: int) -> Made:
    """A diagonal state space layer in the order of a tree."""

    def combine(one: Any, other: Any) -> Any:
        return one[0] * other[0], other[0] * one[1] + other[1]

    def fn(decay: Any, b: Any, x: Any) -> Any:
        driven = x @ b
        return lax.associative_scan(combine, (jnp.broadcast_to(decay, driven.shape), driven))[1] ** 2

    return fn, (f32(64), f32(32, 64), f32(steps, 32))


def kalman(steps: int) -> Made:
    """Kalman's filter in the order of a tree; each step inverts matrices of four rows."""

    def times(matrix: Any, vector: Any) -> Any:
        return (matrix @ vector[..., None])[..., 0]

    def combine(one: Any, other: Any) -> Any:
        (a, b, c, e, j), (f, g, h, p, q) = one, other
        eye = jnp.eye(4)
        before = f @ jnp.linalg.inv(eye + c @ q)
        after = a.T @ jnp.linalg.inv(eye + q @ c)
        state, variance = times(before, b + times(c, p)) + g, before @ c @ f.T + h
        return before @ a, state, variance, e + times(after, p - times(q, b)), j + after @ q @ a

    matrix, vector = f32(steps, 4, 4), f32(steps, 4)
    return lambda *given: lax.associative_scan(jax.vmap(combine), given), (matrix, vector, matrix, vector, matrix)
