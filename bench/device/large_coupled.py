"""Loops in whose steps all elements meet, or neighbours do: one program of a kernel would have to hold them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from bench.device.large_entries import Drawn, Host, Large, Row, Work, normal, uniform
from bench.device.large_loops import around
from tests.loop_programs.base import keys
from tests.programs import Rng

Solver = Callable[..., Any]


def transported(steps: int, blur: float = 0.5) -> Solver:
    """The cost of moving one cloud of points to another, by Sinkhorn's iterations of logarithms."""

    def solve(x: Any, y: Any) -> Any:
        cost = ((x[:, None] - y[None]) ** 2).sum(-1)
        share = jnp.log(1.0 / x.shape[0])

        def step(potentials: Any, _: Any) -> Any:
            f, g = potentials
            f = blur * (share - logsumexp((g[None] - cost) / blur, axis=1))
            g = blur * (share - logsumexp((f[:, None] - cost) / blur, axis=0))
            return (f, g), None

        (f, g), _ = lax.scan(step, (jnp.zeros(x.shape[0]), jnp.zeros(y.shape[0])), None, length=steps)
        return (jnp.exp((f[:, None] + g[None] - cost) / blur) * cost).sum()

    return solve


def optical_flow(steps: int, window: int = 2) -> Solver:
    """Lucas and Kanade's: where the surroundings of each pixel have moved to, step by step."""

    def summed(u: Any) -> Any:
        size = 2 * window + 1
        return lax.reduce_window(u, 0.0, lax.add, (size, size), (1, 1), "SAME")

    def at(image: Any, rows: Any, columns: Any) -> Any:
        height, width = image.shape
        top, left = jnp.floor(rows), jnp.floor(columns)
        below, right = rows - top, columns - left
        i, j = top.astype(jnp.int32), left.astype(jnp.int32)

        def pixel(i: Any, j: Any) -> Any:
            return image[jnp.clip(i, 0, height - 1), jnp.clip(j, 0, width - 1)]

        upper = (1 - right) * pixel(i, j) + right * pixel(i, j + 1)
        return (1 - below) * upper + below * ((1 - right) * pixel(i + 1, j) + right * pixel(i + 1, j + 1))

    def solve(first: Any, second: Any) -> Any:
        height, width = first.shape
        rows, columns = jnp.meshgrid(jnp.arange(height) * 1.0, jnp.arange(width) * 1.0, indexing="ij")
        down, along = jnp.gradient(first)
        a, b, c = summed(down * down) + 1e-3, summed(down * along), summed(along * along) + 1e-3

        def step(flow: Any, _: Any) -> Any:
            error = first - at(second, rows + flow[0], columns + flow[1])
            p, q = summed(down * error), summed(along * error)
            return flow + jnp.stack([c * p - b * q, a * q - b * p]) / (a * c - b * b), None

        return lax.scan(step, jnp.zeros((2, height, width)), None, length=steps)[0]

    return solve


def chequered(shape: tuple[int, ...]) -> Any:
    return (jnp.arange(shape[-2])[:, None] + jnp.arange(shape[-1])) % 2


def potts(steps: int, colours: int, coupling: float = 1.2) -> Solver:
    """Gibbs sampling, the black squares before the white ones; the share of the first colour after each step."""

    def solve(spins: Any, key: Any) -> Any:
        def step(spins: Any, key: Any) -> Any:
            for side, each in enumerate(jax.random.split(key)):
                seen = jax.nn.one_hot(spins, colours)
                drawn = jax.random.categorical(each, coupling * (around(seen) + 4 * seen))
                spins = jnp.where(chequered(spins.shape) == side, drawn.astype(spins.dtype), spins)
            return spins, (spins == 0).mean()

        return lax.scan(step, spins, jax.random.split(key, steps))

    return solve


def ising(steps: int) -> Solver:
    """Metropolis, the black squares before the white ones, of lattices at several temperatures."""

    def solve(spins: Any, inverse: Any, key: Any) -> Any:
        def step(spins: Any, key: Any) -> Any:
            for side, each in enumerate(jax.random.split(key)):
                field = jax.vmap(around)(spins) + 4 * spins
                turns = jax.random.uniform(each, spins.shape) < jnp.exp(-2 * inverse[:, None, None] * spins * field)
                spins = jnp.where(turns & (chequered(spins.shape) == side), -spins, spins)
            return spins, spins.mean((1, 2))

        return lax.scan(step, spins, jax.random.split(key, steps))

    return solve


def fluid(steps: int, reach: float = 0.1, dt: float = 1e-3) -> Solver:
    """Smoothed particles in a box: each is pushed by all that are near."""

    def solve(x: Any, v: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, v = state
            away = x[:, None] - x[None]
            distance = jnp.sqrt((away * away).sum(-1) + 1e-9)
            near = jnp.maximum(1 - distance / reach, 0.0)
            density = (near**3).sum(1)
            pressure = jnp.maximum(10 * (density - 1), 0.0) / density**2
            pushed = 3 * near**2 / (reach * distance) * (pressure[:, None] + pressure[None])
            v = v + dt * ((pushed[:, :, None] * away).sum(1) + jnp.array([0.0, -9.8]))
            x = x + dt * v
            return (jnp.clip(x, 0, 1), jnp.where((x < 0) | (x > 1), -0.5 * v, v)), None

        return lax.scan(step, (x, v), None, length=steps)[0]

    return solve


def cloth(steps: int, dt: float = 1e-3) -> Solver:
    """A net of springs that hangs from its first row."""

    def solve(x: Any, stiffness: Any) -> Any:
        size = x.shape[0]

        def step(state: Any, _: Any) -> Any:
            x, v = state
            force = jnp.zeros_like(x).at[..., 2].set(-9.8)
            for down, along, times in ((1, 0, 1.0), (0, 1, 1.0), (1, 1, 2**0.5)):
                spring = x[down:, along:] - x[: size - down, : size - along]
                length = jnp.sqrt((spring * spring).sum(-1, keepdims=True) + 1e-12)
                pull = stiffness * (length - times / size) * spring / length
                force = force.at[: size - down, : size - along].add(pull).at[down:, along:].add(-pull)
            v = ((v + dt * force) * 0.99).at[0].set(0.0)
            return (x + dt * v, v), None

        return lax.scan(step, (x, jnp.zeros_like(x)), None, length=steps)[0]

    return solve


# at sizes


def points(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((normal(size, 3), normal(size, 3)))
    name, told = f"Sinkhorn of {size} points", f"{steps} steps of logarithms, f32"
    yield from Work(name, transported(steps), arguments, (0, 1), sizes=told).both_ways()


def images(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.0, 1.0, size, size), uniform(0.0, 1.0, size, size)))
    name, told = f"Lucas Kanade {size} by {size}", f"{steps} steps, f32"
    yield from Work(name, optical_flow(steps), arguments, (0, 1), sizes=told).both_ways()


def colours(size: int, count: int, steps: int) -> Iterator[Large]:
    def drawn(rng: Rng) -> tuple[Any, ...]:
        return rng.integers(0, count, (size, size)).astype("int32"), keys(1)(rng)[0][0]

    name, told = f"Potts {size} by {size}", f"{count} colours, {steps} steps"
    yield Work(name, potts(steps, count), Host(drawn), sizes=told).forward()


def lattices(count: int, size: int, steps: int) -> Iterator[Large]:
    def drawn(rng: Rng) -> tuple[Any, ...]:
        spins = rng.choice([-1.0, 1.0], (count, size, size)).astype("float32")
        return spins, rng.uniform(0.2, 0.8, count).astype("float32"), keys(1)(rng)[0][0]

    name, told = f"Ising {size} by {size}", f"{count} lattices, {steps} steps, f32"
    yield Work(name, ising(steps), Host(drawn), sizes=told).forward()


def particles(count: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.0, 1.0, count, 2), normal(count, 2, scale=0.1)))
    yield Work(f"fluid of {count} particles", fluid(steps), arguments, sizes=f"{steps} steps, f32").forward()


def springs(size: int, steps: int) -> Iterator[Large]:
    arguments = Drawn((uniform(0.0, 1.0, size, size, 3), uniform(500.0, 501.0)))
    name, told = f"cloth {size} by {size}", f"{steps} steps, f32"
    yield from Work(name, cloth(steps), arguments, (0, 1), sizes=told).both_ways()


ROWS = (
    Row(points, (256, 10), (6, 3)),
    Row(images, (128, 20), (8, 2)),
    Row(colours, (64, 5, 50), (6, 3, 2)),
    Row(lattices, (32, 128, 100), (2, 6, 3)),
    Row(particles, (512, 50), (7, 3)),
    Row(springs, (64, 200), (5, 3)),
)
