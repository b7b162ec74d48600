"""Loops whose state no program of a small device can hold, so that several share it out; and the same at full size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpr2triton import policy
from tests.policies import planned_with

F32 = np.float32


@contextmanager
def few_numbers_each(numbers: int = 14, programs: int = 8) -> Iterator[None]:
    """On a device of few processors, programs of which hold next to nothing; what that takes does not matter."""
    common = replace(policy.COMMON, programs_that_meet=2)
    with (
        mock.patch.object(policy, "COMMON", common),
        planned_with(
            target={"processors": programs},
            cuts={"carried": numbers / 65536, "held": 16 * numbers, "read_each_step": 16 * numbers},
            loops={"spread_pays": 1e12, "meeting_us": 0.0, "spilled_where_programs_meet": 1 << 20},
        ),
    ):
        yield


def laplacian(u: Any) -> Any:
    return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u


def gray_scott(u: Any, v: Any, steps: int) -> Any:
    def step(carry: Any, _: None) -> Any:
        u, v = carry
        uvv = u * v * v
        return (u + 0.16 * laplacian(u) - uvv + 0.06 * (1 - u), v + 0.08 * laplacian(v) + uvv - 0.122 * v), None

    return lax.scan(step, (u, v), None, length=steps)[0]


def recurrent(h: Any, w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h

    return lax.scan(step, h, xs)


def shortest_paths(d: Any) -> Any:
    def step(d: Any, k: Any) -> Any:
        return jnp.minimum(d, d[:, k][:, None] + d[k, :][None, :]), None

    return lax.scan(step, d, jnp.arange(d.shape[0]))[0]


def wave(u: Any, source: Any, receivers: Any) -> Any:
    def step(carry: Any, s: Any) -> Any:
        u, before = carry
        after = (2 * u - before + 0.1 * laplacian(u)).at[3, 4].add(s)
        return (after, u), after[receivers[0], receivers[1]]

    return lax.scan(step, (u, u), source)


def poisson(p: Any) -> Any:
    p = jnp.pad(p, 1)
    return 4.1 * p[1:-1, 1:-1] - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def conjugate_gradients(b: Any) -> Any:
    def go_on(carry: Any) -> Any:
        return (carry[3] > 1e-6) & (carry[4] < 60)

    def step(carry: Any) -> Any:
        x, r, p, square, k = carry
        q = poisson(p)
        length = square / jnp.sum(p * q)
        x, r = x + length * p, r - length * q
        after = jnp.sum(r * r)
        return x, r, r + after / square * p, after, k + 1

    x, _, _, square, k = lax.while_loop(go_on, step, (jnp.zeros_like(b), b, b, jnp.sum(b * b), 0))
    return x, square, k


def power_iteration(a: Any, x: Any) -> Any:
    def step(x: Any, _: None) -> Any:
        y = a @ x
        return y / jnp.sqrt(jnp.sum(y * y)), jnp.max(y)

    return lax.scan(step, x, None, length=9)


def lstm(h: Any, c: Any, u: Any, xs: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(h @ u + x, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, c), xs)


def bodies(x: Any, v: Any) -> Any:
    def step(carry: Any, _: None) -> Any:
        x, v = carry
        apart = x[None] - x[:, None]
        pull = (apart * lax.rsqrt((apart**2).sum(-1, keepdims=True) + 0.1) ** 3).sum(1)
        return (x + 0.01 * (v + 0.01 * pull), v + 0.01 * pull), None

    return lax.scan(step, (x, v), None, length=10)[0]


@dataclass(frozen=True)
class Spread:
    function: Callable[..., Any]
    small: Callable[[], tuple[Any, ...]]
    full: tuple[tuple[int, ...], ...]  # the shapes
    room: int = 14  # numbers that a small program holds
    differentiable: tuple[int, ...] = (0,)  # arguments

    def full_shapes(self) -> list[jax.ShapeDtypeStruct]:
        return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in self.full]


def _random(*shapes: tuple[int, ...], scale: float = 1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(7)
    return tuple((scale * rng.standard_normal(shape)).astype(F32) for shape in shapes)


def _positive(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(0.2 * abs(each) for each in _random(*shapes))


RECEIVERS = np.array([[1, 2, 9], [3, 4, 15]], np.int32)
PROGRAMS = {
    "gray_scott": Spread(
        lambda u, v: gray_scott(u, v, 6), lambda: _positive((16, 16), (16, 16)), ((512, 512), (512, 512)), 124, (0, 1)
    ),
    "recurrent": Spread(
        recurrent, lambda: _random((16,), (16, 16), (5, 16), scale=0.3), ((1024,), (1024, 1024), (1000, 1024)),
        differentiable=(0, 1, 2),
    ),
    "shortest_paths": Spread(shortest_paths, lambda: _positive((16, 16)), ((512, 512),), 62),
    "wave": Spread(
        lambda u, s: wave(u, s, RECEIVERS), lambda: _random((16, 16), (5,)), ((256, 256), (1000,)), 124, (0, 1)
    ),
    "conjugate_gradients": Spread(conjugate_gradients, lambda: _random((16, 16)), ((256, 256),), 124, ()),
    "power_iteration": Spread(
        power_iteration, lambda: _random((16, 16), (16,)), ((2048, 2048), (2048,)), differentiable=(0, 1)
    ),
    "lstm": Spread(
        lstm,
        lambda: _random((3, 16), (3, 16), (16, 64), (5, 3, 64), scale=0.3),
        ((1, 1024), (1, 1024), (1024, 4096), (1024, 1, 4096)),
        62,
        (0, 1, 2, 3),
    ),
    "bodies": Spread(bodies, lambda: _random((16, 3), (16, 3)), ((2048, 3), (2048, 3)), differentiable=(0, 1)),
}
