"""Loops as their users write them, beside those of `tests/loop_programs`; their sizes are those of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import rnn as cudnn

from tests.contraction_programs import bodies
from tests.loop_programs.recurrent import lstm

# grids


def around(u: Any) -> Any:
    """The sum of the four neighbours less four times each; what leaves on one side comes in on the other."""
    return jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u


def inside(u: Any) -> Any:
    """The same, with zeros outside."""
    padded = jnp.pad(u, 1)
    return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * u


def heat(steps: int) -> Callable[..., Any]:
    def solve(u: Any) -> Any:
        return lax.scan(lambda u, _: (u + 0.2 * around(u), None), u, None, length=steps)[0]

    return solve


def gray_scott(steps: int) -> Callable[..., Any]:
    def solve(u: Any, v: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            u, v = state
            reaction = u * v * v
            u = u + 0.16 * around(u) - reaction + 0.046 * (1 - u)
            v = v + 0.08 * around(v) + reaction - (0.046 + 0.059) * v
            return (u, v), None

        return lax.scan(step, (u, v), None, length=steps)[0]

    return solve


def wave(steps: int) -> Callable[..., Any]:
    def solve(u: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            before, now = state
            return (now, 2 * now - before + 0.25 * inside(now)), None

        return lax.scan(step, (u, u), None, length=steps)[0][1]

    return solve


DIRECTIONS = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
SHARES = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)


def lattice_boltzmann(steps: int, rate: float = 1.2) -> Callable[..., Any]:
    """D2Q9: what moves in each of nine directions goes to the next place and nears equilibrium there."""

    def solve(f: Any) -> Any:
        ways = jnp.array(DIRECTIONS, f.dtype)
        shares = jnp.array(SHARES, f.dtype)[:, None, None]

        def step(f: Any, _: Any) -> Any:
            f = jnp.stack([jnp.roll(each, way, (0, 1)) for each, way in zip(f, DIRECTIONS)])
            density = f.sum(0)
            speed = jnp.einsum("qd,qxy->dxy", ways, f, precision="highest") / density
            along = 3 * jnp.einsum("qd,dxy->qxy", ways, speed, precision="highest")
            settled = shares * density * (1 + along + along**2 / 2 - 1.5 * (speed**2).sum(0))
            return f + rate * (settled - f), None

        return lax.scan(step, f, None, length=steps)[0]

    return solve


def conjugate_gradients(b: Any) -> Any:
    """Solves minus the five-point Laplacian of x = b, and counts its steps."""

    def unfinished(state: Any) -> Any:
        _, _, _, square, count = state
        return (square > 1e-10 * jnp.vdot(b, b)) & (count < 2000)

    def step(state: Any) -> Any:
        x, residual, direction, square, count = state
        moved = -inside(direction)
        size = square / jnp.vdot(direction, moved)
        x, residual = x + size * direction, residual - size * moved
        smaller = jnp.vdot(residual, residual)
        return x, residual, residual + smaller / square * direction, smaller, count + 1

    x, _, _, _, count = lax.while_loop(unfinished, step, (jnp.zeros_like(b), b, b, jnp.vdot(b, b), 0))
    return x, count


# points and matrices


def k_means(steps: int) -> Callable[..., Any]:
    def solve(points: Any, centres: Any) -> Any:
        def nearest(centres: Any) -> Any:
            return jnp.argmin((centres**2).sum(1) - 2 * points @ centres.T, axis=1)

        def step(centres: Any, _: Any) -> Any:
            chosen = jax.nn.one_hot(nearest(centres), centres.shape[0], dtype=points.dtype)
            return chosen.T @ points / jnp.maximum(chosen.sum(0), 1)[:, None], None

        centres, _ = lax.scan(step, centres, None, length=steps)
        return centres, nearest(centres)

    return solve


def floyd_warshall(lengths: Any) -> Any:
    def through(k: Any, lengths: Any) -> Any:
        return jnp.minimum(lengths, lengths[:, k][:, None] + lengths[k])

    return lax.fori_loop(0, lengths.shape[0], through, lengths)


def power_iteration(steps: int) -> Callable[..., Any]:
    def solve(a: Any, x: Any) -> Any:
        def step(_: Any, x: Any) -> Any:
            x = a @ x
            return x / jnp.linalg.norm(x)

        x = lax.fori_loop(0, steps, step, x)
        return x @ (a @ x)

    return solve


def n_body(steps: int, dt: float = 1e-3) -> Callable[..., Any]:
    def solve(x: Any, v: Any, mass: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, v = state
            v = v + dt * bodies(x, mass)
            return (x + dt * v, v), None

        return lax.scan(step, (x, v), None, length=steps)[0]

    return solve


def training(params: Any, images: Any, labels: Any) -> Any:
    """Gradient descent, a step for each batch."""

    def loss(params: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = params
        logits = jax.nn.relu(x @ w1 + b1) @ w2 + b2
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def step(params: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    return lax.scan(step, params, (images, labels))


# sequences


def gated_recurrence(gates: Any, x: Any) -> Any:
    def step(h: Any, now: Any) -> Any:
        gate, x = now
        keep = jax.nn.sigmoid(gate)
        h = keep * h + (1 - keep) * x
        return h, h

    return lax.scan(step, jnp.zeros_like(x[0]), (gates, x))[1]


def gated_recurrence_in_parallel(gates: Any, x: Any) -> Any:
    keep = jax.nn.sigmoid(gates)

    def after(one: Any, other: Any) -> Any:
        return one[0] * other[0], other[0] * one[1] + other[1]

    return lax.associative_scan(after, (keep, (1 - keep) * x))[1]


def lstm_of_heads(u: Any, b: Any, inputs: Any, h: Any) -> Any:
    """inputs: [steps, batch, heads, 4 units], multiplied by their weights before; u: [heads, units, 4 units]."""

    def step(carry: Any, x: Any) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(x + jnp.einsum("bhd,hde->bhe", h, u) + b, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (h, jnp.zeros_like(h)), inputs)[1]


def lstm_both_ways(layers: Any, xs: Any, h: Any) -> Any:
    """Each layer reads what the one before says, from both ends."""
    for onwards, back in layers:
        said = lstm(onwards, xs, h)[1], lstm(back, xs[::-1], h)[1][::-1]
        xs = jnp.concatenate(said, axis=-1)
    return xs


# the same by cuDNN


def packed(parts: Any) -> Any:
    """The weights of all layers and directions in cuDNN's order, which has two biases for each: ours, and zeros."""
    weights = [each for p in parts for each in (p["w"].T.ravel(), p["u"].T.ravel())]
    biases = [each for p in parts for each in (p["b"], jnp.zeros_like(p["b"]))]
    return jnp.concatenate([*weights, *biases])


def lstm_of_cudnn(params: Any, xs: Any, h: Any) -> Any:
    """Packing and transposes are part of it, since its arguments are those of the loop."""
    steps, batch, features = xs.shape
    lengths = jnp.full(batch, steps, jnp.int32)
    start = h[None], jnp.zeros_like(h[None])
    y, h, c = cudnn.lstm(xs.swapaxes(0, 1), *start, packed([params]), lengths, features, h.shape[-1], 1, 0.0, False)
    return (h[0], c[0]), y.swapaxes(0, 1)


def lstm_both_ways_of_cudnn(layers: Any, xs: Any, h: Any) -> Any:
    steps, batch, features = xs.shape
    lengths = jnp.full(batch, steps, jnp.int32)
    parts = [each for layer in layers for each in layer]
    start = jnp.broadcast_to(h, (len(parts), *h.shape))
    y, _, _ = cudnn.lstm(
        *(xs.swapaxes(0, 1), start, jnp.zeros_like(start), packed(parts), lengths),
        *(features, h.shape[-1], len(layers), 0.0, True),
    )
    return y.swapaxes(0, 1)
